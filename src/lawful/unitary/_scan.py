"""The linear recurrence z_n = u z_{n-1} + I_n on modes: step by step, or in a rotating frame."""

import math
from typing import Any

import torch
from torch import Tensor

from lawful.unitary._operators import _outer, block_modes, phase_modes

__all__ = ["frame_scan", "loop_scan"]


class _LoopScan(torch.autograd.Function):
    """Step by step. Backward is the same recurrence run back with the adjoint."""

    @staticmethod
    def forward(u: Tensor, start: Tensor, drive: Tensor, blocks: bool) -> Tensor:
        product = block_modes if blocks else phase_modes
        out = torch.empty_like(drive)
        z = start
        for n in range(len(drive)):
            z = torch.add(product(u, z), drive[n], out=out[n])
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        u, start, _, ctx.blocks = inputs
        ctx.save_for_backward(u, start, output)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        u, start, states = ctx.saved_tensors
        product = block_modes if ctx.blocks else phase_modes
        flow = torch.empty_like(g)
        flow[-1] = g[-1]
        for n in range(len(g) - 2, -1, -1):
            torch.add(product(u, flow[n + 1], True), g[n], out=flow[n])
        g_u = None
        if ctx.needs_input_grad[0]:
            before = torch.cat([start[None], states[:-1]])
            g_u = _outer(u, flow.flatten(0, 1), before.flatten(0, 1), ctx.blocks)
        return g_u, product(u, flow[0], True), flow, None


def loop_scan(u: Tensor, start: Tensor, drive: Tensor, *, blocks: bool) -> Tensor:
    r"""All states of the recurrence.

    Args:
        u: Phases (C, \*modes) or packed matrices.
        start: z_0, (B, C, \*modes).
        drive: I_1 .. I_T, (T, B, C, \*modes).
        blocks: Whether ``u`` holds matrices.

    Returns:
        z_1 .. z_T. Rounding grows like T (see the guide); `frame_scan` avoids that.
    """
    out: Tensor = _LoopScan.apply(u, start, drive, blocks)  # type: ignore[no-untyped-call]
    return out


def turns(angle: Tensor, steps: int, dtype: torch.dtype) -> Tensor:
    """e^{i n angle} for n = 1 .. steps, angles reduced in double precision: (steps, C, *modes)."""
    n = torch.arange(1, steps + 1, dtype=torch.float64, device=angle.device)
    grid = n.view(-1, *[1] * angle.ndim) * angle.detach()
    grid = torch.remainder(grid, 2 * math.pi)
    return torch.polar(torch.ones_like(grid), grid).to(dtype)


class _FrameScan(torch.autograd.Function):
    """w_n = u^-n z_n is a plain running sum; possible only because |u| = 1."""

    @staticmethod
    def forward(angle: Tensor, start: Tensor, drive: Tensor, turn: Tensor) -> Tensor:
        shifted = drive * turn.conj().unsqueeze(1)
        shifted[0] += start
        return torch.cumsum(shifted, 0).mul_(turn.unsqueeze(1))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[2:], output)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        drive, turn, states = ctx.saved_tensors
        shifted = g * turn.conj().unsqueeze(1)
        total = shifted.flip(0).cumsum(0).flip(0)
        flow = total * turn.unsqueeze(1)
        g_angle = None
        if ctx.needs_input_grad[0]:
            # dz_n = i u z_{n-1} d angle, and u z_{n-1} = z_n - I_n.
            moved = states - drive
            terms = flow.imag * moved.real - flow.real * moved.imag
            g_angle = terms.sum((0, 1), dtype=torch.float64)
        return g_angle, total[0], flow, None


def frame_scan(angle: Tensor, start: Tensor, drive: Tensor, turn: Tensor) -> Tensor:
    r"""`loop_scan` for phases u = e^{i angle}, by a running sum in the rotating frame.

    Args:
        angle: (C, \*modes), float64.
        start: z_0, (B, C, \*modes).
        drive: (T, B, C, \*modes).
        turn: ``turns(angle, T, dtype)``.

    Returns:
        z_1 .. z_T, each with the rounding of one rotation whatever its index.
    """
    out: Tensor = _FrameScan.apply(angle, start, drive, turn)  # type: ignore[no-untyped-call]
    return out
