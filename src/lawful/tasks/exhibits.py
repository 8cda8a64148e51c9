"""Results as data: what a task shows, apart from how it is drawn.

Each exhibit is a plain dataclass of titles, arrays and labels. A run folder stores them
(`save`, `load`), and `lawful.reports` draws them, so that a page can be made again without the
model or the data.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from lawful.errors import expected

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Table:
    """Rows under named columns; numbers are formatted by the report."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


@dataclass(frozen=True)
class Heatmap:
    """A matrix drawn as an image: attention, credit, confusion counts.

    ``values`` of shape (panels, rows, columns) are drawn side by side on one colour scale (heads
    of an attention layer, say), each under its name in ``panels``.
    """

    title: str
    values: Array  # (rows, columns) or (panels, rows, columns)
    xlabel: str = ""
    ylabel: str = ""
    xticks: Sequence[str] | None = None
    yticks: Sequence[str] | None = None
    scale: Literal["sequential", "diverging"] = "sequential"
    annotate: bool = False  # write the numbers into the cells
    note: str = ""
    panels: Sequence[str] | None = None


@dataclass(frozen=True)
class Images:
    """A grid of pictures with captions; ``good`` marks each as right or wrong, if given.

    ``columns`` fixes the pictures per row: original, masked and completed beside each other, or
    the steps of a film strip.
    """

    title: str
    images: Array  # (n, height, width) or (n, height, width, 3), in [0, 1]
    captions: Sequence[str]
    good: Sequence[bool] | None = None
    note: str = ""
    columns: int | None = None


@dataclass(frozen=True)
class Curves:
    """Lines over a common axis: energies, ROC and precision-recall curves, spectra.

    ``muted`` names series that are references (chance, a baseline): grey and dashed. ``bands``
    gives some series a shaded range (lower, upper) at their own x.
    """

    title: str
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]]  # name -> (x, y)
    xlabel: str = ""
    ylabel: str = ""
    log_x: bool = False
    log_y: bool = False
    note: str = ""
    style: Literal["line", "points", "steps"] = "line"
    equal_axes: bool = False  # one unit is as long on x as on y: unit circles, ROC curves
    muted: Sequence[str] = ()
    bands: Mapping[str, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Arcs:
    """Trees over tokens, drawn as arcs; heads[i] is the head of token i, -1 for a root."""

    title: str
    tokens: Sequence[str]
    heads: Sequence[int]
    labels: Sequence[str] | None = None
    gold: Sequence[int] | None = None
    note: str = ""


@dataclass(frozen=True)
class Text:
    """Preformatted lines: sample sequences, generated text."""

    title: str
    lines: Sequence[str] = field(default_factory=list)
    note: str = ""


@dataclass(frozen=True)
class Graphs:
    """Small graphs beside each other, drawn as circles and lines; one entry a graph in each field.

    Nodes are coloured by ``values`` and shaped by ``kinds`` (a few words, explained in a legend);
    the first node of a graph, the one that it is about, is ringed. Lines are as strong as
    ``weights``.
    """

    title: str
    captions: Sequence[str]
    names: Sequence[Sequence[str]]  # of the nodes
    places: Sequence[Sequence[Sequence[float]]]  # (nodes, 2) in [0, 1]
    values: Sequence[Sequence[float]]  # (nodes) in [0, 1]
    kinds: Sequence[Sequence[str]]  # (nodes)
    edges: Sequence[Sequence[Sequence[int]]]  # (edges, 2): positions of nodes
    weights: Sequence[Sequence[float]] | None = None  # (edges) in [0, 1]
    note: str = ""


Exhibit = Table | Heatmap | Images | Curves | Arcs | Text | Graphs
_KINDS: dict[str, type[Exhibit]] = {
    k.__name__: k for k in (Table, Heatmap, Images, Curves, Arcs, Text, Graphs)
}


def save(exhibits: Sequence[Exhibit], folder: Path) -> None:
    """Writes ``exhibits.json`` and, for the arrays, ``exhibits.npz`` into the folder."""
    arrays: dict[str, Array] = {}
    items = []
    for i, exhibit in enumerate(exhibits):
        item: dict[str, Any] = {"kind": type(exhibit).__name__}
        for f in fields(exhibit):
            value = getattr(exhibit, f.name)
            if isinstance(value, np.ndarray):
                arrays[f"{i}.{f.name}"] = value
            else:
                item[f.name] = value
        items.append(item)
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / ".exhibits.tmp.npz"
    np.savez_compressed(scratch, **arrays)  # type: ignore[arg-type]
    scratch.replace(folder / "exhibits.npz")
    scratch = folder / ".exhibits.tmp.json"
    scratch.write_text(json.dumps(items, indent=1, default=_plain) + "\n", encoding="utf-8")
    scratch.replace(folder / "exhibits.json")


def load(folder: Path) -> list[Exhibit]:
    """Reads back what `save` wrote; an empty list where nothing was saved.

    Raises:
        InputError: the files are damaged, or written by a version with other kinds or fields.
    """
    path = folder / "exhibits.json"
    if not path.is_file():
        return []
    try:
        with (folder / "exhibits.npz").open("rb") as stream, np.load(stream) as arrays:
            stored = {k: arrays[k] for k in arrays.files}
        items = json.loads(path.read_text(encoding="utf-8"))
        return [_revive(i, item, stored) for i, item in enumerate(items)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, BadZipFile) as error:
        raise expected(
            str(folder), "exhibits as lawful writes them", f"{type(error).__name__}: {error}"
        ) from error


def _revive(index: int, item: dict[str, Any], stored: Mapping[str, Array]) -> Exhibit:
    kind = _KINDS[item.pop("kind")]
    own: dict[str, Any] = {
        k.split(".", 1)[1]: v for k, v in stored.items() if k.split(".", 1)[0] == str(index)
    }
    return kind(**item, **own)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"cannot store {type(value).__name__} in an exhibit")
