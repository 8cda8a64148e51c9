"""The edges of all relations as one symmetric, sorted list without loops or repetitions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lawful.errors import expected
from lawful.tasks.graphdata._raw import RawGraph


@dataclass(frozen=True)
class Network:
    """An undirected graph: each edge both ways, sorted by target and then by source.

    ``source[start[v] : start[v + 1]]`` are the neighbours of node v. ``member[e, r]`` tells whether
    edge e belongs to relation r; None where there is one relation only.
    """

    count: int
    source: npt.NDArray[np.int64]  # (E)
    start: npt.NDArray[np.int64]  # (N + 1)
    relations: tuple[str, ...]
    member: npt.NDArray[np.uint8] | None  # (E, R)

    @property
    def target(self) -> npt.NDArray[np.int64]:
        """The other end of each edge, (E)."""
        return np.repeat(np.arange(self.count), np.diff(self.start))

    @property
    def edge_index(self) -> npt.NDArray[np.int64]:
        """Edges (2, E): source and target."""
        return np.stack([self.source, self.target])

    def degrees(self) -> npt.NDArray[np.float32]:
        """Degree of each node in each relation, (N, R)."""
        if self.member is None:
            return np.diff(self.start).astype(np.float32)[:, None]
        total = np.zeros((len(self.source) + 1, len(self.relations)), np.int64)
        np.cumsum(self.member, 0, dtype=np.int64, out=total[1:])
        return (total[self.start[1:]] - total[self.start[:-1]]).astype(np.float32)

    def neighbours(self, node: int) -> npt.NDArray[np.int64]:
        """The neighbours of one node."""
        return self.source[self.start[node] : self.start[node + 1]]


def connect(graph: RawGraph, relations: Sequence[str] = ()) -> tuple[Network, list[str]]:
    """The network of a graph, and in words what was done to its edges.

    Args:
        graph: As it was read.
        relations: The relations that a trained model knows, in its order; by default the graph's.

    Raises:
        InputError: A relation that the model does not know.
    """
    names = tuple(relations) or tuple(graph.relations) or ("edges",)
    for name in graph.relations:
        if name not in names:
            raise expected(f"{graph.place}: relation", "one of " + ", ".join(names), repr(name))
    n, said = graph.count, []
    keys, of = [], []
    for number, name in enumerate(names):
        edges = graph.relations.get(name)
        if edges is None:
            said.append(f"relation {name!r} has no edges here")
            continue
        found, remarks = _both_ways(edges, n)
        said += [f"{name}: {r}" for r in remarks]
        keys.append(found)
        of.append(np.full(len(found), number, np.uint8))
    every = np.concatenate(keys) if keys else np.zeros(0, np.int64)
    if not len(every):
        said.append("there are no edges: every node stands alone")
    distinct, where = np.unique(every, return_inverse=True) if len(keys) > 1 else (every, None)
    member = None
    if len(names) > 1:
        member = np.zeros((len(distinct), len(names)), np.uint8)
        member[np.arange(len(every)) if where is None else where, np.concatenate(of)] = 1
    start = np.searchsorted(distinct, np.arange(n + 1, dtype=np.int64) * n)
    return Network(n, distinct % n, start, names, member), said


def _both_ways(edges: npt.NDArray[np.int64], n: int) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Sorted keys ``target * n + source`` of the symmetric edges, and what was changed."""
    said = []
    loops = edges[0] == edges[1]
    if loops.any():
        said.append(f"{int(loops.sum()):,} self-loops left out (layers add their own)")
        edges = edges[:, ~loops]
    keys = _distinct(edges[1] * n + edges[0])
    if len(keys) < edges.shape[1]:
        said.append(f"{edges.shape[1] - len(keys):,} repeated edges left out")
    back = (keys % n) * n + keys // n
    both = _distinct(np.concatenate([keys, back]))
    if len(both) == len(keys):
        said.append(f"{len(keys) // 2:,} undirected edges, each given both ways")
    else:
        said.append(
            f"{len(keys):,} edges, of which {len(both) - len(keys):,} had no edge back: "
            "all are taken both ways"
        )
    return both, said


def _distinct(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The different keys, sorted; for many millions far cheaper than `numpy.unique`'s way."""
    keys = np.sort(keys)
    return keys[np.r_[True, keys[1:] != keys[:-1]]] if len(keys) else keys
