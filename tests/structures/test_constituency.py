import math
from itertools import product

import pytest
import torch

from lawful.errors import InputError
from lawful.structures import ConstituencyTree
from tests.structures._battery import CompileLaws, Family, Laws


def bracketings(i, j):
    """All binary trees over words i..j as frozensets of spans, by brute force."""
    if i == j:
        return [((i, i),)]
    found = []
    for u in range(i, j):
        for left in bracketings(i, u):
            for right in bracketings(u + 1, j):
                found.append(((i, j), *left, *right))
    return found


def trees(n, labels):
    plain = bracketings(0, n - 1) if n else [()]
    return [
        tuple((span, c) for span, c in zip(nodes, choice, strict=True))
        for nodes in plain
        for choice in product(range(labels), repeat=len(nodes))
    ]


def encode(z, n):
    out = torch.full((n, n), -1)
    for (i, j), label in z:
        out[i, j] = label
    return out


def unused(length, n):
    words = torch.arange(n)
    return (words[:, None] > words) | (words >= length)


def catalan(n):
    return math.comb(2 * n, n) // (n + 1)


PLAIN = Family(
    "constituency",
    ConstituencyTree,
    shapes=lambda n: ((n, n),),
    structures=lambda n: trees(n, 1),
    parts=lambda z: [(0, span) for span, _ in z],
    encode=encode,
    count=lambda n: catalan(n - 1),
    groups=lambda mu, n: torch.cat(
        [
            mu[0].diagonal(0, -2, -1),
            mu[0][..., :1, n - 1],
            mu[0].sum((-2, -1))[..., None] / (2 * n - 1),
        ],
        -1,
    ),
    padding=lambda length, n: (unused(length, n),),
    sizes=(1, 2, 3, 5),
    large=20,
    fill=None,
)
LABELLED = Family(
    "constituency-labelled",
    ConstituencyTree,
    shapes=lambda n: ((n, n, 2),),
    structures=lambda n: trees(n, 2),
    parts=lambda z: [(0, (*span, label)) for span, label in z],
    encode=encode,
    count=lambda n: catalan(n - 1) * 2 ** (2 * n - 1),
    groups=lambda mu, n: mu[0].diagonal(0, -3, -2).sum(-2),
    padding=lambda length, n: (unused(length, n)[..., None].expand(n, n, 2),),
    sizes=(1, 2, 3),
    large=20,
    fill=None,
    options={"labelled": True},
)


class TestConstituencyTrees(Laws):
    families = (PLAIN, LABELLED)


class TestCompiledConstituencyTrees(CompileLaws):
    families = (LABELLED,)


@pytest.mark.parametrize("labelled", [False, True])
def test_junk_outside_the_triangle_is_ignored(labelled):
    shape = (2, 4, 4, 3) if labelled else (2, 4, 4)
    d = ConstituencyTree(torch.randn(shape), lengths=[3, 4], labelled=labelled)
    z = d.argmax
    junk = z.clone()
    junk[0, 3], junk[0, :, 3] = -100, 7
    junk[:, 2, 0] = 5
    assert torch.equal(d.log_prob(junk), d.log_prob(z))
    assert (z[0, 3] == -1).all()
    assert (z[0, :, 3] == -1).all()


def test_broken_trees_are_refused():
    d = ConstituencyTree(torch.randn(3, 3))
    good = d.argmax
    for i, j in ((0, 2), (1, 1), (0, 1)):
        bad = good.clone()
        bad[i, j] = -1 - bad[i, j]  # drops a node, or adds one that crosses or is too many
        with pytest.raises(InputError, match="not a valid structure"):
            d.log_prob(bad)


def test_no_label_no_tree():
    d = ConstituencyTree(torch.zeros(2, 2, 0), labelled=True)
    assert d.log_partition.item() == -torch.inf
    assert d.topk(1)[1].item() == -torch.inf
    with pytest.raises(InputError, match="no structure"):
        d.sample()


def test_shape_is_checked():
    with pytest.raises(InputError, match=r"spans: expected \(..., N, N\)"):
        ConstituencyTree(torch.zeros(2, 3))
    with pytest.raises(InputError, match=r"N, N, L"):
        ConstituencyTree(torch.zeros(2, 3, 3), labelled=True)
