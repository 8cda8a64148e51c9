from itertools import pairwise, product

import torch

from lawful.structures import LinearChain
from tests.structures._battery import CompileLaws, Family, Laws


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
