"""A Transformer encoder over the steps of a sequence."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from lawful.errors import expected
from lawful.models._common import (
    Readout,
    StepEncoder,
    check_count,
    check_positive,
    check_share,
    factory,
    valid_steps,
)
from lawful.models._specs import Carried, InputSpec, OutputSpec


@dataclass(frozen=True)
class TransformerConfig:
    """Transformer encoder, causal or not."""

    width: int = 64
    """Width of the token vectors; a multiple of heads."""
    heads: int = 4
    """Attention heads."""
    layers: int = 2
    """Number of encoder blocks."""
    feedforward: int = 256
    """Inner width of the feed-forward part of a block."""
    dropout: float = 0.1
    """Share of entries dropped in training."""
    causal: bool = False
    """Let a step see only itself and earlier steps."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """How a step knows its place; "learned" has a table and so a longest sequence."""
    max_length: int = 1024
    """Longest sequence for learned positions, where the task does not fix the length."""
    context: int = 0
    """Earlier steps read again where a sequence is read in pieces (causal only); 0 for all."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        check_positive(
            width=self.width,
            heads=self.heads,
            layers=self.layers,
            feedforward=self.feedforward,
            max_length=self.max_length,
        )
        check_share(dropout=self.dropout)
        check_count(context=self.context)
        if self.width % self.heads:
            raise expected("width", f"a multiple of heads ({self.heads})", self.width)


def sinusoidal_positions(steps: int, width: int) -> Tensor:
    """Sines in the even and cosines in the odd columns: (steps, width).

    P[t, 2i] = sin(t / 10000^(2i/width)), P[t, 2i+1] = cos(t / 10000^(2i/width)).

    Source: Vaswani et al. (2017), section 3.5.
    """
    rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    angle = torch.arange(steps)[:, None] * rate  # (steps, ceil(width / 2))
    table = torch.zeros(steps, width)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : width // 2]
    return table


class TransformerModel(nn.Module):
    """Linear embedding of each step, positions, pre-norm encoder blocks, linear readout.

    Args:
        config: Sizes.
        inputs: What the task feeds; tokens are embedded by the rows of the input map.
        outputs: What the task wants.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Cost: O(T^2 width) time per block and row.
    """

    def __init__(
        self,
        config: TransformerConfig,
        inputs: InputSpec,
        outputs: OutputSpec,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        made = factory(device, dtype)
        self.config = config
        self.encoder = StepEncoder(inputs, 0, device, dtype)
        self.embed = nn.Linear(self.encoder.size, config.width, **made)
        self.positions: nn.Embedding | None = None
        if config.positions == "learned":
            self.positions = nn.Embedding(inputs.length or config.max_length, config.width, **made)
            nn.init.normal_(self.positions.weight, std=0.02)
        layer = nn.TransformerEncoderLayer(
            config.width,
            config.heads,
            config.feedforward,
            config.dropout,
            batch_first=True,
            norm_first=True,
            **made,
        )
        self.blocks = nn.TransformerEncoder(
            layer,
            config.layers,
            norm=nn.LayerNorm(config.width, **made),
            enable_nested_tensor=False,
        )
        self.blocks.apply(_fresh)  # the encoder copies one layer: without this all start equal
        self.readout = Readout(config.width, outputs, device=device, dtype=dtype)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, size) or (B, T, size), as the task wants; see `InputSpec` for ``x``."""
        steps = x.shape[1]
        h = self.embed(self.encoder(x, lengths))
        h = h + self._places(steps).to(h)
        padding = None if lengths is None else ~valid_steps(lengths.to(h.device), steps)
        mask = None
        if self.config.causal:
            mask = torch.ones(steps, steps, dtype=torch.bool, device=h.device).triu(1)
        h = self.blocks(h, mask, padding, is_causal=self.config.causal)
        out: Tensor = self.readout(h, lengths)
        return out

    def stream(self, x: Tensor, state: Carried = ()) -> tuple[Tensor, Carried]:
        """Reads the next steps of sequences; see `Streaming`.

        The state is the last ``context`` inputs, or all: they are read again, in front of ``x``,
        and places are counted from the first of them.

        Raises:
            InputError: The model is not causal, so that later steps would change earlier outputs.
        """
        if not self.config.causal:
            raise expected("causal", "True, to read in pieces", False)
        whole = torch.cat([*state, x], dim=1)
        kept = whole[:, -self.config.context :] if self.config.context else whole
        return self(whole)[:, -x.shape[1] :], (kept,)

    def _places(self, steps: int) -> Tensor:
        if self.positions is None:
            return sinusoidal_positions(steps, self.config.width)
        if steps > self.positions.num_embeddings:
            limit = self.positions.num_embeddings
            hint = "use --positions sinusoidal, or a larger max_length"
            raise expected("inputs", f"at most {limit} steps with learned positions", steps, hint)
        return self.positions.weight[:steps]


def _fresh(module: nn.Module) -> None:
    if isinstance(module, nn.MultiheadAttention):
        module._reset_parameters()
    elif isinstance(module, nn.Linear | nn.LayerNorm):
        module.reset_parameters()
