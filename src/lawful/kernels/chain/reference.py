"""Linear chains in plain torch: the truth that the compiled kernels are measured against.

Messages are log-probabilities, normalised at every step, in float64 where the device has it, with
true -inf. Shapes: unary (B, N, C); transition (G, C, C), group g serving B/G consecutive batch
elements, or (B, N-1, C, C); lengths (B) int64 or None.
"""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["best", "log_partition", "marginals", "recursion", "sample", "tangent"]


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.device.type == "mps" else x.double()


def _safe(x: Tensor) -> Tensor:
    """-inf becomes 0, to be subtracted without making NaN."""
    return x.masked_fill(x == -torch.inf, 0.0)


def _lse(x: Tensor, dim: int) -> Tensor:
    top = _safe(x.detach().amax(dim, keepdim=True))
    total = (x - top).exp().sum(dim)
    # log(0) = -inf with a zero gradient instead of NaN.
    value = torch.where(total > 0, total, torch.ones_like(total)).log() + top.squeeze(dim)
    return torch.where(total > 0, value, torch.full_like(value, -torch.inf))


class _Steps:
    """The arguments in float64 with padding blanked, one step at a time."""

    def __init__(self, unary: Tensor, transition: Tensor, lengths: Tensor | None) -> None:
        self.B, self.N, self.C = unary.shape
        self.edge = transition.dim() == 4
        steps = torch.arange(self.N, device=unary.device)
        full = torch.full((self.B,), self.N, device=unary.device)
        self.lengths = full if lengths is None else lengths
        self.inside = steps < self.lengths[:, None]  # (B, N)
        self.unary = _wide(unary).masked_fill(~self.inside[..., None], 0.0)
        if self.edge:
            pairs = self.inside[:, 1:, None, None]
            self.transition = _wide(transition).masked_fill(~pairs, 0.0)
        else:
            groups = max(transition.shape[0], 1)
            shared = _wide(transition).repeat_interleave(self.B // groups, 0)
            self.transition = _wide(transition) if groups == 1 else shared

    def pair(self, t: int) -> Tensor:
        """Scores of step t -> t+1, (B or 1, C, C)."""
        return self.transition[:, t] if self.edge else self.transition

    def at(self, t: int, inside: Tensor, outside: Tensor) -> Tensor:
        """(B, ...): ``inside`` where step t exists, else ``outside``."""
        mask = self.inside[:, t].reshape(-1, *[1] * (inside.dim() - 1))
        return torch.where(mask, inside, outside)


def recursion(unary: Tensor, transition: Tensor, lengths: Tensor | None) -> Tensor:
    """log-partition (B) by the forward recursion, for autograd to any order."""
    s = _Steps(unary, transition, lengths)
    if s.N == 0:
        return s.unary.sum((1, 2))
    alpha = s.unary[:, 0]
    for t in range(1, s.N):
        new = _lse(alpha[:, :, None] + s.pair(t - 1), 1) + s.unary[:, t]
        alpha = s.at(t, new, alpha)
    return _lse(alpha, 1).masked_fill(s.lengths == 0, 0.0)


def _forward(s: _Steps) -> tuple[Tensor, list[Tensor]]:
    """log-partition, and log P(z_t | prefix) for each step."""
    total = s.unary.new_zeros(s.B)
    rows: list[Tensor] = []
    for t in range(s.N):
        row = s.unary[:, t]
        if t:
            row = row + _lse(rows[-1][:, :, None] + s.pair(t - 1), 1)
        scale = _lse(row, 1)
        rows.append(row - _safe(scale)[:, None])
        total = total + s.at(t, scale, torch.zeros_like(scale))
    return total, rows


def _backward(s: _Steps) -> list[Tensor]:
    """Log weights of the suffix after each step, up to a constant per step."""
    zero = s.unary.new_zeros(s.B, s.C)
    rows = [zero] * s.N
    for t in range(s.N - 2, -1, -1):
        row = _lse((rows[t + 1] + s.unary[:, t + 1])[:, None, :] + s.pair(t), 2)
        row = row - _safe(row.amax(1))[:, None]
        rows[t] = s.at(t + 1, row, zero)
    return rows


def _posterior(x: Tensor) -> Tensor:
    """Softmax over all but the first dimension, 0 where everything is -inf."""
    flat = x.flatten(1)
    weights = (flat - _safe(flat.amax(1))[:, None]).exp()
    total = weights.sum(1, keepdim=True)
    return (weights / total.masked_fill(total == 0, 1.0)).view_as(x)


def _pair_posterior(s: _Steps, t: int, alpha: list[Tensor], beta: list[Tensor]) -> Tensor:
    after = beta[t + 1] + s.unary[:, t + 1]
    p = _posterior(alpha[t][:, :, None] + s.pair(t) + after[:, None, :])
    return s.at(t + 1, p, torch.zeros_like(p))


def log_partition(unary: Tensor, transition: Tensor, lengths: Tensor | None) -> Tensor:
    """log-partition, (B) float64."""
    return _forward(_Steps(unary, transition, lengths))[0]


def marginals(
    unary: Tensor, transition: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """log-partition (B), P(z_t) (B, N, C), and pairs.

    Pairs are expected counts (B, C, C) for a shared transition, else P(z_t, z_{t+1})
    (B, N-1, C, C). All 0 in padding and where no path is possible.
    """
    s = _Steps(unary, transition, lengths)
    total, alpha = _forward(s)
    beta = _backward(s)
    mu = torch.zeros_like(s.unary)
    pairs = torch.zeros_like(s.transition) if s.edge else s.unary.new_zeros(s.B, s.C, s.C)
    possible = total > -torch.inf
    for t in range(s.N):
        p = _posterior(alpha[t] + beta[t])
        mu[:, t] = s.at(t, p, torch.zeros_like(p)) * possible[:, None]
        if t + 1 < s.N:
            both = _pair_posterior(s, t, alpha, beta) * possible[:, None, None]
            if s.edge:
                pairs[:, t] = both
            else:
                pairs += both
    return total, mu.to(unary.dtype), pairs.to(unary.dtype)


def tangent(
    unary: Tensor,
    transition: Tensor,
    lengths: Tensor | None,
    v_unary: Tensor | None,
    v_pair: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Hessian of the log-partition times a tangent, in the layout of (unary, transition).

    The posterior is a Markov chain; h_t and g_t are the means of the tangent summed over the prefix
    and over the suffix given z_t, and the result is a covariance with the total.
    """
    s = _Steps(unary, transition, lengths)
    total, alpha = _forward(s)
    beta = _backward(s)
    possible = (total > -torch.inf).to(s.unary.dtype)
    v = torch.zeros_like(s.unary) if v_unary is None else _wide(v_unary)
    v = v.masked_fill(~s.inside[..., None], 0.0)
    w = s.unary.new_zeros(1, 1, 1) if v_pair is None else _wide(v_pair)
    mu = [s.at(t, *_with_zero(_posterior(alpha[t] + beta[t]))) for t in range(s.N)]

    def step(t: int) -> Tensor:
        return w[:, t] if s.edge and v_pair is not None else w

    h: list[Tensor] = []
    for t in range(s.N):
        now = v[:, t]
        if t:
            back = _conditional(alpha[t - 1][:, :, None] + s.pair(t - 1), 1)
            now = now + (back * (h[-1][:, :, None] + step(t - 1))).sum(1)
        h.append(now - (mu[t] * now).sum(1, keepdim=True))
    g = [torch.zeros_like(v[:, 0])] * s.N if s.N else []
    pairs = torch.zeros_like(s.transition) if s.edge else s.unary.new_zeros(s.B, s.C, s.C)
    for t in range(s.N - 2, -1, -1):
        ahead = v[:, t + 1] + g[t + 1]
        onward = _conditional((beta[t + 1] + s.unary[:, t + 1])[:, None, :] + s.pair(t), 2)
        now = (onward * (step(t) + ahead[:, None, :])).sum(2)
        now = s.at(t + 1, now, torch.zeros_like(now))
        g[t] = now - (mu[t] * now).sum(1, keepdim=True)
        p = _pair_posterior(s, t, alpha, beta) * possible[:, None, None]
        whole = h[t][:, :, None] + step(t) + ahead[:, None, :]
        part = p * (whole - (p * whole).sum((1, 2), keepdim=True))
        if s.edge:
            pairs[:, t] = part
        else:
            pairs += part
    out = torch.zeros_like(s.unary)
    for t in range(s.N):
        out[:, t] = mu[t] * (h[t] + g[t]) * possible[:, None]
    if not s.edge:
        groups = max(transition.shape[0], 1)
        pairs = pairs.reshape(groups, s.B // groups, s.C, s.C).sum(1)
    return out.to(unary.dtype), pairs.to(unary.dtype)


def _with_zero(x: Tensor) -> tuple[Tensor, Tensor]:
    return x, torch.zeros_like(x)


def _conditional(x: Tensor, dim: int) -> Tensor:
    """Softmax over ``dim``, 0 where all of it is -inf."""
    weights = (x - _safe(x.amax(dim, keepdim=True))).exp()
    total = weights.sum(dim, keepdim=True)
    return weights / total.masked_fill(total == 0, 1.0)


def best(unary: Tensor, transition: Tensor, lengths: Tensor | None) -> Tensor:
    """A path of highest score, (B, N) int64, -1 in padding."""
    s = _Steps(unary, transition, lengths)
    rows: list[Tensor] = []
    for t in range(s.N):
        row = s.unary[:, t]
        if t:
            row = row + (rows[-1][:, :, None] + s.pair(t - 1)).amax(1)
        rows.append(row)
    return _trace(s, rows, 1, lambda score, t: score.argmax(-1))[0]


def sample(unary: Tensor, transition: Tensor, lengths: Tensor | None, uniform: Tensor) -> Tensor:
    """Backward sampling with given uniforms (S, B, N) in [0, 1): (S, B, N) int64."""
    s = _Steps(unary, transition, lengths)
    _, alpha = _forward(s)

    def choose(score: Tensor, t: int) -> Tensor:
        steps = _conditional(score, -1).cumsum(-1)
        total = steps[..., -1:]
        last = (steps < total).sum(-1)  # the highest state of positive weight
        return (steps <= uniform[:, :, t, None] * total).sum(-1).minimum(last)

    return _trace(s, alpha, uniform.shape[0], choose)


def _trace(
    s: _Steps, rows: list[Tensor], count: int, choose: Callable[[Tensor, int], Tensor]
) -> Tensor:
    """Chooses states from the end backwards, (count, B, N), given prefix scores ``rows``."""
    states = torch.full((count, s.B, s.N), -1, dtype=torch.int64, device=s.unary.device)
    for t in range(s.N - 1, -1, -1):
        score = rows[t].expand(count, s.B, s.C)
        if t + 1 < s.N:
            pair = s.pair(t).expand(s.B, s.C, s.C).mT  # [b, next, now]
            following = states[:, :, t + 1].clamp(min=0)
            lead = pair[torch.arange(s.B, device=pair.device), following]  # (count, B, C)
            score = score + torch.where(s.inside[:, t + 1, None], lead, torch.zeros_like(lead))
        chosen = choose(score, t)
        states[:, :, t] = torch.where(s.inside[:, t], chosen, torch.full_like(chosen, -1))
    return states


def k_best(
    unary: Tensor, transition: Tensor, lengths: Tensor | None, k: int
) -> tuple[Tensor, Tensor]:
    """The k best paths (k, B, N) and scores (k, B): -1 and -inf where fewer exist.

    Keeps, for each state, the best few prefixes that end there; O(N C^2 k) time.
    """
    s = _Steps(unary, transition, lengths)
    if s.N == 0 or s.C == 0:
        scores = s.unary.new_full((k, s.B), -torch.inf)
        scores[:1] = 0.0 if s.N == 0 else -torch.inf
        return s.lengths.new_full((k, s.B, s.N), -1), scores
    rows = s.unary[:, 0, None, :]  # (B, prefixes, C), best first
    back: list[Tensor] = []
    for t in range(1, s.N):
        kept = rows.shape[1]
        ways = (rows[..., None] + s.pair(t - 1)[:, None]).reshape(s.B, kept * s.C, s.C)
        new, source = ways.topk(min(k, kept * s.C), 1)
        new = new + s.unary[:, t, None, :]
        # A row that has ended keeps what it has: source (rank, state) = itself.
        stay = torch.arange(s.C, device=rows.device) + s.C * torch.arange(
            source.shape[1], device=rows.device
        ).unsqueeze(1)
        old = new.new_full(new.shape, -torch.inf)
        old[:, :kept] = rows[:, : old.shape[1]]
        rows = s.at(t, new, old)
        back.append(s.at(t, source, stay.expand_as(source)))
    flat = rows.flatten(1)
    found = min(k, flat.shape[1])
    best_scores, place = flat.topk(found, 1)
    states = s.lengths.new_full((s.B, k, s.N), -1)
    for t in range(s.N - 1, -1, -1):
        states[:, :found, t] = place % s.C
        if t:
            place = back[t - 1].flatten(1).gather(1, place)
    scores = flat.new_full((s.B, k), -torch.inf)
    scores[:, :found] = best_scores
    empty = s.lengths == 0
    scores[empty] = -torch.inf
    scores[empty, :1] = 0.0
    gone = (scores == -torch.inf)[..., None] | ~s.inside[:, None, :]
    return states.masked_fill(gone, -1).movedim(1, 0), scores.movedim(1, 0)
