"""The Energy Transformer on graphs keeps its laws, and every law catches a broken layer."""

import pytest
import torch
from torch import nn

import lawful
from lawful.energy import (
    GRAPH_LAWS,
    Edges,
    GraphEnergyAttention,
    GraphEnergyTransformer,
    HopfieldNetwork,
)
from lawful.laws import laws_of

OPTIONS = {
    "plain": {},
    "backtracking": {"step_rule": "backtracking", "step_size": 100.0},
    "learned": {"step_rule": "learned"},
    "softmax": {"activation": "softmax", "memory_beta": 1.0},
    "no self": {"self_attention": False, "bias": True, "learn_beta": True},
    "added": {"edge_form": "add"},
    "blocks": {"blocks": 2},
    "dropout": {"dropout": 0.5},
    "recompute": {"recompute": True},
}


def model(dtype=torch.float32, **options):
    torch.manual_seed(0)
    made = {"heads": 2, "head_dim": 4, "memories": 12, "steps": 4, **options}
    return GraphEnergyTransformer(8, **made, dtype=dtype)


def inputs(dtype=torch.float32, prepare=None):
    """Two graphs of directed, weighted edges; node 4 has none."""
    g = torch.Generator().manual_seed(3)
    tokens = torch.randn(9, 8, generator=g, dtype=torch.float64).to(dtype)
    edges = torch.tensor([[0, 1, 1, 3, 2, 2, 5, 6, 8, 8], [1, 0, 2, 1, 2, 0, 6, 7, 5, 8]])
    weight = torch.rand(10, 2, generator=g, dtype=torch.float64).to(dtype) + 0.5
    batch = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1])
    if prepare is not None:
        edges = Edges.of(edges, 9, self_loops=prepare)
    return tokens, edges, weight, batch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", list(OPTIONS))
def test_every_form_keeps_every_law(name, dtype, backend):
    made = model(dtype, **OPTIONS[name])
    certificate = lawful.check(made, *inputs(dtype))
    assert certificate.holds, f"\n{certificate}"
    own = {r.law for r in certificate if r.layer == "(itself)" and r.holds}
    promised = {law.name for law in GRAPH_LAWS}
    assert own >= promised - ({"isolation"} if name == "backtracking" else set())


@pytest.mark.parametrize("self_attention", [False, True])
def test_prepared_edges_and_examples(self_attention):
    made = model(self_attention=self_attention)
    assert lawful.check(made, *inputs(prepare=self_attention)).holds
    own = lawful.check(made)
    assert own.holds
    rows = {(r.layer, r.law): r.holds for r in own}
    assert rows["blocks.0.attention", "update"]
    assert rows["blocks.0.attention", "untouched"] is (None if self_attention else True)
    assert rows["(itself)", "isolation"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_keeps_its_laws(dtype, backend):
    layer = GraphEnergyAttention(8, 2, 4, self_attention=False, dtype=dtype)
    certificate = lawful.check(layer, *inputs(dtype)[:3])
    assert certificate.holds, f"\n{certificate}"
    assert {"update", "untouched"} <= {r.law for r in certificate if r.holds}


def test_backtracking_is_exact():
    made = model(step_rule="backtracking", step_size=1e3, steps=30, dtype=torch.float32)
    with torch.no_grad():
        made.attention.query.copy_(-made.attention.key)
        tokens, edges, weight, batch = inputs()
        _, energies = made(0.01 * tokens, edges, weight, batch, True)
    assert (energies.diff(dim=0) <= 0).all()
    assert (energies[0] > energies[-1]).all()


class OneSum(GraphEnergyAttention):
    """The usual attention: the half of the gradient that goes through the queries."""

    def forward(self, g, edge_index, edge_weight=None):
        _, out, matrix = self._run(g, edge_index, edge_weight)
        half = self.heads * self.head_dim
        return out[:, :half] @ matrix[:half]


class MovesAll(GraphEnergyAttention):
    def forward(self, g, edge_index, edge_weight=None):
        return super().forward(g, edge_index, edge_weight) + 1e-6 * g


class Meeting(GraphEnergyTransformer):
    """Nodes see the mean of all."""

    def settle(self, tokens, *args, **kwargs):
        found = super().settle(tokens, *args, **kwargs)
        return found._replace(tokens=found.tokens + 1e-3 * tokens.mean(0))


class KnowsPlaces(GraphEnergyTransformer):
    def settle(self, tokens, *args, **kwargs):
        return super().settle(tokens + torch.arange(len(tokens))[:, None], *args, **kwargs)


def uphill():
    """A negative scale turns the descent round."""
    made = model(step_size=0.5)
    nn.init.constant_(made.norm.gamma, -1.0)
    return made


def other_energy():
    """The step descends something else than the energy that is told."""
    made = model()

    class Doubled(HopfieldNetwork):
        def energy(self, g, mask=None):
            return 5 * super().energy(g, mask)

    made.hopfield.__class__ = Doubled
    return made


def attention(kind):
    return kind(8, 2, 4, self_attention=False)


MUTANTS = {
    "update": (lambda: attention(OneSum), lambda: inputs()[:3]),
    "untouched": (lambda: attention(MovesAll), lambda: inputs()[:3]),
    "descent": (uphill, inputs),
    "step": (other_energy, inputs),
    "permutation": (lambda: KnowsPlaces(8, 2, 4, 12, 4), inputs),
    "isolation": (lambda: Meeting(8, 2, 4, 12, 4), inputs),
}


@pytest.mark.parametrize("law", list(MUTANTS))
def test_every_law_catches_its_mutant(law):
    make, given = MUTANTS[law]
    broken = lawful.check(make(), *given()).broken
    assert law in {r.law for r in broken}


def test_every_law_has_a_mutant():
    layers = (model(), attention(GraphEnergyAttention))
    assert {law.name for layer in layers for law in laws_of(layer)} == set(MUTANTS)
