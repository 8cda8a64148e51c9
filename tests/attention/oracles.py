"""Attention by enumeration of every structure, in plain Python numbers."""

import itertools
import math

import torch


def expectation(structures, score, indicator):
    """Sum of p(z) indicator(z) over structures, p(z) = exp(score) / Z."""
    logs = [score(z) for z in structures]
    top = max(logs)
    weights = [math.exp(x - top) for x in logs]
    total = sum(weights)
    parts = [w / total * indicator(z) for w, z in zip(weights, structures, strict=True)]
    return torch.stack(parts).sum(0)


def segmentation(theta, b, start=(0.0, 0.0), end=(0.0, 0.0)):
    n = len(theta)

    def score(z):
        unary = sum(t for t, on in zip(theta, z, strict=True) if on)
        return unary + sum(b[x][y] for x, y in itertools.pairwise(z)) + start[z[0]] + end[z[-1]]

    every = list(itertools.product((0, 1), repeat=n))
    return expectation(every, score, lambda z: torch.tensor(z, dtype=torch.float64))


def chain(theta, links, repeat):
    """theta: K lists of n; links: K-1 tables or None. Returns (K, n)."""
    steps, n = len(theta), len(theta[0])
    every = [
        z
        for z in itertools.product(range(n), repeat=steps)
        if repeat or all(x != y for x, y in itertools.pairwise(z))
    ]
    if not every:
        return torch.zeros(steps, n, dtype=torch.float64)

    def score(z):
        pairs = 0 if links is None else sum(links[k][z[k]][z[k + 1]] for k in range(steps - 1))
        return sum(theta[k][z[k]] for k in range(steps)) + pairs

    return expectation(
        every, score, lambda z: torch.nn.functional.one_hot(torch.tensor(z), n).double()
    )


def trees(n, projective):
    """All parents (of tokens 1..n-1) of trees over tokens 0..n-1 that hang from token 0."""
    found = []
    for parents in itertools.product(range(n), repeat=n - 1):
        heads = [None, *parents]
        if any(not _reaches_root(j, heads) for j in range(1, n)):
            continue
        if not projective or not _crosses(heads):
            found.append(heads)
    return found


def _reaches_root(j, heads):
    seen = set()
    while j != 0:
        if j in seen:
            return False
        seen.add(j)
        j = heads[j]
    return True


def _crosses(heads):
    arcs = [sorted((h, m)) for m, h in enumerate(heads) if h is not None]
    return any(a < c < b < d for a, b in arcs for c, d in arcs)


def parents(theta, projective, single_root=False):
    """(n, n), [child, parent], from theta[parent][child]; token 0 is the root."""
    n = len(theta)
    every = [h for h in trees(n, projective) if not single_root or sum(x == 0 for x in h[1:]) == 1]

    def table(heads):
        t = torch.zeros(n, n, dtype=torch.float64)
        for j in range(1, n):
            t[j, heads[j]] = 1
        return t

    return expectation(every, lambda h: sum(theta[h[j]][j] for j in range(1, n)), table)
