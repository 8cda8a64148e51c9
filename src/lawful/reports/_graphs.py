"""Draws small graphs: circles and other shapes at given places, joined by lines."""

from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.reports import _files
from lawful.reports._format import clean, shorten
from lawful.reports._heatmaps import palette
from lawful.reports._style import FONT, MARKERS, Drawing, figure, light, render, text
from lawful.tasks.exhibits import Graphs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDE = 250.0  # px
_LEGEND = 22.0  # px
NAMED = 12  # nodes of a graph that is small enough for names


def draw(graphs: Graphs, index: int) -> Drawing:
    """One graph of the exhibit, with a legend of the shapes of the whole exhibit."""
    fig = figure(SIDE, SIDE + _LEGEND)
    fig.set_layout_engine("none")
    share = _LEGEND / (SIDE + _LEGEND)
    axes = fig.add_axes((0.0, share, 1.0, 1 - share))
    axes.set_axis_off()
    axes.set(xlim=(-0.12, 1.12), ylim=(-0.12, 1.12))
    place = np.asarray(graphs.places[index], float).reshape(-1, 2)
    _lines(axes, graphs, index, place)
    _nodes(axes, graphs, index, place)
    shown = shapes(graphs)
    if len(shown) > 1:
        handles = [_handle(marker, kind) for kind, marker in shown.items()]
        fig.legend(
            handles=handles,
            loc="lower center",
            ncols=len(handles),
            frameon=False,
            fontsize=FONT - 1,
            labelcolor=light("muted"),
            handletextpad=0.1,
            columnspacing=1.0,
            borderpad=0.1,
        )
    return render(fig)


def shapes(graphs: Graphs) -> dict[str, str]:
    """The shape of each kind, in the order of their names."""
    found = sorted({kind for kinds in graphs.kinds for kind in kinds})
    return {kind: MARKERS[i % len(MARKERS)] for i, kind in enumerate(found)}


def _handle(marker: str, kind: str) -> Any:
    from matplotlib.lines import Line2D

    look: Any = {"markerfacecolor": light("card"), "markeredgecolor": light("muted")}
    return Line2D([], [], linestyle="none", marker=marker, markersize=7, label=text(kind), **look)


def _lines(axes: "Axes", graphs: Graphs, index: int, place: Any) -> None:
    edges = np.asarray(graphs.edges[index], int).reshape(-1, 2)
    weights = [0.2] * len(edges) if graphs.weights is None else graphs.weights[index]
    for (a, b), weight in zip(edges.tolist(), weights, strict=True):
        colour = light("s0" if graphs.weights is not None and weight > 0 else "line")
        x, y = place[[a, b]].T
        axes.plot(x, y, color=colour, linewidth=0.8 + 4 * float(weight), zorder=1)


def _nodes(axes: "Axes", graphs: Graphs, index: int, place: Any) -> None:
    values, kinds = graphs.values[index], graphs.kinds[index]
    named = len(place) <= NAMED
    colours = palette("sequential")
    for i, (x, y) in enumerate(place.tolist()):
        axes.plot(
            x,
            y,
            marker=shapes(graphs)[kinds[i]],
            markersize=13 if i == 0 else 9,
            markerfacecolor=colours(float(values[i])),
            markeredgecolor=light("s1" if i == 0 else "muted"),
            markeredgewidth=2.5 if i == 0 else 0.8,
            zorder=3 if i == 0 else 2,
        )
        if named or i == 0:
            axes.annotate(
                text(shorten(graphs.names[index][i], 14)),
                (x, y),
                (0, 9),
                textcoords="offset points",
                ha="center",
                fontsize=FONT - 2.5,
                color=light("ink"),
                zorder=4,
            )


def describe(graphs: Graphs, index: int) -> str:
    """Alternative text: the sizes and the first nodes with their values."""
    names, values, kinds = graphs.names[index], graphs.values[index], graphs.kinds[index]
    parts = [
        f"{shorten(n, 24)} ({k}, {v:.2f})"
        for n, k, v in zip(names[:20], kinds, values, strict=False)
    ]
    more = f", and {len(names) - 20} more" if len(names) > 20 else ""
    size = f"{len(names)} nodes and {len(graphs.edges[index])} edges"
    return clean(f"Graph of {size} about {'; '.join(parts)}{more}")


def numbers(graphs: Graphs, index: int) -> str:
    """One row an edge: both ends with kind and value, and its weight; a lone node alone."""
    names, values, kinds = graphs.names[index], graphs.values[index], graphs.kinds[index]
    columns = ["node", "kind", "value", "other", "other kind", "other value", "weight"]
    weights = graphs.weights[index] if graphs.weights else [""] * len(graphs.edges[index])
    rows: list[list[Any]] = []
    for (a, b), weight in zip(graphs.edges[index], weights, strict=True):
        ends = [part for i in (a, b) for part in (clean(names[i]), clean(kinds[i]), values[i])]
        rows.append([*ends, weight])
    joined = {i for edge in graphs.edges[index] for i in edge}
    alone = [i for i in range(len(names)) if i not in joined]
    rows += [[clean(names[i]), clean(kinds[i]), values[i], "", "", "", ""] for i in alone]
    return _files.table(columns, rows)
