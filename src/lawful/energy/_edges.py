"""A graph's edges, checked and sorted once."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lawful.energy._checks import count
from lawful.errors import InputError, expected
from lawful.kernels.edges import Graph
from lawful.kernels.energy._plan import EdgeForm


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of a graph, ready for any number of calls.

    Make one with `Edges.of`. Sorting is most of what a call with a plain ``edge_index`` costs
    beside the attention itself, so make it once for a graph that does not change.

    Attributes:
        edge_index: (2, E) the edges in use, sorted by target and source: row 0 the source (key),
            row 1 the target (query, the node that attends). Duplicates are gone, self-loops as
            asked.
        num_nodes: N.
        self_loops: Whether every node has its self-loop (True) or none has (False).
    """

    edge_index: Tensor
    num_nodes: int
    self_loops: bool
    graph: Graph
    _given: int  # edges as they came
    _kept: Tensor | None  # which of the given edges are not dropped self-loops; None: all
    _place: Tensor  # (kept + added,) where each lies in edge_index
    _first: Tensor | None  # (E,) the first of `_place` that lies there; None: there are duplicates

    @staticmethod
    def of(
        edge_index: Tensor,
        num_nodes: int,
        self_loops: bool = True,
        device: torch.device | str | None = None,
    ) -> "Edges":
        """Checks and sorts edges.

        Args:
            edge_index: (2, E) integers in [0, N): sources (keys) over targets (queries). Edges
                may be directed; an undirected graph lists both directions. Edges that occur twice
                count once.
            num_nodes: N.
            self_loops: True: each node gets a self-loop if it has none (weight 1, or 0 in the
                additive form). False: self-loops are removed.
            device: Where the result lives; default: where ``edge_index`` does.

        Raises:
            InputError: A wrong shape, type or id.

        Cost: one sort of E numbers.
        """
        ids = _check_index(edge_index, count("num_nodes", num_nodes, 0))
        ids = ids if device is None else ids.to(device)
        given, kept = ids.shape[1], None
        loop = ids[0] == ids[1]
        if self_loops:
            missing = torch.ones(num_nodes, dtype=torch.bool, device=ids.device)
            missing[ids[0, loop]] = False
            ids = torch.cat([ids, missing.nonzero().mT.expand(2, -1)], 1)
        elif bool(loop.any()):
            kept = (~loop).nonzero()[:, 0]
            ids = ids[:, kept]
        key, order = (ids[1] * max(num_nodes, 1) + ids[0]).sort(stable=True)
        new = torch.ones_like(key, dtype=torch.bool)
        new[1:] = key[1:] != key[:-1]
        place = torch.empty_like(order)
        place[order] = new.cumsum(0) - 1
        first = order[new]
        edges = ids[:, first].contiguous()
        graph = Graph.of(edges[0], edges[1], num_nodes)
        single = first if len(first) == len(order) else None
        return Edges(edges, num_nodes, bool(self_loops), graph, given, kept, place, single)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> "Edges":
        """The same on another device; ``dtype`` is for the sake of generic code: ids are ids."""
        if device is None:
            return self
        moved: dict[str, Any] = {
            name: value.to(device)
            for name, value in vars(self).items()
            if isinstance(value, Tensor)
        }
        return replace(self, **moved, graph=Graph(*(t.to(device) for t in self.graph)))

    def __repr__(self) -> str:
        """Shown by print."""
        loops = "with" if self.self_loops else "without"
        return f"Edges({self.num_nodes} nodes, {self.edge_index.shape[1]} edges, {loops} loops)"

    def weigh(self, weight: Any, heads: int, form: EdgeForm, like: Tensor) -> Tensor | None:
        """Weights of the edges as given, as weights (E, 1 or H) of the edges in use.

        Raises:
            InputError: A wrong shape, type or value, or duplicates of one edge that differ.
        """
        if weight is None:
            return None
        w = _check_weight(weight, self._given, heads, form)
        w = w.to(like.device, torch.promote_types(like.dtype, torch.float32))
        w = w if self._kept is None else w[self._kept]
        added = w.new_full((len(self._place) - len(w), w.shape[1]), float(form == "multiply"))
        every = torch.cat([w, added])
        if self._first is not None:
            return every[self._first]
        return self._merge(every)

    def _merge(self, every: Tensor) -> Tensor:
        """The mean over duplicates, which must agree; so each gets its share of the gradient."""
        total = self.edge_index.shape[1]
        times = every.new_zeros(total, 1).index_add(0, self._place, torch.ones_like(every[:, :1]))
        top = every.new_full((total, every.shape[1]), float("-inf"))
        index = self._place[:, None].expand(every.shape)
        top = top.scatter_reduce(0, index, every.detach(), "amax")
        if not bool((top[self._place] == every.detach()).all()):
            hint = "sum or average them first, or give each edge once"
            raise expected("edge_weight", "equal weights for duplicates of an edge", "others", hint)
        # Relative to the common value, so that the mean is exact and -inf stays itself.
        safe = torch.where(every.isfinite(), every - top[self._place], 0.0)
        return top + torch.zeros_like(top).index_add(0, self._place, safe) / times

    def given(self, value: Tensor) -> Tensor:
        """A value (E, ...) of the edges in use, for the edges as given; 0 if dropped."""
        if self._kept is None:
            return value[self._place[: self._given]]
        out = value.new_zeros(self._given, *value.shape[1:])
        return out.index_copy(0, self._kept, value[self._place[: len(self._kept)]])


def prepared(edges: "Edges | Tensor", nodes: int, self_loops: bool, like: Tensor) -> Edges:
    """``edges`` as an `Edges` that fits ``nodes`` nodes and the layer's choice of self-loops."""
    if not isinstance(edges, Edges):
        return Edges.of(edges, nodes, self_loops, like.device)
    if edges.num_nodes != nodes:
        raise expected("edge_index", f"Edges of {nodes} nodes", f"of {edges.num_nodes}")
    if edges.self_loops != self_loops:
        hint = f"Edges.of(..., self_loops={self_loops}) fits self_attention={self_loops}"
        raise expected("edge_index", f"self_loops={self_loops}", edges.self_loops, hint)
    if edges.edge_index.device != like.device:
        hint = "move it once: edges = edges.to(device)"
        raise expected("edge_index", f"Edges on {like.device}", edges.edge_index.device, hint)
    return edges


def _check_index(ids: Any, nodes: int) -> Tensor:
    want = f"an integer tensor (2, E) with ids in [0, {nodes})"
    if not isinstance(ids, Tensor):
        raise expected("edge_index", want, type(ids).__name__)
    if ids.dim() != 2 or ids.shape[0] != 2:
        hint = "transpose it" if ids.dim() == 2 and ids.shape[1] == 2 else ""
        raise expected("edge_index", want, tuple(ids.shape), hint)
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise expected("edge_index", want, ids.dtype)
    ids = ids.to(torch.int64)
    if ids.numel() and not torch.compiler.is_compiling():
        low, high = (int(v) for v in ids.aminmax())
        if low < 0 or high >= nodes:
            raise expected("edge_index", want, f"ids from {low} to {high}")
    return ids  # type: ignore[no-any-return]


def _check_weight(weight: Any, edges: int, heads: int, form: EdgeForm) -> Tensor:
    want = f"a floating-point tensor of shape ({edges},), ({edges}, 1) or ({edges}, {heads})"
    if not isinstance(weight, Tensor):
        raise expected("edge_weight", want, type(weight).__name__)
    if not weight.is_floating_point():
        raise expected("edge_weight", want, weight.dtype)
    w = weight[:, None] if weight.dim() == 1 else weight
    if w.dim() != 2 or w.shape[0] != edges or w.shape[1] not in (1, heads):
        raise expected("edge_weight", want, tuple(weight.shape))
    if not torch.compiler.is_compiling():
        fine = w.detach().isfinite()
        if form == "add":
            fine = fine | (w.detach() == float("-inf"))
        if not bool(fine.all()):
            also = " (or -inf for no edge)" if form == "add" else ""
            raise expected("edge_weight", f"finite weights{also}", "NaN or inf")
    return w


@dataclass(frozen=True)
class Membership:
    """Which graph each node belongs to."""

    batch: Tensor | None  # (N,) int64; None: all nodes are of one graph
    graphs: int

    def total(self, node: Tensor) -> Tensor:
        """Sums of a value of each node (N,) over the nodes of each graph (G,)."""
        # In float64: a graph may have millions of nodes, and steps are chosen by small differences.
        wide = node if node.device.type == "mps" else node.double()
        if self.batch is None:
            return wide.sum(0, keepdim=True).to(node.dtype)
        total = wide.new_zeros(self.graphs).index_add(0, self.batch, wide)
        return total.to(node.dtype)

    def spread(self, value: Tensor) -> Tensor:
        """A value of each graph (G,), or one for all, to the nodes of each (N, 1)."""
        if value.dim() == 0 or self.batch is None:
            return value.reshape(-1, 1)
        return value[self.batch, None]


def membership(batch: Any, graphs: Any, nodes: int, device: torch.device) -> Membership:
    """Checks ``batch`` and ``graphs``.

    Raises:
        InputError: A wrong shape, type or id.
    """
    if batch is None:
        if graphs not in (None, 1):
            raise InputError(f"graphs: {graphs} graphs need batch, the graph of each node")
        return Membership(None, 1)
    want = f"an integer tensor ({nodes},): the graph of each node"
    if not isinstance(batch, Tensor):
        raise expected("batch", want, type(batch).__name__)
    if tuple(batch.shape) != (nodes,):
        raise expected("batch", want, tuple(batch.shape))
    if batch.is_floating_point() or batch.dtype == torch.bool:
        raise expected("batch", want, batch.dtype)
    batch = batch.to(device, torch.int64)
    if graphs is not None:
        count("graphs", graphs, 0)
    if torch.compiler.is_compiling() and graphs is not None:
        return Membership(batch, graphs)
    low, high = (int(v) for v in batch.aminmax()) if nodes else (0, -1)
    if low < 0 or (graphs is not None and high >= graphs):
        known = "" if graphs is None else f", below graphs={graphs}"
        raise expected("batch", f"graphs from 0{known}", f"{low} to {high}")
    return Membership(batch, high + 1 if graphs is None else graphs)
