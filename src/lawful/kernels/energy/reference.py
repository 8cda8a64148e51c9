"""The truth: one energy block in plain, differentiable torch. README.md derives the formulas."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from lawful.kernels.energy._plan import Params, Plan, pairs, split_heads, wide

__all__ = ["attention", "descend", "energy_and_update", "layer_norm", "memory"]


def layer_norm(x: Tensor, gamma: Tensor, delta: Tensor, eps: float) -> Tensor:
    """``γ (x - mean x) / sqrt(var x + ε) + δ`` over the last axis, with scalar ``gamma``."""
    return F.layer_norm(x, x.shape[-1:], eps=eps) * gamma + delta


def attention(q: Tensor, k: Tensor, plan: Plan, p: Params) -> tuple[Tensor, Tensor, Tensor]:
    """Energy of the attention and the two halves of its gradient.

    Args:
        q: Queries (B, H, N, Y).
        k: Keys (B, H, N, Y).
        plan: Constants of the block.
        p: Tensors of the block; beta, edge, mask and allowed are read.

    Returns:
        Energy (B,), ``P̃ K`` and ``P̃ᵀ Q`` (B, H, N, Y), where P̃ is the softmax over keys times
        the multiplicative edge weights.
    """
    n = q.shape[-2]
    beta = p.beta[:, None, None]
    s = (q @ k.mT).to(wide(q.dtype)) * beta
    if p.edge is not None:
        s = s * p.edge if plan.edge_form == "multiply" else s + p.edge
    can = pairs(plan, p, slice(0, n), n, q.device)
    if can is None:
        lse, weights = s.logsumexp(-1), s.softmax(-1)
    else:
        # Rows without any key get finite scores first, so that no NaN enters the derivative.
        empty = ~can.any(-1, keepdim=True)
        s = s.masked_fill(~can, float("-inf")).masked_fill(empty, 0.0)
        lse = s.logsumexp(-1).masked_fill(empty[..., 0], 0.0)
        weights = s.softmax(-1).masked_fill(~can, 0.0)
    energy = -(lse / p.beta[:, None]).sum((-1, -2))
    if p.edge is not None and plan.edge_form == "multiply":
        weights = weights * p.edge
    weights = weights.to(q.dtype)
    back = torch.zeros_like(q) if plan.causal else weights.mT @ q
    return energy, weights @ k, back


def memory(h: Tensor, plan: Plan, p: Params) -> tuple[Tensor, Tensor]:
    """Energy (B,) of the memories' pre-activations ``h`` (B, N, M), and the activations."""
    kind = wide(h.dtype)
    if plan.activation == "relu":
        a = h.relu()
        token = -0.5 * a.to(kind).square().sum(-1)
    elif plan.memories == 0 or plan.activation == "none":
        a, token = torch.zeros_like(h), h.new_zeros(h.shape[:-1], dtype=kind)
    else:
        assert p.memory_beta is not None
        scaled = h.to(kind) * p.memory_beta
        a, token = scaled.softmax(-1).to(h.dtype), -scaled.logsumexp(-1) / p.memory_beta
    if p.mask is not None:
        token, a = token.masked_fill(~p.mask, 0.0), a.masked_fill(~p.mask[..., None], 0.0)
    return token.sum(-1), a


def energy_and_update(g: Tensor, plan: Plan, p: Params) -> tuple[Tensor, Tensor]:
    """Energy (B,) at ``g`` (B, N, D) and ``-∂E/∂g``; causal: each query's own descent direction."""
    z = F.linear(g, p.weight, p.bias)
    q, k, h = torch.split_with_sizes(z, (plan.span, plan.span, plan.memories), -1)
    q, k = (split_heads(t, plan.heads, plan.width) for t in (q, k))
    e_attention, forth, back = attention(q, k, plan, p)
    e_memory, a = memory(h, plan, p)
    parts = [t.transpose(1, 2).flatten(-2) for t in (forth, back)]
    return e_attention + e_memory, torch.cat([*parts, a], -1) @ p.weight


def descend(x: Tensor, alphas: Sequence[Tensor | float], plan: Plan, p: Params) -> list[Tensor]:
    """``x ← x - α_t ∂E/∂g(LN(x))`` for each α_t (a number, or one for each sample).

    Returns:
        Flat list: the states after each step, then the energies (B,) before each step and at the
        end. Differentiable to any order, α included.
    """
    states, energies = [], []
    for alpha in alphas:
        energy, update = energy_and_update(layer_norm(x, p.gamma, p.delta, plan.eps), plan, p)
        x = x + alpha * update
        states.append(x)
        energies.append(energy)
    energies.append(energy_and_update(layer_norm(x, p.gamma, p.delta, plan.eps), plan, p)[0])
    return states + energies
