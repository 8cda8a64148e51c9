"""Columns of nodes as numbers for a network, by statistics of the training nodes alone."""

import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lawful.errors import InputError, expected
from lawful.tasks.graphdata._network import Network
from lawful.tasks.graphdata._raw import Floats, RawGraph

Scaling = Literal["standard", "quantile", "none"]
KNOTS = 65
_LIMIT = 10.0  # standardised values beyond this many deviations are cut


@dataclass(frozen=True)
class Features:
    """How the columns of a graph become features; JSON-ready.

    Numeric columns are brought to mean 0 and deviation 1, or to a normal distribution by their
    quantiles; what is missing becomes the mean, and a column that has gaps in training gets a
    second one that marks them. A categorical column becomes one-hot over its frequent training
    values, all zeros for any other value. The logarithm of the degree in each relation may follow.
    """

    scaling: Scaling
    numeric: list[str]
    mean: list[float]
    deviation: list[float]
    knots: list[list[float]]  # by column; empty unless scaling is "quantile"
    gaps: list[str]  # numeric columns that have missing values in training
    texts: dict[str, list[str]]
    relations: list[str]
    degrees: bool

    @classmethod
    def fit(
        cls,
        graph: RawGraph,
        network: Network,
        rows: npt.NDArray[np.int64],
        *,
        scaling: Scaling = "standard",
        categories: int = 32,
        degrees: bool = True,
    ) -> "Features":
        """The statistics of some nodes.

        Args:
            graph: Columns.
            network: Edges.
            rows: The training nodes.
            scaling: "none" leaves numeric columns as they are.
            categories: Values kept of each categorical column, the most frequent ones.
            degrees: Whether degrees are features.
        """
        x = np.concatenate(
            [graph.numeric, _log_degrees(network)[:, : 0 if not degrees else None]], 1
        )
        x = x[rows].astype(np.float64)
        known = ~np.isnan(x)
        count = np.maximum(known.sum(0), 1)
        mean = np.where(known, x, 0).sum(0) / count
        deviation = np.sqrt((np.where(known, x - mean, 0) ** 2).sum(0) / count)
        if scaling == "none":
            mean, deviation = np.where(known.all(0), 0.0, mean), np.ones_like(deviation)
        deviation[deviation < 1e-12] = 1.0
        gaps = [n for n, full in zip(graph.numeric_names, known.all(0), strict=False) if not full]
        texts = {
            name: sorted(v for v, _ in Counter(values[rows].tolist()).most_common(categories))
            for name, values in graph.texts.items()
        }
        return cls(
            scaling,
            list(graph.numeric_names),
            mean.tolist(),
            deviation.tolist(),
            _quantiles(x) if scaling == "quantile" else [],
            gaps,
            texts,
            list(network.relations),
            degrees,
        )

    @property
    def size(self) -> int:
        """Number of features."""
        words = sum(len(known) for known in self.texts.values())
        return len(self.mean) + len(self.gaps) + words

    def kinds(self) -> dict[str, str]:
        """What each column of a table is."""
        return dict.fromkeys(self.numeric, "number") | dict.fromkeys(self.texts, "text")

    def apply(self, graph: RawGraph, network: Network) -> tuple[Floats, list[str]]:
        """Features (N, size) of a graph, and in words what was noticed.

        Raises:
            InputError: A column of training is missing.
        """
        said: list[str] = []
        numeric = _chosen(self.numeric, graph, said)
        parts = [numeric, _log_degrees(network)] if self.degrees else [numeric]
        x = np.concatenate(parts, 1)
        missing = np.isnan(x)
        for column in np.flatnonzero(missing.any(0)):
            row = int(np.flatnonzero(missing[:, column])[0])
            said.append(
                f"column {self.numeric[column]}: {int(missing[:, column].sum()):,} missing values "
                f"(first at node {graph.id_of(row)}) take the training mean"
            )
        out = [self._scaled(x, missing)]
        marks = [self.numeric.index(name) for name in self.gaps]
        out.append(missing[:, marks].astype(np.float32))
        out += [self._one_hot(name, graph, said) for name in self.texts]
        return np.concatenate(out, 1), said

    def _scaled(self, x: Floats, missing: npt.NDArray[np.bool_]) -> Floats:
        if self.scaling == "none":
            return np.where(missing, np.array(self.mean, np.float32), x).astype(np.float32)
        found: npt.NDArray[Any]
        if self.scaling == "quantile":
            found = np.stack([_normal(x[:, i], k) for i, k in enumerate(self.knots)], 1)
        else:
            mean, deviation = (np.array(v, np.float32) for v in (self.mean, self.deviation))
            found = (x - mean) / deviation
        return np.where(missing, 0, np.clip(found, -_LIMIT, _LIMIT)).astype(np.float32)

    def _one_hot(self, name: str, graph: RawGraph, said: list[str]) -> Floats:
        if name not in graph.texts:
            raise expected(f"{graph.place}: columns", f"{name!r}, as in training", "none such")
        known = {value: i for i, value in enumerate(self.texts[name])}
        code = np.array([known.get(v, len(known)) for v in graph.texts[name].tolist()])
        other = np.flatnonzero(code == len(known))
        if len(other):
            value, where = graph.texts[name][other[0]], graph.id_of(int(other[0]))
            said.append(
                f"column {name}: {len(other):,} nodes hold a value that is rare in training or not "
                f"there (first {value!r} at node {where}): none of the known ones"
            )
        found = np.zeros((graph.count, len(known) + 1), np.float32)
        found[np.arange(graph.count), code] = 1
        return found[:, :-1]

    def state(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Any) -> "Features":
        """From what `state` returned."""
        try:
            return cls(**state)
        except TypeError as error:
            raise InputError(f"task state: expected the features, got {error}") from error


def _log_degrees(network: Network) -> Floats:
    return np.log1p(network.degrees())


def _chosen(names: list[str], graph: RawGraph, said: list[str]) -> Floats:
    if tuple(names) == graph.numeric_names:
        return graph.numeric
    have = {n: i for i, n in enumerate(graph.numeric_names)}
    lost = [n for n in names if n not in have]
    if lost:
        raise expected(f"{graph.place}: columns", f"{lost[0]!r}, as in training", ", ".join(have))
    extra = [n for n in have if n not in names]
    if extra:
        said.append(f"columns that training had not: {', '.join(extra[:5])}; not used")
    return graph.numeric[:, [have[n] for n in names]]


def _quantiles(x: npt.NDArray[np.float64]) -> list[list[float]]:
    shares = np.linspace(0, 1, KNOTS)
    found = []
    for column in x.T:
        known = column[~np.isnan(column)]
        found.append(np.quantile(known, shares).tolist() if len(known) else [0.0] * KNOTS)
    return found


def _normal(x: Floats, knots: list[float]) -> npt.NDArray[np.float64]:
    """The normal quantile of each value's rank among the training values."""
    import torch

    shares = np.linspace(0, 1, len(knots))
    low = np.searchsorted(knots, x, "left").clip(0, len(knots) - 1)
    high = np.searchsorted(knots, x, "right").clip(1, len(knots)) - 1
    between = np.interp(x, knots, shares)
    # A value that many training nodes share takes the middle of its ranks.
    rank = np.where(high > low, (shares[low] + shares[high]) / 2, between)
    edge = 0.5 / len(knots)
    ranks = torch.from_numpy(rank.clip(edge, 1 - edge))
    return torch.erfinv(2 * ranks - 1).numpy() * math.sqrt(2)
