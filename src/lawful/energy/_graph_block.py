"""One energy of a graph and the descent in it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lawful.energy._block import Block, Noise
from lawful.energy._edges import Edges, Membership
from lawful.energy._graph_attention import GraphEnergyAttention
from lawful.kernels import Backend
from lawful.kernels import energy as kernel
from lawful.kernels.edges import Stage, activations
from lawful.kernels.energy import reference as ref
from lawful.kernels.energy._plan import wide


@dataclass(frozen=True)
class Network:
    """Nodes and what connects them, checked."""

    x: Tensor  # (N, D)
    edges: Edges
    weight: Tensor | None  # (E, 1 or H) of the edges in use
    members: Membership


class GraphBlock(Block):
    """Layer norm, attention over edges and memories: one energy of a graph, and descents in it."""

    attention: GraphEnergyAttention

    def stage(self, at: Network, keep: Tensor | None = None) -> Stage:
        """Tensors between the two matmuls of a step."""
        kind = wide(at.x.dtype)
        memory_beta = self.hopfield.beta if self.hopfield.fused else None
        memory_beta = None if memory_beta is None else memory_beta.to(kind)
        return Stage(self.attention.beta.to(kind), memory_beta, at.weight, keep)

    def plan(self) -> kernel.Plan:
        """Constants of the stacked operator."""
        return self._plan(self.attention.edge_form)

    def keep(self, x: Tensor, dropout: float, generator: torch.Generator | None) -> Tensor | None:
        """What each memory of each node counts (N, M): 0, or 1 / (1 - dropout)."""
        if not dropout:
            return None
        drawn = x.new_empty(len(x), len(self.hopfield.memories))
        return drawn.bernoulli_(1 - dropout, generator=generator).div_(1 - dropout)

    def descend(
        self,
        at: Network,
        steps: int,
        *,
        step_size: float | None = None,
        last: bool = False,
        record: bool = False,
        noise: float = 0.0,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
        recompute: bool = False,
        backend: Backend = "auto",
    ) -> kernel.Course:
        """Runs a descent from ``at``; see `GraphEnergyTransformer.settle` for the options."""
        jolt = Noise(noise, None, generator) if noise else None
        stage = self.stage(at, self.keep(at.x, dropout, generator))
        with torch.autocast(at.x.device.type, enabled=False):
            field = GraphField(self, at, stage, recompute, backend)
            rule = self._unbounded(step_size)
            return kernel.descend(field, at.x, rule, steps, last=last, noise=jolt, record=record)


class GraphField:
    """Readings of a graph's energy; autograd goes through the operator's own derivative."""

    def __init__(
        self, block: GraphBlock, at: Network, stage: Stage, recompute: bool, backend: Backend
    ) -> None:
        """``recompute``: readings keep nothing for the derivative but the state."""
        self.block, self.at, self.stage = block, at, stage
        self.recompute, self.backend = recompute, backend
        self.plan, (self.weight, self.bias) = block.plan(), block.stacked()

    def read(self, x: Tensor) -> kernel.Reading:
        """Energy of each graph and update at ``LN(x)``."""
        if self.recompute and torch.is_grad_enabled():
            return kernel.Reading(*checkpoint(self._read, x, use_reentrant=False))
        return kernel.Reading(*self._read(x))

    def _read(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        norm, hopfield = self.block.norm, self.block.hopfield
        g = ref.layer_norm(x, norm.gamma, norm.delta, norm.eps)
        node, push = self.activate(g)
        update = push @ self.weight
        if not hopfield.fused:
            more, pull = hopfield.read(g[:, None])
            node, update = node + more, update + pull[:, 0]
        return g, self.at.members.total(node), update

    def activate(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """Energy of each node (N,), and activations (N, R)."""
        z = nn.functional.linear(g, self.weight, self.bias)
        return activations(z, self.plan, self.stage, self.at.edges.graph, self.backend)

    def update(self, reading: kernel.Reading) -> Tensor:
        """``-∂E/∂g`` (N, D)."""
        return reading.push

    def spread(self, value: Tensor) -> Tensor:
        """A value of each graph, or of all, to the nodes (N or 1, 1)."""
        return self.at.members.spread(value)

    def move(self, x: Tensor, reading: kernel.Reading, alpha: Tensor | float) -> Tensor:
        """``x + α · update``."""
        if not isinstance(alpha, Tensor):
            return torch.add(x, reading.push, alpha=alpha)
        return x + self.spread(alpha) * reading.push

    def take(self, reading: kernel.Reading, other: kernel.Reading, which: Tensor) -> kernel.Reading:
        """``other`` where ``which`` (G,) holds, else ``reading``."""
        mine = self.spread(which)
        return kernel.Reading(
            torch.where(mine, other.g, reading.g),
            torch.where(which, other.energy, reading.energy),
            torch.where(mine, other.push, reading.push),
        )
