"""Gradient-boosted trees on the features and on means over neighbours: the baseline to beat."""

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from lawful.tasks.anomaly._measure import best_threshold, measure
from lawful.tasks.graphdata import Network

Array = npt.NDArray[Any]
HOPS = 2
_LARGEST = 200_000  # training rows


def neighbour_means(x: Array, network: Network, hops: int) -> Array:
    """Features (N, F), then their means over neighbours, once, twice, ...: (N, (1 + hops) F)."""
    from scipy.sparse import csr_matrix

    degree = np.maximum(np.diff(network.start), 1).astype(np.float32)
    ones = np.ones(len(network.source), np.float32)
    adjacency = csr_matrix((ones, network.source, network.start), (network.count, network.count))
    found = [x]
    for _ in range(hops):
        found.append(adjacency @ found[-1] / degree[:, None])
    return np.concatenate(found, 1)


@dataclass(frozen=True)
class Trees:
    """How trees did: average precision on the validation nodes, metrics and scores on the test."""

    valid: float
    test: dict[str, float]
    scores: Array


def boosted_trees(x: Array, labels: Array, parts: dict[str, Array], seed: int) -> Trees:
    """Scikit-learn's histogram gradient boosting, trained on the training nodes.

    The least size of a leaf and the number of rounds have the highest average precision on the
    validation nodes, which choose the threshold too.
    """
    random = np.random.default_rng([5, seed])
    train = parts["train"]
    if len(train) > _LARGEST:
        train = random.choice(train, _LARGEST, replace=False)
    found = [_one(x, labels, train, parts["valid"], leaf, seed) for leaf in (5, 20)]
    value, rounds, model = max(found, key=lambda f: f[0])
    valid, test = (_after(model, x[parts[name]], rounds) for name in ("valid", "test"))
    threshold = best_threshold(labels[parts["valid"]], valid)
    return Trees(value, measure(labels[parts["test"]], test, threshold), test)


def _one(
    x: Array, labels: Array, train: Array, valid: Array, leaf: int, seed: int
) -> tuple[float, int, Any]:
    """The best average precision, the number of rounds that gave it, and all trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import average_precision_score

    model = HistGradientBoostingClassifier(
        learning_rate=0.05,
        max_iter=200,
        min_samples_leaf=leaf,
        class_weight="balanced",
        early_stopping=False,
        random_state=seed,
    ).fit(x[train], labels[train])
    stages = enumerate(model.staged_predict_proba(x[valid]), 1)
    values = [
        (float(average_precision_score(labels[valid], chances[:, 1])), rounds)
        for rounds, chances in stages
        if rounds % 10 == 0
    ]
    value, rounds = max(values, key=lambda v: v[0])
    return value, rounds, model


def _after(model: Any, x: Array, rounds: int) -> Array:
    """Scores after so many rounds."""
    chances = next(islice(model.staged_predict_proba(x), rounds - 1, None))
    scores: Array = np.array(chances[:, 1])
    return scores
