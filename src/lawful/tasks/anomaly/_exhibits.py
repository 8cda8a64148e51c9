"""What a person wants to see of a scorer: how good, how sure, and which nodes stand out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lawful.models import EnergyNodeScorer, NodeScorer
from lawful.tasks._base import Split, batches, to_device
from lawful.tasks.anomaly._measure import NAMES, intervals, measure
from lawful.tasks.exhibits import Array, Curves, Exhibit, Graph, Heatmap, Table, Text

if TYPE_CHECKING:
    from lawful.tasks.anomaly._task import AnomalyTask

_TITLES = {
    "average_precision": "average precision",
    "auroc": "AUROC",
    "macro_f1": "macro-F1",
    "recall_at_k": "recall at k",
}
_BINS = 40
_DRAWN = 4  # neighbourhoods
_LISTED = 20
_AROUND = 12  # neighbours drawn around a node
_POINTS = 400  # of a curve


def anomaly_exhibits(task: "AnomalyTask", model: NodeScorer, split: Split) -> list[Exhibit]:
    """Metrics beside the trees', distributions, curves, confusion, and the highest scores."""
    model.eval()
    rows, scores = part_scores(task, model, split)
    labels = (task.graph.labels[rows] == 1).astype(int)
    threshold = float(model.threshold)
    views: list[Exhibit] = [
        _metrics(task, labels, scores, threshold, split),
        _confusion(labels, scores, threshold),
        _distribution(labels, scores, threshold),
        _precision_recall(task, labels, scores, split),
        _roc(task, labels, scores, split),
    ]
    if isinstance(model, EnergyNodeScorer) and not task.config.sample_neighbours:
        views.append(_energies(task, model, rows, labels))
    views.append(_ranking(task, rows, scores))
    views += _neighbourhoods(task, rows, scores, threshold)
    views.append(Text("The data", task.graph.remarks, _counts(task)))
    return views


def part_scores(task: "AnomalyTask", model: NodeScorer, split: Split) -> tuple[Array, Array]:
    """The nodes of a part and their scores."""
    device = next(model.parameters()).device
    nodes, scores = [], []
    with torch.no_grad():
        for batch in batches(task.source(split), 4096):
            batch = to_device(batch, device)
            scores.append(task.logits(model, batch).float().sigmoid().cpu().numpy())
            nodes.append(batch["node"].cpu().numpy())
    return np.concatenate(nodes), np.concatenate(scores)


def _counts(task: "AnomalyTask") -> str:
    labels = task.graph.labels
    parts = (
        f"{name} {len(r):,} ({int((labels[r] == 1).sum()):,})" for name, r in task.parts.items()
    )
    return (
        f"{task.graph.network.count:,} nodes, {len(task.graph.network.source) // 2:,} undirected "
        f"edges; nodes with a label (anomalous among them): {', '.join(parts)}."
    )


def _metrics(
    task: "AnomalyTask", labels: Array, scores: Array, threshold: float, split: Split
) -> Table:
    found = measure(labels, scores, threshold)
    bounds = intervals(labels, scores, threshold, task.config.bootstrap, task.seed)
    trees = task.trees() if split == "test" else {}
    rows = []
    for name in NAMES:
        low, high = bounds.get(name, (None, None))
        rows.append([_TITLES[name], found[name], low, high, *(t[name] for t, _ in trees.values())])
    columns = ("metric", "model", "2.5 %", "97.5 %", *trees)
    note = (
        f"{len(labels):,} nodes of the {split} part, {int(labels.sum()):,} of them anomalous (k). "
        "The threshold of macro-F1 "
        f"({threshold:.3f}) was chosen on the validation part. The interval is over resamples of "
        "the nodes. Trees: gradient boosting on the node's features, and on means over neighbours."
    )
    return Table("Results", columns, rows, note)


def _confusion(labels: Array, scores: Array, threshold: float) -> Heatmap:
    flags = (scores >= threshold).astype(int)
    counts = np.zeros((2, 2))
    np.add.at(counts, (labels, flags), 1)
    names = ("normal", "anomalous")
    said = ("not flagged", "flagged")
    return Heatmap("Confusion", counts, "model", "label", said, names, annotate=True)


def _distribution(labels: Array, scores: Array, threshold: float) -> Curves:
    edges = np.linspace(0, 1, _BINS + 1)
    series: dict[str, Any] = {}
    for value, name in enumerate(("normal", "anomalous")):
        count, _ = np.histogram(scores[labels == value], edges)
        share = count / max(count.sum(), 1)
        series[name] = (edges.tolist(), [*share.tolist(), float(share[-1])])
    top = max(max(y) for _, y in series.values())
    series["threshold"] = ([threshold, threshold], [0.0, top])
    return Curves(
        "Scores by class",
        series,
        "score",
        "share of the class",
        style="steps",
        muted=("threshold",),
    )


def _thin(x: Array, y: Array) -> tuple[list[float], list[float]]:
    """At most `_POINTS` points of a curve, its ends among them."""
    at = np.unique(np.linspace(0, len(x) - 1, min(_POINTS, len(x))).round().astype(int))
    return x[at].tolist(), y[at].tolist()


def _rivals(task: "AnomalyTask", split: Split) -> dict[str, Array]:
    """The scores of the best trees."""
    trees = task.trees() if split == "test" else {}
    if not trees:
        return {}
    name = max(trees, key=lambda n: trees[n][0]["average_precision"])
    return {name: trees[name][1]}


def _precision_recall(task: "AnomalyTask", labels: Array, scores: Array, split: Split) -> Curves:
    from sklearn.metrics import precision_recall_curve

    series = {}
    for name, values in {"model": scores, **_rivals(task, split)}.items():
        precision, recall, _ = precision_recall_curve(labels, values)
        series[name] = _thin(recall, precision)
    share = float(labels.mean())
    series["chance"] = ([0.0, 1.0], [share, share])
    return Curves("Precision and recall", series, "recall", "precision", muted=("chance",))


def _roc(task: "AnomalyTask", labels: Array, scores: Array, split: Split) -> Curves:
    from sklearn.metrics import roc_curve

    series = {}
    for name, values in {"model": scores, **_rivals(task, split)}.items():
        false, true, _ = roc_curve(labels, values)
        series[name] = _thin(false, true)
    series["chance"] = ([0.0, 1.0], [0.0, 1.0])
    words = ("share of normal nodes flagged", "share of anomalous nodes flagged")
    return Curves("ROC", series, *words, equal_axes=True, muted=("chance",))


def _energies(task: "AnomalyTask", model: EnergyNodeScorer, rows: Array, labels: Array) -> Curves:
    """Each node's own share of the energy, by class."""
    inputs = task.whole(task.graph, next(model.parameters()).device)
    with torch.no_grad():
        energy = model.reasons(*inputs).energy.float().cpu().numpy()[rows]
    low, high = (float(v) for v in np.quantile(energy, [0.005, 0.995]))
    edges = np.linspace(low, max(high, low + 1e-6), _BINS + 1)
    series = {}
    for value, name in enumerate(("normal", "anomalous")):
        count, _ = np.histogram(energy[labels == value], edges)
        share = count / max(int((labels == value).sum()), 1)
        series[name] = (edges.tolist(), [*share.tolist(), float(share[-1])])
    note = "What each node's own query adds to the energy of attention in the settled state."
    return Curves(
        "Energy by class", series, "energy", "share of the class", note=note, style="steps"
    )


def _word(label: int) -> str:
    return {1: "anomalous", 0: "normal"}.get(int(label), "not known")


def _ranking(task: "AnomalyTask", rows: Array, scores: Array) -> Table:
    graph = task.graph
    lines = []
    for i in np.argsort(-scores, kind="stable")[:_LISTED]:
        node = int(rows[i])
        around = graph.labels[graph.network.neighbours(node)]
        known = around[around >= 0]
        share = float((known == 1).mean()) if len(known) else None
        line = (graph.raw.id_of(node), float(scores[i]), _word(graph.labels[node]), len(around))
        lines.append((*line, share))
    columns = ("node", "score", "label", "neighbours", "anomalous among those with a label")
    return Table("Most anomalous nodes", columns, lines, "The highest scores of the part.")


def _neighbourhoods(
    task: "AnomalyTask", rows: Array, scores: Array, threshold: float
) -> list[Exhibit]:
    """The nodes with the highest scores, each with its neighbours and the edges among them."""
    known = dict(zip(rows.tolist(), scores.tolist(), strict=True))
    views: list[Exhibit] = []
    for i in np.argsort(-scores, kind="stable")[:_DRAWN]:
        views.append(_around(task, int(rows[i]), known))
    return views


def _around(task: "AnomalyTask", node: int, scores: dict[int, float]) -> Graph:
    graph, network = task.graph, task.graph.network
    near = network.neighbours(node)
    chosen = sorted(
        near.tolist(), key=lambda v: (-int(graph.labels[v] == 1), -scores.get(v, 0.0), v)
    )
    nodes = [node, *chosen[:_AROUND]]
    place = {v: i for i, v in enumerate(nodes)}
    edges = [
        (place[v], place[int(u)])
        for v in nodes
        for u in network.neighbours(v)
        if int(u) in place and place[v] < place[int(u)]
    ]
    left = len(near) - len(nodes) + 1
    note = f"Score {scores[node]:.3f}, label {_word(graph.labels[node])}; {len(near)} neighbours"
    return Graph(
        f"Around {graph.raw.id_of(node)}",
        [graph.raw.id_of(v) for v in nodes],
        edges,
        [_word(graph.labels[v]) for v in nodes],
        centre=0,
        note=note + (f", of which {left} are not drawn." if left else "."),
    )


__all__: Sequence[str] = ("anomaly_exhibits", "part_scores")
