"""Brings tokens, mask and adjacency into one canonical form, in which padding leaves no trace."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lawful.energy._checks import tokens as check_tokens
from lawful.errors import expected


@dataclass(frozen=True)
class Scene:
    """Tokens with their batch flattened and their padding moved to the end and cut off.

    The real tokens of each sample are packed to the left in their order, and the batch is cut to
    its longest sample. So what is computed depends on the real tokens alone: neither the content,
    the number nor the place of padding can change a bit of it. While torch.compile traces, the
    shapes must not depend on values: padding is masked where it stands.
    """

    x: Tensor  # (B, n, D), zero at padding
    mask: Tensor | None  # (B, n) bool, None when all are real
    allowed: Tensor | None  # (B or 1, H or 1, n, n) bool, [query, key]
    edge: Tensor | None  # (B or 1, H or 1, n, n) finite
    batch: torch.Size
    original: Tensor  # (B, N, D)
    index: Tensor | None  # (B, n): where each packed token came from

    def scatter(self, y: Tensor, fill: Tensor | None = None) -> Tensor:
        """Packed ``y`` (B, n, D) at the original places (*batch, N, D).

        Padded places get ``fill`` (B, N, D), or zero.
        """
        if self.mask is not None or self.index is not None:
            base = torch.zeros_like(self.original) if fill is None else fill
            base = base.to(y.dtype)
            if self.index is None:
                assert self.mask is not None
                y = torch.where(self.mask[..., None], y, base)
            else:
                index = self.index[..., None].expand(y.shape)
                if self.mask is not None:
                    y = torch.where(self.mask[..., None], y, base.gather(1, index))
                y = base.scatter(1, index, y)
        return y.reshape(*self.batch, *self.original.shape[1:])

    def pairs(self, value: Tensor) -> Tensor:
        """Packed pairwise ``value`` (B, H, n, n) at the original places (*batch, H, N, N)."""
        if self.index is not None:
            n, heads = self.original.shape[1], value.shape[1]
            full = value.new_zeros(len(value), n, n, heads)
            at = torch.arange(len(value), device=value.device)[:, None, None]
            packed = value.movedim(1, -1)
            full[at, self.index[:, :, None], self.index[:, None, :]] = packed
            value = full.movedim(-1, 1)
        return value.reshape(*self.batch, *value.shape[1:])

    def per_sample(self, value: Tensor) -> Tensor:
        """(..., B) as (..., *batch)."""
        return value.reshape((*value.shape[:-1], *self.batch))


def scene(
    x: Tensor, dim: int, mask: Tensor | None, adjacency: Tensor | None, heads: int, form: str
) -> Scene:
    """Checks the inputs and brings them into canonical form.

    Raises:
        InputError: A wrong shape or type, or an adjacency with NaN or +inf.
    """
    check_tokens("tokens", x, dim)
    batch, n = x.shape[:-2], x.shape[-2]
    flat = x.reshape(batch.numel(), n, dim)
    allowed, edge = _adjacency(adjacency, batch, n, heads, form, flat)
    if mask is None:
        return Scene(flat, None, allowed, edge, batch, flat, None)
    real = _mask(mask, batch, n).to(flat.device)
    if torch.compiler.is_compiling():
        return Scene(
            flat.masked_fill(~real[..., None], 0.0), real, allowed, edge, batch, flat, None
        )
    return _pack(flat, real, allowed, edge, batch)


def _mask(mask: Any, batch: torch.Size, n: int) -> Tensor:
    want = f"a bool tensor of shape {(*batch, n)}, True for real tokens"
    if not isinstance(mask, Tensor):
        raise expected("mask", want, type(mask).__name__)
    if mask.dtype != torch.bool:
        raise expected("mask", want, mask.dtype, "compare first: mask = ids != pad")
    try:
        return mask.expand(*batch, n).reshape(batch.numel(), n)
    except RuntimeError:
        raise expected("mask", want, tuple(mask.shape)) from None


def _adjacency(
    adjacency: Any, batch: torch.Size, n: int, heads: int, form: str, like: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """(allowed, edge), each (B or 1, H or 1, N, N) or None."""
    if adjacency is None:
        return None, None
    shape = (*batch, n, n)
    want = f"a tensor broadcastable to {shape} or, with heads, {(*batch, heads, n, n)}"
    if not isinstance(adjacency, Tensor):
        raise expected("adjacency", want, type(adjacency).__name__)
    extra = adjacency.dim() - 2
    per_head = extra == len(batch) + 1
    target = (*batch, heads if per_head and adjacency.shape[-3] != 1 else 1, n, n)
    a = adjacency if per_head or extra < 1 else adjacency.unsqueeze(-3)
    if tuple(adjacency.shape[-2:]) != (n, n) or extra > len(batch) + 1:
        raise expected("adjacency", want, tuple(adjacency.shape))
    if extra == 0:
        a = a.reshape(1, 1, n, n)
    else:
        try:
            a = a.expand(target).reshape(batch.numel(), *target[-3:])
        except RuntimeError:
            raise expected("adjacency", want, tuple(adjacency.shape)) from None
    a = a.to(like.device)
    if not a.is_floating_point():
        return a != 0, None
    a = a.to(like.dtype)
    allowed = a != 0 if form == "multiply" else a != float("-inf")
    edge = a.masked_fill(~allowed, 0.0)
    if not torch.compiler.is_compiling() and not bool(edge.detach().isfinite().all()):
        raise expected(
            "adjacency", "finite weights (or -inf for no edge in additive form)", "NaN or inf"
        )
    return allowed, edge


def _pack(
    flat: Tensor, real: Tensor, allowed: Tensor | None, edge: Tensor | None, batch: torch.Size
) -> Scene:
    length = real.sum(-1)
    n = int(length.max()) if len(length) else 0
    if n == flat.shape[1] and bool((length == n).all()):
        return Scene(flat, None, allowed, edge, batch, flat, None)
    index = (~real).to(torch.uint8).argsort(dim=-1, stable=True)[:, :n]
    x = flat.gather(1, index[..., None].expand(-1, -1, flat.shape[-1]))
    mask = torch.arange(n, device=flat.device) < length[:, None]
    whole = bool(mask.all())
    if not whole:
        x = x.masked_fill(~mask[..., None], 0.0)
    at = torch.arange(len(flat), device=flat.device)[:, None, None]

    def pick(pair: Tensor | None) -> Tensor | None:
        if pair is None:
            return None
        full = pair.expand(len(flat), -1, -1, -1).movedim(1, -1)
        return full[at, index[:, :, None], index[:, None, :]].movedim(-1, 1)

    return Scene(x, None if whole else mask, pick(allowed), pick(edge), batch, flat, index)
