"""Gradient-boosted trees on the features and on means over neighbours: the baseline to beat."""

from typing import Any

import numpy as np
import numpy.typing as npt

from lawful.tasks.anomaly._measure import best_threshold, measure
from lawful.tasks.graphdata import Network

Array = npt.NDArray[Any]
HOPS = 2
_LARGEST = 200_000  # training rows


def neighbour_means(x: Array, network: Network, hops: int) -> Array:
    """Columns (N, F), then their means over neighbours, theirs, ... (N, (1+h) F)."""
    from scipy.sparse import csr_matrix

    degree = np.maximum(np.diff(network.start), 1).astype(np.float32)
    ones = np.ones(len(network.source), np.float32)
    adjacency = csr_matrix((ones, network.source, network.start), (network.count, network.count))
    found = [x]
    for _ in range(hops):
        found.append(adjacency @ found[-1] / degree[:, None])
    return np.concatenate(found, 1)


def boosted_trees(
    x: Array, labels: Array, parts: dict[str, Array], seed: int
) -> tuple[dict[str, float], Array]:
    """Test metrics of scikit-learn's histogram gradient boosting, and its test scores.

    The least size of a leaf and the number of rounds have the highest average precision on the
    validation nodes, which choose the threshold too.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import average_precision_score

    random = np.random.default_rng([5, seed])
    train = parts["train"]
    if len(train) > _LARGEST:
        train = random.choice(train, _LARGEST, replace=False)
    best: tuple[float, Array, Array] | None = None
    for leaf in (5, 20):
        model = HistGradientBoostingClassifier(
            learning_rate=0.05,
            max_iter=200,
            min_samples_leaf=leaf,
            class_weight="balanced",
            early_stopping=False,
            random_state=seed,
        ).fit(x[train], labels[train])
        stages = zip(
            model.staged_predict_proba(x[parts["valid"]]),
            model.staged_predict_proba(x[parts["test"]]),
            strict=True,
        )
        for number, (valid, test) in enumerate(stages, 1):
            if number % 10:
                continue
            value = float(average_precision_score(labels[parts["valid"]], valid[:, 1]))
            if best is None or value > best[0]:
                best = value, valid[:, 1].copy(), test[:, 1].copy()
    assert best is not None
    threshold = best_threshold(labels[parts["valid"]], best[1])
    return measure(labels[parts["test"]], best[2], threshold), best[2]
