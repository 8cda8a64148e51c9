"""Sets of graphs that torch_geometric saved: a list of `Data`, or an `InMemoryDataset`'s file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lawful.errors import expected
from lawful.tasks.graphdata._graphs import GraphSet, tidy
from lawful.tasks.graphdata._saved import load_saved

__all__ = ["read_pyg"]

_KINDS = "a list of torch_geometric's Data, or the file of one of its datasets"


def read_pyg(path: Path, *, labelled: bool = True) -> GraphSet:
    """Reads ``.pt``: of each graph ``x`` and ``edge_attr`` as numbers, ``edge_index`` and ``y``.

    Only tensors and torch_geometric's own classes are loaded; nothing in the file is run.

    Args:
        path: The file.
        labelled: Whether every graph has to have a class ``y``.

    Raises:
        InputError: torch_geometric is missing, the file cannot be read safely, or a graph is bad;
            it is named.
    """
    items = _items(path, load_saved(path, _KINDS))
    if not items:
        raise expected(str(path), "at least one graph", "an empty list")
    sizes = np.array([_size(path, i, item) for i, item in enumerate(items)], np.int64)
    first = np.cumsum(sizes) - sizes
    edges = [_edges(path, i, item, int(sizes[i])) for i, item in enumerate(items)]
    labels = _labels(path, items) if labelled else None
    return tidy(
        GraphSet(
            path.stem,
            np.concatenate([e + f for e, f in zip(edges, first, strict=True)], 1),
            np.repeat(np.arange(len(items)), sizes),
            len(items),
            labels,
            node_values=_numbers(path, items, "x", sizes.tolist()),
            edge_values=_numbers(path, items, "edge_attr", [e.shape[1] for e in edges]),
            ids=[str(i) for i in range(len(items))],
        )
    )


def _items(path: Path, found: Any) -> list[Mapping[str, Any]]:
    """Each graph's tensors by name."""
    if isinstance(found, tuple) and len(found) >= 2 and isinstance(found[1], Mapping):
        whole, slices = _mapping(found[0]), found[1]
        count = len(next(iter(slices.values()))) - 1 if slices else 0
        return [_cut(whole, slices, i) for i in range(count)]
    if isinstance(found, Sequence) and not isinstance(found, str):
        items = [_mapping(item) for item in found]
        if all("edge_index" in item for item in items):
            return items
    raise expected(str(path), _KINDS, type(found).__name__)


def _mapping(item: Any) -> Mapping[str, Any]:
    if isinstance(item, Mapping):
        return item
    found: Mapping[str, Any] = item.to_dict() if hasattr(item, "to_dict") else {}
    return found


def _cut(whole: Mapping[str, Any], slices: Mapping[str, Any], index: int) -> dict[str, Any]:
    found = {}
    for name, ends in slices.items():
        value = whole.get(name)
        if isinstance(value, Tensor):
            axis = 1 if name == "edge_index" else 0
            low, high = int(ends[index]), int(ends[index + 1])
            found[name] = value.narrow(axis, low, high - low)
    return found


def _size(path: Path, index: int, item: Mapping[str, Any]) -> int:
    given = item.get("num_nodes")
    if isinstance(item.get("x"), Tensor):
        size = len(item["x"])
    elif given is not None:
        size = int(given)
    else:
        edges = item.get("edge_index")
        size = int(edges.max()) + 1 if isinstance(edges, Tensor) and edges.numel() else 0
    if size < 1:
        raise expected(f"{path}: graph {index}", "at least one node", "none")
    return size


def _edges(path: Path, index: int, item: Mapping[str, Any], size: int) -> Any:
    edges = item.get("edge_index")
    if not isinstance(edges, Tensor) or edges.dim() != 2 or len(edges) != 2:
        raise expected(f"{path}: graph {index}", "edge_index of shape (2, E)", edges)
    if edges.numel() and (int(edges.min()) < 0 or int(edges.max()) >= size):
        got = f"{int(edges.min())}..{int(edges.max())}"
        raise expected(f"{path}: graph {index}", f"node numbers in 0..{size - 1}", got)
    return edges.long().numpy()


def _labels(path: Path, items: Sequence[Mapping[str, Any]]) -> Any:
    found = []
    for index, item in enumerate(items):
        label = item.get("y")
        if label is None or torch.as_tensor(label).numel() != 1:
            raise expected(f"{path}: graph {index}", "one class y", label)
        value = float(torch.as_tensor(label))
        if value != int(value):
            raise expected(f"{path}: graph {index}", "a whole number as its class y", value)
        found.append(int(value))
    return np.array(found, np.int64)


def _numbers(path: Path, items: Sequence[Mapping[str, Any]], name: str, rows: list[int]) -> Any:
    """Columns (all rows, columns) of every graph; None where no graph has them."""
    if all(item.get(name) is None for item in items):
        return None
    parts: list[Any] = []
    for index, (item, count) in enumerate(zip(items, rows, strict=True)):
        value = item.get(name)
        table = torch.empty(0) if value is None else torch.as_tensor(value)
        table = table[:, None] if table.dim() == 1 else table.flatten(1)
        if len(table) != count or (parts and table.shape[1] != parts[0].shape[1] and count):
            want = f"{name} with {count} rows, and as many columns as the first graph's"
            raise expected(f"{path}: graph {index}", want, tuple(table.shape))
        if not bool(torch.isfinite(table.double()).all()):
            raise expected(f"{path}: graph {index}", f"finite {name}", "NaN or infinity")
        if count:
            parts.append(table.double().numpy())
    return np.concatenate(parts) if parts else None
