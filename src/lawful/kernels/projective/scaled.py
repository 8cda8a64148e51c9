"""Projective trees in plain torch, fast: scaled probabilities, inside and outside written out.

The same program as the compiled kernel (see README.md), all spans of one width and all sentences at
a time, with no autograd tape. A tensor of numbers has a leading axis of components: the value, and
for Hessian-vector products its tangent. `sound` tells which batch elements stayed in range.
"""

import math

import torch
from torch import Tensor

from lawful.kernels.projective.reference import masked

__all__ = ["partition", "run"]

_KAPPA = 0.5 * math.log(27 / 4)  # half the growth rate of the number of trees centres the range

Pair = tuple[Tensor, Tensor]


def partition(
    arcs: Tensor, root: Tensor, lengths: Tensor, single_root: bool
) -> tuple[Tensor, Tensor]:
    """Log-partition (B), and whether each element is sound. Outside values serve as the check."""
    value, sound, _ = run(arcs, root, lengths, single_root, None)
    return value, sound


def run(
    arcs: Tensor, root: Tensor, lengths: Tensor, single_root: bool, direction: Pair | None
) -> tuple[Tensor, Tensor, Pair]:
    """Log-partition, soundness, and the marginals or (given a direction) their derivative."""
    weight, first, shift, size = _weights(arcs, root, lengths, direction)
    right, drawn = _inside(weight)
    prefix, child = _root(right, first, single_root)
    ends = lengths[None, :, None].expand(len(prefix), -1, 1)
    z = prefix.gather(2, ends)[..., 0]
    inverse = _inverse(z)
    adjoint, root_bar = _root_adjoint(right, first, prefix, child, ends, single_root)
    drawn_bar, peak = _outside(weight, right, drawn, adjoint)
    out = _mul(_mul(drawn_bar, drawn), inverse[..., None, None])[-1] * size[:, None, None]
    out_root = _mul(_mul(root_bar, child), inverse[..., None])[-1] * size[:, None]
    items = 4.0 * (lengths.double() ** 2 + 1)
    sound = (z[0] > 1e-290) & (z[0] < 1e300) & (peak * items < z[0] * 1e290)
    return z[0].log() + shift, sound, (out, out_root)


def _weights(
    arcs: Tensor, root: Tensor, lengths: Tensor, direction: Pair | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Exp of the shifted scores, with components; the shift's total; the size of the direction."""
    a, r = masked(arcs, root, lengths)
    top = torch.maximum(a.amax(1), r)
    top = top.masked_fill(top == -torch.inf, 0.0)
    tilt = torch.full_like(top, _KAPPA)
    if a.shape[-1] > 128:
        mean = ((a - top[:, None]).exp().sum(1) + (r - top).exp()) / lengths[:, None]
        tilt = tilt + 0.5 * torch.where(mean > 0, mean.log(), 0.0)
    real = torch.arange(a.shape[-1], device=a.device) < lengths[:, None]
    top = (top + tilt).masked_fill(~real, 0.0)
    w, f = (a - top[:, None]).exp()[None], (r - top).exp()[None]
    size = a.new_ones(len(a))
    if direction is not None:
        da = torch.where(w[0] > 0, direction[0].double(), 0.0)
        dr = torch.where(f[0] > 0, direction[1].double(), 0.0)
        size = torch.maximum(da.abs().amax((1, 2)), dr.abs().amax(1))
        size = torch.where((size > 0) & (size < torch.inf), size, 1.0)
        w = torch.cat([w, w * da / size[:, None, None]])
        f = torch.cat([f, f * dr / size[:, None]])
    return w, f, top.sum(1), size


def _mul(x: Tensor, y: Tensor) -> Tensor:
    if len(x) == 1:
        return x * y
    return torch.stack([x[0] * y[0], x[0] * y[1] + x[1] * y[0]])


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return _mul(x, y).sum(-1)


def _inverse(z: Tensor) -> Tensor:
    v = 1.0 / z[:1]
    return v if len(z) == 1 else torch.cat([v, -z[1:] * v * v])


def _push(target: Tensor, bar: Tensor, other: Tensor) -> None:
    """Target += bar[..., None] * other, in place."""
    if len(bar) == 1:
        target.addcmul_(bar[..., None], other)
        return
    target[0].addcmul_(bar[0, ..., None], other[0])
    target[1].addcmul_(bar[1, ..., None], other[0])
    target[1].addcmul_(bar[0, ..., None], other[1])


def _band(x: Tensor, width: int, row: int, column: int) -> Tensor:
    """(C, B, N - width, width): the entries [i + row, i + column + k] of each square."""
    n = x.shape[-1]
    size = (*x.shape[:2], n - width, width)
    at = x.storage_offset() + row * n + column
    return x.as_strided(size, (x.stride(0), x.stride(1), n + 1, 1), at)


def _inside(weight: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Complete spans a[i, j>=i] = CR(i, j), a[j, i] = CL(i, j) with the transpose; and IR, IL."""
    n = weight.shape[-1]
    eye = torch.eye(n, dtype=weight.dtype, device=weight.device)
    a = torch.zeros_like(weight)
    a[0] = eye
    at, c = a.clone(), torch.zeros_like(weight)
    for w in range(1, n):
        s = _dot(_band(a, w, 0, 0), _band(a, w, w, 1))
        c.diagonal(w, 2, 3).copy_(_mul(s, weight.diagonal(w, 2, 3)))
        c.diagonal(-w, 2, 3).copy_(_mul(s, weight.diagonal(-w, 2, 3)))
        left = _dot(_band(at, w, 0, 0), _band(c, w, w, 0))
        right = _dot(_band(c, w, 0, 1), _band(at, w, w, 1))
        for square, k in ((a, w), (at, -w)):
            square.diagonal(k, 2, 3).copy_(right)
            square.diagonal(-k, 2, 3).copy_(left)
    return (a, at), c


def _root(right: Pair, first: Tensor, single: bool) -> Pair:
    """Prefixes under the root (C, B, N + 1), and words as root children with what is before."""
    a, at = right
    n = a.shape[-1]
    prefix, child = first.new_zeros(*first.shape[:2], n + 1), torch.zeros_like(first)
    prefix[0, :, 0] = 1
    for t in range(n):
        starts = 1 if single else t + 1
        covered = _dot(prefix[..., :starts], a[:, :, t, :starts])
        child[..., t] = _mul(first[..., t], covered)
        prefix[..., t + 1] = _dot(child[..., : t + 1], at[:, :, t, : t + 1])
    return prefix, child


def _root_adjoint(
    right: Pair, first: Tensor, prefix: Tensor, child: Tensor, ends: Tensor, single: bool
) -> tuple[Tensor, Tensor]:
    """Adjoint of `a` from the root's part (its transpose stays 0), and of the root's choices."""
    a, at = right
    n = a.shape[-1]
    bar = torch.zeros_like(a)
    prefix_bar, child_bar = torch.zeros_like(prefix), torch.zeros_like(child)
    prefix_bar[:1].scatter_(2, ends[:1], 1.0)
    for t in reversed(range(n)):
        starts = 1 if single else t + 1
        _push(
            child_bar[..., None, : t + 1],
            prefix_bar[..., t + 1, None],
            at[:, :, t : t + 1, : t + 1],
        )
        # CR(u, t), u <= t, lives in a[u, t].
        _push(
            bar[:, :, : t + 1, t, None],
            prefix_bar[..., t + 1, None].expand(-1, -1, t + 1),
            child[..., : t + 1, None],
        )
        weighted = _mul(child_bar[..., t], first[..., t])
        _push(prefix_bar[..., None, :starts], weighted[..., None], a[:, :, t : t + 1, :starts])
        _push(bar[:, :, t : t + 1, :starts], weighted[..., None], prefix[..., None, :starts])
    return bar, child_bar


def _outside(weight: Tensor, right: Pair, c: Tensor, bar: Tensor) -> tuple[Tensor, Tensor]:
    """Adjoint of the drawn arcs, and the largest value met in each batch element."""
    a, at = right
    n = a.shape[-1]
    t_bar, c_bar = torch.zeros_like(a), torch.zeros_like(a)
    for w in reversed(range(1, n)):
        right_bar = bar.diagonal(w, 2, 3) + t_bar.diagonal(-w, 2, 3)
        left_bar = bar.diagonal(-w, 2, 3) + t_bar.diagonal(w, 2, 3)
        _push(_band(c_bar, w, 0, 1), right_bar, _band(at, w, w, 1))
        _push(_band(t_bar, w, w, 1), right_bar, _band(c, w, 0, 1))
        _push(_band(t_bar, w, 0, 0), left_bar, _band(c, w, w, 0))
        _push(_band(c_bar, w, w, 0), left_bar, _band(at, w, 0, 0))
        s_bar = _mul(c_bar.diagonal(w, 2, 3), weight.diagonal(w, 2, 3))
        s_bar = s_bar + _mul(c_bar.diagonal(-w, 2, 3), weight.diagonal(-w, 2, 3))
        _push(_band(bar, w, 0, 0), s_bar, _band(a, w, w, 1))
        _push(_band(bar, w, w, 1), s_bar, _band(a, w, 0, 0))
    peak = torch.maximum(bar[0].amax((1, 2)), t_bar[0].amax((1, 2)))
    return c_bar, torch.maximum(peak, c_bar[0].amax((1, 2)))
