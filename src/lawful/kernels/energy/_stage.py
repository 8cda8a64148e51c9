"""Between the two matmuls of a step: activations, energy, and their derivative, in plain torch.

Queries are taken in blocks, so that no N x N matrix is ever whole when it would be large.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lawful.kernels.energy._plan import Params, Plan, pairs, split_heads, wide

BLOCK_ELEMENTS = 1 << 22  # scores alive at a time: 16 MB in float32


class Cotangents(NamedTuple):
    """What `pull` returns: derivatives with respect to the constants of the energy."""

    beta: Tensor  # (H,)
    memory_beta: Tensor | None  # ()
    edge: Tensor | None  # like edge


def _heads(plan: Plan, z: Tensor) -> tuple[Tensor, Tensor]:
    """Query and key columns of ``z`` as views (B, H, N, Y)."""
    q, k = (z[..., i * plan.span : (i + 1) * plan.span] for i in (0, 1))
    return split_heads(q, plan.heads, plan.width), split_heads(k, plan.heads, plan.width)


def _blocks(plan: Plan, batch: int, n: int) -> Iterator[slice]:
    size = max(1, BLOCK_ELEMENTS // max(1, batch * plan.heads * n))
    return (slice(i, min(i + size, n)) for i in range(0, n, size))


def _scores(plan: Plan, p: Params, q: Tensor, k: Tensor, rows: slice) -> Tensor:
    """Logits (B, H, rows, N) of a block of queries; forbidden pairs are -inf."""
    s = (q[:, :, rows] @ k.mT).to(wide(q.dtype))
    s *= p.beta[:, None, None]
    if p.edge is not None:
        edge = p.edge[:, :, rows]
        s = s.mul_(edge) if plan.edge_form == "multiply" else s.add_(edge)
    if plan.causal or p.mask is not None or p.allowed is not None:
        can = pairs(plan, p, rows, k.shape[-2], q.device)
        assert can is not None
        s.masked_fill_(~can, float("-inf"))
    elif not plan.self_attention:
        s.diagonal(rows.start, -2, -1).fill_(float("-inf"))
    return s


def _log_normaliser(s: Tensor) -> Tensor:
    """Log-sum-exp over keys (B, H, rows); 0 where a query has no key."""
    lse = s.logsumexp(-1)
    return lse.masked_fill_(lse == float("-inf"), 0.0)


def push(plan: Plan, p: Params, z: Tensor, out: Tensor) -> Tensor:
    """Writes the activations of ``z`` (B, N, R) to ``out`` (may be ``z`` itself).

    Returns:
        Energy (B,).
    """
    b, n, _ = z.shape
    q, k = _heads(plan, z)
    q_out, k_out = _heads(plan, out)
    lse = torch.empty((b, plan.heads, n), dtype=wide(z.dtype), device=z.device)
    back = torch.zeros(k.shape, dtype=wide(z.dtype), device=z.device)
    for rows in _blocks(plan, b, n):
        s = _scores(plan, p, q, k, rows)
        lse[:, :, rows] = _log_normaliser(s)
        weights = s.sub_(lse[:, :, rows, None]).exp_()
        if p.edge is not None and plan.edge_form == "multiply":
            weights *= p.edge[:, :, rows]
        weights = weights.to(q.dtype)
        if not plan.causal:
            back += weights.mT @ q[:, :, rows]
        q_out[:, :, rows] = weights @ k
    k_out.copy_(back)
    energy = -(lse / p.beta[:, None]).sum((-1, -2))
    return energy + _memory(plan, p, z, out)


def _memory(plan: Plan, p: Params, z: Tensor, out: Tensor) -> Tensor:
    """Memory columns: activations into ``out``; returns their energy (B,)."""
    h, a = z[..., 2 * plan.span :], out[..., 2 * plan.span :]
    kind = wide(z.dtype)
    if plan.memories == 0 or plan.activation == "none":
        return torch.zeros(z.shape[0], dtype=kind, device=z.device)
    if plan.activation == "relu":
        if a is not h and a.data_ptr() != h.data_ptr():
            a.copy_(h)
        a.relu_()
        if p.mask is not None:
            a *= p.mask[..., None]
        return -0.5 * a.to(kind).square().sum((-1, -2))
    assert p.memory_beta is not None
    scaled = h.to(kind) * p.memory_beta
    token = scaled.logsumexp(-1)
    a.copy_(scaled.sub_(token[..., None]).exp_())
    if p.mask is not None:
        a *= p.mask[..., None]
        token = token * p.mask
    return -token.sum(-1) / p.memory_beta


def pull(
    plan: Plan,
    p: Params,
    z: Tensor,
    c: Tensor,
    ebar: Tensor | None,
    to: tuple[Tensor, Tensor],
    want_edge: bool = False,
) -> Cotangents:
    """Derivative of ``<c, activations(z)> + <ebar, energy(z)>``.

    Args:
        plan: Constants of the block.
        p: Tensors of the block.
        z: Pre-activations (B, N, R).
        c: Cotangent of the activations (B, N, R).
        ebar: Cotangent of the energy (B,), or None for zero.
        to: Where the derivative with respect to z and the activations are written (B, N, R).
        want_edge: Whether the derivative of the edge weights is needed.
    """
    dbeta, dedge = _pull_attention(plan, p, z, c, ebar, to, want_edge)
    return Cotangents(dbeta, _pull_memory(plan, p, z, c, ebar, to), dedge)


def _pull_attention(
    plan: Plan,
    p: Params,
    z: Tensor,
    c: Tensor,
    ebar: Tensor | None,
    to: tuple[Tensor, Tensor],
    want_edge: bool,
) -> tuple[Tensor, Tensor | None]:
    (q, k), (a, b) = _heads(plan, z), _heads(plan, c)
    (dq, dk), (q_out, k_out) = _heads(plan, to[0]), _heads(plan, to[1])
    kind, multiply = wide(z.dtype), p.edge is not None and plan.edge_form == "multiply"
    dk_sum, back = (torch.zeros(k.shape, dtype=kind, device=z.device) for _ in "12")
    beta = p.beta[:, None, None]
    dbeta = torch.zeros(plan.heads, dtype=kind, device=z.device)
    dedge = torch.zeros_like(p.edge) if want_edge and p.edge is not None else None
    scale = None if ebar is None else ebar.to(kind)[:, None, None, None] / beta
    for rows in _blocks(plan, z.shape[0], z.shape[1]):
        s = _scores(plan, p, q, k, rows)
        lse = _log_normaliser(s)
        prob = (s - lse[..., None]).exp_()
        edge = p.edge[:, :, rows] if p.edge is not None else None
        used = prob if not multiply or edge is None else prob * edge
        dp_used = (a[:, :, rows] @ k.mT).to(kind)
        if not plan.causal:
            dp_used += q[:, :, rows] @ b.mT
        ds = dp_used if not multiply or edge is None else dp_used * edge
        ds = prob * (ds - (prob * ds).sum(-1, keepdim=True))
        if scale is not None and ebar is not None:
            ds -= scale * prob
            dbeta += (ebar[:, None] * lse.sum(-1)).sum(0) / p.beta.square()
        # β A, times the edge weight where there is one; forbidden pairs have ds = 0.
        raw = s.masked_fill_(s == float("-inf"), 0.0)
        raw = raw - edge if edge is not None and not multiply else raw
        dbeta += (ds * raw).sum((0, -1, -2)) / p.beta
        if dedge is not None:
            _add_edge(plan, p, dedge, rows, q, k, ds, prob * dp_used)
        da = ds * beta if not multiply or edge is None else ds * beta * edge
        da, used = da.to(q.dtype), used.to(q.dtype)
        dq_rows = da @ k
        dk_sum += da.mT @ q[:, :, rows] + used.mT @ a[:, :, rows]
        if not plan.causal:
            dq_rows = dq_rows + used @ b
            back += used.mT @ q[:, :, rows]
        dq[:, :, rows] = dq_rows
        q_out[:, :, rows] = used @ k
    dk.copy_(dk_sum)
    k_out.copy_(back)
    return dbeta, dedge


def _add_edge(
    plan: Plan,
    p: Params,
    dedge: Tensor,
    rows: slice,
    q: Tensor,
    k: Tensor,
    ds: Tensor,
    direct: Tensor,
) -> None:
    """Adds a block's derivative of the edge weights, summed over the axes they broadcast along."""
    if plan.edge_form == "multiply":
        ds = direct + ds * ((q[:, :, rows] @ k.mT) * p.beta[:, None, None])
    axes = [i for i in (0, 1) if dedge.shape[i] == 1]
    dedge[:, :, rows] += ds.sum(axes, keepdim=True) if axes else ds


def _pull_memory(
    plan: Plan, p: Params, z: Tensor, c: Tensor, ebar: Tensor | None, to: tuple[Tensor, Tensor]
) -> Tensor | None:
    h, ch, dh, out = (t[..., 2 * plan.span :] for t in (z, c, *to))
    if plan.memories == 0 or plan.activation == "none":
        return None
    if plan.activation == "relu":
        torch.clamp(h, min=0, out=out)
        dh.copy_(ch)
        dh *= h > 0
        if p.mask is not None:
            dh *= p.mask[..., None]
            out *= p.mask[..., None]
        if ebar is not None:
            dh -= ebar.to(h.dtype)[:, None, None] * out
        return None
    assert p.memory_beta is not None
    kind, beta = wide(z.dtype), p.memory_beta
    raw = h.to(kind)
    token = (raw * beta).logsumexp(-1, keepdim=True)
    prob = (raw * beta - token).exp_()
    if p.mask is not None:
        prob, token = prob * p.mask[..., None], token * p.mask[..., None]
    centred = prob * (ch - (prob * ch).sum(-1, keepdim=True))
    grad, dbeta = beta * centred, (centred * raw).sum()
    if ebar is not None:
        e = ebar.to(kind)[:, None, None]
        grad -= e * prob
        dbeta += (e * (token / beta.square() - (prob * raw).sum(-1, keepdim=True) / beta)).sum()
    dh.copy_(grad)
    out.copy_(prob)
    return dbeta.to(beta.dtype)
