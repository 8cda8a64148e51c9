"""Checks and conversions of constructor arguments, shared by all families."""

import torch
from torch import Tensor
from torch.distributions import constraints

from lawful.errors import expected

__all__ = ["as_lengths", "check_potential", "compute_dtype", "log_potential", "tracing"]

Lengths = Tensor | list[int] | int | None


class _LogPotential(constraints.Constraint):
    """Finite or minus infinity: a log-domain score."""

    def check(self, value: Tensor) -> Tensor:
        return value < torch.inf


log_potential = _LogPotential()


def tracing() -> bool:
    """Whether values cannot be looked at: under torch.compile, or inside a torch.func transform."""
    if torch.compiler.is_compiling():
        return True
    return bool(torch._C._are_functorch_transforms_active())


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The precision to compute in: float64 stays, everything narrower becomes float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def check_potential(name: str, value: Tensor, rank: int, valid: Tensor | None = None) -> None:
    """Refuses wrong types and ranks, and NaN or plus infinity where ``valid`` (default: anywhere).

    One reduction over ``value``; the mask is looked at only when that finds something.
    """
    check_rank(name, value, rank)
    if value.numel() == 0 or tracing() or value.device.type == "meta":
        return
    if value.detach().max().item() < torch.inf:
        return
    bad = ~(value.detach() < torch.inf)
    if valid is not None:
        bad = bad & valid
    if bool(bad.any()):
        where = tuple(bad.nonzero()[0].tolist())
        raise expected(
            name, "log-potentials (finite or -inf)", f"{value[where].item()} at {list(where)}"
        )


def check_rank(name: str, value: Tensor, rank: int) -> None:
    """Refuses what is not a floating-point tensor with at least ``rank`` dimensions."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        got = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise expected(name, "a floating-point tensor", got)
    if value.dim() < rank:
        raise expected(name, f"at least {rank} dimensions", tuple(value.shape))


def as_lengths(
    lengths: Lengths, batch_shape: torch.Size, size: int, device: torch.device, check: bool
) -> Tensor | None:
    """``lengths`` as an int64 tensor of shape ``batch_shape``; None stays None (all full).

    Raises:
        InputError: Not integers, not broadcastable to the batch, or outside 0..size.
    """
    if lengths is None:
        return None
    given = torch.as_tensor(lengths, device=device)
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise expected("lengths", "integers", given.dtype, "a mask becomes lengths by mask.sum(-1)")
    try:
        result = given.to(torch.int64).expand(batch_shape)
    except RuntimeError:
        want = f"a shape that broadcasts to the batch {tuple(batch_shape)}"
        raise expected("lengths", want, tuple(given.shape)) from None
    if check and result.numel() and not tracing() and result.device.type != "meta":
        low, high = (int(x) for x in result.aminmax())
        if low < 0 or high > size:
            raise expected("lengths", f"values in 0..{size}", low if low < 0 else high)
    return result
