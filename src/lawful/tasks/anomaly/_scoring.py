"""Scores of any nodes of a graph, and why: in one pass over the whole graph, or in batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lawful.models import NodeScorer, Reasons
from lawful.tasks._base import to_device
from lawful.tasks.anomaly._sources import Sampled
from lawful.tasks.exhibits import Array

if TYPE_CHECKING:
    from lawful.tasks.anomaly._task import AnomalyTask, Prepared

_BATCH = 4096


@dataclass(frozen=True)
class Why:
    """What a node looks at: others with their weights, the most attended first."""

    neighbours: list[tuple[int, float]]  # number of the node, attention weight
    itself: float  # attention weight of the node itself
    energy: float  # the node's own share of the energy


def scored(
    task: "AnomalyTask",
    model: NodeScorer,
    graph: "Prepared",
    nodes: Array,
    *,
    reasons: int = 0,
    part: str = "predict",
) -> Iterator[tuple[Array, Array, list[Why]]]:
    """Nodes, their scores (probabilities), and for each why, if ``reasons`` neighbours are asked.

    Different nodes in any order. With neighbour sampling the nodes come in batches, so that memory
    depends on the batch; the neighbours drawn for a node depend on the seed and the batch.
    """
    model.eval()
    device = next(model.parameters()).device
    if not task.config.sample_neighbours:
        inputs = task.whole(graph, device)
        with torch.no_grad():
            scores = probabilities(model(*inputs))[nodes]
            found = model.reasons(*inputs) if reasons else None
        every = np.arange(graph.network.count)
        yield nodes, scores, [] if found is None else _told(found, every, nodes, reasons)
        return
    source = Sampled(graph, nodes, part, task.config.sample_neighbours, task.seed)
    for start in range(0, len(nodes), _BATCH):
        rows = range(start, min(start + _BATCH, len(nodes)))
        batch = to_device(source.batch(rows), device)
        inputs = batch["x"], batch["edge_index"], batch.get("member")
        at, names = batch["at"].cpu().numpy(), batch["nodes"].cpu().numpy()
        with torch.no_grad():
            scores = probabilities(model(*inputs))[at]
            found = model.reasons(*inputs) if reasons else None
        yield nodes[rows], scores, [] if found is None else _told(found, names, at, reasons)


def probabilities(logits: torch.Tensor) -> Array:
    """The scores of logits, in double precision: in single many high ones would be equal."""
    found: Array = logits.cpu().double().sigmoid().numpy()
    return found


def threshold_of(model: NodeScorer) -> float:
    """The score from which on a node is flagged."""
    return float(probabilities(model.cut))


def _told(found: Reasons, names: Array, positions: Array, most: int) -> list[Why]:
    """The reasons of the nodes at some positions of a (drawn) graph whose nodes have names."""
    source, target = found.edge_index.cpu().numpy()
    weight, energy = found.weights.float().cpu().numpy(), found.energy.float().cpu().numpy()
    order = np.lexsort((-weight, target))
    start = np.searchsorted(target[order], np.arange(len(names) + 1))
    result = []
    for i in positions.tolist():
        mine = order[start[i] : start[i + 1]]
        own = float(weight[mine[source[mine] == i]].sum())
        top: Any = mine[source[mine] != i][:most]
        pairs = zip(names[source[top]].tolist(), weight[top].tolist(), strict=True)
        result.append(Why(list(pairs), own, float(energy[i])))
    return result
