"""Tree operators in plain torch: derivatives of each family's truth, and faster ways to the same.

A family's truth is ``log_partition(arcs, root, lengths, single_root)`` in differentiable torch,
(B, N, N), (B, N), (B) -> (B). Its gradient gives marginals, its Hessian products their derivative.
"""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["plain_hvp", "plain_marginals", "reference_hvp", "register"]

Pair = tuple[Tensor, Tensor]
Truth = Callable[[Tensor, Tensor, Tensor, bool], Tensor]
# A fast plain torch path: (value, sound) and (value, sound, marginals or their derivative).
FastValue = Callable[[Tensor, Tensor, Tensor, bool], tuple[Tensor, Tensor]]
FastPair = Callable[[Tensor, Tensor, Tensor, bool, Pair | None], tuple[Tensor, Tensor, Pair]]
_truths: dict[str, Truth] = {}
_fast: dict[str, tuple[FastValue, FastPair]] = {}


def register(
    family: str, truth: Truth, value: FastValue | None = None, pair: FastPair | None = None
) -> None:
    """Makes a family known: its log-partition in plain torch, and perhaps a faster way to it."""
    _truths[family] = truth
    if value is not None and pair is not None:
        _fast[family] = value, pair


def _grad(f: Callable[[Tensor, Tensor], Tensor], arcs: Tensor, root: Tensor) -> Pair:
    pair: Pair = torch.func.grad(lambda a, r: f(a, r).sum(), (0, 1))(arcs, root)
    return pair


def plain_marginals(family: str, arcs: Tensor, root: Tensor, lengths: Tensor, single: bool) -> Pair:
    """Gradient of the truth; differentiable, in the precision of the input."""
    truth = _truths[family]
    return _grad(lambda a, r: truth(a, r, lengths, single), arcs, root)


def plain_hvp(
    family: str,
    arcs: Tensor,
    root: Tensor,
    lengths: Tensor,
    direction: Pair,
    single: bool,
) -> Pair:
    """Hessian of the truth times a direction; differentiable."""

    def along(a: Tensor, r: Tensor) -> Tensor:
        ma, mr = plain_marginals(family, a, r, lengths, single)
        return (ma * direction[0]).sum() + (mr * direction[1]).sum()

    return _grad(along, arcs, root)


def _needs_truth(family: str, arcs: Tensor) -> bool:
    """Whether the fast path is out of the question: it looks at values, in float64."""
    blind = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    odd = arcs.numel() == 0 or arcs.device.type in ("mps", "meta")
    return family not in _fast or blind or odd


def reference_log_partition(
    family: str, arcs: Tensor, root: Tensor, lengths: Tensor, single: bool
) -> Tensor:
    """(B) float64."""
    if _needs_truth(family, arcs):
        return _truths[family](arcs, root, lengths, single)
    value, sound = _fast[family][0](arcs, root, lengths, single)
    if not bool(sound.all()):
        bad = (~sound).nonzero()[:, 0]
        value[bad] = _truths[family](arcs[bad], root[bad], lengths[bad], single)
    return value


def reference_marginals(
    family: str, arcs: Tensor, root: Tensor, lengths: Tensor, single: bool
) -> Pair:
    """(B, N, N) and (B, N) in the precision of the input."""
    if _needs_truth(family, arcs):
        return plain_marginals(family, arcs, root, lengths, single)
    _, sound, pair = _fast[family][1](arcs, root, lengths, single, None)
    if not bool(sound.all()):
        bad = (~sound).nonzero()[:, 0]
        exact = plain_marginals(family, arcs[bad], root[bad], lengths[bad], single)
        _replace(pair, bad, exact)
    return pair[0].to(arcs.dtype), pair[1].to(arcs.dtype)


def reference_hvp(
    family: str, arcs: Tensor, root: Tensor, lengths: Tensor, direction: Pair, single: bool
) -> Pair:
    """(B, N, N) and (B, N) in the precision of the input."""
    if _needs_truth(family, arcs):
        return plain_hvp(family, arcs, root, lengths, direction, single)
    _, sound, pair = _fast[family][1](arcs, root, lengths, single, direction)
    if not bool(sound.all()):
        bad = (~sound).nonzero()[:, 0]
        part = direction[0][bad], direction[1][bad]
        _replace(pair, bad, plain_hvp(family, arcs[bad], root[bad], lengths[bad], part, single))
    return pair[0].to(arcs.dtype), pair[1].to(arcs.dtype)


def _replace(pair: Pair, where: Tensor, exact: Pair) -> None:
    for x, y in zip(pair, exact, strict=True):
        x[where] = y.to(x.dtype)
