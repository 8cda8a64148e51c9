"""Dependency trees as head arrays: heads[m] is the head of word m, -1 the root, -2 padding."""

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

__all__ = ["PAD", "ROOT", "all_trees", "is_tree", "k_best"]

ROOT = -1
PAD = -2
_CHUNK = 1 << 24  # numbers in one batch of constrained problems


def is_tree(heads: Tensor, lengths: Tensor | None, single_root: bool, projective: bool) -> Tensor:
    """Whether each row of heads (..., N) is a tree over its first ``lengths`` words; (...) bool."""
    n = heads.shape[-1]
    words = torch.arange(n, device=heads.device)
    end = torch.tensor(n, device=heads.device) if lengths is None else lengths
    inside = words < end[..., None]
    legal = (heads >= ROOT) & (heads < end[..., None]) & (heads != words)
    legal = (legal | ~inside).all(-1)
    roots = ((heads == ROOT) & inside).sum(-1)
    # Pointer doubling: after enough steps every word of a tree points to the root, slot n.
    up = torch.where(inside & (heads >= 0) & (heads < n), heads, n)
    up = torch.nn.functional.pad(up, (0, 1), value=n)
    for _ in range(max(n, 1).bit_length()):
        up = up.gather(-1, up)
    good = legal & (up == n).all(-1)
    if single_root:
        good = good & ((roots == 1) | (end == 0))
    return good & ~_crossing(heads, inside) if projective else good


def _crossing(heads: Tensor, inside: Tensor) -> Tensor:
    words = torch.arange(heads.shape[-1], device=heads.device)
    low, high = torch.minimum(heads, words), torch.maximum(heads, words)
    a, b = low[..., :, None], high[..., :, None]
    c, d = low[..., None, :], high[..., None, :]
    both = inside[..., :, None] & inside[..., None, :]
    return (both & (a < c) & (c < b) & (b < d)).flatten(-2).any(-1)


def all_trees(n: int, single_root: bool, projective: bool) -> Tensor:
    """Every tree of n words, (count, n), in lexicographic order; exponential in n."""
    if n == 0:
        return torch.zeros(1, 0, dtype=torch.int64)
    rows = [[h for h in range(ROOT, n) if h != m] for m in range(n)]
    candidates = torch.tensor(list(product(*rows)))
    return candidates[is_tree(candidates, None, single_root, projective)]


def k_best(
    k: int,
    arcs: Tensor,
    root: Tensor,
    lengths: Tensor,
    best: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
) -> tuple[Tensor, Tensor]:
    """The k best trees by Lawler's partition, given a solver for the best one.

    The trees other than the best one of a set are split by the first word whose head differs: word
    i has another head, all words before keep theirs. Each part is again a constrained problem.

    Args:
        k: How many.
        arcs: (B, N, N).
        root: (B, N).
        lengths: (B).
        best: Solver, (arcs, root, lengths) -> heads (B, N), scores (B), -inf if there is none.

    Returns:
        heads (k, B, N) and scores (k, B), best first; -2 and -inf where fewer exist. O(k N) calls.
    """
    batch, n = root.shape
    rows = torch.arange(batch, device=arcs.device)
    scores = torch.cat([root[:, None, :], arcs], 1)  # (B, 1 + N, N), head -1 first
    heads, score = best(arcs, root, lengths)
    pool_heads, pool_score = heads[:, None], score[:, None]  # (B, P, N), (B, P)
    pool_fixed = torch.zeros(batch, 1, dtype=torch.int64, device=arcs.device)
    pool_banned = torch.zeros(batch, 1, n + 1, dtype=torch.bool, device=arcs.device)
    found, values = [], []
    for step in range(k):
        value, at = pool_score.max(-1)
        chosen = pool_heads[rows, at].masked_fill((value == -torch.inf)[:, None], PAD)
        found.append(chosen)
        values.append(value)
        pool_score[rows, at] = -torch.inf
        if step + 1 == k or root.numel() == 0:
            continue
        fixed, banned = pool_fixed[rows, at], pool_banned[rows, at]
        parts = _split(scores, lengths, chosen, fixed, banned, best)
        pool_heads = torch.cat([pool_heads, parts[0]], 1)
        pool_score = torch.cat([pool_score, parts[1]], 1)
        words = torch.arange(n, device=arcs.device).expand(batch, n)
        pool_fixed = torch.cat([pool_fixed, words], 1)
        pool_banned = torch.cat([pool_banned, parts[2]], 1)
    return torch.stack(found), torch.stack(values)


def _split(
    scores: Tensor,
    lengths: Tensor,
    chosen: Tensor,
    fixed: Tensor,
    banned: Tensor,
    best: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
) -> tuple[Tensor, Tensor, Tensor]:
    """Best trees (B, N, N), scores (B, N) and bans (B, N, 1 + N) of the part of each word."""
    batch, n = chosen.shape
    words = torch.arange(n, device=chosen.device)
    mine = torch.nn.functional.one_hot((chosen + 1).clamp(min=0), n + 1).bool()  # (B, N, 1 + N)
    bans = mine | (banned[:, None, :] & (words == fixed[:, None])[..., None])
    heads, values = [], []
    step = max(1, _CHUNK // max(1, scores[0].numel() * n))
    for s in range(0, batch, step):
        e = min(batch, s + step)
        part = scores[s:e, None].expand(-1, n, -1, -1)  # (b, part, 1 + N, word)
        before = words < words[:, None]  # (part, word)
        barred = before[:, None, :] & ~mine[s:e].mT[:, None]
        at = (words == words[:, None])[:, None, :] & bans[s:e].mT[:, None]
        part = part.masked_fill(barred | at, -torch.inf).reshape(-1, n + 1, n)
        h, v = best(part[:, 1:], part[:, 0], lengths[s:e].repeat_interleave(n))
        heads.append(h.reshape(-1, n, n))
        values.append(v.reshape(-1, n))
    exists = (words >= fixed[:, None]) & (words < lengths[:, None]) & (chosen[:, :1] != PAD)
    value = torch.cat(values).masked_fill(~exists, -torch.inf)
    return torch.cat(heads), value, bans
