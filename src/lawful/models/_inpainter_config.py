"""Settings of the networks that complete pictures."""

from dataclasses import dataclass
from typing import Literal

from lawful.errors import expected
from lawful.models._common import check_count, check_positive, check_share


@dataclass(frozen=True)
class PatchSpec:
    """How a picture is cut up: a grid of patches, each a vector of pixel values."""

    rows: int
    columns: int
    size: int

    @property
    def count(self) -> int:
        """Patches of a picture N."""
        return self.rows * self.columns


@dataclass(frozen=True)
class Ends:
    """What every inpainter has around its network."""

    width: int = 64
    """Width of the token vectors."""
    heads: int = 32
    """Attention heads."""
    cls: bool = False
    """Put a learned token of its own before the patches."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        check_positive(width=self.width, heads=self.heads)


@dataclass(frozen=True)
class EnergyInpainterConfig(Ends):
    """Energy Transformer: tokens settle in an energy of attention and memories."""

    head_dim: int = 8
    """Width of a head; need not be width / heads."""
    memories: int = 0
    """Memories of the Hopfield network; 0 for as many as width."""
    settle_steps: int = 4
    """Steps down the energy T, all with the same weights."""
    blocks: int = 1
    """Energies with weights of their own, descended one after another, settle_steps each."""
    step_size: float = 0.4
    """Length of a step alpha."""
    step_rule: Literal["fixed", "learned", "certified", "backtracking"] = "fixed"
    """Whether the length is fixed, learned, or bounded so that the energy cannot rise."""
    self_attention: bool = False
    """Let a token be one of its own keys (the paper's formula does not; its weights do)."""
    bias: bool = False
    """Offsets of queries, keys and memories."""
    learn_beta: bool = False
    """Learn the inverse temperature of each head."""
    random_steps: tuple[int, int] | None = None
    """Draw the number of steps anew at each training update, from the first number to the second;
    evaluation takes settle_steps."""
    noise: float = 0.0
    """Standard deviation of Langevin noise in training."""
    recompute: bool = False
    """Recompute the steps in the backward pass: less memory, about a sixth more time."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes; the layer itself checks the rest."""
        super().__post_init__()
        check_positive(head_dim=self.head_dim, settle_steps=self.settle_steps, blocks=self.blocks)
        check_count(memories=self.memories)
        drawn = self.random_steps
        if drawn is not None and not 1 <= drawn[0] <= drawn[1]:
            raise expected("random_steps", "two whole numbers, 1 <= first <= second", drawn)


@dataclass(frozen=True)
class ViTEnds(Ends):
    heads: int = 4
    """Attention heads."""
    feedforward: int = 0
    """Inner width of the feed-forward part of a layer; 0 for 4 x width."""
    dropout: float = 0.0
    """Share of entries dropped in training."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        super().__post_init__()
        check_count(feedforward=self.feedforward)
        check_share(dropout=self.dropout)
        if self.width % self.heads:
            raise expected("width", f"a multiple of heads ({self.heads})", self.width)


@dataclass(frozen=True)
class ViTInpainterConfig(ViTEnds):
    """Vision transformer: layers with weights of their own."""

    layers: int = 2
    """Number of layers."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        super().__post_init__()
        check_positive(layers=self.layers)


@dataclass(frozen=True)
class TiedViTInpainterConfig(ViTEnds):
    """One transformer layer, applied again and again with the same weights."""

    repeats: int = 6
    """How often the layer is applied."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        super().__post_init__()
        check_positive(repeats=self.repeats)
