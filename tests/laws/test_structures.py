"""Every structure keeps its laws, and every law catches a structure that is broken on purpose."""

import pytest
import torch

import lawful
from lawful.laws import laws_of
from lawful.structures import (
    HMM,
    STRUCTURE_LAWS,
    Alignment,
    Bernoulli,
    Categorical,
    ConstituencyTree,
    LinearChain,
    ProjectiveTree,
    SemiMarkov,
    SpanningTree,
)

B, N, C = 3, 6, 3


def families(dtype):
    g = torch.Generator().manual_seed(1)

    def draw(*shape, scale=2.0):
        return torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype) * scale

    lengths = torch.tensor([N, 3, 1])
    return {
        "categorical": Categorical(draw(B, C)),
        "bernoulli": Bernoulli(draw(B, N)),
        "chain": LinearChain(draw(B, N, C), draw(C, C), lengths=lengths),
        "chain edges": LinearChain(draw(B, N, C), draw(B, N - 1, C, C), lengths=lengths),
        "chain large": LinearChain(draw(B, N, C, scale=1e4), draw(C, C, scale=1e4)),
        "hmm": HMM(draw(C), draw(C, C), draw(B, N, C), lengths=lengths),
        "semi-markov": SemiMarkov(draw(B, N, 3, C), draw(C, C), lengths=lengths),
        "alignment": Alignment(draw(B, N, 4)),
        "projective": ProjectiveTree(draw(B, N, N), draw(B, N), lengths=lengths),
        "projective single": ProjectiveTree(draw(B, N, N), single_root=True),
        "spanning": SpanningTree(draw(B, N, N), draw(B, N), lengths=lengths),
        "spanning large": SpanningTree(draw(B, N, N, scale=100.0), single_root=True),
        "constituency": ConstituencyTree(draw(B, N, N), lengths=lengths),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", list(families(torch.float64)))
def test_every_family_keeps_every_law(name, dtype, backend):
    certificate = lawful.check(families(dtype)[name])
    assert certificate.holds, f"\n{certificate}"
    tried = {r.law for r in certificate if r.holds is not None}
    assert {"range", "gradient", "convex", "symmetric", "order"} <= tried


class Chain(LinearChain):
    """A chain on the plain path, to be broken by subclasses."""


class Negative(Chain):
    def _marginals(self):
        return tuple(-m for m in super()._marginals())


class Unnormalised(Chain):
    def _marginals(self):
        return tuple(0.99 * m for m in super()._marginals())


class Concave(Chain):
    def _log_partition(self):
        return -super()._log_partition()


class Asymmetric(Chain):
    def _marginals(self):
        unary, transition = super()._marginals()
        return unary + 0.01 * self._theta[0].roll(1, -1).tanh(), transition


class WrongSign(Chain):
    """The term of the log-partition with the wrong sign, as in a released layer."""

    def _log_partition(self):
        return super()._log_partition() * 0.5


class ReadsPadding(Chain):
    def _log_partition(self):
        return super()._log_partition() + 1e-3 * self._theta[0].sum((-2, -1))


class NotTheBest(Chain):
    def _argmax(self):
        best = super()._argmax()
        return torch.where(best >= 0, (best + 1) % C, best)


BROKEN = {
    "range": Negative,
    "sum": Unnormalised,
    "gradient": WrongSign,
    "convex": Concave,
    "symmetric": Asymmetric,
    "padding": ReadsPadding,
    "order": NotTheBest,
}


@pytest.mark.parametrize("law", list(BROKEN))
def test_every_law_catches_its_mutant(law):
    g = torch.Generator().manual_seed(2)
    unary = torch.randn(B, N, C, generator=g) * 2
    transition = torch.randn(C, C, generator=g)
    lengths = torch.tensor([N, 4, 2])
    sound = lawful.check(Chain(unary, transition, lengths=lengths))
    assert sound.holds, f"\n{sound}"
    broken = lawful.check(BROKEN[law](unary, transition, lengths=lengths)).broken
    assert law in {r.law for r in broken}
    assert all(r.witness is not None for r in broken)


def test_every_law_has_a_mutant():
    assert set(BROKEN) == {law.name for law in STRUCTURE_LAWS}
    assert {law.name for law in laws_of(Categorical(torch.zeros(2)))} == set(BROKEN)


def test_impossible_structures_keep_the_laws():
    unary = torch.zeros(2, 3, 2)
    unary[1, 1] = -torch.inf
    certificate = lawful.check(LinearChain(unary))
    assert certificate.holds, f"\n{certificate}"
