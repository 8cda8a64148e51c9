"""What a person wants to see of a model that scores nodes."""

from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.models import EnergyNodeScorer, NodeScorer
from lawful.tasks._base import Split
from lawful.tasks.anomaly._measure import NAMES, intervals, measure
from lawful.tasks.anomaly._scoring import Why, scored, threshold_of
from lawful.tasks.anomaly._surroundings import surroundings
from lawful.tasks.exhibits import Array, Curves, Exhibit, Heatmap, Table

if TYPE_CHECKING:
    from lawful.tasks.anomaly._task import AnomalyTask

_TITLES = {
    "average_precision": "average precision",
    "auroc": "AUROC",
    "macro_f1": "macro-F1",
    "recall_at_k": "recall at k",
}
_LISTED = 20  # nodes with the highest scores
_BINS = 25
_POINTS = 400  # of a curve


def anomaly_exhibits(task: "AnomalyTask", model: NodeScorer, split: Split) -> list[Exhibit]:
    """Metrics, distributions, curves, confusion, and the highest scores with neighbours."""
    rows = task.parts[split]
    labels = task.graph.labels[rows].astype(int)
    found = [s for _, s, _ in scored(task, model, task.graph, rows, part=split)]
    scores, threshold = np.concatenate(found), threshold_of(model)
    best = dict(_best_trees(task)) if split == "test" else {}
    top, why = _highest(task, model, rows[np.argsort(-scores, kind="stable")[:_LISTED]])
    return [
        _metrics(task, labels, scores, threshold, split),
        _distribution(labels, scores, threshold),
        _precision_recall(labels, scores, best),
        _roc(labels, scores, best),
        _confusion(labels, scores, threshold),
        _listed(task, top, why, threshold),
        surroundings(task, model, top, why),
        _data(task),
    ]


def _best_trees(task: "AnomalyTask") -> list[tuple[str, Array]]:
    """Name and scores of the best trees, by average precision on the validation nodes."""
    trees = task.trees()
    if not trees:
        return []
    name = max(trees, key=lambda n: trees[n].valid)
    return [(name, trees[name].scores)]


def _metrics(
    task: "AnomalyTask", labels: Array, scores: Array, threshold: float, split: str
) -> Table:
    found = measure(labels, scores, threshold)
    bounds = intervals(labels, scores, threshold, task.config.bootstrap, task.seed)
    rows: list[tuple[Any, ...]] = [("this model", *(found[n] for n in NAMES))]
    if bounds:
        words = (f"{low:.3f} to {high:.3f}" for low, high in (bounds[n] for n in NAMES))
        rows = [("this model", *(f"{found[n]:.3f}" for n in NAMES)), ("95 % interval", *words)]
    if split == "test":
        for name, trees in task.trees().items():
            values = [trees.test[n] for n in NAMES]
            rows.append((name, *([f"{v:.3f}" for v in values] if bounds else values)))
    share = float(labels.mean())
    note = (
        f"The {split} part: {len(labels):,} nodes, of which {int(labels.sum()):,} ({share:.1%}) "
        f"are anomalous, which is the average precision of chance. The threshold {threshold:.3f} "
        "has the best macro-F1 on the validation nodes. k is the number of anomalous nodes. "
        "Intervals are of the bootstrap over nodes, the model held fixed."
    )
    if split == "test" and task.trees():
        note += " Trees: gradient boosting on the features, and on means over 1 and 2 hops."
    return Table("Metrics", ("", *(_TITLES[n] for n in NAMES)), rows, note)


def _distribution(labels: Array, scores: Array, threshold: float) -> Curves:
    edges = np.linspace(0, 1, _BINS + 1)
    series: dict[str, Any] = {}
    highest = 0.0
    for label, word in enumerate(("normal", "anomalous")):
        counts = np.histogram(scores[labels == label], edges)[0]
        shares = counts / max(counts.sum(), 1)
        highest = max(highest, float(shares.max()))
        series[word] = (edges.tolist(), [*shares.tolist(), float(shares[-1])])
    series["threshold"] = ([threshold, threshold], [0.0, highest])
    return Curves(
        "Scores by class",
        series,
        "score",
        "share of the class",
        style="steps",
        muted=("threshold",),
        note=f"Shares of each class in {_BINS} bins.",
    )


def _thin(x: Array, y: Array) -> tuple[list[float], list[float]]:
    """At most about `_POINTS` points, the ends among them."""
    keep = np.unique(np.linspace(0, len(x) - 1, _POINTS).round().astype(int))
    return x[keep].tolist(), y[keep].tolist()


def _precision_recall(labels: Array, scores: Array, others: dict[str, Array]) -> Curves:
    from sklearn.metrics import precision_recall_curve

    series = {}
    for name, values in {"this model": scores, **others}.items():
        precision, recall, _ = precision_recall_curve(labels, values)
        series[name] = _thin(recall[::-1], precision[::-1])
    share = float(labels.mean())
    series["chance"] = ([0.0, 1.0], [share, share])
    muted = (*others, "chance")
    return Curves("Precision and recall", series, "recall", "precision", muted=muted)


def _roc(labels: Array, scores: Array, others: dict[str, Array]) -> Curves:
    from sklearn.metrics import roc_curve

    series = {}
    for name, values in {"this model": scores, **others}.items():
        false, true, _ = roc_curve(labels, values)
        series[name] = _thin(false, true)
    series["chance"] = ([0.0, 1.0], [0.0, 1.0])
    return Curves(
        "ROC",
        series,
        "normal nodes flagged, share",
        "anomalous nodes flagged, share",
        equal_axes=True,
        muted=(*others, "chance"),
    )


def _confusion(labels: Array, scores: Array, threshold: float) -> Heatmap:
    counts = np.zeros((2, 2), np.int64)
    np.add.at(counts, (labels, (scores >= threshold).astype(int)), 1)
    names = ("normal", "anomalous")
    ticks = (("not flagged", "flagged"), names)
    return Heatmap("Confusion", counts, "", "label", *ticks, annotate=True)


def _highest(
    task: "AnomalyTask", model: NodeScorer, nodes: Array
) -> tuple[list[tuple[int, float]], list[Why]]:
    """Nodes with scores, and why if the model can say it."""
    asked = 8 if isinstance(model, EnergyNodeScorer) else 0
    top: list[tuple[int, float]] = []
    why: list[Why] = []
    for some, scores, reasons in scored(task, model, task.graph, nodes, reasons=asked):
        top += zip(some.tolist(), scores.tolist(), strict=True)
        why += reasons
    return top, why


def _listed(
    task: "AnomalyTask", top: list[tuple[int, float]], why: list[Why], threshold: float
) -> Table:
    graph = task.graph
    rows = []
    for i, (node, score) in enumerate(top):
        label = ("normal", "anomalous")[graph.labels[node]]
        flag = "flagged" if score >= threshold else ""
        degree = len(graph.network.neighbours(node))
        row: tuple[Any, ...] = (graph.raw.id_of(node), score, flag, label, degree)
        if why:
            said = (f"{graph.raw.id_of(n)} ({w:.0%})" for n, w in why[i].neighbours[:3])
            row = (*row, why[i].energy, ", ".join(said))
        rows.append(row)
    columns = ["node", "score", "", "label", "neighbours"]
    if why:
        columns += ["energy", "attends most to"]
    note = "The energy is the node's own share, of attention and memories." if why else ""
    return Table("Most anomalous nodes", columns, rows, note)


def _data(task: "AnomalyTask") -> Table:
    graph = task.graph
    parts = {**task.parts, "unlabelled": np.flatnonzero(graph.labels < 0)}
    rows = []
    for name, nodes in parts.items():
        labels = graph.labels[nodes]
        rows.append((name, len(nodes), int((labels == 0).sum()), int((labels == 1).sum())))
    network = graph.network
    edges = f"{len(network.source) // 2:,} undirected edges in {len(network.relations)} relations"
    size = f"{network.count:,} nodes, {edges}, {task.features.size} features"
    note = "; ".join([size, *graph.remarks])
    return Table("Data", ("part", "nodes", "normal", "anomalous"), rows, note)
