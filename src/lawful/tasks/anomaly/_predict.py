"""Scores for the nodes of another graph, and why."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lawful.errors import InputError
from lawful.models import NodeScorer
from lawful.tasks._base import to_device
from lawful.tasks.anomaly._sources import Sampled
from lawful.tasks.graphdata import connect, load_graph

if TYPE_CHECKING:
    from lawful.tasks.anomaly._config import AnomalyPredictOptions
    from lawful.tasks.anomaly._task import AnomalyTask, Prepared

_BATCH = 4096


def predictions(task: "AnomalyTask", model: NodeScorer, path: Path) -> Iterator[dict[str, Any]]:
    """A row for each node, in the file's order: id, score (a probability), flag.

    The columns must be those of training; labels are not needed. What was noticed about the file
    is printed to standard error.
    """
    import sys

    options: AnomalyPredictOptions = task.predict_options
    if not hasattr(task, "features"):
        raise InputError("run: its task state is missing, without which columns have no meaning")
    raw = load_graph(path, task.config.read_options(task.features.kinds()))
    network, said = connect(raw, task.features.relations)
    graph = task._prepared(raw, network, said)
    for remark in graph.remarks:
        print(f"{path}: {remark}", file=sys.stderr)
    threshold = float(model.threshold)
    model.eval()
    for logits, nodes, reasons in _passes(task, model, graph, options):
        scores = logits.sigmoid().tolist()
        for i, node in enumerate(nodes.tolist()):
            row: dict[str, Any] = {
                "id": raw.id_of(node),
                "score": scores[i],
                "flag": int(scores[i] >= threshold),
            }
            yield row | (reasons[i] if reasons else {})


def _passes(
    task: "AnomalyTask", model: NodeScorer, graph: "Prepared", options: "AnomalyPredictOptions"
) -> Iterator[tuple[torch.Tensor, Any, list[dict[str, Any]]]]:
    """Logits, nodes and reasons: the whole graph at once, or its nodes in batches."""
    device = next(model.parameters()).device
    every = np.arange(graph.network.count)
    if not task.config.sample_neighbours:
        inputs = task.whole(graph, device)
        with torch.no_grad():
            logits = model(*inputs).float().cpu()
            why = _reasons(model, inputs, every, len(every), graph, options)
        yield logits, every, why
        return
    source = Sampled(graph, every, "predict", task.config.sample_neighbours, task.seed)
    for start in range(0, len(every), _BATCH):
        batch = to_device(source.batch(range(start, min(start + _BATCH, len(every)))), device)
        inputs = batch["x"], batch["edge_index"], batch.get("member")
        seeds = len(batch["node"])
        with torch.no_grad():
            logits = model(*inputs)[:seeds].float().cpu()
            why = _reasons(model, inputs, batch["nodes"].cpu().numpy(), seeds, graph, options)
        yield logits, batch["node"].cpu(), why


def _reasons(
    model: NodeScorer,
    inputs: Any,
    nodes: Any,
    count: int,
    graph: "Prepared",
    options: "AnomalyPredictOptions",
) -> list[dict[str, Any]]:
    """The most attended neighbours of the first ``count`` nodes, and their energies."""
    if not options.explain:
        return []
    found = model.reasons(*inputs)
    source, target = found.edge_index.cpu().numpy()
    weight, energy = found.weights.float().cpu().numpy(), found.energy.float().cpu().tolist()
    order = np.lexsort((-weight, target))
    start = np.searchsorted(target[order], np.arange(count + 1))
    rows = []
    for i in range(count):
        mine = order[start[i] : start[i + 1]]
        own = float(weight[mine[source[mine] == i]].sum())
        top = mine[source[mine] != i][: options.neighbours]
        said = (f"{graph.raw.id_of(int(nodes[source[e]]))}:{weight[e]:.3f}" for e in top)
        rows.append({"neighbours": " ".join(said), "itself": own, "energy": energy[i]})
    return rows
