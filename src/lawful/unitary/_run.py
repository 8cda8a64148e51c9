"""Drivers of a recurrence over a sequence: on sites with autograd, and on modes."""

import torch
from torch import Tensor

from lawful.unitary._cell import Cell
from lawful.unitary._operators import BlockOperator, PairOperator, PhaseOperator
from lawful.unitary._scan import frame_scan, loop_scan, turns

__all__ = ["run_linear", "run_stored"]

_STRETCH = 2**18  # field entries driven, scanned and read at a time, to stay in cache
_FRAME_FROM = 1024  # steps from which the rotating frame is worth its time


def _stretch(z: Tensor, steps: int) -> int:
    return max(1, min(steps, 256, max(8, _STRETCH // max(1, z.numel()))))


def run_stored(
    cell: Cell, x: Tensor, z: Tensor, alive: Tensor | None, tensors: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor]:
    """Step after step, autograd keeping what it needs.

    Args:
        cell: The step.
        x: (T, B, ...).
        z: First state, inner form.
        alive: (T, B, 1, ...) bool or None.
        tensors: All tensors of the step.

    Returns:
        What is read, (T, B, ...), and the last state.
    """
    op, act, maps, reads = cell.split(tensors)
    operator = cell.rebuilt(op)
    outs, step = [], _stretch(z, len(x))
    for begin in range(0, len(x), step):
        states = []
        for n, drive in enumerate(cell.drive(x[begin : begin + step], maps).unbind(0), begin):
            after = cell.activation.run(operator.turn(z) + drive, act)
            z = after if alive is None else torch.where(alive[n], after, z)
            states.append(z)
        outs.append(cell.read(torch.stack(states), reads))
    return torch.cat(outs), z


def _modes_scan(cell: Cell, z: Tensor, drive: Tensor, turn: Tensor | None) -> Tensor:
    operator = cell.operator
    if turn is not None:
        assert isinstance(operator, PhaseOperator | PairOperator)
        assert operator.angle is not None
        return frame_scan(operator.angle, z, drive, turn[: len(drive)])
    if isinstance(operator, BlockOperator):
        return loop_scan(operator.u, z, drive, blocks=True)
    if isinstance(operator, PhaseOperator):
        return loop_scan(operator.u, z, drive, blocks=False)
    assert isinstance(operator, PairOperator)
    if operator.beta is None:
        return loop_scan(operator.alpha, z, drive, blocks=False)
    states = []
    for now in drive.unbind(0):
        z = operator.modes(z) + now
        states.append(z)
    return torch.stack(states)


def run_linear(
    cell: Cell,
    x: Tensor,
    z: Tensor,
    lengths: Tensor | None,
    tensors: tuple[Tensor, ...],
    *,
    scan: str,
) -> tuple[Tensor, Tensor]:
    """A recurrence without activation, on modes from beginning to end.

    Profiles are transformed once, so that neither inputs nor features cost an FFT per step; input
    or output fields cost one each. The carried state is in double precision.

    Returns:
        What is read, (T, B, ...), and the state after the last valid step.
    """
    operator = cell.operator
    assert isinstance(operator, PhaseOperator | PairOperator | BlockOperator)
    transform = operator.transform
    _, _, maps, reads = cell.split(tensors)
    if cell.input_map == "profile":
        maps = (transform.forward(maps[0]),)
    if cell.reads:
        weights = transform.weights(z.device)
        profile = transform.forward(reads[0])
        reads = (profile if weights is None else profile * weights.to(profile.dtype), reads[1])
    step = _stretch(z, len(x))
    angle = None if isinstance(operator, BlockOperator) else operator.angle
    wanted = scan == "frame" or (scan == "auto" and len(x) >= _FRAME_FROM)
    z = transform.forward(z)
    turn = None
    if angle is not None and wanted:
        turn = turns(angle, step, z.dtype)
    outs, last = [], z
    for begin in range(0, len(x), step):
        drive = cell.drive(x[begin : begin + step], maps)
        if cell.input_map != "profile":
            drive = transform.forward(drive)
        states = _modes_scan(cell, z, drive, turn)
        z = states[-1]
        last = z if lengths is None else _at(last, states, begin, lengths)
        outs.append(cell.read(states if cell.reads else transform.backward(states), reads))
    return torch.cat(outs), transform.backward(last)


def _at(last: Tensor, states: Tensor, begin: int, lengths: Tensor) -> Tensor:
    """``last`` with the states of the sequences that end within this stretch."""
    index = lengths.to(last.device) - 1 - begin
    inside = (index >= 0) & (index < len(states))
    rows = torch.arange(len(index), device=last.device)
    picked = states[index.clamp(0, len(states) - 1), rows]
    return torch.where(inside.view(-1, *[1] * (last.ndim - 1)), picked, last)
