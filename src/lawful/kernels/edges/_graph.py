"""Directed edges sorted both ways, the form in which the operators take a graph."""

from typing import NamedTuple

import torch
from torch import Tensor


class Graph(NamedTuple):
    """Edges sorted by target, then source, without duplicates; all int64, on one device."""

    source: Tensor  # (E,) the key of each edge
    target: Tensor  # (E,) the query of each edge
    slot: Tensor  # (E,) the edges sorted by source: places in the two above
    sink: Tensor  # (E,) target[slot]
    into: Tensor  # (N+1,) where the edges into each node start in `source`
    out_of: Tensor  # (N+1,) where the edges out of each node start in `slot`

    @property
    def nodes(self) -> int:
        """N."""
        return self.into.shape[0] - 1

    @staticmethod
    def of(source: Tensor, target: Tensor, nodes: int) -> "Graph":
        """From edges that are already sorted by target, then source."""
        slot = source.argsort(stable=True)
        starts = [_starts(ids, nodes) for ids in (target, source[slot])]
        return Graph(source, target, slot, target[slot], *starts)


def _starts(sorted_ids: Tensor, nodes: int) -> Tensor:
    every = torch.arange(nodes + 1, device=sorted_ids.device)
    return torch.searchsorted(sorted_ids, every)
