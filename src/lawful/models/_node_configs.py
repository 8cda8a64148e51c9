"""Settings of the networks that score the nodes of a graph."""

from dataclasses import dataclass
from typing import Literal

from lawful.errors import expected
from lawful.models._common import check_count, check_positive, check_share


@dataclass(frozen=True)
class NodeSpec:
    """What a task feeds: ``features`` numbers a node, ``relations`` kinds of edges."""

    features: int
    relations: int = 1


@dataclass(frozen=True)
class NodeEnds:
    """What every scorer has."""

    width: int = 64
    """Width of the node vectors."""
    dropout: float = 0.2
    """Share of entries dropped in training."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        check_positive(width=self.width)
        check_share(dropout=self.dropout)


@dataclass(frozen=True)
class EnergyNodeConfig(NodeEnds):
    """Energy Transformer on the graph: nodes settle in an energy of their edges and memories."""

    heads: int = 4
    """Attention heads."""
    head_dim: int = 16
    """Width of a head; need not be width / heads."""
    memories: int = 0
    """Memories of the Hopfield network; 0 for twice the width."""
    settle_steps: int = 1
    """Steps down the energy T of each block, all with the same weights."""
    step_size: float = 1.0
    """Length of a step alpha."""
    step_rule: Literal["fixed", "learned", "backtracking"] = "learned"
    """Whether the length is fixed, learned, or halved until the energy does not rise."""
    blocks: int = 2
    """Blocks with weights of their own, one after another."""
    self_attention: bool = False
    """Let a node be one of its own keys."""
    learn_beta: bool = True
    """Learn the inverse temperature of each head."""
    relation_bias: bool = True
    """With several relations, add a learned number for each relation and head to the scores of its
    edges; else all relations are one."""
    readout: Literal["linear", "normalised"] = "normalised"
    """How the score is read from the first and last state: linearly as they are, or by a hidden
    layer from both, layer-normalised."""
    recompute: bool = False
    """Recompute the steps in the backward pass: less memory, more time."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes; the layer itself checks the rest."""
        super().__post_init__()
        check_positive(heads=self.heads, head_dim=self.head_dim, settle_steps=self.settle_steps)
        check_positive(blocks=self.blocks)
        check_count(memories=self.memories)


@dataclass(frozen=True)
class PublishedEnergyNodeConfig(EnergyNodeConfig):
    """The published form: one long step, linear encoder and read-out."""

    dropout: float = 0.3
    """Share of entries dropped in training."""
    heads: int = 1
    """Attention heads."""
    head_dim: int = 64
    """Width of a head; need not be width / heads."""
    blocks: int = 1
    """Blocks with weights of their own, one after another."""
    step_rule: Literal["fixed", "learned", "backtracking"] = "fixed"
    """Whether the length is fixed, learned, or halved until the energy does not rise."""
    self_attention: bool = True
    """Let a node be one of its own keys."""
    relation_bias: bool = False
    """With several relations, add a learned number for each relation and head to the scores of its
    edges; else all relations are one."""
    readout: Literal["linear", "normalised"] = "linear"
    """How the score is read from the first and last state: linearly as they are, or by a hidden
    layer from both, layer-normalised."""


@dataclass(frozen=True)
class LayeredNodeConfig(NodeEnds):
    """A network of layers with weights of their own."""

    layers: int = 2
    """Number of layers."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        super().__post_init__()
        check_positive(layers=self.layers)


@dataclass(frozen=True)
class MLPNodeConfig(LayeredNodeConfig):
    """The features alone, without the graph."""


@dataclass(frozen=True)
class GCNNodeConfig(LayeredNodeConfig):
    """Graph convolutions (Kipf and Welling 2017), with residual layers."""


@dataclass(frozen=True)
class SAGENodeConfig(LayeredNodeConfig):
    """GraphSAGE with means (Hamilton et al. 2017), with residual layers."""


@dataclass(frozen=True)
class GATNodeConfig(LayeredNodeConfig):
    """Graph attention (Velickovic et al. 2018), with residual layers."""

    heads: int = 4
    """Attention heads; their widths add up to the width."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        super().__post_init__()
        check_positive(heads=self.heads)
        if self.width % self.heads:
            raise expected("width", f"a multiple of heads ({self.heads})", self.width)


@dataclass(frozen=True)
class WaveletNodeConfig(NodeEnds):
    """Beta wavelets of the graph's Laplacian (Tang et al. 2022, BWGNN)."""

    order: int = 2
    """Order C of the wavelets: C + 1 filters, each reaching C hops."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        super().__post_init__()
        check_positive(order=self.order)
