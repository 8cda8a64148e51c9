"""The quick plain-torch path: normalised probabilities in float64, few operations per step.

Same results as `reference`, which it hands over to (by returning None) when a probability may have
left float64's range. Derivation and range check: README.md. Shapes as in `reference`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["marginals", "tangent"]

LIMIT = 1e180  # largest suffix weight / step scale


class _Messages(NamedTuple):
    a: Tensor  # (B, N, C) prefix probabilities
    b: Tensor  # (B, N, C) suffix weights
    f: Tensor  # (B, N, C) b * scores / step scale; 0 in padding
    weights: Tensor  # exp(transition - max): (B or 1, C, C) or (B, N-1, C, C)
    log_partition: Tensor  # (B)
    inside: Tensor  # (B, N)


def _applies(unary: Tensor) -> bool:
    sizes = unary.shape[0] > 0 and unary.shape[1] > 0 and unary.shape[2] > 0
    return sizes and unary.device.type != "mps" and not torch.compiler.is_compiling()


def _top(x: Tensor, dims: int) -> Tensor:
    top = x.flatten(-dims).amax(-1)
    return top.masked_fill(top == -torch.inf, 0.0)


def _messages(unary: Tensor, transition: Tensor, lengths: Tensor | None) -> _Messages | None:
    B, N, _ = unary.shape
    steps = torch.arange(N, device=unary.device)
    inside = torch.ones(B, N, dtype=torch.bool, device=unary.device)
    if lengths is not None:
        inside = steps < lengths[:, None]
    u, x = unary.double(), transition.double()
    if lengths is not None:
        u = u.masked_fill(~inside[..., None], 0.0)
        if x.dim() == 4:
            x = x.masked_fill(~inside[:, 1:, None, None], 0.0)
    peak, high = _top(u, 1), _top(x, 2)
    weights = (x - high[..., None, None]).exp()
    if x.dim() == 3 and x.shape[0] > 1:
        weights = weights.repeat_interleave(B // x.shape[0], 0)
        high = high.repeat_interleave(B // x.shape[0], 0)
    e = (u - peak[..., None]).exp()
    a, scale = _prefixes(e, weights)
    psi = e / scale
    b = _suffixes(psi, weights, inside if lengths is not None else None)
    lost = ~((b.amax(-1) / scale[..., 0] <= LIMIT) & (scale[..., 0] > 1 / LIMIT))
    if bool((lost & inside).any()):
        return None
    log_scale = torch.where(inside, scale[..., 0].log() + peak, 0.0).sum(1)
    count = (inside.sum(1) - 1).clamp(min=0)
    moves = torch.where(inside[:, 1:], high, 0.0).sum(1) if x.dim() == 4 else high * count
    f = torch.where(inside[..., None], psi * b, 0.0)
    return _Messages(a, b, f, weights, log_scale + moves, inside)


def _per_step(weights: Tensor, steps: int) -> list[Tensor]:
    """The matrix of each step, with no batch dimension where it is shared."""
    if weights.dim() == 4:
        return list(weights.unbind(1))
    return [weights[0] if weights.shape[0] == 1 else weights] * steps


def _times(x: Tensor, matrix: Tensor) -> Tensor:
    """Row vectors (B, C) times (C, C) or (B, C, C)."""
    return x @ matrix if matrix.dim() == 2 else torch.bmm(x.unsqueeze(1), matrix).squeeze(1)


def _prefixes(e: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    rows, scales = [], []
    a = None
    matrices = [None, *_per_step(weights, e.shape[1] - 1)]
    for now, matrix in zip(e.unbind(1), matrices, strict=True):
        raw = now if a is None or matrix is None else now * _times(a, matrix)
        scale = raw.sum(1, keepdim=True)
        a = raw / scale
        rows.append(a)
        scales.append(scale)
    return torch.stack(rows, 1), torch.stack(scales, 1)


def _suffixes(psi: Tensor, weights: Tensor, inside: Tensor | None) -> Tensor:
    b = torch.ones_like(psi[:, 0])
    rows = [b]
    ones = b
    matrices = _per_step(weights.mT, psi.shape[1] - 1)
    for t in range(psi.shape[1] - 1, 0, -1):
        b = _times(psi[:, t] * b, matrices[t - 1])
        if inside is not None:
            b = torch.where(inside[:, t, None], b, ones)
        rows.append(b)
    return torch.stack(rows[::-1], 1)


def _pairs(m: _Messages, left: Tensor, right: Tensor) -> Tensor:
    """left_t(i) W(i, j) right_{t+1}(j), summed over steps unless each step has its own W."""
    if m.weights.dim() == 4:
        return left[:, :-1, :, None] * m.weights * right[:, 1:, None, :]
    return m.weights * (left[:, :-1].mT @ right[:, 1:])


def marginals(
    unary: Tensor, transition: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor] | None:
    """As `reference.marginals`; None if that has to do it."""
    m = _messages(unary, transition, lengths) if _applies(unary) else None
    if m is None:
        return None
    mu = torch.where(m.inside[..., None], m.a * m.b, 0.0)
    a = torch.where(m.inside[..., None], m.a, 0.0)
    return m.log_partition, mu.to(unary.dtype), _pairs(m, a, m.f).to(unary.dtype)


def tangent(
    unary: Tensor,
    transition: Tensor,
    lengths: Tensor | None,
    v_unary: Tensor | None,
    v_pair: Tensor | None,
) -> tuple[Tensor, Tensor] | None:
    """As `reference.tangent`; None if that has to do it."""
    m = _messages(unary, transition, lengths) if _applies(unary) else None
    if m is None:
        return None
    B, _, C = unary.shape
    mask = m.inside[..., None]
    a, b, mu = (torch.where(mask, x, 0.0) for x in (m.a, m.b, m.a * m.b))
    v = torch.zeros_like(mu) if v_unary is None else torch.where(mask, v_unary.double(), 0.0)
    w = None if v_pair is None else v_pair.double()
    ahead = behind = None
    if w is not None:  # what the pairs' own tangent adds to each step's mean
        weighted = torch.where(m.weights > 0, m.weights * w, 0.0)
        matrix = weighted if weighted.dim() == 4 else weighted.unsqueeze(1)
        ahead = (a[:, :-1, None, :] @ matrix)[:, :, 0] * m.f[:, 1:]
        behind = (matrix @ m.f[:, 1:, :, None])[..., 0]
    h = _prefix_means(m, a, mu, v, ahead)
    g = _suffix_means(m, b, v, behind)
    whole = (mu * (h + g)).sum(-1, keepdim=True)
    result = mu * (h + g - whole)
    middle = whole[:, :1]  # the mean of the whole tangent is the same at every step
    pairs = _pairs(m, a * (h - middle), m.f) + _pairs(m, a, m.f * (v + g))
    if w is not None:
        pairs = pairs + torch.where(m.weights > 0, w, 0.0) * _pairs(m, a, m.f)
    if transition.dim() == 3:
        groups = transition.shape[0]
        pairs = pairs.reshape(groups, B // groups, C, C).sum(1)
    return result.to(unary.dtype), pairs.to(unary.dtype)


def _prefix_means(m: _Messages, a: Tensor, mu: Tensor, v: Tensor, ahead: Tensor | None) -> Tensor:
    """Mean of the tangent up to each step, given its state; (B, N, C)."""
    N = mu.shape[1]
    inverse = torch.where(mu > 0, 1 / mu.masked_fill(mu == 0, 1.0), 0.0)
    base = mu * v
    if ahead is not None:
        base = torch.cat([base[:, :1], base[:, 1:] + ahead], 1)
    base = base * inverse
    gain = m.f * inverse
    matrices = _per_step(m.weights, N - 1)
    rows = [base[:, 0]]
    for t in range(1, N):
        rows.append(base[:, t] + gain[:, t] * _times(a[:, t - 1] * rows[-1], matrices[t - 1]))
    return torch.stack(rows, 1)


def _suffix_means(m: _Messages, b: Tensor, v: Tensor, behind: Tensor | None) -> Tensor:
    """Mean of the tangent after each step, given its state; (B, N, C)."""
    N = v.shape[1]
    inverse = torch.where(b > 0, 1 / b.masked_fill(b == 0, 1.0), 0.0)
    matrices = _per_step(m.weights.mT, N - 1)
    g = torch.zeros_like(v[:, 0])
    rows = [g]
    for t in range(N - 1, 0, -1):
        g = _times(m.f[:, t] * (v[:, t] + g), matrices[t - 1])
        if behind is not None:
            g = g + behind[:, t - 1]
        g = g * inverse[:, t - 1]
        rows.append(g)
    return torch.stack(rows[::-1], 1)
