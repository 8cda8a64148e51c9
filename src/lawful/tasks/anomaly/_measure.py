"""How good scores are: metrics, the threshold, and how sure one can be of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: Metrics with intervals.
NAMES = ("average_precision", "auroc", "macro_f1", "recall_at_k")


def best_threshold(labels: Array, scores: Array) -> float:
    """The threshold with the highest macro-F1: half-way between two neighbouring scores.

    It is a number of the scores' own type, so that it divides them exactly.
    """
    order = np.argsort(-scores, kind="stable")
    s, y = scores[order], labels[order].astype(np.float64)
    hits = np.r_[0.0, np.cumsum(y)]  # anomalous among the first i
    taken = np.arange(len(y) + 1)
    positives, n = hits[-1], len(y)
    first = 2 * hits / np.maximum(taken + positives, 1)
    second = 2 * (n - positives - taken + hits) / np.maximum((n - taken) + (n - positives), 1)
    cuts = np.r_[True, s[1:] < s[:-1], True]  # equal scores stay together
    value = np.where(cuts, first + second, -1.0)
    best = int(np.argmax(value))
    if best == 0:
        return float(np.nextafter(s[0], np.inf, dtype=s.dtype))
    lowest = s[best - 1]  # of those that are flagged
    below = s[best] if best < n else lowest - 1
    middle = s.dtype.type((float(lowest) + float(below)) / 2)
    return float(middle if middle > below else lowest)


def measure(labels: Array, scores: Array, threshold: float) -> dict[str, float]:
    """Average precision, AUROC, macro-F1 at a threshold, and recall among the k highest scores.

    k is the number of anomalous nodes, so that recall and precision at k are the same. There must
    be nodes of both classes.
    """
    from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

    highest = labels[np.argsort(-scores, kind="stable")][: int(labels.sum())]
    flagged = scores >= threshold
    return {
        "average_precision": float(average_precision_score(labels, scores)),
        "auroc": float(roc_auc_score(labels, scores)),
        "macro_f1": float(f1_score(labels, flagged, average="macro", zero_division=0)),
        "recall_at_k": float(highest.mean()),
    }


def intervals(
    labels: Array, scores: Array, threshold: float, resamples: int, seed: int
) -> dict[str, tuple[float, float]]:
    """95 % percentile intervals of the metrics over bootstrap resamples of the nodes.

    Resamples that lack a class are drawn again. The model is held fixed: what is counted is the
    chance of which nodes were tested, not that of training.
    """
    random = np.random.default_rng([77, seed])
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    for _ in range(resamples):
        rows = random.integers(0, len(labels), len(labels))
        while labels[rows].min() == labels[rows].max():
            rows = random.integers(0, len(labels), len(labels))
        for name, value in measure(labels[rows], scores[rows], threshold).items():
            found[name].append(value)
    return {
        name: (float(np.quantile(v, 0.025)), float(np.quantile(v, 0.975)))
        for name, v in found.items()
        if v
    }


def flat(bounds: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Intervals as metrics of their own."""
    return {
        f"{name}_{end}": value
        for name, pair in bounds.items()
        for end, value in zip(("low", "high"), pair, strict=True)
    }
