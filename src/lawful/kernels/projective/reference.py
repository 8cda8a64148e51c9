"""Projective trees in plain torch: the truth that the compiled kernel is compared to.

The split-head chart program in log space, vectorised over the batch and over all spans of one
width. Derivatives are autodiff's.
"""

import torch
from torch import Tensor

from lawful.kernels._logspace import Reduce, logsumexp

__all__ = ["chart", "log_partition", "masked"]


def masked(arcs: Tensor, root: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Float64 scores, -inf at self-arcs and in padding (which is not read)."""
    n = arcs.shape[-1]
    inside = torch.arange(n, device=arcs.device) < lengths[:, None]  # (B, N)
    allowed = inside[:, :, None] & inside[:, None, :]
    allowed = allowed & ~torch.eye(n, dtype=torch.bool, device=arcs.device)
    return (
        arcs.double().masked_fill(~allowed, -torch.inf),
        root.double().masked_fill(~inside, -torch.inf),
    )


def log_partition(arcs: Tensor, root: Tensor, lengths: Tensor, single_root: bool) -> Tensor:
    """(B) float64; arcs (B, N, N), root (B, N), lengths (B). O(N^3) time, N vector steps."""
    return chart(arcs, root, lengths, single_root, logsumexp)


def chart(arcs: Tensor, root: Tensor, lengths: Tensor, single: bool, reduce: Reduce) -> Tensor:
    """The program with any way to reduce log-weights; (B) float64."""
    a, r = masked(arcs, root, lengths)
    if a.shape[-1] == 0:
        return a.sum((-2, -1))
    # Every word has one head: its best score may be taken out of all of its scores.
    top = torch.maximum(a.detach().amax(1), r.detach())
    top = top.masked_fill(top == -torch.inf, 0.0)
    right, left = _spans(a - top[:, None, :], reduce)
    return _root(right, left, r - top, lengths, single, reduce) + top.sum(-1)


def _spans(a: Tensor, reduce: Reduce) -> tuple[Tensor, Tensor]:
    """Complete spans by their left end and width: (B, N, N) headed on the left, on the right.

    *_s charts are indexed [left end, width], *_e charts [right end, width]; entries that would
    leave the sentence are -inf.
    """
    batch, n = a.shape[:2]
    one = a.new_zeros(batch, n, 1)
    right_s = right_e = left_s = left_e = one  # complete, head at the left / right end
    drawn_right_s = drawn_left_e = a.new_zeros(batch, n, 0)  # arc just drawn, widths 1, 2, ...
    for w in range(1, n):
        split = reduce(right_s[:, : n - w] + left_e[:, w:].flip(-1))  # (B, n - w)
        to_right = split + a.diagonal(w, 1, 2)
        to_left = split + a.diagonal(-w, 1, 2)
        drawn_right_s = _append(drawn_right_s, to_right, w, at_start=True)
        drawn_left_e = _append(drawn_left_e, to_left, w, at_start=False)
        right = reduce(drawn_right_s[:, : n - w] + right_e[:, w:].flip(-1))
        left = reduce(left_s[:, : n - w] + drawn_left_e[:, w:].flip(-1))
        right_s, right_e = _append(right_s, right, w, True), _append(right_e, right, w, False)
        left_s, left_e = _append(left_s, left, w, True), _append(left_e, left, w, False)
    return right_e, left_e


def _append(chart: Tensor, column: Tensor, width: int, at_start: bool) -> Tensor:
    pad = (0, width) if at_start else (width, 0)
    column = torch.nn.functional.pad(column, pad, value=-torch.inf)
    return torch.cat([chart, column[..., None]], -1)


def _root(
    right_e: Tensor, left_e: Tensor, r: Tensor, lengths: Tensor, single: bool, reduce: Reduce
) -> Tensor:
    """Prefixes of the sentence under the root; picks each element's own length."""
    n = r.shape[-1]
    prefix, child = r.new_zeros(len(r), 1), r.new_zeros(len(r), 0)
    for t in range(n):
        covered = left_e[:, t].flip(-1)[:, n - 1 - t :]  # from each start u <= t up to head t
        starts = 1 if single else t + 1
        taken = reduce(prefix[:, :starts] + covered[:, :starts]) + r[:, t]
        child = torch.cat([child, taken[:, None]], -1)
        ends = right_e[:, t].flip(-1)[:, n - 1 - t :]  # from each head u <= t up to end t
        prefix = torch.cat([prefix, reduce(child + ends)[:, None]], -1)
    return prefix.gather(1, lengths[:, None])[:, 0]
