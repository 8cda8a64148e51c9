"""A node table and edge tables: ``nodes.csv`` with ``edges.csv``, or ``edges-NAME.csv`` each."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lawful.errors import InputError, expected
from lawful.tasks.graphdata._raw import RawGraph, labels_from_texts
from lawful.tasks.graphdata._tables import SUFFIXES, Cells, read_table

ID_NAMES = ("id", "node", "node_id", "nodeid", "name")
LABEL_NAMES = ("label", "labels", "y", "class", "target", "fraud", "is_fraud", "anomaly")
SOURCE_NAMES = ("source", "src", "from", "u", "source_id", "src_id")
TARGET_NAMES = ("target", "dst", "to", "v", "target_id", "dst_id")


def is_folder(path: Path) -> bool:
    """Whether a folder holds a node table."""
    return path.is_dir() and bool(_tables(path, "nodes"))


def _tables(folder: Path, stem: str) -> list[Path]:
    """The tables of a folder called ``stem``, ``stem-NAME`` or ``stem_NAME``."""
    return [
        p
        for p in sorted(folder.iterdir())
        if p.suffix.lower() in SUFFIXES
        and (p.stem == stem or p.stem[: len(stem) + 1] in _forms(stem))
    ]


def _forms(stem: str) -> tuple[str, str]:
    return f"{stem}-", f"{stem}_"


def load_folder(
    folder: Path,
    *,
    label_column: str = "",
    anomalous: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
) -> RawGraph:
    """Reads the tables of a folder.

    Args:
        folder: Holds one node table and any number of edge tables.
        label_column: Column with the labels; "" for the first that has a usual name.
        anomalous: See `labels_from_texts`.
        kinds: What columns are ("number" or "text") where it is known already; by default a
            column whose cells are all numbers or empty is one of numbers.

    Raises:
        InputError: Anything wrong, with file, line and column.
    """
    tables = _tables(folder, "nodes")
    if len(tables) != 1:
        raise expected(str(folder), "one table nodes.csv or nodes.parquet", len(tables))
    nodes = read_table(tables[0])
    if not len(nodes):
        raise expected(str(tables[0]), "a graph with at least one node", "none")
    names = list(nodes.columns)
    key = next((n for n in names if n.lower() in ID_NAMES), names[0])
    ids = [cell.strip() for cell in nodes.columns[key]]
    places = _places(nodes, key, ids)
    remarks = [f"{len(ids):,} nodes from {tables[0].name}, ids in column {key!r}"]
    label = _label_column(nodes, label_column, remarks)
    labels = None
    if label is not None:
        where = [nodes.where(row, label) for row in range(len(nodes))]
        labels = labels_from_texts(nodes.columns[label], where, anomalous)
    numeric, texts = _columns(nodes, [n for n in names if n not in (key, label)], kinds or {})
    matrix = np.stack(list(numeric.values()), 1) if numeric else np.zeros((len(ids), 0), np.float32)
    return RawGraph(
        str(folder),
        len(ids),
        matrix,
        tuple(numeric),
        _relations(folder, places, remarks),
        ids,
        texts,
        labels,
        remarks=remarks,
    )


def _places(nodes: Cells, key: str, ids: Sequence[str]) -> dict[str, int]:
    places: dict[str, int] = {}
    for row, name in enumerate(ids):
        if not name:
            raise expected(nodes.where(row, key), "an id", "an empty cell")
        first = places.setdefault(name, row)
        if first != row:
            got = f"{name!r} again (first in line {nodes.lines[first]})"
            raise expected(nodes.where(row, key), "an id of its own for each node", got)
    return places


def _label_column(nodes: Cells, wanted: str, remarks: list[str]) -> str | None:
    if wanted and wanted not in nodes.columns:
        names = ", ".join(nodes.columns)
        raise expected("label_column", f"one of the columns of {nodes.path}: {names}", wanted)
    found = wanted or next((n for n in nodes.columns if n.lower() in LABEL_NAMES), None)
    remarks.append(f"labels in column {found!r}" if found else "no column of labels")
    return found


def _columns(
    nodes: Cells, names: Sequence[str], kinds: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    numeric: dict[str, Any] = {}
    texts: dict[str, Any] = {}
    for name in names:
        kind = kinds.get(name)
        values = None if kind == "text" else nodes.numbers(name, insist=kind == "number")
        if values is not None:
            numeric[name] = values
        else:
            texts[name] = np.array([c.strip() for c in nodes.columns[name]], dtype=object)
    return numeric, texts


def _relations(
    folder: Path, places: Mapping[str, int], remarks: list[str]
) -> dict[str, npt.NDArray[np.int64]]:
    tables = _tables(folder, "edges")
    if not tables:
        raise expected(str(folder), "a table edges.csv or edges.parquet", "none")
    found: dict[str, list[npt.NDArray[np.int64]]] = {}
    for path in tables:
        name = path.stem[len("edges") :].lstrip("-_") or "edges"
        for relation, edges in _edges(read_table(path), name, places, remarks).items():
            found.setdefault(relation, []).append(edges)
    return {name: np.concatenate(parts, 1) for name, parts in found.items()}


def _edges(
    table: Cells, name: str, places: Mapping[str, int], remarks: list[str]
) -> dict[str, npt.NDArray[np.int64]]:
    names = list(table.columns)
    if len(names) < 2:
        raise expected(str(table.path), "columns source and target", ", ".join(names))
    source = next((n for n in names if n.lower() in SOURCE_NAMES), names[0])
    target = next((n for n in names if n.lower() in TARGET_NAMES and n != source), None)
    target = target or next(n for n in names if n != source)
    ends = np.stack([_numbers(table, column, places) for column in (source, target)])
    kind = next((n for n in names if n.lower() == "relation"), None)
    unused = [n for n in names if n not in (source, target, kind)]
    if unused:
        remarks.append(f"columns of {table.path.name} not used: {', '.join(unused)}")
    if kind is None or not len(table):
        return {name: ends}
    of = np.array([cell.strip() or name for cell in table.columns[kind]], dtype=object)
    return {str(k): ends[:, of == k] for k in sorted(set(of.tolist()))}


def _numbers(table: Cells, column: str, places: Mapping[str, int]) -> npt.NDArray[np.int64]:
    cells = [cell.strip() for cell in table.columns[column]]
    found = np.fromiter((places.get(cell, -1) for cell in cells), np.int64, len(cells))
    missing = np.flatnonzero(found < 0)
    if len(missing):
        row = int(missing[0])
        where, got = table.where(row, column), repr(cells[row])
        more = f"; {len(missing)} cells of this column name no node" if len(missing) > 1 else ""
        raise InputError(f"{where}: expected the id of a node, got {got}{more}")
    return found
