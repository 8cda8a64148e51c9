"""Draws matrices as images: attention over tokens, credit, confusion counts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.reports import _files
from lawful.reports._format import clean, number, shorten
from lawful.reports._run import Floats
from lawful.reports._style import FONT, Drawing, dress, figure, light, render, text, ticks
from lawful.tasks.exhibits import Heatmap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELLS = 200  # a side longer than this is pooled for drawing
ANNOTATED = 20  # a side longer than this has no room for numbers in its cells
NAME = 40  # characters of a name that are shown; sentences may stand along a side
TICKS = 40  # at most this many names along a side
BODY = 300.0  # px: the longer side of the matrix, unless its cells need more
_MAPS = {
    # light to dark in one hue, and orange to blue through white: safe for the colour-blind
    "sequential": ["#f7fafd", "#cfe1f2", "#93c3df", "#4b97c9", "#1b66ab", "#0a3a75"],
    "diverging": ["#9a4a00", "#e08a3c", "#f8d3ac", "#f8f8f8", "#b6d3ea", "#4b97c9", "#0a3a75"],
}


@dataclass(frozen=True)
class Scale:
    """The range of values that the colours span."""

    low: float
    high: float


def panels(heatmap: Heatmap) -> list[tuple[str, Floats]]:
    """The matrices of an exhibit with their names; infinities become NaN."""
    values = np.array(heatmap.values, dtype=np.float64)
    values[~np.isfinite(values)] = np.nan
    if values.size == 0:
        return []
    values = values.reshape(-1, *np.atleast_2d(values).shape[-2:])
    names = list(heatmap.panels or [])
    return [(clean(names[i]) if i < len(names) else "", v) for i, v in enumerate(values)]


def scale(heatmap: Heatmap, matrices: Sequence[Floats]) -> Scale:
    """From 0 (or the least) to the greatest value; symmetric about 0 if diverging."""
    known = np.concatenate([m[np.isfinite(m)] for m in matrices]) if matrices else np.zeros(0)
    if not known.size:
        return Scale(0.0, 1.0)
    low, high = float(known.min()), float(known.max())
    if heatmap.scale == "diverging":
        high = max(abs(low), abs(high)) or 1.0
        return Scale(-high, high)
    low = min(low, 0.0)
    return Scale(low, high if high > low else low + 1.0)


def pool(matrix: Floats, limit: int = CELLS) -> Floats:
    """Averages blocks of cells until no side is longer than ``limit``."""
    for axis in (0, 1):
        block = -(-matrix.shape[axis] // limit)
        if block > 1:
            starts = np.arange(0, matrix.shape[axis], block)
            total = np.add.reduceat(np.nan_to_num(matrix), starts, axis=axis)
            count = np.add.reduceat(np.isfinite(matrix).astype(float), starts, axis=axis)
            matrix = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return matrix


def draw(heatmap: Heatmap, matrix: Floats, span: Scale, small: bool = False) -> Drawing:
    """One matrix of the exhibit as a figure."""
    rows, columns = matrix.shape
    width, height = _size(heatmap, rows, columns, small)
    fig = figure(width, height)
    axes = fig.add_subplot()
    dress(axes, grid=False)
    axes.spines["bottom"].set_visible(False)
    colours = palette(heatmap.scale).with_extremes(bad=light("line"))
    image = axes.imshow(
        np.ma.masked_invalid(pool(matrix)),
        cmap=colours,
        vmin=span.low,
        vmax=span.high,
        aspect="auto",
        interpolation="none",
        extent=(-0.5, columns - 0.5, rows - 0.5, -0.5),
    )
    _names(axes, "x", heatmap.xticks, columns)
    _names(axes, "y", heatmap.yticks, rows)
    axes.set_xlabel(text(heatmap.xlabel))
    axes.set_ylabel(text(heatmap.ylabel))
    if heatmap.annotate and max(rows, columns) <= ANNOTATED:
        _annotate(axes, matrix, span)
    elif not small:
        _colourbar(fig, axes, image)
    return render(fig)


def palette(name: str) -> Any:
    """The house's colours for values from 0 to 1."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("house", _MAPS[name])


def _size(heatmap: Heatmap, rows: int, columns: int, small: bool) -> tuple[float, float]:
    factor = 0.6 if small else 1.0
    body = BODY * factor
    named = max(columns if heatmap.xticks else 0, rows if heatmap.yticks else 0)
    body = max(body, min(named, TICKS) * (24.0 if heatmap.annotate else 15.0))
    longest = max(rows, columns)
    side_x, side_y = (max(body * n / longest, 70.0 * factor) for n in (columns, rows))
    left = 34 + _reach(heatmap.yticks)
    below = 34 + (_reach(heatmap.xticks) if _turned(heatmap.xticks) else 8)
    return side_x + left + (0 if heatmap.annotate or small else 56), side_y + below


def _reach(names: Sequence[str] | None) -> float:
    return 0.62 * FONT * min(max((len(clean(n)) for n in names or ()), default=3), NAME)


def _turned(names: Sequence[str] | None) -> bool:
    return max((len(clean(n)) for n in names or ()), default=0) > 2


def _names(axes: "Axes", side: str, names: Sequence[str] | None, n: int) -> None:
    axis = axes.xaxis if side == "x" else axes.yaxis
    if not names:
        from matplotlib.ticker import MaxNLocator

        axis.set_major_locator(MaxNLocator(5, integer=True))
        axis.set_major_formatter(lambda x, pos: f"{x:,.0f}")
        return
    places = range(0, min(n, len(names)), -(-n // TICKS))
    turned = side == "x" and _turned(names)
    axis.set_ticks(
        list(places),
        [text(shorten(names[i], NAME)) for i in places],
        rotation=90 if turned else 0,
    )


def _annotate(axes: "Axes", matrix: Floats, span: Scale) -> None:
    whole = bool(np.all(np.isnan(matrix) | (matrix == np.round(matrix))))
    middle = (span.high + span.low) / 2
    reach = (span.high - span.low) / 2
    for i, j in np.ndindex(*matrix.shape):
        value = float(matrix[i, j])
        if math.isnan(value):
            continue
        strength = abs(value - middle) / reach if span.low < 0 < span.high else None
        dark = strength > 0.6 if strength is not None else value > span.low + 1.1 * reach
        words = number(int(value)) if whole else f"{value:.2f}"
        axes.text(
            j,
            i,
            words,
            ha="center",
            va="center",
            fontsize=FONT - 1.5,
            color=light("card" if dark else "ink" if value else "muted"),
        )


def _colourbar(fig: Any, axes: "Axes", image: Any) -> None:
    bar = fig.colorbar(image, ax=axes, shrink=0.6, aspect=18, pad=0.03)
    bar.outline.set_visible(False)
    ticks(bar.ax.yaxis, log=False)
    bar.ax.tick_params(length=0, labelsize=FONT - 1, labelcolor=light("muted"))


def describe(heatmap: Heatmap, name: str, matrix: Floats) -> str:
    """Alternative text: the size, the range, and where the greatest value lies."""
    rows, columns = matrix.shape
    head = f"Heat map of {heatmap.title}{f', {name}' if name else ''}: {rows} by {columns}"
    if not np.isfinite(matrix).any():
        return clean(f"{head}, no finite values")
    top = int(np.nanargmax(matrix))
    row, column = divmod(top, columns)
    places = [
        f"{axis or kind} {names[i] if names and i < len(names) else i}"
        for kind, axis, names, i in (
            ("row", heatmap.ylabel, heatmap.yticks, row),
            ("column", heatmap.xlabel, heatmap.xticks, column),
        )
    ]
    low, high = number(float(np.nanmin(matrix))), number(float(matrix.flat[top]))
    return clean(f"{head}, values {low} to {high}, the greatest at {', '.join(places)}")


def remarks(heatmap: Heatmap, matrices: Sequence[Floats]) -> list[str]:
    """What the drawing leaves out."""
    notes = []
    raw = np.asarray(heatmap.values, dtype=np.float64)
    gone = int((~np.isfinite(raw)).sum())
    if gone:
        notes.append(f"{number(gone)} values are not finite and are drawn in grey.")
    if len(matrices) > 1:
        span = scale(heatmap, matrices)
        notes.append(f"One colour scale for all: {number(span.low)} to {number(span.high)}.")
    if matrices and max(matrices[0].shape) > CELLS:
        rows, columns = matrices[0].shape
        notes.append(f"{rows} by {columns} cells, drawn smaller by averaging blocks of them.")
    return notes


def numbers(heatmap: Heatmap, matrix: Floats) -> str:
    """The matrix as CSV, with the names of rows and columns where they are given."""
    rows, columns = matrix.shape
    across = [str(n) for n in heatmap.xticks or []][:columns]
    across += [str(j) for j in range(len(across), columns)]
    down = [str(n) for n in heatmap.yticks or []][:rows]
    down += [str(i) for i in range(len(down), rows)]
    corner = f"{heatmap.ylabel or 'row'} \\ {heatmap.xlabel or 'column'}"
    body = ([clean(n), *row] for n, row in zip(down, matrix.tolist(), strict=True))
    return _files.table([corner, *across], body)
