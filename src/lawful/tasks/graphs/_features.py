"""Graphs as tensors: what is known of nodes and edges as numbers, by what training has seen."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lawful.errors import InputError, expected
from lawful.tasks.graphdata._graphs import GraphSet, Ints

Values = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Part:
    """Labels (known values of each column) and numbers (mean, deviation) of nodes or edges."""

    known: tuple[tuple[int, ...], ...] = ()
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()

    @classmethod
    def of(cls, labels: Any, values: Any) -> "Part":
        """By the data of training."""
        known = () if labels is None else tuple(tuple(np.unique(c).tolist()) for c in labels.T)
        if values is None or not len(values):
            return cls(known)
        deviation = values.std(0)
        deviation = np.where(deviation > 0, deviation, 1.0)
        return cls(known, tuple(values.mean(0).tolist()), tuple(deviation.tolist()))

    @property
    def size(self) -> int:
        """Features."""
        return sum(map(len, self.known)) + len(self.mean)

    def features(self, what: str, rows: int, labels: Any, values: Any) -> Values:
        """(rows, size): one-hot labels, all zero for one unknown; standardised numbers.

        Raises:
            InputError: Columns are missing or too many.
        """
        for name, wanted, found in (
            ("labels", len(self.known), labels),
            ("attributes", len(self.mean), values),
        ):
            columns = 0 if found is None else found.shape[1]
            if rows and wanted and columns != wanted:
                want = f"{wanted} column{'s'[: wanted != 1]} of {what} {name}, as in training"
                raise expected("data", want, columns)
        parts = [np.zeros((rows, 0), np.float32)]
        for column, known in enumerate(self.known if rows else ()):
            parts.append((labels[:, column, None] == np.array(known)).astype(np.float32))
        if self.mean and rows:
            scaled = (values - np.array(self.mean)) / np.array(self.deviation)
            parts.append(scaled.astype(np.float32))
        found_features = np.concatenate(parts, 1)
        return found_features if rows else np.zeros((0, self.size), np.float32)


@dataclass(frozen=True)
class Facts:
    """What prediction must know of the training data."""

    classes: tuple[int, ...]
    nodes: Part
    edges: Part
    degrees: int  # number of one-hot degrees 0, 1, ..., the last for that many or more; 0 for none
    names: tuple[str, ...] = ()  # of the classes, where there are better ones than numbers

    @property
    def titles(self) -> list[str]:
        """Names of the classes."""
        return list(self.names or map(str, self.classes))

    @property
    def features(self) -> int:
        """Features of a node; 1 (a constant) where nothing is known of nodes."""
        return max(self.nodes.size + self.degrees, 1)

    def node_features(self, graphs: GraphSet) -> Values:
        """(N, features)."""
        known = self.nodes.features("node", graphs.nodes, graphs.node_labels, graphs.node_values)
        parts = [known]
        if self.degrees:
            degree = np.minimum(graphs.degrees, self.degrees - 1)
            parts.append((degree[:, None] == np.arange(self.degrees)).astype(np.float32))
        found = np.concatenate(parts, 1)
        return found if found.shape[1] else np.ones((graphs.nodes, 1), np.float32)

    def edge_features(self, graphs: GraphSet) -> Values:
        """(E, features)."""
        count = graphs.edges.shape[1]
        return self.edges.features("edge", count, graphs.edge_labels, graphs.edge_values)

    def as_json(self) -> dict[str, Any]:
        """For ``task_state.json``."""
        return asdict(self)

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> "Facts":
        """From what `as_json` gave.

        Raises:
            InputError: Something is missing.
        """
        try:
            nodes, edges = _part(state["nodes"]), _part(state["edges"])
            classes, names = tuple(state["classes"]), tuple(state["names"])
            return cls(classes, nodes, edges, int(state["degrees"]), names)
        except (KeyError, TypeError) as error:
            raise InputError(f"task state: expected the facts of graphs, lacks {error}") from error


def _part(state: dict[str, Any]) -> Part:
    known = tuple(tuple(column) for column in state["known"])
    return Part(known, tuple(state["mean"]), tuple(state["deviation"]))


def facts_of(
    graphs: GraphSet,
    train: Ints,
    *,
    attributes: bool,
    edge_features: bool,
    degrees: str,
    degree_cap: int,
    names: Sequence[str] = (),
) -> Facts:
    """Facts by the training graphs alone; the classes by all.

    Args:
        graphs: All graphs, with labels.
        train: Which of them train.
        attributes: Whether numbers of nodes and edges count.
        edge_features: Whether anything of edges counts.
        degrees: "always", "never", or "auto": where nothing else is known of nodes.
        degree_cap: The largest degree that is told from larger ones.
        names: Of the classes, by number.
    """
    chosen = np.zeros(graphs.count, bool)
    chosen[train] = True
    rows = chosen[graphs.graph]
    links = rows[graphs.edges[1]]

    def of(values: Any, where: Any, wanted: bool) -> Any:
        return values[where] if wanted and values is not None else None

    nodes = Part.of(of(graphs.node_labels, rows, True), of(graphs.node_values, rows, attributes))
    edges = Part.of(
        of(graphs.edge_labels, links, edge_features),
        of(graphs.edge_values, links, edge_features and attributes),
    )
    wanted = degrees == "always" or (degrees == "auto" and not nodes.size)
    top = int(graphs.degrees[rows].max(initial=0))
    classes = () if graphs.labels is None else tuple(np.unique(graphs.labels).tolist())
    return Facts(classes, nodes, edges, min(top, degree_cap) + 1 if wanted else 0, tuple(names))
