"""Scores for the nodes of another graph, and why."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.errors import InputError
from lawful.models import NodeScorer
from lawful.tasks.anomaly._scoring import Why, scored, threshold_of
from lawful.tasks.graphdata import RawGraph, connect, load_graph

if TYPE_CHECKING:
    from lawful.tasks.anomaly._config import AnomalyPredictOptions
    from lawful.tasks.anomaly._task import AnomalyTask


def predictions(task: "AnomalyTask", model: NodeScorer, path: Path) -> Iterator[dict[str, Any]]:
    """A row for each node, in the file's order: id, score (a probability), flag.

    The columns must be those of training; labels are not needed. What was noticed about the file
    is printed to standard error.
    """
    options: AnomalyPredictOptions = task.predict_options
    if not hasattr(task, "features"):
        raise InputError("run: its task state is missing, without which columns have no meaning")
    raw = load_graph(path, task.config.read_options(task.features.kinds()))
    network, said = connect(raw, task.features.relations)
    graph = task.prepared(raw, network, said)
    for remark in graph.remarks:
        print(f"{path}: {remark}", file=sys.stderr)
    threshold = threshold_of(model)
    asked = options.neighbours if options.explain else 0
    for nodes, scores, why in scored(task, model, graph, np.arange(raw.count), reasons=asked):
        for i, node in enumerate(nodes.tolist()):
            row = {
                "id": raw.id_of(node),
                "score": float(scores[i]),
                "flag": int(scores[i] >= threshold),
            }
            yield row | (_told(raw, why[i]) if why else {})


def _told(raw: RawGraph, why: Why) -> dict[str, Any]:
    """The reasons as further cells; an id may hold a colon, its weight follows the last one."""
    neighbours = " ".join(f"{raw.id_of(node)}:{weight:.3f}" for node, weight in why.neighbours)
    return {"neighbours": neighbours, "itself": why.itself, "energy": why.energy}
