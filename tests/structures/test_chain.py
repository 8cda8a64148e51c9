from itertools import pairwise, product

import pytest
import torch

from lawful.errors import InputError
from lawful.structures import LinearChain
from tests.structures._battery import CompileLaws, Family, Laws, close, dot, leaves, weights_like


def encode(z, n):
    return torch.tensor([*z, *[-1] * (n - len(z))], dtype=torch.int64)


def padding(edge):
    def mask(length, n):
        pairs = torch.arange(max(n - 1, 0)) + 1 >= length if edge else torch.tensor([], dtype=bool)
        return torch.arange(n) >= length, pairs

    return mask


def chain(C, edge=False, **more):
    """The family with C states; unary 0, transition 1."""
    return Family(
        f"{'edge' if edge else 'chain'}-{C}",
        LinearChain,
        shapes=lambda n: ((n, C), (max(n - 1, 0), C, C) if edge else (C, C)),
        structures=lambda n: list(product(range(C), repeat=n)),
        parts=lambda z: (
            [(0, (t, c)) for t, c in enumerate(z)]
            + [(1, (t, *p) if edge else p) for t, p in enumerate(pairwise(z))]
        ),
        encode=encode,
        count=lambda n: C**n,
        shared=(False, not edge),
        groups=lambda mu, n: mu[0].sum(-1),
        padding=padding(edge),
        large=200,
        **more,
    )


SHARED, WIDE, EDGE = chain(3), chain(9, sizes=(1, 2, 3)), chain(3, edge=True)


class TestLinearChain(Laws):
    families = (SHARED, WIDE, EDGE)


class TestCompile(CompileLaws):
    families = (SHARED, WIDE, EDGE)


pytestmark = pytest.mark.usefixtures("backend")


def small(*batch, N=5, C=3, dtype=torch.float64):
    torch.manual_seed(0)
    return torch.randn(*batch, N, C, dtype=dtype), torch.randn(C, C, dtype=dtype)


def test_start_and_end_scores():
    unary, transition = small(2)
    start, end = torch.randn(3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    d = LinearChain(unary, transition, [5, 3], start=start, end=end)
    folded = unary.clone()
    folded[:, 0] += start
    folded[0, 4] += end[0]
    folded[1, 2] += end[1]
    e = LinearChain(folded, transition, [5, 3])
    close(d.log_partition, e.log_partition)
    close(d.marginals, e.marginals)
    close(d.log_prob(d.argmax), e.log_prob(d.argmax))
    close(d.expand((3, 2)).log_partition, e.log_partition.expand(3, 2))
    assert torch.equal(d.argmax, e.argmax)
    parts = leaves((unary, transition, start, end))

    def loss(u, t, s, f):
        mu = LinearChain(u, t, [5, 3], start=s, end=f).marginals
        return dot(mu, weights_like(mu))

    assert torch.autograd.gradcheck(loss, parts)


def test_no_transition_is_a_product_of_softmaxes():
    unary, _ = small(2)
    d = LinearChain(unary)
    close(d.marginals.unary, unary.softmax(-1))
    close(d.log_partition, unary.logsumexp(-1).sum(-1))
    assert d.transition.shape == (3, 3)


def test_transition_of_each_batch_element():
    unary, _ = small(4)
    transition = torch.randn(4, 1, 3, 3, dtype=torch.float64)
    d = LinearChain(unary, transition, [5, 4, 1, 0])
    assert d.marginals.transition.shape == (4, 1, 3, 3)
    for b, length in enumerate([5, 4, 1, 0]):
        one = LinearChain(unary[b], transition[b, 0], length)
        close(d.log_partition[b], one.log_partition)
        close(d.marginals.transition[b, 0], one.marginals.transition)
        close(d.log_prob(d.argmax)[b], one.log_prob(one.argmax))
    parts = leaves((unary, transition))
    assert torch.autograd.gradcheck(lambda *p: tuple(LinearChain(*p).marginals), parts)
    # A transition with batch dimensions widens the batch.
    assert LinearChain(unary[0], transition).batch_shape == (4,)


def test_edge_marginals():
    unary, transition = small(2)
    d = LinearChain(unary, transition, [5, 2])
    pairs = d.edge_marginals
    assert pairs.shape == (2, 4, 3, 3)
    close(pairs.sum(1), d.marginals.transition)
    close(pairs[0].sum(-1), d.marginals.unary[0, :-1])
    close(pairs[0].sum(-2), d.marginals.unary[0, 1:])
    assert (pairs[1, 1:] == 0).all()


def test_sum_of_transition_marginals_is_the_gradient():
    parts = leaves(small(3))
    d = LinearChain(*parts)
    (grad,) = torch.autograd.grad(d.log_partition.sum(), parts[1])
    close(grad, d.marginals.transition.sum(0))


@pytest.mark.parametrize("C", [4, 20])
def test_long_chains_stay_normalised(C, backend):
    """Elsewhere rows were off by 5e-3 and logZ by 0.04 at N=2000."""
    torch.manual_seed(0)
    N = 2000 if backend == "native" else 400
    unary, transition = torch.randn(2, N, C), torch.randn(C, C)
    d = LinearChain(unary, transition)
    e = LinearChain(unary.double(), transition.double())
    close(d.marginals.unary.sum(-1), torch.ones(2, N), 1e-6)
    close(d.marginals.unary, e.marginals.unary, 1e-5)
    close(d.log_partition, e.log_partition, 0, 1e-7)


def test_repeated_choice_forbidden():
    """The K-step chain over facts: -inf on the diagonal."""
    unary = torch.randn(2, 3, 5)
    transition = torch.zeros(5, 5).fill_diagonal_(-torch.inf)
    d = LinearChain(unary, transition)
    assert (d.marginals.transition.diagonal(0, -2, -1) == 0).all()
    z = d.sample((50,))
    assert (z[..., 1:] != z[..., :-1]).all()


def test_no_transition_before_the_first_step():
    unary, transition = small(2, N=1)
    close(LinearChain(unary, transition).log_partition, unary[:, 0].logsumexp(-1))


def test_half_of_the_normalised_loss():
    """The released layer of the paper drops the sign of sum(p g) when it is negative."""
    unary, transition = small()
    parts = leaves((unary, transition))
    mu = LinearChain(*parts).marginals
    grads = torch.autograd.grad(-(mu.unary**2).sum(), parts)
    z = list(product(range(3), repeat=5))
    plain = leaves((unary, transition))
    scores = torch.stack(
        [
            sum(plain[0][t, c] for t, c in enumerate(s))
            + sum(plain[1][i, j] for i, j in pairwise(s))
            for s in z
        ]
    )
    one_hot = torch.nn.functional.one_hot(torch.tensor(z), 3).double()
    p = torch.einsum("s,stc->tc", scores.softmax(0), one_hot)
    close(grads, torch.autograd.grad(-(p**2).sum(), plain))


def test_wrong_shapes_say_what_was_expected():
    unary, transition = small(2)
    with pytest.raises(InputError, match=r"transition: expected \(3, 3\) or \(\.\.\., 4, 3, 3\)"):
        LinearChain(unary, torch.zeros(4, 4, dtype=torch.float64))
    with pytest.raises(InputError, match="transition"):
        LinearChain(unary, torch.zeros(3, 3, 3, dtype=torch.float64))
    with pytest.raises(InputError, match="batch dimensions"):
        LinearChain(unary, torch.zeros(3, 4, 3, 3, dtype=torch.float64))
    with pytest.raises(InputError, match="dtype"):
        LinearChain(unary, transition.float())
    with pytest.raises(InputError, match="end"):
        LinearChain(unary, transition, end=torch.zeros(2))
    with pytest.raises(InputError, match="structure"):
        LinearChain(unary, transition).log_prob(torch.zeros(2, 4, dtype=torch.int64))
    with pytest.raises(InputError, match="valid structure"):
        LinearChain(unary, transition).log_prob(torch.full((2, 5), 3))


def test_row_does_not_depend_on_others_lengths():
    unary, transition = small(3, N=10)
    whole = LinearChain(unary, transition)
    short = LinearChain(unary, transition, [10, 5, 1])
    assert torch.equal(whole.log_partition[0], short.log_partition[0])
    assert torch.equal(whole.marginals.unary[0], short.marginals.unary[0])
    # All shorter than N, which some libraries refuse.
    close(
        LinearChain(unary, transition, [4, 4, 4]).log_partition,
        LinearChain(unary[:, :4], transition).log_partition,
    )


def test_a_chain_without_states_is_refused():
    with pytest.raises(InputError, match=r"unary: expected at least one state.*got \(2, 3, 0\)"):
        LinearChain(torch.zeros(2, 3, 0))
