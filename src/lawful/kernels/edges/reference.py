"""The truth: attention over edges in plain, differentiable torch. README.md derives it."""

from typing import NamedTuple

import torch
from torch import Tensor

from lawful.kernels.edges._graph import Graph
from lawful.kernels.energy import reference as dense
from lawful.kernels.energy._plan import Params, Plan, wide

__all__ = ["Stage", "activations", "attention", "probabilities", "scores"]


class Stage(NamedTuple):
    """The tensors that stand between the two matmuls of a step, besides the pre-activations."""

    beta: Tensor  # (H,)
    memory_beta: Tensor | None = None  # (), softmax memories only
    weight: Tensor | None = None  # (E, 1) or (E, H): of each edge
    keep: Tensor | None = None  # (N, M): what each ReLU memory's energy is multiplied by


def scores(q: Tensor, k: Tensor, plan: Plan, p: Stage, graph: Graph) -> tuple[Tensor, Tensor]:
    """Logits (E, H) and which of them count: a weight of 0 (additive: -inf) is no edge."""
    s = (q[graph.target] * k[graph.source]).to(wide(q.dtype)).sum(-1) * p.beta
    if p.weight is None:
        return s, torch.ones_like(s, dtype=torch.bool)
    if plan.edge_form == "multiply":
        return s * p.weight, (p.weight != 0).expand(s.shape)
    real = p.weight != float("-inf")
    return s + p.weight.masked_fill(~real, 0.0), real.expand(s.shape)


def probabilities(s: Tensor, real: Tensor, graph: Graph) -> tuple[Tensor, Tensor]:
    """Softmax P (E, H) over the edges into each node, and its log-sum-exp (N, H).

    Both are zero where a node has no edge into it.
    """
    into = graph.target[:, None].expand(s.shape)
    top = s.detach().masked_fill(~real, float("-inf"))
    most = top.new_full((graph.nodes, s.shape[1]), float("-inf"))
    most = most.scatter_reduce(0, into, top, "amax")
    some = most > float("-inf")
    shift = most.masked_fill(~some, 0.0)
    mass = (s - shift[graph.target]).masked_fill(~real, float("-inf")).exp()
    total = torch.zeros_like(shift).index_add(0, graph.target, mass)
    total = torch.where(some | total.isnan(), total, 1.0)
    return mass / total[graph.target], shift + total.log()


def attention(
    q: Tensor, k: Tensor, plan: Plan, p: Stage, graph: Graph
) -> tuple[Tensor, Tensor, Tensor]:
    """Energy of each node's own query and the two halves of the gradient.

    Args:
        q: Queries (N, H, Y).
        k: Keys (N, H, Y).
        plan: Constants of the block.
        p: Tensors of the block.
        graph: The edges.

    Returns:
        Energy (N,), ``P̃ K`` and ``P̃ᵀ Q`` (N, H, Y), P̃ the softmax times the multiplicative edge
        weights.
    """
    prob, lse = probabilities(*scores(q, k, plan, p, graph), graph)
    energy = -(lse / p.beta).sum(-1)
    if p.weight is not None and plan.edge_form == "multiply":
        prob = prob * p.weight
    used = prob[..., None]
    blank = q.new_zeros(q.shape, dtype=used.dtype)
    forth = blank.index_add(0, graph.target, used * k[graph.source])
    back = blank.index_add(0, graph.source, used * q[graph.target])
    return energy, forth.to(q.dtype), back.to(q.dtype)


def memory(h: Tensor, plan: Plan, p: Stage) -> tuple[Tensor, Tensor]:
    """Energy (N,) of each node's memories and their activations (N, M)."""
    if p.keep is not None:
        a = h.relu()
        return -0.5 * (p.keep * a.to(wide(h.dtype)).square()).sum(-1), p.keep * a
    none = h.new_zeros(())
    one = Params(none, None, none, none, none, p.memory_beta, None, None, None)
    energy, a = dense.memory(h[:, None], plan, one)
    return energy, a[:, 0]


def activations(z: Tensor, plan: Plan, p: Stage, graph: Graph) -> tuple[Tensor, Tensor]:
    """Energy of each node (N,) and the activations (N, R) of the pre-activations ``z`` (N, R)."""
    q, k, h = torch.split_with_sizes(z, (plan.span, plan.span, plan.memories), -1)
    q, k = (t.reshape(len(z), plan.heads, plan.width) for t in (q, k))
    energy, forth, back = attention(q, k, plan, p, graph)
    more, a = memory(h, plan, p)
    return energy + more, torch.cat([forth.flatten(1), back.flatten(1), a], -1)
