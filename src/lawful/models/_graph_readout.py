"""What the Energy Transformer reads of a graph: nodes of all blocks, and the terms of the energy."""

from typing import Any

import torch
from torch import Tensor, nn

from lawful.energy import Edges
from lawful.models._common import Factory


def pooled(x: Tensor, batch: Tensor, count: int, how: str) -> Tensor:
    """Sums or means (G, D) of the nodes (N, D) of each graph."""
    total = x.new_zeros(count, x.shape[1]).index_add(0, batch, x)
    if how == "sum":
        return total
    sizes = torch.bincount(batch, minlength=count).clamp(min=1)
    return total / sizes[:, None].to(x.dtype)


class Readout(nn.Module):
    def __init__(self, config: Any, classes: int, nodes: float, made: Factory) -> None:
        super().__init__()
        self.config, self.nodes = config, nodes
        first = 0 if config.read == "all" else config.blocks
        states = config.blocks + 1 - first
        self.first = first
        per = 2 if config.readout.startswith("cls+") else 1
        self.norms = nn.ModuleList(nn.LayerNorm(config.width, **made) for _ in range(states))
        size = per * states * config.width
        self.memories = config.memories or 4 * config.width
        if config.terms:
            size += config.blocks * (self.memories + 1)
        self.norm = nn.BatchNorm1d(size, **made) if config.batch_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self.linear = nn.Linear(size, classes, **made)

    def pool(self, x, g):
        if self.config.readout.endswith("sum"):
            return pooled(x, g.batch, g.total, "sum") / self.nodes
        return pooled(x, g.batch, g.total, "mean")

    def forward(self, path, blocks, edges, weights, g):
        n = len(g.x)
        found = []
        for norm, x in zip(self.norms, path[self.first :], strict=True):
            x = norm(x)
            if self.config.readout.startswith("cls"):
                found.append(x[n:])
            if self.config.readout != "cls":
                found.append(self.pool(x[:n], g))
        if self.config.terms:
            for block, x in zip(blocks, path[1:], strict=True):
                at = block.norm(x)
                h = block.hopfield.preactivations(at[:n]).relu()
                h = h.square() / 2 if self.config.terms == "energy" else h
                found.append(self.pool(h, g))
                e = -block.attention.node_energy(at, edges, weights)[:n, None]
                found.append(self.pool(e, g))
        return self.linear(self.dropout(self.norm(torch.cat(found, -1))))
