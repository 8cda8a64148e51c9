"""A graph as it was read: columns, labels, edges of each relation, and what was noticed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lawful.errors import InputError, expected

Floats = npt.NDArray[np.float32]
Whole = npt.NDArray[np.int64]
Labels = npt.NDArray[np.int8]  # 1 anomalous, 0 normal, -1 not known

NORMAL = frozenset({"0", "false", "no", "n", "normal", "benign", "legit", "legitimate", "ok"})
ANOMALOUS = frozenset(
    {"1", "true", "yes", "y", "anomaly", "anomalous", "abnormal", "outlier", "fraud", "fraudulent"}
)
UNKNOWN = frozenset({"", "nan", "none", "null", "na", "n/a", "?", "-1", "unknown", "unlabelled"})


@dataclass
class RawGraph:
    """Nodes, their columns and labels, and the edges of each relation, all as they were read.

    ``numeric`` (N, F) may hold NaN for what is missing; ``texts`` are categorical columns.
    ``masks`` are the file's own splits, (K, N) for each of "train", "valid", "test".
    """

    place: str  # what messages name
    count: int
    numeric: Floats
    numeric_names: tuple[str, ...]
    relations: dict[str, Whole]  # name -> (2, E): source, target
    ids: Sequence[str] | None = None  # None: 0, 1, ...
    texts: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    labels: Labels | None = None
    masks: Mapping[str, npt.NDArray[np.bool_]] | None = None
    remarks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Refuses what no graph can have."""
        if self.count < 1:
            raise expected(self.place, "a graph with at least one node", "none")
        if self.numeric.shape != (self.count, len(self.numeric_names)):
            want = f"features for each of {self.count} nodes"
            raise expected(self.place, want, f"an array of shape {self.numeric.shape}")
        if self.labels is not None and len(self.labels) != self.count:
            raise expected(self.place, f"{self.count} labels, one a node", len(self.labels))
        for name, edges in self.relations.items():
            check_edges(f"{self.place}: {name}", edges, self.count)
        bad = np.argwhere(np.isinf(self.numeric))
        if len(bad):
            row, column = map(int, bad[0])
            where = f"{self.place}: column {self.numeric_names[column]}, node {self.id_of(row)}"
            raise expected(where, "a finite number, or nothing", self.numeric[row, column])

    def id_of(self, node: int) -> str:
        """The user's name of a node."""
        return str(node) if self.ids is None else self.ids[node]


def check_edges(place: str, edges: Whole, count: int) -> None:
    """Refuses edges of a wrong form, or that lead to nodes which do not exist."""
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise expected(place, "edges as an array of shape (2, E)", edges.shape)
    wrong = (edges < 0) | (edges >= count)
    bad = np.flatnonzero(wrong.any(0))
    if len(bad):
        which = int(bad[0])
        raise expected(
            f"{place}, edge {which}",
            f"node numbers in 0..{count - 1}",
            int(edges[wrong[:, which], which][0]),
            f"{len(bad)} edges name nodes that do not exist",
        )


def labels_from_numbers(values: npt.NDArray[Any], place: str) -> Labels:
    """Labels from numbers or booleans: NaN and negative unknown, 0 normal, all else anomalous."""
    flat = np.asarray(values).reshape(-1)
    if flat.dtype.kind not in "biuf":
        raise expected(place, "labels that are numbers", f"an array of {flat.dtype}")
    number = flat.astype(np.float64)
    found = np.where(np.isnan(number) | (number < 0), -1, (number > 0).astype(np.int64))
    return found.astype(np.int8)


def labels_from_texts(
    values: Sequence[str], where: Sequence[str], anomalous: Sequence[str] = ()
) -> Labels:
    """Labels from words.

    Args:
        values: One for each node.
        where: The place of each, for messages.
        anomalous: The words that mean anomalous; every other known one is normal then. Without,
            the usual words (1, true, fraud, ...; 0, false, normal, ...) are understood.
    """
    chosen = {a.strip().lower() for a in anomalous}
    if chosen and not chosen & {v.strip().lower() for v in values}:
        raise expected("anomalous", "words that the label column holds", sorted(chosen))
    meaning: dict[str, int] = {}
    for value, place in zip(values, where, strict=True):
        if value not in meaning:
            meaning[value] = _meaning(value.strip().lower(), chosen, place)
    return np.array([meaning[v] for v in values], dtype=np.int8)


def _meaning(word: str, anomalous: set[str], place: str) -> int:
    if word in anomalous:
        return 1
    if word in UNKNOWN:
        return -1
    if anomalous or word in NORMAL:
        return 0
    if word in ANOMALOUS:
        return 1
    try:
        number = float(word)
    except ValueError:
        want = "a label such as 0, 1, normal, fraud, or nothing"
        hint = "name the words for anomalous nodes with --anomalous"
        raise expected(place, want, repr(word), hint) from None
    return -1 if number < 0 or number != number else int(number > 0)


def stack_masks(arrays: Mapping[str, Any], count: int, place: str) -> dict[str, Any] | None:
    """Masks (K, N) of the three parts from whatever arrangement they come in; None without any."""
    names = {"train": ("train",), "valid": ("val", "valid"), "test": ("test",)}
    found: dict[str, Any] = {}
    for part, starts in names.items():
        keys = [f"{s}_{tail}" for s in starts for tail in ("mask", "masks")]
        value = next((arrays[k] for k in keys if k in arrays), None)
        if value is not None:
            mask = np.atleast_2d(np.asarray(value).astype(bool))
            found[part] = mask if mask.shape[1] == count else mask.T
    if not found:
        return None
    shapes = {m.shape for m in found.values()}
    if len(found) < 3 or len(shapes) > 1 or next(iter(shapes))[1] != count:
        want = f"train, val and test masks of one shape (K, {count})"
        raise InputError(f"{place}: expected {want}, got " + ", ".join(map(str, shapes)))
    return found
