"""Layers on graphs that the library needs beside its own: spectral filters, and a small cache."""

import importlib
import math
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from lawful.errors import InputError

T = TypeVar("T")


def geometric(module: str, what: str) -> Any:
    """A module of torch_geometric, for whose sake ``what`` needs it.

    Raises:
        InputError: It is not installed.
    """
    try:
        with warnings.catch_warnings():
            # It calls parts of torch that newer ones deprecate; nothing here depends on them.
            warnings.simplefilter("ignore", DeprecationWarning)
            return importlib.import_module(f"torch_geometric.{module}")
    except ImportError as error:
        raise InputError(f"{what} needs torch_geometric; pip install 'lawful[graph]'") from error


class LastGraph(Generic[T]):
    """Keeps what was made of the last edge list, for as long as that very tensor is passed.

    Copies and pickles start empty.
    """

    def __init__(self) -> None:
        self._key: tuple[Any, int, int] | None = None
        self._made: T | None = None

    def __call__(self, edge_index: Tensor, count: int, make: Callable[[], T]) -> T:
        """What ``make`` gives for these edges and this number of nodes, computed once."""
        key = self._key
        if key is None or key[0]() is not edge_index or key[1:] != (edge_index._version, count):
            self._made = make()
            self._key = (weakref.ref(edge_index), edge_index._version, count)
        made: Any = self._made
        return made  # type: ignore[no-any-return]

    def __deepcopy__(self, memo: Any) -> "LastGraph[T]":
        return LastGraph()

    def __reduce__(self) -> Any:
        return LastGraph, ()


def normalised_adjacency(edge_index: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """``D^-1/2 A D^-1/2`` as a sparse (N, N) matrix; nodes without edges have empty rows.

    Args:
        edge_index: Symmetric edges (2, E), sorted by target, each once.
        count: Nodes N.
        dtype: Of the values.
    """
    source, target = edge_index
    degree = torch.bincount(target, minlength=count).to(dtype)
    scale = degree.clamp_min(1).rsqrt()
    return torch.sparse_coo_tensor(
        torch.stack([target, source]),
        scale[source] * scale[target],
        (count, count),
        is_coalesced=True,
        check_invariants=False,
    )


class BetaWavelets(nn.Module):
    """C + 1 band-pass filters of the normalised Laplacian ``L = I - D^-1/2 A D^-1/2``.

    ``W_p = (L/2)^p (I - L/2)^(C-p) / (2 B(p+1, C-p+1))`` for p = 0..C, where B is the beta
    function: filter p passes eigenvalues of L around 2p/C. All of them together cost C (C+1) / 2
    + C products with L. There are no parameters.

    Args:
        order: C >= 1.

    Source: Tang, Li, Gao and Li 2022, "Rethinking graph neural networks for anomaly detection",
    eq. 9 to 11.
    """

    def __init__(self, order: int) -> None:
        super().__init__()
        self.order = order
        self._adjacency: LastGraph[Tensor] = LastGraph()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Filtered signals (N, (C+1) D), filter after filter, of signals x (N, D)."""
        adjacency = self._adjacency(
            edge_index, len(x), lambda: normalised_adjacency(edge_index, len(x), x.dtype)
        ).to(x.dtype)
        found, low = [], x  # low: (I - L/2)^k x for k = C - p
        for p in range(self.order, -1, -1):
            high = low
            for _ in range(p):
                high = (high - torch.sparse.mm(adjacency, high)) / 2
            found.append(high * self._scale(p))
            if p:
                low = (low + torch.sparse.mm(adjacency, low)) / 2
        return torch.cat(found[::-1], -1)

    def _scale(self, p: int) -> float:
        """1 / (2 B(p+1, q+1)) with q = C - p: (C+1)! / (2 p! q!)."""
        q = self.order - p
        return math.factorial(self.order + 1) / (2 * math.factorial(p) * math.factorial(q))

    def extra_repr(self) -> str:
        """Shown by print."""
        return f"order={self.order}"
