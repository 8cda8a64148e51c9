"""Networks that give each node of a graph a score: how anomalous it is."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lawful.energy import Edges, GraphEnergyTransformer
from lawful.errors import InputError, expected
from lawful.models._common import factory
from lawful.models._graph_layers import BetaWavelets, LastGraph, geometric
from lawful.models._node_configs import (
    EnergyNodeConfig,
    GATNodeConfig,
    GCNNodeConfig,
    LayeredNodeConfig,
    MLPNodeConfig,
    NodeSpec,
    PublishedEnergyNodeConfig,
    SAGENodeConfig,
    WaveletNodeConfig,
)

NODE_MODELS: dict[str, type[Any]] = {
    "energy": EnergyNodeConfig,
    "energy-published": PublishedEnergyNodeConfig,
    "mlp": MLPNodeConfig,
    "gcn": GCNNodeConfig,
    "gat": GATNodeConfig,
    "sage": SAGENodeConfig,
    "bwgnn": WaveletNodeConfig,
}


class Reasons(NamedTuple):
    """Why nodes were scored as they were."""

    edge_index: Tensor  # (2, E): source and target, loops included
    weights: Tensor  # (E): attention of the target to the source, mean over heads
    energy: Tensor  # (N): the node's own share of the energy of attention and memories


class NodeScorer(nn.Module):
    """Scores of nodes; ``cut`` is the logit from which on a node is flagged.

    ``(x, edge_index, member=None) -> logits (N)``, from features (N, F), symmetric edges (2, E)
    that are sorted by target, and for several relations which of them each edge belongs to (E, R).
    """

    cut: Tensor

    def __init__(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.register_buffer("cut", torch.zeros((), **factory(device, dtype)))

    def reasons(self, x: Tensor, edge_index: Tensor, member: Tensor | None = None) -> Reasons:
        """Attention and energies, where the network has them."""
        raise InputError("explain: only the energy models say why; train with --model energy")


class EnergyNodeScorer(NodeScorer):
    """A linear encoder, an Energy Transformer on the graph, and a read-out of both ends.

    With several relations the attention score of an edge gets a learned number for each relation
    that it belongs to, in each head, so that all relations share one energy.

    Args:
        config: Sizes.
        spec: What the task feeds.
        device: Of the parameters.
        dtype: Of the parameters.
    """

    def __init__(
        self,
        config: EnergyNodeConfig,
        spec: NodeSpec,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(device, dtype)
        made, width = factory(device, dtype), config.width
        self.encoder = nn.Linear(spec.features, width, **made)
        self.relations: nn.Parameter | None = None
        if config.relation_bias and spec.relations > 1:
            self.relations = nn.Parameter(torch.zeros(spec.relations, config.heads, **made))
        self.transformer = GraphEnergyTransformer(
            width,
            config.heads,
            config.head_dim,
            config.memories or 2 * width,
            config.settle_steps,
            config.step_size,
            step_rule=config.step_rule,
            blocks=config.blocks,
            learn_beta=config.learn_beta,
            self_attention=config.self_attention,
            edge_form="add",
            dropout=config.dropout,
            recompute=config.recompute,
            **made,
        )
        self.norms: nn.ModuleList | None = None
        self.readout: nn.Module = nn.Linear(2 * width, 1, **made)
        self.drop = nn.Dropout(config.dropout if config.readout == "normalised" else 0.0)
        if config.readout == "normalised":
            self.norms = nn.ModuleList(nn.LayerNorm(width, **made) for _ in range(2))
            self.readout = nn.Sequential(
                nn.Dropout(config.dropout),
                nn.Linear(2 * width, width, **made),
                nn.GELU(),
                nn.Dropout(config.dropout),
                nn.Linear(width, 1, **made),
            )
        self.self_attention = config.self_attention
        self._edges: LastGraph[Edges] = LastGraph()

    def forward(self, x: Tensor, edge_index: Tensor, member: Tensor | None = None) -> Tensor:
        """Logits (N)."""
        first = self.drop(self.encoder(x))
        last = self.transformer(first, self._prepared(edge_index, len(x)), self._bias(member))
        ends = [first, last]
        if self.norms is not None:
            ends = [norm(end) for norm, end in zip(self.norms, ends, strict=True)]
        out: Tensor = self.readout(torch.cat(ends, -1)).squeeze(-1)
        return out

    def _prepared(self, edge_index: Tensor, count: int) -> Edges:
        return self._edges(
            edge_index,
            count,
            lambda: Edges.of(edge_index, count, self_loops=self.self_attention),
        )

    def _bias(self, member: Tensor | None) -> Tensor | None:
        """Score offsets (E, H) of the edges."""
        if member is None or self.relations is None:
            return None
        return member.to(self.relations.dtype) @ self.relations

    def reasons(self, x: Tensor, edge_index: Tensor, member: Tensor | None = None) -> Reasons:
        """Attention weights and node energies of the settled state."""
        edges, bias = self._prepared(edge_index, len(x)), self._bias(member)
        last = self.transformer(self.encoder(x), edges, bias)
        block: Any = self.transformer.blocks[-1]
        g = block.norm(last)
        weights = block.attention.weights(g, edges, bias)
        energy = block.attention.node_energy(g, edges, bias)
        energy = energy + block.hopfield.energy(g[:, None])  # each node a sample of its own
        return Reasons(edges.edge_index, weights.mean(-1), energy)


class LayeredNodeScorer(NodeScorer):
    """Residual layers, each a layer norm, a convolution, GELU and dropout.

    Args:
        config: Sizes.
        spec: What the task feeds.
        device: Of the parameters.
        dtype: Of the parameters.
    """

    def __init__(
        self,
        config: LayeredNodeConfig,
        spec: NodeSpec,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(device, dtype)
        made, width = factory(device, dtype), config.width
        self.encoder = nn.Linear(spec.features, width, **made)
        self.norms = nn.ModuleList(nn.LayerNorm(width, **made) for _ in range(config.layers + 1))
        self.layers = nn.ModuleList(_convolution(config) for _ in range(config.layers)).to(**made)
        self.mixers = nn.ModuleList(nn.Linear(width, width, **made) for _ in range(config.layers))
        self.drop = nn.Dropout(config.dropout)
        self.readout = nn.Linear(width, 1, **made)

    def forward(self, x: Tensor, edge_index: Tensor, member: Tensor | None = None) -> Tensor:
        """Logits (N); relations are not told apart."""
        h = self.drop(self.encoder(x))
        for norm, layer, mixer in zip(self.norms, self.layers, self.mixers, strict=False):
            inner = nn.functional.gelu(layer(norm(h), edge_index))
            h = h + self.drop(mixer(self.drop(inner)))
        out: Tensor = self.readout(self.norms[-1](h)).squeeze(-1)
        return out


class _Alone(nn.Linear):
    """A layer that does not look at the graph."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x)


def _convolution(config: LayeredNodeConfig) -> nn.Module:
    width = config.width
    if isinstance(config, MLPNodeConfig):
        return _Alone(width, width)
    made = geometric("nn", "model: gcn, gat or sage")
    layer: nn.Module
    if isinstance(config, GATNodeConfig):
        layer = made.GATConv(width, width // config.heads, config.heads)
    elif isinstance(config, GCNNodeConfig):
        layer = made.GCNConv(width, width)
    else:
        layer = made.SAGEConv(width, width)
    return layer


class WaveletNodeScorer(NodeScorer):
    """Two layers, beta wavelets of the result, and two layers on all of them.

    Args:
        config: Sizes.
        spec: What the task feeds.
        device: Of the parameters.
        dtype: Of the parameters.
    """

    def __init__(
        self,
        config: WaveletNodeConfig,
        spec: NodeSpec,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(device, dtype)
        made, width = factory(device, dtype), config.width
        self.encoder = nn.Sequential(
            nn.Linear(spec.features, width, **made),
            nn.ReLU(),
            nn.Linear(width, width, **made),
            nn.ReLU(),
        )
        self.wavelets = BetaWavelets(config.order)
        self.readout = nn.Sequential(
            nn.Linear((config.order + 1) * width, width, **made),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            nn.Linear(width, 1, **made),
        )

    def forward(self, x: Tensor, edge_index: Tensor, member: Tensor | None = None) -> Tensor:
        """Logits (N); relations are not told apart."""
        out: Tensor = self.readout(self.wavelets(self.encoder(x), edge_index)).squeeze(-1)
        return out


_KINDS: dict[type[Any], Callable[..., NodeScorer]] = {
    EnergyNodeConfig: EnergyNodeScorer,
    LayeredNodeConfig: LayeredNodeScorer,
    WaveletNodeConfig: WaveletNodeScorer,
}


def build_node_scorer(
    config: Any,
    spec: NodeSpec,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> NodeScorer:
    """A fresh scorer from its config, one of `NODE_MODELS`.

    Raises:
        InputError: For a config of no known model, or a task without features.
    """
    if spec.features < 1:
        raise expected("features", "at least one; degrees may be the only one", spec.features)
    for kind in type(config).__mro__:
        if kind in _KINDS:
            return _KINDS[kind](config, spec, device, dtype)
    raise expected("model config", "one of " + ", ".join(NODE_MODELS), type(config).__name__)
