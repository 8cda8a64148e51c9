"""The neighbourhoods of some nodes, as drawings."""

from typing import TYPE_CHECKING

import numpy as np

from lawful.models import NodeScorer
from lawful.tasks.anomaly._scoring import Why, scored
from lawful.tasks.exhibits import Array, Graphs
from lawful.tasks.graphdata import Network
from lawful.tasks.graphdata.layout import layout

if TYPE_CHECKING:
    from lawful.tasks.anomaly._task import AnomalyTask

_DRAWN = 6  # nodes
_NEAR = 12  # of a node's neighbours
_FAR = 12  # neighbours of these


def surroundings(
    task: "AnomalyTask", model: NodeScorer, top: list[tuple[int, float]], why: list[Why]
) -> Graphs:
    """The neighbourhoods of the first nodes, with scores, labels and attention weights."""
    graph = task.graph
    drawn = [
        around(graph.network, node, [n for n, _ in why[i].neighbours] if why else [])
        for i, (node, _) in enumerate(top[:_DRAWN])
    ]
    scores = _scores(task, model, np.unique(np.concatenate(drawn)))
    captions, places, edges, weights = [], [], [], []
    for i, nodes in enumerate(drawn):
        ends = _inner_edges(graph.network, nodes)
        attended = dict(why[i].neighbours) if why else {}
        captions.append(_caption(task, *top[i], len(nodes)))
        places.append(layout(len(nodes), ends).tolist())
        edges.append(ends.T.tolist())
        weights.append([_weight(a, b, nodes, attended) for a, b in ends.T.tolist()])
    words = {1: "anomalous", 0: "normal", -1: "no label"}
    note = (
        "Dark: a high score. Ringed: the node itself; with it are at "
        f"most {_NEAR} neighbours and {_FAR} of theirs."
    )
    if why:
        note += " Blue lines: what it attends to, the wider the more."
    return Graphs(
        "Neighbourhoods of the most anomalous nodes",
        captions,
        [[graph.raw.id_of(n) for n in nodes.tolist()] for nodes in drawn],
        places,
        [[scores[n] for n in nodes.tolist()] for nodes in drawn],
        [[words[int(graph.labels[n])] for n in nodes] for nodes in drawn],
        edges,
        weights if why else None,
        note,
    )


def around(network: Network, node: int, first: list[int]) -> Array:
    """A node, some of its neighbours (``first`` among them), and some of theirs.

    Of more neighbours than can be drawn those with few edges are taken: hubs tell less.
    """
    found = [node]
    own = network.neighbours(node)
    own = own[np.argsort(np.diff(network.start)[own], kind="stable")]
    near = list(dict.fromkeys([*first, *own.tolist()]))[:_NEAR]
    found += near
    far = np.concatenate([network.neighbours(n) for n in near]) if near else np.zeros(0, np.int64)
    names, often = np.unique(far, return_counts=True)
    order = np.lexsort((names, np.diff(network.start)[names], -often))
    found += [n for n in names[order].tolist() if n not in found][:_FAR]
    return np.array(found)


def _inner_edges(network: Network, nodes: Array) -> Array:
    """Edges (2, e) among some nodes, each once, as positions."""
    place = {n: i for i, n in enumerate(nodes.tolist())}
    pairs = [
        (place[n], i)
        for i, node in enumerate(nodes.tolist())
        for n in network.neighbours(node).tolist()
        if place.get(n, i) < i
    ]
    return np.array(pairs, np.int64).reshape(-1, 2).T


def _scores(task: "AnomalyTask", model: NodeScorer, nodes: Array) -> dict[int, float]:
    found: dict[int, float] = {}
    for some, scores, _ in scored(task, model, task.graph, nodes):
        found |= zip(some.tolist(), scores.tolist(), strict=True)
    return found


def _weight(a: int, b: int, nodes: Array, attended: dict[int, float]) -> float:
    """The attention of the first node to the other end of one of its edges."""
    return attended.get(int(nodes[max(a, b)]), 0.0) if min(a, b) == 0 else 0.0


def _caption(task: "AnomalyTask", node: int, score: float, shown: int) -> str:
    label = ("normal", "anomalous")[int(task.graph.labels[node])]
    degree = len(task.graph.network.neighbours(node))
    return f"{task.graph.raw.id_of(node)}: score {score:.2f}, {label}, {degree:,} neighbours"
