"""Neighbour sampling: a small graph around some nodes, at a cost that the batch alone decides.

Source: Hamilton, Ying and Leskovec 2017, "Inductive representation learning on large graphs".
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lawful.tasks.graphdata._network import Network

Whole = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Neighbourhood:
    """A part of a network: the seeds come first among ``nodes``."""

    nodes: Whole  # (n): numbers in the whole network
    edge_index: Whole  # (2, e): positions among `nodes`, both ways, sorted by target
    edges: Whole  # (e): numbers of these edges in the whole network


def sample_neighbourhood(
    network: Network, seeds: Whole, fanouts: Sequence[int], random: np.random.Generator
) -> Neighbourhood:
    """Draws neighbours of the seeds, their neighbours, and so on.

    At each hop every new node draws at most that hop's number of its neighbours, without
    repetition; all of them where it has no more. Every drawn edge is taken both ways.

    Args:
        network: The whole graph.
        seeds: Different nodes.
        fanouts: Neighbours drawn at each hop; 0 for all.
        random: Source of the draws.

    Cost: proportional to what is drawn, times its logarithm; nothing of the size of the network is
    allocated.
    """
    nodes, frontier, drawn = seeds, seeds, []
    for fanout in fanouts:
        edges, targets = _draw(network, frontier, fanout, random)
        drawn.append(np.stack([network.source[edges], targets]))
        found = np.unique(drawn[-1][0])
        frontier = found[~np.isin(found, nodes, kind="sort")]
        nodes = np.concatenate([nodes, frontier])
    ends = np.concatenate(drawn, 1) if drawn else np.zeros((2, 0), np.int64)
    return _assemble(network, nodes, ends)


def _draw(
    network: Network, nodes: Whole, fanout: int, random: np.random.Generator
) -> tuple[Whole, Whole]:
    """Numbers of drawn edges into these nodes, and the node of each."""
    start = network.start[nodes]
    degree = network.start[nodes + 1] - start
    whole = degree <= fanout if fanout else np.ones(len(nodes), bool)
    every = np.repeat(start[whole] - _before(degree[whole]), degree[whole])
    every += np.arange(len(every))
    owners = np.repeat(nodes[whole], degree[whole])
    many = ~whole
    if not many.any():
        return every, owners
    picks = _distinct(degree[many], fanout, random) + start[many][:, None]
    return (
        np.concatenate([every, picks.reshape(-1)]),
        np.concatenate([owners, np.repeat(nodes[many], fanout)]),
    )


def _before(sizes: Whole) -> Whole:
    return np.cumsum(sizes) - sizes


def _distinct(sizes: Whole, count: int, random: np.random.Generator) -> Whole:
    """``count`` different numbers below each size (> count), by Floyd's algorithm: (n, count)."""
    picks = np.empty((len(sizes), count), np.int64)
    for i in range(count):
        last = sizes - count + i
        drawn = random.integers(0, last + 1)
        seen = (picks[:, :i] == drawn[:, None]).any(1)
        picks[:, i] = np.where(seen, last, drawn)
    return picks


def _assemble(network: Network, nodes: Whole, ends: Whole) -> Neighbourhood:
    """The drawn edges both ways, sorted by target, in the numbering of ``nodes``."""
    order = np.argsort(nodes)
    local = order[np.searchsorted(nodes, ends, sorter=order)]
    n = max(len(nodes), 1)
    keys = np.unique(np.concatenate([local[1] * n + local[0], local[0] * n + local[1]]))
    source, target = keys % n, keys // n
    return Neighbourhood(
        nodes, np.stack([source, target]), _find(network, nodes[source], nodes[target])
    )


def _find(network: Network, source: Whole, target: Whole) -> Whole:
    """Numbers of edges by their ends: a binary search in each target's sorted neighbours."""
    low, high = network.start[target].copy(), network.start[target + 1].copy()
    while True:
        open_ = low < high
        if not open_.any():
            return low
        middle = (low + high) // 2
        small = open_ & (network.source[np.minimum(middle, len(network.source) - 1)] < source)
        low = np.where(small, middle + 1, low)
        high = np.where(open_ & ~small, middle, high)
