"""Draws lines over a common axis."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.reports import _files
from lawful.reports._format import clean, number, shorten
from lawful.reports._run import Floats
from lawful.reports._style import (
    DASHES,
    FONT,
    MARKERS,
    SERIES,
    Drawing,
    dress,
    figure,
    light,
    render,
    text,
    ticks,
)
from lawful.tasks.exhibits import Curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT, SQUARE = 400.0, 250.0, 360.0
SHARE = 40  # a moving average goes over this part of a line
POINTS = 1200  # more than this many points of a line are thinned for drawing


@dataclass(frozen=True)
class Look:
    """How curves are drawn, beyond what they hold."""

    colours: Mapping[str, int] = field(default_factory=dict)  # series -> place in the palette
    smooth: Sequence[str] = ()  # series drawn pale, with their moving average on top
    unnamed: Sequence[str] = ()  # series left out of the legend
    pale: bool = True  # whether smoothed series show every value as well
    mark: tuple[float, str] | None = None  # a vertical line, and its words


def draw(curves: Curves, look: Look | None = None) -> Drawing:
    """The curves as a figure; values that are not finite leave gaps."""
    look = look or Look()
    fig = figure(*((SQUARE, SQUARE) if curves.equal_axes else (WIDTH, HEIGHT)))
    axes = fig.add_subplot()
    dress(axes)
    if curves.log_x:
        axes.set_xscale("log")
    if curves.log_y:
        axes.set_yscale("log")
    for index, name in enumerate(curves.series):
        _line(axes, curves, look, name, look.colours.get(name, index))
    if look.mark is not None:
        _mark(axes, *look.mark)
    axes.margins(x=0.02)
    if curves.equal_axes:
        axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel(text(curves.xlabel))
    axes.set_ylabel(text(curves.ylabel))
    ticks(axes.xaxis, curves.log_x, whole=_whole(curves))
    ticks(axes.yaxis, curves.log_y)
    _legend(axes)
    return render(fig)


def _line(axes: "Axes", curves: Curves, look: Look, name: str, place: int) -> None:
    x, y = points(curves, name)
    muted = name in curves.muted
    colour = light("muted") if muted else SERIES[place % len(SERIES)]
    dash = DASHES[1] if muted else DASHES[place // len(SERIES) % len(DASHES)]
    label = "_nolegend_" if name in look.unnamed else text(shorten(name, 44)).lstrip("_")
    if name in curves.bands:
        low, high = (np.asarray(b, dtype=np.float64)[: x.size] for b in curves.bands[name])
        axes.fill_between(x[: low.size], low, high, color=colour, alpha=0.18, linewidth=0)
    if curves.style == "points" and not muted:
        marker = MARKERS[place % len(MARKERS)]
        axes.plot(x, y, marker, color=colour, markersize=4, alpha=0.8, label=label)
        return
    if name in look.smooth and x.size > 80:
        if look.pale:
            axes.plot(*thin(x, y), color=colour, linewidth=0.8, alpha=0.35)
        y = moving_average(y, window(x.size))
    if curves.style == "steps" and not muted:
        axes.fill_between(x, y, step="mid", color=colour, alpha=0.18, linewidth=0)
    drawstyle: Any = "steps-mid" if curves.style == "steps" else "default"
    marker = "o" if np.isfinite(y).sum() <= 24 and not muted else ""
    axes.plot(
        *thin(x, y),
        marker=marker,
        markersize=4,
        color=colour,
        linestyle=dash,
        linewidth=1.3 if muted else 1.9,
        label=label,
        drawstyle=drawstyle,
    )


def points(curves: Curves, name: str) -> tuple[Floats, Floats]:
    """The x and y of a series, cut to equal length; NaN where a point cannot be drawn."""
    x, y = (np.array(v, dtype=np.float64).ravel() for v in curves.series[name])
    x, y = x[: y.size], y[: x.size]
    lost = ~(np.isfinite(x) & np.isfinite(y) & (np.abs(y) < 1e300))
    lost |= (curves.log_y & (y <= 0)) | (curves.log_x & (x <= 0))
    y[lost] = np.nan
    return x, y


def thin(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """At most `POINTS` points: the lowest and highest of each stretch, so that spikes survive."""
    if x.size <= POINTS:
        return x, y
    edges = np.linspace(0, x.size, POINTS // 2 + 1).astype(int)[:-1]
    kept = [0, x.size - 1]
    for start, stop in zip(edges, [*edges[1:], x.size], strict=True):
        part = y[start:stop]
        if np.isnan(part).all():
            kept.append(start)
        else:
            kept += [start + int(np.nanargmin(part)), start + int(np.nanargmax(part))]
    order = np.unique(kept)
    return x[order], y[order]


def window(n: int) -> int:
    """The width of the moving average over n values."""
    return max(3, n // SHARE)


def moving_average(y: Floats, width: int) -> Floats:
    """Centred mean over ``width`` values, leaving out what is not a number."""
    finite = np.isfinite(y)
    kernel = np.ones(min(width, y.size))
    count = np.convolve(finite, kernel, mode="same")
    total = np.convolve(np.where(finite, y, 0.0), kernel, mode="same")
    return np.where(finite, total / np.maximum(count, 1), np.nan)


def _whole(curves: Curves) -> bool:
    """Whether every x is a whole number: steps, epochs, depths."""
    xs = (np.array(x, dtype=np.float64).ravel() for x, _ in curves.series.values())
    return all(bool(np.all(x[np.isfinite(x)] % 1 == 0)) for x in xs)


def _mark(axes: "Axes", x: float, words: str) -> None:
    axes.axvline(x, color=light("muted"), linewidth=1, linestyle=(0, (2, 2)))
    left, right = axes.get_xlim()
    side = "right" if x > (left + right) / 2 else "left"
    axes.annotate(
        text(words),
        (x, 0),
        xycoords=axes.get_xaxis_transform(),
        xytext=(-4 if side == "right" else 4, 4),
        textcoords="offset points",
        ha=side,
        fontsize=FONT - 1,
        color=light("muted"),
    )


def _legend(axes: "Axes") -> None:
    names = axes.get_legend_handles_labels()[1]
    if len(names) < 2:
        return
    widest = max(map(len, names)) * FONT * 0.58 + 46
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=int(max(1, min(len(names), (WIDTH - 40) // widest))),
        frameon=False,
        fontsize=FONT,
        labelcolor=light("ink"),
        handlelength=1.6,
        borderaxespad=0.2,
    )


def wide(values: Floats) -> bool:
    """Whether positive values span so much that a logarithmic axis shows them better."""
    finite = values[np.isfinite(values) & (np.abs(values) < 1e300)]
    return bool(finite.size and finite.min() > 0 and finite.max() > 100 * finite.min())


def describe(curves: Curves) -> str:
    """Alternative text: each line's first and last value."""
    parts = []
    for name in list(curves.series)[:8]:
        y = points(curves, name)[1]
        known = np.flatnonzero(np.isfinite(y))
        if known.size:
            first, last = (number(float(y[known[i]])) for i in (0, -1))
            parts.append(f"{name} from {first} to {last}")
    more = len(curves.series) - 8
    tail = f", and {more} more lines" if more > 0 else ""
    over = f" over {curves.xlabel}" if curves.xlabel else ""
    return clean(f"Line chart of {curves.title}{over}: " + ("; ".join(parts) or "no data") + tail)


def lost(curves: Curves) -> list[str]:
    """For each series with values that cannot be drawn, how many and where first."""
    notes = []
    for name, (xs, ys) in curves.series.items():
        y = np.array(ys, dtype=np.float64).ravel()
        gone = np.flatnonzero(~np.isfinite(y))
        if gone.size:
            x = np.array(xs, dtype=np.float64).ravel()
            where = number(float(x[gone[0]])) if gone[0] < x.size else "the end"
            at = f"{curves.xlabel or 'x'} {where}"
            notes.append(f"{name}: {number(int(gone.size))} values are not finite, first at {at}.")
    return notes


def numbers(curves: Curves) -> str:
    """The numbers behind the figure as CSV, one row a point."""
    rows: list[list[Any]] = []
    for name, (xs, ys) in curves.series.items():
        rows += [[clean(name), _exact(x), _exact(y)] for x, y in zip(xs, ys, strict=False)]
    return _files.table(["series", curves.xlabel or "x", curves.ylabel or "y"], rows)


def _exact(value: Any) -> Any:
    number_ = float(value)
    return int(number_) if math.isfinite(number_) and number_.is_integer() else number_
