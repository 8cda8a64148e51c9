from itertools import product

import pytest
import torch

from lawful.structures import Bernoulli, Categorical
from tests.structures._battery import Family, Laws


def after_end(length, n):
    return (torch.arange(n) >= length,)


CATEGORICAL = Family(
    "categorical",
    Categorical,
    shapes=lambda n: ((n,),),
    structures=lambda n: list(range(n)),
    parts=lambda z: [(0, (z,))],
    encode=lambda z, n: torch.tensor(z),
    count=lambda n: n,
    groups=lambda mu, n: mu[0].sum(-1),
    padding=after_end,
    sizes=(1, 2, 4, 9),
)
BERNOULLI = Family(
    "bernoulli",
    Bernoulli,
    shapes=lambda n: ((n,),),
    structures=lambda n: list(product([False, True], repeat=n)),
    parts=lambda z: [(0, (i,)) for i, x in enumerate(z) if x],
    encode=lambda z, n: torch.tensor([*z, *[False] * (n - len(z))], dtype=torch.bool),
    count=lambda n: 2**n,
    padding=after_end,
    can_be_infeasible=False,
    fill=False,
)


class TestTrivialFamilies(Laws):
    families = (CATEGORICAL, BERNOULLI)

    @pytest.fixture(params=["torch"])  # one path only
    def backend(self, request):
        return request.param


def test_agrees_with_torch():
    x, y = torch.randn(3, 5), torch.randn(3, 5)
    ours, theirs = Categorical(x), torch.distributions.Categorical(logits=x)
    torch.testing.assert_close(ours.marginals, theirs.probs)
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    other = torch.distributions.Categorical(logits=y)
    torch.testing.assert_close(
        torch.distributions.kl_divergence(ours, Categorical(y)),
        torch.distributions.kl_divergence(theirs, other),
    )
    independent = torch.distributions.Independent(torch.distributions.Bernoulli(logits=x), 1)
    torch.testing.assert_close(Bernoulli(x).entropy(), independent.entropy())


def test_entropy_behaves_like_a_plain_tensor():
    e = Categorical(torch.randn(3)).entropy
    assert type(e + 1) is torch.Tensor
    assert type(e()) is torch.Tensor


def test_different_families_cannot_be_compared():
    x = torch.randn(4)
    with pytest.raises(ValueError, match="other"):
        Categorical(x).cross_entropy(Bernoulli(x))
    with pytest.raises(ValueError, match="different lengths"):
        torch.distributions.kl_divergence(Categorical(x, lengths=3), Categorical(x))
