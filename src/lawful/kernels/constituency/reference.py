"""Binary constituency trees in plain torch: the truth that the compiled kernel is compared to.

in(i, i) = leaf(i), in(i, j) = w(i, j) sum_u in(i, u) in(u + 1, j), in log space, vectorised over
the batch and over all spans of one width.
"""

import torch
from torch import Tensor

from lawful.kernels._logspace import Reduce, logsumexp

__all__ = ["inside", "log_partition", "masked"]


def masked(spans: Tensor, leaves: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Float64 scores, -inf below the diagonal, on it, and in padding (none of which is read)."""
    n = spans.shape[-1]
    there = torch.arange(n, device=spans.device) < lengths[:, None]
    upper = torch.ones(n, n, dtype=torch.bool, device=spans.device).triu(1)
    return (
        spans.double().masked_fill(~(upper & there[:, None, :]), -torch.inf),
        leaves.double().masked_fill(~there, -torch.inf),
    )


def log_partition(spans: Tensor, leaves: Tensor, lengths: Tensor, single: bool) -> Tensor:
    """(B) float64; spans (B, N, N), leaves (B, N), lengths (B); ``single`` is not used."""
    return inside(spans, leaves, lengths, logsumexp)


def inside(spans: Tensor, leaves: Tensor, lengths: Tensor, reduce: Reduce) -> Tensor:
    """The program with any way to reduce log-weights; (B). O(N^3) time, N vector steps."""
    w, leaf = masked(spans, leaves, lengths)
    n = leaf.shape[-1]
    if n == 0:
        return leaf.sum(-1)
    # Shifts that all trees share: n leaves, n - 1 longer spans.
    top = _largest(w.detach().flatten(1))
    top_leaf = _largest(leaf.detach())
    w, leaf = w - top[:, None, None], leaf - top_leaf[:, None]
    starts = ends = leaf[..., None]  # (B, N, width - 1): by the first word, by the last word
    for width in range(1, n):
        split = reduce(starts[:, : n - width] + ends[:, width:].flip(-1))
        span = split + w.diagonal(width, 1, 2)
        starts = torch.cat([starts, _pad(span, (0, width))], -1)
        ends = torch.cat([ends, _pad(span, (width, 0))], -1)
    whole = starts[:, 0].gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0]
    whole = torch.where(lengths == 0, torch.zeros_like(whole), whole)
    whole = whole.masked_fill(whole.detach() == -torch.inf, -torch.inf)  # and no gradient
    return whole + lengths * top_leaf + (lengths - 1).clamp(min=0) * top


def _largest(x: Tensor) -> Tensor:
    top = x.amax(-1)
    return top.masked_fill(top == -torch.inf, 0.0)


def _pad(x: Tensor, pad: tuple[int, int]) -> Tensor:
    return torch.nn.functional.pad(x, pad, value=-torch.inf)[..., None]
