"""Graphs from arrays: .npz, .mat, and PyTorch Geometric's .pt."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lawful.errors import InputError, expected
from lawful.models._graph_layers import geometric
from lawful.tasks.graphdata._raw import RawGraph, labels_from_numbers, stack_masks
from lawful.tasks.graphdata._saved import load_saved

FEATURES = ("x", "node_features", "features", "attr", "Attributes")
LABELS = ("y", "node_labels", "labels", "label", "Label")
EDGES = ("edge_index", "edges")
AMAZON_UNLABELLED = 3305  # the first users of the Amazon set have no label


def load_npz(path: Path) -> RawGraph:
    """A graph from named arrays; nothing that needs pickle is read.

    Features (N, F), "edge_index" (2, E) or "edges" (E, 2), labels (N), with the usual names; more
    relations as "edge_index_NAME" or "edges_NAME"; splits as "train_mask(s)", "val_mask(s)" and
    "test_mask(s)". Or a bipartite graph of users and things as CSR: "u2p_indptr", "u2p_indices",
    "shape", "labels_u".
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: expected arrays (.npz) without pickle, got {error}") from error
    return _bipartite(arrays, path) if "u2p_indptr" in arrays else from_arrays(arrays, str(path))


def from_arrays(arrays: Mapping[str, Any], place: str) -> RawGraph:
    """A graph from arrays by name; see `load_npz`."""
    relations = {}
    for key, value in arrays.items():
        start = next((e for e in EDGES if key == e or key.startswith(f"{e}_")), None)
        if start is not None and np.ndim(value) == 2 and key not in ("edge_index_attr",):
            relations[key[len(start) + 1 :] or "edges"] = _pairs(np.asarray(value), start, place)
    if not relations:
        raise expected(place, "edges: edge_index (2, E) or edges (E, 2)", ", ".join(arrays))
    x = next((np.asarray(arrays[k]) for k in FEATURES if k in arrays), None)
    y = next((np.asarray(arrays[k]) for k in LABELS if k in arrays), None)
    count = _count(x, y, relations)
    return RawGraph(
        place,
        count,
        _matrix(x, count, place),
        tuple(f"x{i}" for i in range(0 if x is None else x.reshape(count, -1).shape[1])),
        relations,
        labels=None if y is None else labels_from_numbers(y, f"{place}: labels"),
        masks=stack_masks(arrays, count, place),
    )


def _count(x: Any, y: Any, relations: Mapping[str, Any]) -> int:
    if x is not None:
        return len(x)
    if y is not None:
        return int(np.size(y))
    return 1 + max((int(e.max()) for e in relations.values() if e.size), default=-1)


def _pairs(edges: npt.NDArray[Any], key: str, place: str) -> npt.NDArray[np.int64]:
    """Edges as (2, E): named edge_index they are that already, named edges they are (E, 2)."""
    if edges.dtype.kind not in "iu":
        raise expected(f"{place}: {key}", "whole numbers", f"an array of {edges.dtype}")
    turned = edges.shape[0] != 2 if key == "edge_index" else edges.shape[1] == 2
    return np.ascontiguousarray(edges.T if turned else edges, dtype=np.int64)


def _matrix(x: npt.NDArray[Any] | None, count: int, place: str) -> npt.NDArray[np.float32]:
    if x is None:
        return np.zeros((count, 0), np.float32)
    if x.dtype.kind not in "biuf" or x.size % count:
        raise expected(f"{place}: features", f"numbers of {count} nodes", f"{x.dtype} {x.shape}")
    return x.reshape(count, -1).astype(np.float32)


def _bipartite(arrays: Mapping[str, Any], path: Path) -> RawGraph:
    """Users and things as nodes of one graph; only users have labels."""
    users, things = (int(v) for v in arrays["shape"])
    degree = np.diff(arrays["u2p_indptr"])
    source = np.repeat(np.arange(users, dtype=np.int64), degree)
    target = arrays["u2p_indices"].astype(np.int64) + users
    kind = np.r_[np.ones(users), np.zeros(things)].astype(np.float32)[:, None]
    labels = np.full(users + things, -1, np.int8)
    labels[:users] = labels_from_numbers(arrays["labels_u"], f"{path}: labels_u")
    ids = [f"u{i}" for i in range(users)] + [f"p{i}" for i in range(things)]
    return RawGraph(
        str(path),
        users + things,
        kind,
        ("is user",),
        {"u2p": np.stack([source, target])},
        ids,
        labels=labels,
        remarks=[f"two kinds of nodes: {users:,} users with labels, {things:,} things without"],
    )


def load_mat(path: Path) -> RawGraph:
    """A graph from a MATLAB file.

    "Network", "Attributes", "Label"; or the published YelpChi and Amazon files: "features",
    "label", and a sparse matrix for each relation ("net_rur", ...), of which "homo" is the sum. The
    first 3305 nodes of Amazon have no label.
    """
    from scipy.io import loadmat
    from scipy.sparse import issparse

    try:
        arrays = loadmat(str(path))
    except Exception as error:  # scipy's own errors share no base class
        hint = "; save version 7.3 files (HDF5) with -v7" if "HDF" in str(error) else ""
        raise InputError(f"{path}: expected a MATLAB file, got {error}{hint}") from error
    nets = {k: v for k, v in arrays.items() if k.startswith("net_") and issparse(v)}
    if not nets:
        nets = {k: arrays[k] for k in ("homo", "Network") if k in arrays}
    x = next((arrays[k] for k in FEATURES if k in arrays), None)
    y = next((arrays[k] for k in LABELS if k in arrays), None)
    if not nets or x is None:
        names = ", ".join(k for k in arrays if not k.startswith("__"))
        raise expected(str(path), "Network and Attributes, or net_... and features", names)
    dense = np.asarray(x.toarray() if issparse(x) else x)
    labels = None if y is None else labels_from_numbers(_dense(y), f"{path}: labels")
    remarks = []
    if "net_upu" in nets and labels is not None and len(labels) > AMAZON_UNLABELLED:
        labels[:AMAZON_UNLABELLED] = -1
        remarks.append(f"the first {AMAZON_UNLABELLED} nodes of the Amazon set have no label")
    return RawGraph(
        str(path),
        len(dense),
        _matrix(dense, len(dense), str(path)),
        tuple(f"x{i}" for i in range(dense.shape[1])),
        {k.removeprefix("net_"): _ends(v) for k, v in nets.items()},
        labels=labels,
        remarks=remarks,
    )


def _dense(value: Any) -> npt.NDArray[Any]:
    return np.asarray(value.toarray() if hasattr(value, "toarray") else value)


def _ends(matrix: Any) -> npt.NDArray[np.int64]:
    from scipy.sparse import coo_matrix

    found = coo_matrix(matrix)
    return np.stack([found.row, found.col]).astype(np.int64)


def load_pt(path: Path) -> RawGraph:
    """A graph from a file of ``torch.save``: a ``Data``, a ``HeteroData``, or a dict of tensors.

    Only tensors and PyTorch Geometric's own classes are read (``weights_only``): a file cannot
    run code.
    """
    found = load_saved(path, "a Data object")
    kinds = geometric("data", f"{path}: reading .pt")
    if isinstance(found, tuple) and found:  # (data, slices), as in-memory data sets are saved
        found = found[0]
    if isinstance(found, kinds.HeteroData):
        return from_arrays(_hetero(found, path), str(path))
    if hasattr(found, "to_dict"):
        found = found.to_dict()
    if not isinstance(found, dict):
        raise expected(str(path), "a Data object or a dict of tensors", type(found).__name__)
    return from_arrays(_numpy(found), str(path))


def _numpy(items: Mapping[str, Any]) -> dict[str, Any]:
    return {str(k): v.numpy() for k, v in items.items() if hasattr(v, "numpy")}


def _hetero(data: Any, path: Path) -> dict[str, Any]:
    """The arrays of a graph with one kind of nodes and several relations."""
    if len(data.node_types) != 1:
        names = ", ".join(map(str, data.node_types))
        raise expected(str(path), "one kind of nodes (with any number of relations)", names)
    arrays = _numpy(data[data.node_types[0]].to_dict())
    for kind in data.edge_types:
        arrays[f"edge_index_{kind[1]}"] = data[kind].edge_index.numpy()
    return arrays
