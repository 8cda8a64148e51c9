from itertools import pairwise, product

import pytest
import torch

from lawful.errors import InputError
from lawful.structures import HMM, Alignment, LinearChain
from tests.structures._battery import Family, Laws, close


def paths(n, M, skip):
    """All position sequences, by trying every one."""
    if n == 0:
        return [()]
    found = []
    for z in product(range(M), repeat=n):
        starts = z[0] == 0 or (z[0] == 1 and skip[0])
        ends = z[-1] == M - 1 or (z[-1] == M - 2 and skip[-1])
        steps = all(b - a in (0, 1) or (b - a == 2 and skip[a + 1]) for a, b in pairwise(z))
        if starts and ends and steps:
            found.append(z)
    return found


def family(skip):
    M = len(skip)
    return Family(
        "align-" + "".join("01"[s] for s in skip),
        lambda scores, lengths=None, **k: Alignment(scores, lengths, skip=torch.tensor(skip), **k),
        shapes=lambda n: ((n, M),),
        structures=lambda n: paths(n, M, skip),
        parts=lambda z: [(0, (t, m)) for t, m in enumerate(z)],
        encode=lambda z, n: torch.tensor([*z, *[-1] * (n - len(z))]),
        count=lambda n: len(paths(n, M, skip)),
        groups=lambda mu, n: mu[0].sum(-1),
        padding=lambda length, n: ((torch.arange(n) >= length)[:, None].expand(n, M),),
        sizes=(1, 2, 5),
    )


class TestAlignment(Laws):
    families = (family((True, False, True)), family((False, True)))

    def test_pickle_and_deepcopy(self, family):
        pytest.skip("the family's constructor is a lambda; LinearChain's test covers the base")


@pytest.mark.usefixtures("backend")
def test_against_enumeration_without_skips():
    scores = torch.randn(2, 6, 3, dtype=torch.float64)
    d = Alignment(scores, lengths=[6, 4], positions=[3, 2])
    for b, (n, M) in enumerate([(6, 3), (4, 2)]):
        every = torch.stack(
            [sum(scores[b, t, m] for t, m in enumerate(z)) for z in paths(n, M, [False] * M)]
        )
        close(d.log_partition[b], every.logsumexp(0))
        close(d.max_score[b], every.max())
    assert (d.marginals[1, 4:] == 0).all()
    assert (d.marginals[1, :, 2] == 0).all()


@pytest.mark.usefixtures("backend")
def test_more_positions_than_steps():
    d = Alignment(torch.randn(2, 3, 4), positions=[4, 2])
    assert d.log_partition[0] == -torch.inf
    assert (d.marginals[0] == 0).all()
    with pytest.raises(InputError, match=r"no structure .*\[0\]"):
        d.sample()


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ctc_is_torchs_ctc_loss(dtype):
    torch.manual_seed(0)
    B, N, V, L = 4, 40, 7, 9
    x = (3 * torch.randn(B, N, V, dtype=dtype)).requires_grad_()
    targets = torch.randint(1, V, (B, L))
    targets[0, 1] = targets[0, 0]  # a repeated label needs a blank between
    frames, labels = torch.tensor([40, 31, 20, 12]), torch.tensor([9, 5, 1, 0])
    d = Alignment.ctc(x.log_softmax(-1), targets, frames, labels)
    want = torch.nn.functional.ctc_loss(
        x.log_softmax(-1).transpose(0, 1), targets, frames, labels, reduction="none"
    )
    tight = 1e-4 if dtype == torch.float32 else 1e-9
    close(-d.log_partition, want, tight, tight)
    (ours,) = torch.autograd.grad(-d.log_partition.sum(), x, retain_graph=True)
    (theirs,) = torch.autograd.grad(want.sum(), x)
    close(ours, theirs, tight)


def test_bad_arguments_are_refused():
    scores = torch.randn(2, 4, 3)
    with pytest.raises(InputError, match="skip"):
        Alignment(scores, skip=torch.zeros(2))
    with pytest.raises(InputError, match="lengths"):
        Alignment(scores, positions=[4, 1])
    with pytest.raises(InputError, match="targets"):
        Alignment.ctc(scores, torch.zeros(3, 2, dtype=torch.int64))
    with pytest.raises(InputError, match="skip"):
        torch.distributions.kl_divergence(
            Alignment(scores), Alignment(scores, skip=torch.tensor([True, False, False]))
        )


@pytest.mark.usefixtures("backend")
def test_hmm_likelihood_and_smoothing():
    torch.manual_seed(0)
    C, V, N = 3, 4, 5
    initial, transition, emission = torch.randn(C), torch.randn(C, C), torch.randn(C, V)
    seen = torch.randint(V, (2, N))
    d = HMM.discrete(initial, transition, emission, seen, lengths=[5, 3])
    p0, A, E = initial.softmax(-1), transition.softmax(-1), emission.softmax(-1)
    for b, n in enumerate([5, 3]):
        total, state = 0.0, torch.zeros(N, C)
        for z in product(range(C), repeat=n):
            p = p0[z[0]] * E[z[0], seen[b, 0]]
            for t in range(1, n):
                p = p * A[z[t - 1], z[t]] * E[z[t], seen[b, t]]
            total += p
            for t, c in enumerate(z):
                state[t, c] += p
        close(d.log_partition[b], total.log(), 1e-5)
        close(d.marginals.unary[b], state / total, 1e-5)
    close(d.expand((3, 2)).log_partition[1], d.log_partition, 1e-5)
    assert isinstance(d, LinearChain)


def test_cyclic_hmm_with_exact_zeros():
    """Reported elsewhere as NaN posteriors: most transitions are impossible."""
    C, N = 6, 30
    stay = 0.8 * torch.eye(C) + 0.2 * torch.eye(C).roll(1, 1)
    x = torch.randn(2, N, C)
    d = HMM(torch.zeros(C), stay.log(), x)
    torch.testing.assert_close(d.marginals.unary.sum(-1), torch.ones(2, N), atol=1e-6, rtol=0)
