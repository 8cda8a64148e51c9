"""Card transactions as a graph: nodes are transactions, edges join those that share something."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from lawful.errors import expected
from lawful.tasks.graphdata._raw import RawGraph
from lawful.tasks.graphdata._tables import Cells, read_table

COLUMNS = ("Time", "Source", "Target", "Amount", "Location", "Type", "Labels")
SHARED = ("Source", "Target", "Location", "Type")


def is_transactions(cells: Cells) -> bool:
    """Whether a table has the columns of the S-FFSD set."""
    return set(COLUMNS) <= set(cells.columns)


def load_transactions(path: Path, links: int = 2) -> RawGraph:
    """The graph of a table of transactions.

    Each transaction is joined to the next ``links`` ones, by time, that share its source, target,
    location or type: one relation for each of these four. This is the construction that is
    customary for the S-FFSD set (two links beside the loop to itself).

    Args:
        path: Columns `COLUMNS`; label 1 is fraud, 0 is none, 2 is unknown.
        links: How many later transactions of a group each one is joined to.
    """
    cells = read_table(path)
    missing = [c for c in COLUMNS if c not in cells.columns]
    if missing:
        raise expected(str(path), "the columns " + ", ".join(COLUMNS), f"no {missing[0]}")
    time, amount = (cells.numbers(c, insist=True) for c in ("Time", "Amount"))
    assert time is not None
    assert amount is not None
    order = np.argsort(time, kind="stable")
    relations = {c.lower(): _joined(cells.columns[c], order, links) for c in SHARED}
    counted = [_earlier(cells.columns[c], order) for c in ("Source", "Target")]
    label = [{"0": 0, "1": 1, "2": -1}.get(c.strip(), 9) for c in cells.columns["Labels"]]
    if 9 in label:
        row = label.index(9)
        raise expected(cells.where(row, "Labels"), "0, 1 or 2", cells.columns["Labels"][row])
    numeric = np.stack([amount, np.log1p(np.maximum(amount, 0)), *counted], 1).astype(np.float32)
    return RawGraph(
        str(path),
        len(cells),
        numeric,
        ("Amount", "log Amount", "earlier of Source", "earlier of Target"),
        relations,
        texts={c: np.array(cells.columns[c], dtype=object) for c in ("Location", "Type")},
        labels=np.array(label, np.int8),
        remarks=[
            f"transactions as nodes, each joined to the next {links} that share its source, "
            "target, location or type; label 2 is unknown"
        ],
    )


def _groups(values: list[str], order: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], ...]:
    """Rows sorted by group and time, and the group of each."""
    _, group = np.unique(np.array(values, dtype=object).astype(str), return_inverse=True)
    rows = order[np.argsort(group[order], kind="stable")]
    return rows, group[rows]


def _joined(values: list[str], order: npt.NDArray[np.int64], links: int) -> npt.NDArray[np.int64]:
    rows, group = _groups(values, order)
    parts = []
    for gap in range(1, links + 1):
        same = group[:-gap] == group[gap:]
        parts.append(np.stack([rows[:-gap][same], rows[gap:][same]]))
    return np.concatenate(parts, 1) if parts else np.zeros((2, 0), np.int64)


def _earlier(values: list[str], order: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """log(1 + number of earlier transactions of the same group), for each row."""
    rows, group = _groups(values, order)
    first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    start = np.repeat(first, np.diff(np.r_[first, len(rows)]))
    found = np.empty(len(rows), np.float32)
    found[rows] = np.log1p(np.arange(len(rows)) - start)
    return found
