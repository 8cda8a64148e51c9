"""Many graphs in flat arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GraphSet:
    """G graphs with N nodes and E directed edges in all, each undirected edge both ways.

    Nodes are numbered through all graphs, those of a graph one after another; edges are sorted by
    target, then source, so that those of a graph lie together too.
    """

    name: str
    edges: Ints  # (2, E): source, target
    graph: Ints  # (N,), ascending: the graph of each node
    count: int  # G
    labels: Ints | None = None  # (G,), whatever numbers the data use
    node_labels: Ints | None = None  # (N, columns)
    node_values: Floats | None = None  # (N, columns)
    edge_labels: Ints | None = None  # (E, columns)
    edge_values: Floats | None = None  # (E, columns)
    ids: Sequence[str] = ()  # (G,)
    notes: Sequence[str] = field(default_factory=tuple)  # what was put right

    @property
    def nodes(self) -> int:
        """N."""
        return len(self.graph)

    @property
    def sizes(self) -> Ints:
        """Nodes of each graph (G,)."""
        return np.bincount(self.graph, minlength=self.count).astype(np.int64)

    @property
    def edge_counts(self) -> Ints:
        """Directed edges of each graph (G,)."""
        return np.bincount(self.graph[self.edges[1]], minlength=self.count).astype(np.int64)

    @property
    def degrees(self) -> Ints:
        """Neighbours of each node (N,)."""
        return np.bincount(self.edges[1], minlength=self.nodes).astype(np.int64)


def spans(starts: Ints, sizes: Ints) -> Ints:
    """``starts[i], ..., starts[i] + sizes[i] - 1`` for each i, one after another."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - ends + sizes, sizes) + np.arange(total)


def tidy(found: GraphSet) -> GraphSet:
    """Sorts nodes by graph and edges by target; each edge once and both ways, no self-loops.

    A missing reverse edge is added with the labels of the edge; of repeated ones the first stays.
    What was done is told in ``notes``.
    """
    if (np.diff(found.graph) < 0).any():
        order = np.argsort(found.graph, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        found = replace(
            found,
            graph=found.graph[order],
            edges=place[found.edges],
            node_labels=_at(found.node_labels, order),
            node_values=_at(found.node_values, order),
        )
    source, target = found.edges
    total, notes = found.nodes, list(found.notes)
    kept = np.flatnonzero(source != target)
    _tell(notes, found.edges.shape[1] - len(kept), "self-loops dropped")
    keys, first = np.unique(target[kept] * total + source[kept], return_index=True)
    _tell(notes, len(kept) - len(keys), "repeated edges dropped")
    chosen = kept[first]
    flipped = source[chosen] * total + target[chosen]
    alone = ~np.isin(flipped, keys, assume_unique=True)
    _tell(notes, int(alone.sum()), "edges were listed one way only; the reverse was added")
    keys, chosen = np.concatenate([keys, flipped[alone]]), np.concatenate([chosen, chosen[alone]])
    order = np.argsort(keys, kind="stable")
    keys, chosen = keys[order], chosen[order]
    target, source = np.divmod(keys, max(total, 1))
    return replace(
        found,
        edges=np.stack([source, target]),
        edge_labels=_at(found.edge_labels, chosen),
        edge_values=_at(found.edge_values, chosen),
        notes=tuple(notes),
    )


def _at(values: Any, order: Ints) -> Any:
    return None if values is None else values[order]


def _tell(notes: list[str], count: int, what: str) -> None:
    if count:
        notes.append(f"{count:,} {what}")
