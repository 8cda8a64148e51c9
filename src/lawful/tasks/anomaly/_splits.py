"""Which nodes are for training, validation and testing."""

import numpy as np
import numpy.typing as npt

from lawful.errors import InputError, expected
from lawful.tasks.anomaly._config import AnomalyConfig
from lawful.tasks.graphdata import RawGraph

Rows = npt.NDArray[np.int64]


def split_nodes(graph: RawGraph, config: AnomalyConfig, seed: int) -> dict[str, Rows]:
    """The nodes of each part.

    At random: of each class, ``train_share`` for training, and of the others one third for
    validation and two for testing, at least one node of each class in every part.

    Raises:
        InputError: There are no labels, or a part would lack a class.
    """
    if graph.labels is None or not (graph.labels >= 0).any():
        raise expected(graph.place, "labels of some nodes", "none")
    random = np.random.default_rng([31, seed])
    parts = _given(graph, config) if config.split == "given" else _drawn(graph, config, random)
    for name, rows in parts.items():
        for label, word in enumerate(("normal", "anomalous")):
            if not (graph.labels[rows] == label).any():
                got = f"{len(rows)} nodes, none of them {word}"
                hint = "a larger --train-share may help" if name == "train" else ""
                raise expected(f"{graph.place}: {name} part", "nodes of both classes", got, hint)
    if config.max_valid and config.max_valid < len(parts["valid"]):
        parts["valid"] = _fewer(graph, parts["valid"], config.max_valid, random)
    return parts


def _given(graph: RawGraph, config: AnomalyConfig) -> dict[str, Rows]:
    if graph.masks is None:
        hint = "--split random draws one"
        raise expected("split", "random: the file holds no masks", "given", hint)
    number = len(graph.masks["train"])
    if config.split_index >= number:
        raise expected("split_index", f"0..{number - 1}", config.split_index)
    assert graph.labels is not None
    known = graph.labels >= 0
    masks = {name: mask[config.split_index] & known for name, mask in graph.masks.items()}
    for a, b in (("train", "valid"), ("train", "test"), ("valid", "test")):
        shared = int((masks[a] & masks[b]).sum())
        if shared:
            raise InputError(f"{graph.place}: {shared} nodes are in both {a} and {b} masks")
    return {name: np.flatnonzero(mask) for name, mask in masks.items()}


def _drawn(graph: RawGraph, config: AnomalyConfig, random: np.random.Generator) -> dict[str, Rows]:
    assert graph.labels is not None
    found: dict[str, list[Rows]] = {"train": [], "valid": [], "test": []}
    for label, word in enumerate(("normal", "anomalous")):
        rows = random.permutation(np.flatnonzero(graph.labels == label))
        if len(rows) < 3:
            want = "at least 3 nodes of each class, one for each part"
            raise expected(graph.place, want, f"{len(rows)} {word}")
        train = min(max(round(config.train_share * len(rows)), 1), len(rows) - 2)
        valid = min(max(round((len(rows) - train) / 3), 1), len(rows) - train - 1)
        cut = np.split(rows, [train, train + valid])
        for name, part in zip(found, cut, strict=True):
            found[name].append(part)
    return {name: np.sort(np.concatenate(parts)) for name, parts in found.items()}


def _fewer(graph: RawGraph, rows: Rows, count: int, random: np.random.Generator) -> Rows:
    """A random choice with nodes of both classes."""
    assert graph.labels is not None
    order = random.permutation(rows)
    first = [int(np.flatnonzero(graph.labels[order] == label)[0]) for label in (0, 1)]
    rest = np.setdiff1d(np.arange(len(order)), first)[: max(count - 2, 0)]
    return np.sort(order[np.r_[first, rest]])
