"""What the energy layers on graphs promise, declared beside them."""

import copy
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lawful.energy._edges import Edges, Membership, membership, prepared
from lawful.energy._graph_attention import GraphEnergyAttention
from lawful.energy._graph_transformer import GraphEnergyTransformer
from lawful.energy._laws import _descent_of, _double, _relative
from lawful.laws import Call, Law, Measurement, declare

_PAPER = "Hoover et al. 2023"


class _Given(NamedTuple):
    """A call of either layer: nodes, edges in use and their weights, the graph of each node."""

    x: Tensor
    edges: Edges
    weight: Tensor | None
    batch: Tensor | None
    members: Membership


def _given(call: Call, *names: str) -> _Given:
    named = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    x, batch = named[names[0]], named.get("batch")
    first = getattr(call.layer, "attention", call.layer)
    edges = prepared(named["edge_index"], len(x), first.self_attention, x)
    weight = edges.weigh(named.get("edge_weight"), first.heads, first.edge_form, x)
    # Taken again as given, the edges in use are those in use.
    edges = Edges.of(edges.edge_index, len(x), first.self_attention)
    members = membership(batch, named.get("graphs"), len(x), x.device)
    return _Given(x, edges, weight, batch, members)


def _transformer(call: Call) -> tuple[Any, _Given]:
    """A copy of the layer without dropout, and what it was called with."""
    given = _given(call, "tokens", "edge_index", "edge_weight", "batch", "return_energy")
    return copy.deepcopy(call.layer).eval(), given


def _settle(layer: Any, at: _Given, **options: Any) -> Any:
    batch, graphs = at.batch, None if at.batch is None else at.members.graphs
    with torch.no_grad():
        return layer.settle(
            at.x, at.edges, at.weight, batch, graphs=graphs, langevin=False, **options
        )


def _step(call: Call) -> Measurement:
    """As for the dense transformer, the fitted length being that of each graph."""
    layer, at = _transformer(call)
    exact = copy.deepcopy(layer).double()
    block = exact._blocks()[0]
    with torch.enable_grad():
        g = block.norm(at.x.detach().double()).detach().requires_grad_()
        total = block.attention.energy(g, at.edges, _double(at.weight)).sum()
        total = total + block.hopfield.energy(g)
        (slope,) = torch.autograd.grad(total, g)
    path = _settle(layer, at, trajectory=True, steps=1).trajectory
    path = (path if path.dim() == 3 else path[0]).double()
    moved, along = path[1] - path[0], -slope

    def norm(v: Tensor) -> Tensor:
        return at.members.total(v.square().sum(-1)).sqrt()

    length = at.members.total((moved * along).sum(-1)) / norm(along).square().clamp_min(1e-30)
    gap = norm(moved - at.members.spread(length.clamp_min(0.0)) * along)
    # What a step adds is rounded to the precision of the state it is added to.
    noise = torch.finfo(at.x.dtype).eps * norm(path[0])
    return Measurement.worst((gap - noise).clamp_min(0) / norm(moved).clamp_min(1e-30))


def _descent(call: Call) -> Measurement:
    layer, at = _transformer(call)
    return _descent_of(_settle(layer, at).energies.double(), -2)


def _permutation(call: Call) -> Measurement:
    layer, at = _transformer(call)
    order = torch.randperm(len(at.x), generator=call.generator).to(at.x.device)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    edges = Edges.of(place[at.edges.edge_index], len(order), at.edges.self_loops)
    batch = None if at.batch is None else at.batch[order]
    members = replace(at.members, batch=batch)
    turned = at._replace(x=at.x[order], edges=edges, batch=batch, members=members)
    plain, other = (_settle(layer, one, energies=False).tokens for one in (at, turned))
    return Measurement.worst(_relative(other, plain[order].double()))


def _alone(edges: Edges) -> Tensor:
    """Nodes without an edge to another node (N,) bool."""
    source, target = edges.edge_index
    alone = torch.ones(edges.num_nodes, dtype=torch.bool, device=source.device)
    alone[edges.edge_index[:, source != target].flatten()] = False
    return alone


def _noisy(at: _Given, where: Tensor, generator: torch.Generator) -> _Given:
    noise = torch.randn(at.x.shape, generator=generator).to(at.x) * 10
    return at._replace(x=torch.where(where[:, None], noise, at.x))


def _isolation(call: Call) -> Measurement:
    """How much the nodes that have edges notice of those that have none."""
    layer, at = _transformer(call)
    alone = _alone(at.edges)
    outs = [
        _settle(layer, one, energies=False).tokens
        for one in (at, _noisy(at, alone, call.generator))
    ]
    gap = (outs[0] - outs[1]).abs()[~alone]
    return replace(Measurement.worst(gap), cases=int(alone.sum()))


def _untouched(call: Call) -> Measurement:
    """The update of nodes without any edge."""
    at = _given(call, "g", "edge_index", "edge_weight")
    layer, bare = call.layer, torch.ones(len(at.x), dtype=torch.bool, device=at.x.device)
    bare[at.edges.edge_index.flatten()] = False
    with torch.no_grad():
        moved = layer(at.x, at.edges, at.weight)[bare]
    return replace(Measurement.worst(moved.abs()), cases=int(bare.sum()))


def _own_steps(call: Call) -> bool:
    """A searched length is that of a whole graph, and so of its lone nodes too."""
    return bool(call.layer._blocks()[0].step_rule != "backtracking")


declare(
    GraphEnergyAttention,
    Law("untouched", "a node without edges is not moved", "design", _untouched, 0.0),
)
GRAPH_LAWS = (
    Law(
        "step",
        "a step goes along minus the gradient of the energy (autograd in float64)",
        f"{_PAPER}, equation 6",
        _step,
        {torch.float64: 1e-8, torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.05},
    ),
    Law(
        "descent",
        "the energy of each graph never rises from step to step",
        f"{_PAPER}, section 2; holds exactly for the rule backtracking",
        _descent,
        {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 0.02, torch.float16: 2e-3},
    ),
    Law(
        "permutation",
        "renumbered nodes give the renumbered result",
        "design",
        _permutation,
        {torch.float64: 1e-10, torch.float32: 2e-4, torch.bfloat16: 0.1, torch.float16: 0.02},
    ),
    Law(
        "isolation",
        "a node without edges changes no bit of the others",
        "design",
        _isolation,
        0.0,
        applies=_own_steps,
    ),
)
declare(GraphEnergyTransformer, *GRAPH_LAWS)
