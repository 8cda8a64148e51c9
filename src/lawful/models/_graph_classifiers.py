"""Networks that name the class of a graph: the Energy Transformer on its edges, GIN and GCN."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from lawful.energy import Edges, GraphEnergyTransformer
from lawful.errors import InputError
from lawful.models._common import Factory, check_count, check_positive, check_share, factory
from lawful.models._graph_layers import geometric
from lawful.models._graph_readout import GraphReadout, ReadFrom, pooled, settled

Device = torch.device | str | None
FEATURE_SCALE, POSITION_SCALE = 0.5, 0.05  # deviations of the energy network's first weights


@dataclass(frozen=True)
class GraphSpec:
    """What graphs hold: numbers of each node and edge, positions of nodes; and the classes."""

    features: int
    edge_features: int
    classes: int


class Graphs(NamedTuple):
    """Some graphs put one after another: N nodes, E edges (each both ways), G graphs."""

    x: Tensor  # (N, F)
    edge_index: Tensor  # (2, E): source, target
    edge_attr: Tensor  # (E, A)
    batch: Tensor  # (N,): graph of each node, ascending
    positions: Tensor  # (N, k): eigenvectors first, then chances of return
    total: int  # G


@dataclass(frozen=True)
class GraphModelConfig:
    """What all graph classifiers share."""

    width: int = 64
    """Features of a node within the network."""
    eigenvectors: int = 0
    """Eigenvectors of each graph's Laplacian that tell where a node is; their signs are drawn anew
    at every training update."""
    eigen_signs: Literal["flip", "absolute"] = "flip"
    """Random signs in training and fixed ones in evaluation, or the entries' absolute values."""
    walks: int = 0
    """Chances that a random walk is back after 1 to so many steps, as a further position."""
    dropout: float = 0.0
    """Share of entries dropped before the classes are read, in training."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        check_positive(width=self.width)
        check_count(eigenvectors=self.eigenvectors, walks=self.walks)
        check_share(dropout=self.dropout)


@dataclass(frozen=True)
class EnergyGraphConfig(GraphModelConfig):
    """Energy Transformer: nodes settle in an energy of attention along edges and of memories."""

    heads: int = 4
    """Attention heads."""
    head_dim: int = 8
    """Width of a head; need not be width / heads."""
    memories: int = 128
    """Memories of the Hopfield network; 0 for four times the width."""
    blocks: int = 3
    """Blocks with weights of their own, one after another."""
    settle_steps: int = 1
    """Steps down the energy of each block T, all with the same weights."""
    step_size: float = 0.5
    """Length of a step alpha; where it is learned, at the start."""
    step_rule: Literal["fixed", "learned", "backtracking"] = "learned"
    """Whether the length is fixed, learned, or halved until the energy does not rise."""
    learn_beta: bool = True
    """Learn the inverse temperature of each head."""
    edge_weights: Literal["learned", "none"] = "learned"
    """Weights of edges, learned from their ends and features; they are constants of the descent."""
    edge_form: Literal["multiply", "add"] = "multiply"
    """Whether scores are multiplied by the weights (as published), or weights are added."""
    readout: ReadFrom = "energies"
    """What classes are read from: energies of memories and graph in every block, nodes of every
    block, both, or (as published) the extra node after the last block, linked to its graph."""
    noise: float = 0.0
    """Standard deviation of Langevin noise in training."""
    dropout: float = 0.5
    """Share of entries dropped before the classes are read, in training."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes; the layer itself checks the rest."""
        super().__post_init__()
        check_positive(heads=self.heads, head_dim=self.head_dim, blocks=self.blocks)
        check_positive(settle_steps=self.settle_steps)
        check_count(memories=self.memories)


@dataclass(frozen=True)
class MessagePassingConfig(GraphModelConfig):
    """Layers of message passing, each layer's nodes summed up for the readout."""

    layers: int = 4
    """Layers of message passing."""
    dropout: float = 0.5
    """Share of entries dropped before the classes are read, in training."""
    pooling: Literal["sum", "mean"] = "sum"
    """How nodes are put together."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        super().__post_init__()
        check_positive(layers=self.layers)


@dataclass(frozen=True)
class GINConfig(MessagePassingConfig):
    """Graph isomorphism network (with edge features where there are any: GINE)."""


@dataclass(frozen=True)
class GCNConfig(MessagePassingConfig):
    """Graph convolutional network."""


class NodeEncoder(nn.Module):
    """Nodes as vectors: a linear map of their features, and one of their positions.

    Args:
        config: Width and positions.
        spec: What graphs hold.
        made: Device and dtype.
    """

    def __init__(self, config: GraphModelConfig, spec: GraphSpec, made: Factory) -> None:
        super().__init__()
        self.eigenvectors, self.signs = config.eigenvectors, config.eigen_signs
        self.features = nn.Linear(spec.features, config.width, **made)
        count = config.eigenvectors + config.walks
        self.positions = nn.Linear(count, config.width, bias=False, **made) if count else None

    def rescale(self, features: float, positions: float) -> None:
        """Draws the weights anew with these standard deviations."""
        nn.init.normal_(self.features.weight, std=features)
        if self.positions is not None:
            nn.init.normal_(self.positions.weight, std=positions)

    def forward(self, g: Graphs) -> Tensor:
        """(N, width)."""
        x: Tensor = self.features(g.x)
        if self.positions is None:
            return x
        vectors, walks = g.positions[:, : self.eigenvectors], g.positions[:, self.eigenvectors :]
        if self.signs == "absolute":
            vectors = vectors.abs()
        elif self.training and self.eigenvectors:
            signs = torch.randint(2, (g.total, self.eigenvectors), device=x.device)
            vectors = vectors * (2 * signs - 1).to(x.dtype)[g.batch]
        positions: Tensor = self.positions(torch.cat([vectors, walks], -1))
        return x + positions


class EdgeWeights(nn.Module):
    """A weight of each edge and head, from the vectors at its ends and from its features.

    ``w_h = c + a_h·f + b_h (x_source·x_target) / D``, where f holds the edge's features and what
    kind it is (between nodes, a loop, from or to the extra node), and c is 1 where scores are
    multiplied and 0 where weights are added. a and b start at 0, so every weight starts at c.
    Edges that do not exist have no weight, and none is given to them: whatever is learned, a graph
    keeps its edges.

    Args:
        features: Features of an edge.
        heads: Heads H.
        form: "multiply" or "add".
        made: Device and dtype.
    """

    kinds = 4

    def __init__(self, features: int, heads: int, form: str, made: Factory) -> None:
        super().__init__()
        self.linear = nn.Linear(features + self.kinds + 1, heads, bias=False, **made)
        self.start = float(form == "multiply")
        nn.init.zeros_(self.linear.weight)

    def forward(self, x: Tensor, edge_index: Tensor, features: Tensor) -> Tensor:
        """(E, H), from nodes (N, D), edges (2, E) and their features and kinds."""
        source, target = edge_index
        alike = (x[source] * x[target]).mean(-1, keepdim=True)
        weights: Tensor = self.linear(torch.cat([features, alike], -1))
        return weights + self.start


class EnergyGraphModel(nn.Module):
    """Energy Transformer on graphs: logits of the classes of each graph.

    Every graph gets one node more, learned and linked both ways to all of its nodes; every node is
    linked to itself. Attention runs along these edges only.

    Args:
        config: The network.
        spec: What graphs hold.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Source: Hoover et al. 2023, section 4 and appendix. Departures: edges are masked exactly, no
    padding exists, and the extra node is in no Laplacian; weights of edges are linear in the
    product of their ends rather than a convolution over all pairs of nodes.
    """

    def __init__(
        self,
        config: EnergyGraphConfig,
        spec: GraphSpec,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        made = factory(device, dtype)
        self.encoder = NodeEncoder(config, spec, made)
        # The layer norm would else leave little of one-hot features beside positions of size 1.
        self.encoder.rescale(FEATURE_SCALE, POSITION_SCALE)
        self.cls = nn.Parameter(torch.zeros(config.width, **made))
        self.weights = None
        if config.edge_weights == "learned":
            self.weights = EdgeWeights(spec.edge_features, config.heads, config.edge_form, made)
        self.settle = GraphEnergyTransformer(
            config.width,
            config.heads,
            config.head_dim,
            config.memories or None,
            config.settle_steps,
            config.step_size,
            step_rule=config.step_rule,
            blocks=config.blocks,
            learn_beta=config.learn_beta,
            edge_form=config.edge_form,
            noise=config.noise,
            **made,
        )
        self.readout = GraphReadout(config.readout, self.settle, spec.classes, config.dropout, made)
        nn.init.normal_(self.cls, std=0.02)

    def _laid_out(self, g: Graphs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Nodes with the extra ones last, all edges, features of edges, graph of each node."""
        x = self.encoder(g)
        nodes, device = len(x), x.device
        own = torch.arange(nodes, device=device)
        loops = torch.arange(nodes + g.total, device=device)
        extra = nodes + g.batch
        edge_index = torch.cat(
            [g.edge_index, loops.expand(2, -1), torch.stack([own, extra]),
             torch.stack([extra, own])], 1
        )  # fmt: skip
        features = x.new_zeros(edge_index.shape[1], g.edge_attr.shape[1] + EdgeWeights.kinds)
        edges, known = g.edge_attr.shape
        features[:edges, :known] = g.edge_attr
        ends = [0, edges, edges + len(loops), edges + len(loops) + nodes, len(features)]
        for kind in range(EdgeWeights.kinds):
            features[ends[kind] : ends[kind + 1], known + kind] = 1
        x = torch.cat([x, self.cls.expand(g.total, -1)])
        batch = torch.cat([g.batch, torch.arange(g.total, device=device)])
        return x, edge_index, features, batch

    def forward(self, g: Graphs) -> Tensor:
        """Logits (G, classes)."""
        x, edge_index, features, batch = self._laid_out(g)
        weights = None if self.weights is None else self.weights(x, edge_index, features)
        edges = Edges.of(edge_index, len(x))
        course = settled(self.settle, x, edges, weights, batch, g.total)
        logits: Tensor = self.readout(self.settle, course)
        return logits

    @torch.no_grad()
    def explain(self, g: Graphs) -> tuple[Tensor, Tensor]:
        """What the network looks at, by the last block at the nodes as they end.

        Returns:
            How much the extra node of each graph attends to each node (N,), mean of the heads;
            and each node's share of the energy of attention (N,).
        """
        x, edge_index, features, batch = self._laid_out(g)
        weights = None if self.weights is None else self.weights(x, edge_index, features)
        x = self.settle(x, edge_index, weights, batch, graphs=g.total)
        block: Any = self.settle.blocks[-1]
        at, nodes = block.norm(x), len(g.x)
        first = g.edge_index.shape[1] + len(x)  # of the edges from nodes to the extra ones
        read = block.attention.weights(at, edge_index, weights)[first : first + nodes]
        energy: Tensor = block.attention.node_energy(at, edge_index, weights)
        return read.mean(-1), energy[:nodes]


class MessagePassingModel(nn.Module):
    """GIN or GCN of torch_geometric: logits of the classes of each graph.

    Batch normalisation after every layer; the nodes of all layers, and the encoded features, are
    pooled, put beside each other and read by one linear map.

    Args:
        config: The network; its type tells which.
        spec: What graphs hold.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Raises:
        InputError: torch_geometric is not installed.

    Source: Xu et al. 2019, "How powerful are graph neural networks?"; Kipf and Welling 2017.
    """

    def __init__(
        self,
        config: MessagePassingConfig,
        spec: GraphSpec,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        made = factory(device, dtype)
        self.encoder = NodeEncoder(config, spec, made)
        self.pooling = config.pooling
        gin = isinstance(config, GINConfig)
        self.with_edges = gin and spec.edge_features > 0
        edges = spec.edge_features if gin else 0
        layers = range(config.layers)
        self.layers = nn.ModuleList(_layer(gin, config.width, edges, made) for _ in layers)
        self.norms = nn.ModuleList(nn.BatchNorm1d(config.width, **made) for _ in layers)
        self.dropout = nn.Dropout(config.dropout)
        self.linear = nn.Linear((config.layers + 1) * config.width, spec.classes, **made)

    def forward(self, g: Graphs) -> Tensor:
        """Logits (G, classes)."""
        x = self.encoder(g)
        more = (g.edge_attr,) if self.with_edges else ()
        found = [pooled(x, g.batch, g.total, self.pooling)]
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(layer(x, g.edge_index, *more)).relu()
            found.append(pooled(x, g.batch, g.total, self.pooling))
        logits: Tensor = self.linear(self.dropout(torch.cat(found, -1)))
        return logits


def _layer(gin: bool, width: int, edges: int, made: Factory) -> nn.Module:
    kinds = geometric("nn", f"model {'gin' if gin else 'gcn'}")
    if not gin:
        found: nn.Module = kinds.GCNConv(width, width)
        return found.to(**made)
    inner = nn.Sequential(
        nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width)
    )
    kind: Any = kinds.GINEConv(inner, train_eps=True, edge_dim=edges) if edges else None
    found = kind or kinds.GINConv(inner, train_eps=True)
    return found.to(**made)


def build_graph_model(
    config: GraphModelConfig,
    spec: GraphSpec,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> nn.Module:
    """A fresh graph classifier ``(Graphs) -> (G, classes)`` from its config."""
    if isinstance(config, EnergyGraphConfig):
        return EnergyGraphModel(config, spec, device, dtype)
    if isinstance(config, MessagePassingConfig):
        return MessagePassingModel(config, spec, device, dtype)
    raise InputError(f"model config: expected one of graphs, got {type(config).__name__}")
