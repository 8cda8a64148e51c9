import itertools
import math

import torch

from lawful.structures import ProjectiveTree, SpanningTree
from tests.structures._battery import CompileLaws, Family, Laws


def trees(n, single, projective):
    """All head arrays of n words, by brute force; -1 is the root, which sits before word 0."""
    found = []
    for heads in itertools.product(range(-1, n), repeat=n):
        if single and n and heads.count(-1) != 1:
            continue
        if any(not reaches_root(heads, m) for m in range(n)):
            continue
        arcs = [(min(h, m), max(h, m)) for m, h in enumerate(heads)]
        if projective and any(a < c < b < d for a, b in arcs for c, d in arcs):
            continue
        found.append(heads)
    return found


def reaches_root(heads, m):
    for _ in heads:
        if m == -1:
            return True
        m = heads[m]
    return m == -1


def padding(length, n):
    after = torch.arange(n) >= length
    diagonal = torch.eye(n, dtype=torch.bool)
    return after[:, None] | after[None, :] | diagonal, after


def family(name, build, single, projective, count):
    return Family(
        name,
        build,
        shapes=lambda n: ((n, n), (n,)),
        structures=lambda n: trees(n, single, projective),
        parts=lambda z: [(1, (m,)) if h < 0 else (0, (h, m)) for m, h in enumerate(z)],
        encode=lambda z, n: torch.tensor([*z, *[-2] * (n - len(z))], dtype=torch.int64),
        count=count,
        shared=(False, False),
        groups=lambda mu, n: mu[0].sum(-2) + mu[1],
        padding=padding,
        fill=-2,
        large=25,
        options={"single_root": single},
    )


def multi_projective(n):
    """1, 3, 12, 55, 273: ternary trees."""
    return math.comb(3 * n, n) // (2 * n + 1)


def single_projective(n):
    """1, 2, 7, 30, 143."""
    return math.comb(3 * n - 2, n - 1) // n


PROJECTIVE = family("projective", ProjectiveTree, False, True, multi_projective)
PROJECTIVE_SINGLE = family("projective-single", ProjectiveTree, True, True, single_projective)
SPANNING = family("spanning", SpanningTree, False, False, lambda n: (n + 1) ** (n - 1))
SPANNING_SINGLE = family("spanning-single", SpanningTree, True, False, lambda n: n ** (n - 1))
ALL = (PROJECTIVE, PROJECTIVE_SINGLE, SPANNING, SPANNING_SINGLE)


class TestDependencyTrees(Laws):
    families = ALL


class TestCompiledDependencyTrees(CompileLaws):
    families = (PROJECTIVE, SPANNING_SINGLE)
