"""Draws a small graph: nodes as points in the colour of their group, edges as lines."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from lawful.reports import _files
from lawful.reports._format import clean, shorten
from lawful.reports._style import FONT, MARKERS, SERIES, Drawing, figure, light, render, text
from lawful.tasks.exhibits import Graph

_SIDE = 420.0
_ROUNDS = 200


def draw(graph: Graph) -> Drawing:
    """Nodes pushed apart and edges pulled together; the centre, if there is one, in the middle."""
    fig = figure(_SIDE, _SIDE * 0.8)
    axes = fig.add_subplot()
    axes.set_axis_off()
    places = layout(len(graph.nodes), graph.edges, graph.centre)
    for a, b in graph.edges:
        axes.plot(*places[[a, b]].T, color=light("line"), linewidth=1.2, zorder=1)
    groups = list(graph.groups) if graph.groups is not None else [""] * len(graph.nodes)
    for number, name in enumerate(sorted(set(groups))):
        mine = np.array([g == name for g in groups])
        axes.scatter(
            *places[mine].T,
            s=60,
            color=SERIES[number % len(SERIES)],
            marker=MARKERS[number % len(MARKERS)],
            label=text(name),
            zorder=2,
        )
    if graph.centre is not None:
        x, y = places[graph.centre]
        axes.scatter([x], [y], s=190, facecolors="none", edgecolors=light("ink"), zorder=2)
    for (x, y), name in zip(places, graph.nodes, strict=True):
        axes.annotate(
            text(shorten(name, 12)),
            (x, y),
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            fontsize=FONT - 2,
            color=light("ink"),
            zorder=3,
        )
    axes.margins(0.12)
    if graph.groups is not None:
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, 0.02),
            ncols=3,
            frameon=False,
            fontsize=FONT - 1,
            labelcolor=light("muted"),
        )
    return render(fig)


def layout(
    count: int, edges: Any, centre: int | None, rounds: int = _ROUNDS
) -> npt.NDArray[np.float64]:
    """Places (count, 2) by forces: all nodes repel each other, edges attract.

    Source: Fruchterman and Reingold 1991, "Graph drawing by force-directed placement".
    """
    angle = (
        np.arange(count) * math.pi * (3 - math.sqrt(5))
    )  # a sunflower, so that nothing coincides
    places = np.sqrt(np.arange(count) + 0.5)[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    if centre is not None:
        places[[0, centre]] = places[[centre, 0]]
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
    for i in range(rounds):
        gap = places[:, None] - places[None]
        square = (gap**2).sum(-1) + 1e-6
        force = (gap / square[..., None]).sum(1)
        pull = places[ends[:, 0]] - places[ends[:, 1]]
        pull = pull * np.sqrt((pull**2).sum(-1, keepdims=True))
        np.add.at(force, ends[:, 0], -pull)
        np.add.at(force, ends[:, 1], pull)
        length = np.sqrt((force**2).sum(-1, keepdims=True)) + 1e-9
        places = places + force / length * np.minimum(length, 0.3 * (1 - i / rounds))
        if centre is not None:
            places = places - places[centre]
    return places


def describe(graph: Graph) -> str:
    """Alternative text: sizes, and the neighbours of the centre."""
    said = f"Graph of {len(graph.nodes)} nodes and {len(graph.edges)} edges"
    if graph.centre is not None:
        near = [b if a == graph.centre else a for a, b in graph.edges if graph.centre in (a, b)]
        names = ", ".join(shorten(graph.nodes[i], 24) for i in near[:20])
        said += f" around {shorten(graph.nodes[graph.centre], 24)}; its neighbours: {names}"
    return clean(said)


def numbers(graph: Graph) -> str:
    """One row an edge: the names and groups of its ends."""
    groups = list(graph.groups) if graph.groups is not None else [""] * len(graph.nodes)
    rows = (
        (clean(graph.nodes[a]), clean(graph.nodes[b]), clean(groups[a]), clean(groups[b]))
        for a, b in graph.edges
    )
    return _files.table(["node", "neighbour", "group", "group of the neighbour"], rows)
