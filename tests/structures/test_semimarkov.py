from itertools import pairwise

import pytest
import torch

from lawful.errors import InputError
from lawful.structures import LinearChain, SemiMarkov
from tests.structures._battery import CompileLaws, Family, Laws, close


def segmentations(n, K, C):
    """Lists of (start, span, label)."""
    if n == 0:
        return [()]
    return [
        (*rest, (n - span, span, c))
        for span in range(1, min(K, n) + 1)
        for rest in segmentations(n - span, K, C)
        for c in range(C)
    ]


def count(n, K, C):
    ways = [1]
    for m in range(1, n + 1):
        ways.append(sum(C * ways[m - k] for k in range(1, min(K, m) + 1)))
    return ways[n]


def family(K, C):
    def encode(z, n):
        states = torch.full((n,), -1)
        for start, span, c in z:
            states[start : start + span] = c + C
            states[start] = c
        return states

    def cover(mu, n):
        """P(step t is in some segment)."""
        total = torch.zeros(mu[0].shape[0], n, dtype=mu[0].dtype)
        for k in range(K):
            for start in range(n - k):
                total[:, start : start + k + 1] += mu[0][:, start, k].sum(-1, keepdim=True)
        return total

    def padding(length, n):
        ends = torch.arange(n)[:, None] + torch.arange(1, K + 1)
        return (ends > length)[..., None].expand(n, K, C), torch.zeros(C, C, dtype=torch.bool)

    return Family(
        f"segments-{K}-{C}",
        SemiMarkov,
        shapes=lambda n: ((n, K, C), (C, C)),
        structures=lambda n: segmentations(n, K, C),
        parts=lambda z: (
            [(0, (start, span - 1, c)) for start, span, c in z]
            + [(1, (a[2], b[2])) for a, b in pairwise(z)]
        ),
        encode=encode,
        count=lambda n: count(n, K, C),
        shared=(False, True),
        groups=cover,
        padding=padding,
        sizes=(1, 2, 4),
    )


SHORT, LONG = family(2, 2), family(5, 2)


class TestSemiMarkov(Laws):
    families = (SHORT, LONG)

    @pytest.fixture(params=["torch"])  # one path only
    def backend(self, request):
        return request.param


class TestCompile(CompileLaws):
    families = (SHORT,)

    @pytest.fixture(params=["torch"])
    def backend(self, request):
        return request.param


def test_segments_of_one_step_are_a_chain():
    unary, transition = torch.randn(3, 6, 4), torch.randn(4, 4)
    lengths = [6, 0, 4]
    a = SemiMarkov(unary[:, :, None], transition, lengths)
    b = LinearChain(unary, transition, lengths)
    close(a.log_partition, b.log_partition, 1e-5)
    close(a.marginals.segments[:, :, 0], b.marginals.unary, 1e-5)
    close(a.marginals.transition, b.marginals.transition, 1e-5)
    assert torch.equal(a.argmax, b.argmax)


def test_invalid_structures_and_shapes_are_refused():
    d = SemiMarkov(torch.randn(5, 2, 3))
    for z in ([3, 0, 0, 0, 0], [0, 3, 3, 0, 0], [0, 4, 0, 0, 0], [0, -1, 0, 0, 0]):
        with pytest.raises(InputError, match="valid structure"):
            d.log_prob(torch.tensor(z))
    with pytest.raises(InputError, match="transition"):
        SemiMarkov(torch.randn(5, 2, 3), torch.randn(2, 2))
