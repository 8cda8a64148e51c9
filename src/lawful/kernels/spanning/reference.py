"""Non-projective trees in plain torch: the truth that the compiled kernel is compared to.

The partition function by elimination without subtraction, in log space: word k is taken out of the
graph in which each word m points to its possible heads h with weight w(h, m) and to the root with
r(m),

    d(k) = sum_h w(h, k) + r(k),   w(h, m) += w(k, m) w(h, k) / d(k),   r(m) += w(k, m) r(k) / d(k),

and the product of the d is the sum over all trees (it is the determinant of the matrix-tree
theorem). Sums of non-negative terms lose no digits, however ill-conditioned the Laplacian is. With
a single root only first order in r counts: r(k) enters d(k) for the last word alone.
"""

import torch
from torch import Tensor

from lawful.kernels._logspace import logsumexp
from lawful.kernels.projective.reference import masked

__all__ = ["log_partition"]


def log_partition(arcs: Tensor, root: Tensor, lengths: Tensor, single_root: bool) -> Tensor:
    """(B) float64; arcs (B, N, N), root (B, N), lengths (B). O(N^3) time, N vector steps."""
    n = arcs.shape[-1]
    w, r = masked(arcs, root, lengths)
    if n == 0:
        return w.sum((-2, -1))
    top = torch.maximum(w.detach().amax(1), r.detach())
    top = top.masked_fill(top == -torch.inf, 0.0)
    w, r = w - top[:, None, :], r - top
    real = torch.arange(n, device=w.device) < lengths[:, None]
    impossible = torch.zeros(len(w), dtype=torch.bool, device=w.device)
    if single_root:
        last, impossible = _a_root(w.detach(), r.detach(), lengths)
        w, r, real = _move_to_end(w, r, real, last)
    total = top.sum(-1)
    for _ in range(n):
        w, r, real, pivot = _eliminate(w, r, real, single_root)
        impossible = impossible | (pivot.detach() == -torch.inf)
        total = total + pivot.masked_fill(pivot.detach() == -torch.inf, 0.0)
    return total.masked_fill(impossible, -torch.inf)


def _eliminate(
    w: Tensor, r: Tensor, real: Tensor, single: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Takes out the first word; returns the smaller graph and log d (0 for padding)."""
    outflow = w[:, 1:, 0]
    if not single or w.shape[-1] == 1:
        outflow = torch.cat([outflow, r[:, :1]], -1)
    pivot = logsumexp(outflow).masked_fill(~real[:, 0], 0.0)
    share = pivot.masked_fill(pivot.detach() == -torch.inf, 0.0)
    into = w[:, 0, 1:] - share[:, None]  # (B, n - 1), words pointing to the one taken out
    w = logsumexp(torch.stack([w[:, 1:, 1:], into[:, None, :] + w[:, 1:, :1]], -1))
    w = w.masked_fill(torch.eye(w.shape[-1], dtype=torch.bool, device=w.device), -torch.inf)
    r = logsumexp(torch.stack([r[:, 1:], into + r[:, :1]], -1))
    return w, r, real[:, 1:], pivot


def _a_root(w: Tensor, r: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """A word that can be the only child of the root, and whether there is none (length 0 aside)."""
    n = w.shape[-1]
    reach = (w > -torch.inf) | torch.eye(n, dtype=torch.bool, device=w.device)  # [head, word]
    for _ in range(max(n - 1, 1).bit_length()):
        reach = (reach.double() @ reach.double()) > 0
    padding = torch.arange(n, device=w.device) >= lengths[:, None]
    able = (reach | padding[:, None, :]).all(-1) & (r > -torch.inf)
    return able.to(torch.uint8).argmax(-1), ~able.any(-1) & (lengths > 0)


def _move_to_end(w: Tensor, r: Tensor, real: Tensor, word: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Swaps a word of each batch element with the last."""
    n = w.shape[-1]
    order = torch.arange(n, device=w.device).expand(len(w), n).clone()
    order.scatter_(1, word[:, None], n - 1)
    order[:, -1] = word
    w = w.gather(1, order[:, :, None].expand_as(w)).gather(2, order[:, None, :].expand_as(w))
    return w, r.gather(1, order), real.gather(1, order)
