"""What the Energy Transformer reads of a graph: its nodes in all blocks, and its energies."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from lawful.energy import Edges, GraphEnergyTransformer
from lawful.models._common import Factory

ReadFrom = Literal["energies", "nodes", "energies+nodes", "cls"]


class Course(NamedTuple):
    """A batch of graphs and how it settled: N nodes, an extra one for each of the G graphs."""

    states: tuple[Tensor, ...]  # S + 1 times (N + G, D): encoded, and after each block
    energies: Tensor  # (G, S T): of each graph before each step
    batch: Tensor  # (N,): graph of each node


def settled(
    layer: GraphEnergyTransformer,
    x: Tensor,
    edges: Edges,
    weights: Tensor | None,
    batch: Tensor,
    total: int,
) -> Course:
    """Runs all blocks on nodes (N + G, D) of which the last G = ``total`` are the extra ones."""
    found = layer.settle(x, edges, weights, batch, graphs=total, energies=False, trajectory=True)
    assert found.trajectory is not None  # it was asked for
    path = found.trajectory.reshape(-1, layer.steps + 1, *x.shape)  # (S, T+1, N+G, D)
    course = found.energies.reshape(-1, total).T  # before each step: they cost nothing
    return Course((*path[:, 0], path[-1, -1]), course, batch[: len(x) - total])


def pooled(x: Tensor, batch: Tensor, count: int, how: str) -> Tensor:
    """Sums or means (G, D) of the nodes (N, D) of each graph."""
    total = x.new_zeros(count, x.shape[1]).index_add(0, batch, x)
    if how == "sum":
        return total
    sizes = torch.bincount(batch, minlength=count).clamp(min=1)
    return total / sizes[:, None].to(x.dtype)


class Standardise(nn.BatchNorm1d):
    """Batch normalisation that takes a batch of one by the running statistics."""

    def forward(self, x: Tensor) -> Tensor:
        """(G, D)."""
        if len(x) > 1 or not self.training:
            found: Tensor = super().forward(x)
            return found
        return batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )


class GraphReadout(nn.Module):
    """Logits of a graph from its nodes and its energies in every block.

    - "energies": how low the energy is. ``½ ReLU(ξ_m · g_A)²`` of each memory m of each block, at
      the nodes A where the block ends, summed over the graph, as log(1 + ·): how often its pattern
      occurs. And the whole energy of the graph before each step, that of attention included, which
      holds the logarithm of each node's number of neighbours.
    - "nodes": normalised nodes, as encoded and after each block, summed.
    - "cls": the extra node after the last block, normalised.

    Sums, unlike the means that attention takes, count. Each feature is standardised over the batch
    (running statistics in evaluation), after the descent, whose law it leaves alone.

    Args:
        kind: What is read; "energies+nodes" is both.
        layer: The network that settles.
        classes: Classes to tell apart.
        dropout: Share of features dropped in training.
        made: Device and dtype.
    """

    def __init__(
        self,
        kind: ReadFrom,
        layer: GraphEnergyTransformer,
        classes: int,
        dropout: float,
        made: Factory,
    ) -> None:
        super().__init__()
        self.kind: ReadFrom = kind
        blocks = len(layer.blocks)
        count = {"cls": 1, "energies": 0}.get(kind, blocks + 1)
        self.norms = nn.ModuleList(nn.LayerNorm(layer.dim, **made) for _ in range(count))
        size = count * layer.dim
        if self.energies:
            memories = len(layer.blocks[0].hopfield.memories)  # type: ignore[union-attr, arg-type]
            size += blocks * (memories + layer.steps)
        self.standardise = Standardise(size, **made)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(size, classes, **made)

    @property
    def energies(self) -> bool:
        """Whether energies are read."""
        return self.kind.startswith("energies")

    def forward(self, layer: GraphEnergyTransformer, course: Course) -> Tensor:
        """Logits (G, classes)."""
        found = self._memories(layer, course) if self.energies else []
        found += self._nodes(course)
        logits: Tensor = self.linear(self.dropout(self.standardise(torch.cat(found, -1))))
        return logits

    def _memories(self, layer: GraphEnergyTransformer, course: Course) -> list[Tensor]:
        found, nodes = [-course.energies], len(course.batch)
        for block, x in zip(layer._blocks(), course.states[1:], strict=True):
            called = block.hopfield.preactivations(block.norm(x[:nodes])).relu()
            total = len(course.energies)
            energy = pooled(called.square() / 2, course.batch, total, "sum")
            found.append(energy.log1p())  # bounded logits for graphs unlike those of training
        return found

    def _nodes(self, course: Course) -> list[Tensor]:
        nodes, total = len(course.batch), len(course.energies)
        if self.kind == "cls":
            return [self.norms[0](course.states[-1][nodes:])]
        return [
            pooled(norm(x[:nodes]), course.batch, total, "sum")
            for norm, x in zip(self.norms, course.states, strict=False)
        ]
