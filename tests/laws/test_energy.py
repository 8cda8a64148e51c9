"""The Energy Transformer keeps its laws, and every law catches a broken layer."""

import pytest
import torch
from torch import nn

import lawful
from lawful.energy import (
    TRANSFORMER_LAWS,
    EnergyAttention,
    EnergyLayerNorm,
    EnergyTerm,
    EnergyTransformer,
    HopfieldNetwork,
)
from lawful.laws import laws_of

OPTIONS = {
    "plain": {},
    "certified": {"step_rule": "certified", "step_size": 100.0},
    "backtracking": {"step_rule": "backtracking", "step_size": 100.0},
    "learned": {"step_rule": "learned"},
    "softmax": {"activation": "softmax", "memory_beta": 1.0},
    "self": {"self_attention": True, "bias": True, "learn_beta": True},
    "blocks": {"blocks": 2},
}


def model(dtype=torch.float32, **options):
    torch.manual_seed(0)
    made = {"heads": 2, "head_dim": 4, "memories": 12, "steps": 4, **options}
    return EnergyTransformer(8, **made, dtype=dtype)


def inputs(dtype=torch.float32, masked=True):
    g = torch.Generator().manual_seed(3)
    tokens = torch.randn(2, 5, 8, generator=g, dtype=torch.float64).to(dtype)
    mask = torch.tensor([[True] * 5, [True, True, False, True, False]])
    return (tokens, mask) if masked else (tokens,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", list(OPTIONS))
def test_every_form_keeps_every_law(name, dtype):
    certificate = lawful.check(model(dtype, **OPTIONS[name]), *inputs(dtype))
    assert certificate.holds, f"\n{certificate}"
    own = {r.law for r in certificate if r.layer == "(itself)" and r.holds}
    assert {law.name for law in TRANSFORMER_LAWS} <= own


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "layer",
    [EnergyAttention(8, 2, 4), HopfieldNetwork(8, 12), HopfieldNetwork(8, 12, "softmax")],
    ids=["attention", "relu", "softmax"],
)
def test_terms_keep_their_law(layer, dtype):
    certificate = lawful.check(layer.to(dtype), *inputs(dtype))
    assert certificate.holds, f"\n{certificate}"


def test_causal_attention_promises_no_common_energy():
    certificate = lawful.check(model(causal=True), *inputs())
    assert certificate.holds
    assert "descent" not in {r.law for r in certificate}


class WrongSign(HopfieldNetwork):
    def forward(self, g, mask=None):
        return -super().forward(g, mask)


class VectorGamma(EnergyLayerNorm):
    """What nn.LayerNorm does: no Lagrangian has this gradient."""

    def forward(self, x):
        return super().forward(x) * torch.linspace(0.5, 1.5, self.dim, dtype=x.dtype)


class NegativeGamma(EnergyLayerNorm):
    def reset_parameters(self):
        super().reset_parameters()
        nn.init.constant_(self.gamma, -1.0)


class KnowsPlaces(EnergyTerm):
    def energy(self, g, mask=None):
        return (g.square().sum(-1) * torch.arange(g.shape[-2])).sum(-1)


class SeesPadding(EnergyTransformer):
    """A single term would not do: blocks are not even shown the padding."""

    def settle(self, tokens, *args, **kwargs):
        found = super().settle(tokens, *args, **kwargs)
        return found._replace(tokens=found.tokens + 1e-3 * tokens.mean(-2, keepdim=True))


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


MUTANTS = {
    "update": (lambda: WrongSign(8, 12), inputs),
    "symmetric": (lambda: VectorGamma(8), lambda: inputs(masked=False)),
    "positive": (lambda: NegativeGamma(8), lambda: inputs(masked=False)),
    "descent": (uphill, inputs),
    "step": (other_energy, inputs),
    "permutation": (lambda: model(terms=[KnowsPlaces()]), lambda: inputs(masked=False)),
    "padding": (lambda: SeesPadding(8, 2, 4, 12, 4), inputs),
}


@pytest.mark.parametrize("law", list(MUTANTS))
def test_every_law_catches_its_mutant(law):
    make, given = MUTANTS[law]
    broken = lawful.check(make(), *given()).broken
    assert law in {r.law for r in broken}


def test_every_law_has_a_mutant():
    layers = (model(), HopfieldNetwork(8), EnergyLayerNorm(8))
    assert {law.name for layer in layers for law in laws_of(layer)} == set(MUTANTS)
