"""Segmentations in plain torch, differentiable to any order, with true -inf and no NaN.

Shapes: segments (B, N, K, C), the score of a segment that starts at n, spans k+1 steps and has
label c; transition (C, C) between the labels of neighbouring segments; lengths (B) int64.
Everything is computed in float64 where the device has it. Messages, for a boundary 0 <= m <= N:

    ends[m, c]   log-sum over segmentations of [0, m) whose last label is c
    opens[m, c]  log-sum of ends[m, :] + transition[:, c]; 0 at m = 0
    rest[m, c]   log-sum over segmentations of [m, length) whose first label is c
    after[m, c]  log-sum of transition[c, :] + rest[m, :]; 0 at m = length
"""

import torch
from torch import Tensor

__all__ = ["infer", "k_best", "log_partition", "sample"]


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.device.type == "mps" else x.double()


def _lse(x: Tensor, dim: int) -> Tensor:
    """log-sum-exp whose derivatives are 0 where everything is -inf."""
    if x.shape[dim] == 0:
        return x.sum(dim) - torch.inf
    top = x.detach().amax(dim, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0.0)
    total = (x - top).exp().sum(dim)
    value = torch.where(total > 0, total, torch.ones_like(total)).log() + top.squeeze(dim)
    return torch.where(total > 0, value, torch.full_like(value, -torch.inf))


def _clean(segments: Tensor, lengths: Tensor) -> Tensor:
    """Segments that reach past the end become impossible."""
    N, K = segments.shape[1:3]
    starts = torch.arange(N, device=segments.device)[:, None]
    spans = torch.arange(1, K + 1, device=segments.device)
    inside = starts + spans <= lengths[:, None, None]
    return torch.where(inside[..., None], _wide(segments), -torch.inf)


def _ways(segments: Tensor, opens: list[Tensor], m: int) -> Tensor:
    """(B, k, C): reaching boundary m by a segment of k+1 steps, k < min(K, m)."""
    reach = range(min(segments.shape[2], m))
    return torch.stack([opens[m - k - 1] + segments[:, m - k - 1, k] for k in reach], 1)


def _forward(segments: Tensor, transition: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    B, N, _, C = segments.shape
    ends = [segments.new_full((B, C), -torch.inf)]
    opens = [segments.new_zeros(B, C)]
    for m in range(1, N + 1):
        ends.append(_lse(_ways(segments, opens, m), 1))
        opens.append(_lse(ends[m][:, :, None] + transition, 1))
    return ends, opens


def _total(ends: list[Tensor], lengths: Tensor) -> Tensor:
    whole = torch.stack(ends, 1)
    last = whole.gather(1, lengths[:, None, None].expand(-1, 1, whole.shape[2]))[:, 0]
    return _lse(last, 1).masked_fill(lengths == 0, 0.0)


def log_partition(segments: Tensor, transition: Tensor, lengths: Tensor) -> Tensor:
    """log-partition, (B) float64."""
    ends, _ = _forward(_clean(segments, lengths), _wide(transition))
    return _total(ends, lengths)


def infer(segments: Tensor, transition: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log-partition (B), P(segment) (B, N, K, C), expected label transitions (B, C, C)."""
    dtype, scores, pair = segments.dtype, _clean(segments, lengths), _wide(transition)
    B, N, K, C = scores.shape
    ends, opens = _forward(scores, pair)
    total = _total(ends, lengths)
    finite = total.masked_fill(total.detach() == -torch.inf, 0.0)
    closed = scores.new_zeros(B, C)
    after: list[Tensor] = [closed] * (N + 1)
    counts = scores.new_zeros(B, C, C)
    rows = []
    for m in range(N, -1, -1):
        if m < N:
            span = min(K, N - m)
            onward = torch.stack([scores[:, m, k] + after[m + k + 1] for k in range(span)], 1)
            rest = _lse(onward, 1)
            row = (opens[m][:, None] + onward - finite[:, None, None]).exp()
            rows.append(torch.cat([row, row.new_zeros(B, K - span, C)], 1))
            if m:
                score = ends[m][:, :, None] + pair + rest[:, None, :]
                counts = counts + (score - finite[:, None, None]).exp()
            after[m] = _lse(pair + rest[:, None, :], 2)
        at_end = (lengths == m)[:, None]
        after[m] = torch.where(at_end, closed, after[m] if m < N else closed - torch.inf)
    mu = torch.stack(rows[::-1], 1) if rows else torch.zeros_like(scores)
    return total, mu.to(dtype), counts.to(dtype)


def _encode(
    states: Tensor, rows: Tensor, start: Tensor, span: Tensor, label: Tensor, C: int
) -> None:
    """Writes a segment into ``states`` (R, N): its label where it begins, label + C after."""
    steps = torch.arange(states.shape[1], device=states.device)
    begin = (steps == start[:, None]) & rows[:, None]
    inside = (steps > start[:, None]) & (steps < (start + span)[:, None]) & rows[:, None]
    states[:] = torch.where(begin, label[:, None], torch.where(inside, label[:, None] + C, states))


def sample(segments: Tensor, transition: Tensor, lengths: Tensor, uniform: Tensor) -> Tensor:
    """Exact samples from uniforms (S, B, N, 2): states (S, B, N), -1 in padding."""
    scores, pair = _clean(segments, lengths), _wide(transition)
    B, N, K, C = scores.shape
    S = uniform.shape[0]
    ends, opens = _forward(scores, pair)
    all_ends, all_opens = torch.stack(ends, 1), torch.stack(opens, 1)
    states = torch.full((S * B, N), -1, dtype=torch.int64, device=scores.device)
    batch = torch.arange(B, device=scores.device).repeat(S)
    at = lengths.repeat(S)
    dice = _wide(uniform).reshape(S * B, N, 2)
    spans = torch.arange(K, device=scores.device)
    following: Tensor | None = None
    for step in range(N):
        live = at > 0
        score = all_ends[batch, at]
        if following is not None:
            score = score + torch.where((at < lengths[batch])[:, None], pair.T[following], 0.0)
        label = _draw(score, dice[:, step, 0])
        starts = at[:, None] - spans - 1
        ok = starts >= 0
        starts = starts.clamp(min=0)
        row = batch[:, None]
        ways = all_opens[row, starts, label[:, None]] + scores[row, starts, spans, label[:, None]]
        span = _draw(ways.masked_fill(~ok, -torch.inf), dice[:, step, 1]) + 1
        _encode(states, live, at - span, span, label, C)
        following = torch.where(live, label, torch.zeros_like(label))
        at = torch.where(live, at - span, at).clamp(min=0)
    return states.reshape(S, B, N)


def _draw(score: Tensor, dice: Tensor) -> Tensor:
    """Index drawn with probability softmax(score) by the uniform ``dice``; -inf is never drawn."""
    top = score.amax(1, keepdim=True)
    steps = (score - top.masked_fill(top == -torch.inf, 0.0)).exp().cumsum(1)
    total = steps[:, -1:]
    last = (steps < total).sum(1)
    return (steps <= dice[:, None] * total).sum(1).minimum(last)


def k_best(segments: Tensor, transition: Tensor, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best segmentations, states (k, B, N) and scores (k, B); -1 and -inf where fewer."""
    scores, pair = _clean(segments, lengths), _wide(transition)
    B, N, K, C = scores.shape
    empty = scores.new_full((B, k, C), -torch.inf)
    first = empty.clone()
    first[:, 0] = 0.0
    ends, opens = [empty], [first]  # (B, rank, C), best first
    nowhere = torch.zeros_like(empty, dtype=torch.int64)
    ends_from, opens_from = [nowhere], [nowhere]
    for m in range(1, N + 1):
        reach = range(min(K, m))
        ways = torch.cat([opens[m - j - 1] + scores[:, m - j - 1, j, None] for j in reach], 1)
        best, source = ways.topk(k, 1)
        ends.append(best)
        ends_from.append(source)  # span * k + rank
        onward = (best[..., None] + pair).reshape(B, k * C, C)
        best, source = onward.topk(k, 1)
        opens.append(best)
        opens_from.append(source)  # rank * C + label
    whole = torch.stack(ends, 1)
    last = whole[torch.arange(B, device=whole.device), lengths].flatten(1)  # (B, rank * C)
    found, place = last.topk(min(k, last.shape[1]), 1)
    short = k - found.shape[1]
    found = torch.cat([found, found.new_full((B, short), -torch.inf)], 1)
    place = torch.cat([place, place.new_zeros((B, short))], 1)
    found[lengths == 0] = -torch.inf
    found[lengths == 0, :1] = 0.0
    states = _unwind(torch.stack(ends_from, 1), torch.stack(opens_from, 1), place, lengths, k, C)
    states = states.masked_fill((found == -torch.inf)[..., None], -1)
    return states.movedim(1, 0), found.movedim(1, 0)


def _unwind(
    ends_from: Tensor, opens_from: Tensor, place: Tensor, lengths: Tensor, k: int, C: int
) -> Tensor:
    """Follows the k best final places (B, k) back to the start; states (B, k, N)."""
    B, N = ends_from.shape[0], ends_from.shape[1] - 1
    batch = torch.arange(B, device=place.device).repeat_interleave(k)
    at = lengths.repeat_interleave(k)
    rank, label = place.flatten() // C, place.flatten() % C
    states = torch.full((B * k, N), -1, dtype=torch.int64, device=place.device)
    for _ in range(N):
        live = at > 0
        source = ends_from[batch, at, rank, label]
        span, rank_open = source // k + 1, source % k
        start = (at - span).clamp(min=0)
        _encode(states, live, start, span, label, C)
        before = opens_from[batch, start, rank_open, label]
        rank = torch.where(live, before // C, rank)
        label = torch.where(live, before % C, label)
        at = torch.where(live, start, at)
    return states.reshape(B, k, N)
