"""Back-propagation that undoes the steps instead of storing them.

A step of an isometric, invertible recurrence can be undone with rounding that grows only like the
number of steps. Memory for states then does not depend on the length: forward keeps the last state
(every `window`-th one if asked to) and one bit per site and step where the activation needs it.
What is reconstructed is compared with every state that was kept, the first included.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lawful.unitary._cell import Cell

__all__ = ["ReversalError", "reversible"]


class ReversalError(RuntimeError):
    """Undoing the steps lost the state: gradients would be wrong, so none are returned."""


@dataclass(frozen=True)
class _Plan:
    cell: Cell
    window: int | None
    tolerance: float


def pack_bits(bits: Tensor) -> Tensor:
    """Booleans -> bytes of eight."""
    flat = bits.flatten()
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % 8)).view(-1, 8).to(torch.uint8)
    weight = 2 ** torch.arange(8, dtype=torch.uint8, device=bits.device)
    return (flat * weight).sum(-1, dtype=torch.uint8)


def unpack_bits(packed: Tensor, shape: torch.Size) -> Tensor:
    """Inverse of `pack_bits`."""
    weight = 2 ** torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed[:, None] & weight) != 0).flatten()[: shape.numel()].view(shape)


def _advance(
    plan: _Plan,
    z: Tensor,
    x: Tensor,
    alive: Tensor | None,
    tensors: tuple[Tensor, ...],
    branch: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """One step: the argument of the activation, the new state, what is read."""
    cell = plan.cell
    op, act, drive, readout = cell.split(tensors)
    before = cell.rebuilt(op).turn(z) + cell.drive(x[None], drive)[0]
    after = cell.activation.run(before, act, branch)
    if alive is not None:
        after = torch.where(alive, after, z)
    return before, after, cell.read(after, readout)


class _Reversible(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, plan: _Plan, x: Tensor, z: Tensor, alive: Tensor | None, *tensors: Tensor
    ) -> tuple[Tensor, Tensor]:
        first, kept, bits, outs = z, [], [], []
        for n in range(len(x)):
            if plan.window and n and n % plan.window == 0:
                kept.append(z)
            before, z, out = _advance(
                plan, z, x[n], None if alive is None else alive[n], tensors, None
            )
            side = plan.cell.activation.branch(before)
            if side is not None:
                bits.append(pack_bits(side))
            outs.append(out)
        ctx.plan, ctx.bits = plan, bits
        ctx.save_for_backward(x, first, z, alive, *kept, *tensors)
        ctx.kept = len(kept)
        return torch.stack(outs), z

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g_out: Tensor, g: Tensor) -> tuple[Any, ...]:
        x, first, z, alive, *rest = ctx.saved_tensors
        kept, tensors = [first, *rest[: ctx.kept]], tuple(rest[ctx.kept :])
        plan, window = ctx.plan, ctx.plan.window or len(x)
        scale = max(float(torch.linalg.vector_norm(k)) for k in (*kept, z))
        totals: list[Tensor | None] = [None] * len(tensors)
        g_x = torch.zeros_like(x) if ctx.needs_input_grad[1] else None
        for n in range(len(x) - 1, -1, -1):
            mask = None if alive is None else alive[n]
            packed = ctx.bits[n] if ctx.bits else None
            z_before, branch = _undo(plan, z, x[n], mask, tensors, packed)
            if n % window == 0:
                _compare(plan, z_before, kept[n // window], n, scale)
                z_before = kept[n // window]
            step = _pull(
                plan, z_before, x[n], mask, tensors, branch, (g, g_out[n]), g_x is not None
            )
            g, grad_x, grads = step
            if g_x is not None and grad_x is not None:
                g_x[n] = grad_x
            for i, grad in enumerate(grads):
                if grad is not None:
                    total = totals[i]
                    totals[i] = grad if total is None else total.add_(grad)
            z = z_before
        return None, g_x, g, None, *totals


def _undo(
    plan: _Plan,
    z: Tensor,
    x: Tensor,
    alive: Tensor | None,
    tensors: tuple[Tensor, ...],
    packed: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    cell = plan.cell
    op, act, drive, _ = cell.split(tensors)
    branch = None
    if packed is not None:
        shape = z.shape if z.is_complex() else (z.shape[0], z.shape[1] // 2, *z.shape[2:])
        branch = unpack_bits(packed, torch.Size(shape))
    with torch.no_grad():
        before = cell.activation.undo(z, act, branch) - cell.drive(x[None], drive)[0]
        earlier = cell.rebuilt(op).turn(before, True)
        return (earlier if alive is None else torch.where(alive, earlier, z)), branch


def _pull(
    plan: _Plan,
    z: Tensor,
    x: Tensor,
    alive: Tensor | None,
    tensors: tuple[Tensor, ...],
    branch: Tensor | None,
    g: tuple[Tensor, Tensor],
    wants_x: bool,
) -> tuple[Tensor, Tensor | None, list[Tensor | None]]:
    """Gradients of one replayed step for its state, input and tensors."""
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        x = x.detach().requires_grad_(wants_x)
        leaves = tuple(t.detach().requires_grad_(t.requires_grad) for t in tensors)
        _, after, out = _advance(plan, z, x, alive, leaves, branch)
        wanted = [z, *([x] if wants_x else []), *[t for t in leaves if t.requires_grad]]
        found = list(torch.autograd.grad((after, out), wanted, g, allow_unused=True))
    g_z = found.pop(0)
    g_x = found.pop(0) if wants_x else None
    return g_z, g_x, [found.pop(0) if t.requires_grad else None for t in leaves]


def _compare(plan: _Plan, found: Tensor, truth: Tensor, step: int, scale: float) -> None:
    """Raises when an undone state is off by more than the tolerance of the largest kept one."""
    error = float(torch.linalg.vector_norm(found - truth))
    relative = error / scale if scale > 0 else error
    if not relative <= plan.tolerance:
        raise ReversalError(
            f"reversal lost the state at step {step}: relative error {relative:.2g}, tolerance "
            f"{plan.tolerance:.2g}; use a shorter window, double precision, or memory='store'"
        )


def reversible(
    cell: Cell,
    x: Tensor,
    z: Tensor,
    alive: Tensor | None,
    tensors: tuple[Tensor, ...],
    *,
    window: int | None,
    tolerance: float,
) -> tuple[Tensor, Tensor]:
    """Runs a recurrence whose backward pass undoes it step by step.

    Args:
        cell: The step.
        x: Inputs, (T, B, ...).
        z: First state, inner form.
        alive: (T, B, 1, ...) bool, False beyond the end of a sequence, or None.
        tensors: All tensors of the step.
        window: Keep every ``window``-th state, or None.
        tolerance: Largest relative error of a reconstructed state.

    Returns:
        What is read at each step (T, B, ...), and the last state.

    Raises:
        ReversalError: In backward, when a reconstructed state is off.
    """
    plan = _Plan(cell, window, tolerance)
    out: tuple[Tensor, Tensor] = _Reversible.apply(plan, x, z, alive, *tensors)  # type: ignore[no-untyped-call]
    return out
