"""Sets of graphs in the TU format: a folder or zip of text files.

``DS_A.txt`` holds the edges, a line each ("source, target", nodes counted from 1);
``DS_graph_indicator.txt`` the graph of each node, ``DS_graph_labels.txt`` the class of each graph;
``DS_node_labels.txt``, ``DS_node_attributes.txt``, ``DS_edge_labels.txt`` and
``DS_edge_attributes.txt``, all optional, what is known of nodes and edges.

Source: Morris et al. 2020, "TUDataset: a collection of benchmark datasets".
"""

import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lawful.errors import InputError, expected, unknown
from lawful.tasks.graphdata._graphs import GraphSet, tidy

__all__ = ["find_tu", "read_tu"]

_ENDING = "_A.txt"
_MORE = ("node_labels", "node_attributes", "edge_labels", "edge_attributes")


@dataclass(frozen=True)
class _Place:
    """Where a set lies: a folder, or a folder within a zip."""

    name: str
    folder: Path
    inside: str | None = None  # of the zip `folder`: what stands before the file's name

    def path(self, part: str) -> str:
        file = f"{self.name}_{part}.txt"
        inner = file if self.inside is None else f"{self.inside}{file}"
        return str(self.folder / inner)

    def read(self, part: str) -> bytes | None:
        file = f"{self.name}_{part}.txt"
        if self.inside is None:
            path = self.folder / file
            return path.read_bytes() if path.is_file() else None
        with zipfile.ZipFile(self.folder) as archive:
            name = self.inside + file
            return archive.read(name) if name in archive.namelist() else None


def find_tu(path: Path) -> dict[str, _Place]:
    """The sets below a folder, or in a zip, by name.

    Looked for: the path itself, the folders in it, their folders ``raw``, and zips.
    """
    if path.is_file():
        return _in_zip(path)
    found: dict[str, _Place] = {}
    for folder in (path, *sorted(p for p in path.glob("*") if p.is_dir()), *path.glob("*/raw")):
        for file in sorted(folder.glob("*" + _ENDING)):
            name = file.name.removesuffix(_ENDING)
            found.setdefault(name, _Place(name, folder))
    for file in sorted(path.glob("*.zip")):
        for name, place in _in_zip(file, strict=False).items():
            found.setdefault(name, place)
    return found


def _in_zip(path: Path, *, strict: bool = True) -> dict[str, _Place]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile) as error:
        if not strict:
            return {}
        raise expected(str(path), "a folder or zip of TU files", f"{error}") from error
    found = {}
    for name in names:
        inside, _, file = name.rpartition("/")
        if file.endswith(_ENDING) and not inside.startswith("__MACOSX"):
            own = file.removesuffix(_ENDING)
            found[own] = _Place(own, path, f"{inside}/" if inside else "")
    return found


def read_tu(path: Path, name: str = "", *, labelled: bool = True) -> GraphSet:
    """Reads a set.

    Args:
        path: A folder or zip that holds it.
        name: Which set, where there are several.
        labelled: Whether the classes of the graphs have to be there.

    Returns:
        The graphs, tidied: each edge once and both ways, no self-loops; isolated nodes and graphs
        without edges are kept.

    Raises:
        InputError: Nothing of this kind, or a bad file: it names the file and line.

    Cost: O(E log E); 1.7 million lines of edges take about two seconds.
    """
    place = _choose(path, name)
    graph = _column(place, "graph_indicator")
    if graph is None:
        raise expected(place.path("graph_indicator"), "a file", "none")
    labels = _column(place, "graph_labels")
    if labels is None and labelled:
        raise expected(place.path("graph_labels"), "a file with a class for each graph", "none")
    count = len(labels) if labels is not None else int(graph.max(initial=0))
    if not count or not len(graph):
        raise expected(place.path("graph_indicator"), "at least one graph", "an empty file")
    _within(place, "graph_indicator", graph[:, None], 1, count)
    missing = np.flatnonzero(np.bincount(graph - 1, minlength=count) == 0)
    if len(missing):
        where = place.path("graph_indicator")
        raise expected(where, "nodes for every graph", f"none for graph {missing[0] + 1}")
    edges = _edges(place, graph)
    rows = {"node": len(graph), "edge": edges.shape[1]}
    more: dict[str, Any] = {}
    for part in _MORE:
        kind, _, what = part.partition("_")
        field = f"{kind}_{'values' if what == 'attributes' else what}"
        more[field] = _table(place, part, rows[kind])
    ids = [str(i + 1) for i in range(count)]
    return tidy(GraphSet(place.name, edges - 1, graph - 1, count, labels, **more, ids=ids))


def _choose(path: Path, name: str) -> _Place:
    if not path.exists():
        raise expected(str(path), "a folder or zip of TU files", "no such path")
    found = find_tu(path)
    if not found:
        raise expected(str(path), "a folder or zip of TU files", f"no file *{_ENDING}")
    if name and name not in found:
        raise unknown("dataset", sorted(found), name, "these lie in the folder")
    if not name and len(found) > 1:
        raise expected("dataset", "the name of one set", "none", "one of " + ", ".join(found))
    return found[name or next(iter(found))]


def _edges(place: _Place, graph: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    table = _parse(place, "A", np.int64)
    if table is None:
        raise expected(place.path("A"), "a file", "none")
    edges = table.reshape(-1, 2) if table.size == 0 else table
    if edges.shape[1] != 2:
        raise expected(f"{place.path('A')}:1", "two node numbers", f"{edges.shape[1]}")
    _within(place, "A", edges, 1, len(graph))
    ends = graph[edges - 1]
    wrong = np.flatnonzero(ends[:, 0] != ends[:, 1])
    if len(wrong):
        got = f"one between graphs {ends[wrong[0], 0]} and {ends[wrong[0], 1]}"
        raise expected(_line(place, "A", wrong[0]), "an edge within a graph", got)
    return edges.T


def _column(place: _Place, part: str) -> npt.NDArray[np.int64] | None:
    table = _parse(place, part, np.int64)
    if table is not None and table.size and table.shape[1] != 1:
        raise expected(f"{place.path(part)}:1", "one number a line", f"{table.shape[1]}")
    return None if table is None else table.reshape(-1)


def _table(place: _Place, part: str, rows: int) -> npt.NDArray[Any] | None:
    kind: Any = np.int64 if part.endswith("labels") else np.float64
    table = _parse(place, part, kind)
    if table is None or (rows == 0 and table.size == 0):
        return None
    if len(table) != rows:
        each = part.split("_")[0]
        raise expected(place.path(part), f"{rows} lines, one for each {each}", len(table))
    bad = np.flatnonzero(~np.isfinite(table).all(1))
    if len(bad):
        raise expected(_line(place, part, bad[0]), "finite numbers", table[bad[0]].tolist())
    return table


def _within(place: _Place, part: str, table: npt.NDArray[np.int64], low: int, high: int) -> None:
    bad = np.flatnonzero(((table < low) | (table > high)).any(1))
    if len(bad):
        got = ", ".join(map(str, table[bad[0]].tolist()))
        raise expected(_line(place, part, bad[0]), f"numbers in {low}..{high}", got)


def _parse(place: _Place, part: str, kind: Any) -> npt.NDArray[Any] | None:
    """A file's numbers (lines, columns); None where there is no such file."""
    data = _bytes(place, part)
    if data is None:
        return None
    if not data.strip():
        return np.empty((0, 1), kind)
    try:
        return np.loadtxt(io.BytesIO(data), kind, comments=None, delimiter=",", ndmin=2)
    except ValueError:
        raise _first_bad(place, part, data, kind) from None


def _bytes(place: _Place, part: str) -> bytes | None:
    try:
        return place.read(part)
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise InputError(f"{place.path(part)}: cannot be read: {error}") from error


def _first_bad(place: _Place, part: str, data: bytes, kind: Any) -> InputError:
    convert: Callable[[bytes], Any] = int if kind is np.int64 else float
    what = "whole numbers" if kind is np.int64 else "numbers"
    width = 0
    for number, line in enumerate(data.splitlines(), 1):
        words = line.split(b",")
        if not line.strip():
            continue
        try:
            [convert(word) for word in words]
        except ValueError:
            got = repr(line.decode("utf-8", "replace").strip()[:60])
            return expected(f"{place.path(part)}:{number}", f"{what} divided by commas", got)
        width = width or len(words)
        if len(words) != width:
            return expected(f"{place.path(part)}:{number}", f"{width} numbers", len(words))
    return expected(place.path(part), f"{what} divided by commas", "something else")


def _line(place: _Place, part: str, row: int) -> str:
    """The place path:line of a row of numbers; blank lines count as lines, not as rows."""
    data = _bytes(place, part) or b""
    lines = [i for i, line in enumerate(data.splitlines(), 1) if line.strip()]
    return f"{place.path(part)}:{lines[int(row)]}"
