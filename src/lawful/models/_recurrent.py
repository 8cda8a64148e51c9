"""LSTM classifiers and taggers: the whole past gets credit, or the last k steps."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from lawful.models._common import (
    Readout,
    StepEncoder,
    check_count,
    check_positive,
    check_share,
    factory,
)
from lawful.models._specs import Carried, InputSpec, OutputSpec

Phase = Literal["start", "end"]


@dataclass(frozen=True)
class LSTMConfig:
    """LSTM trained by backpropagation through all of time."""

    hidden: int = 128
    """Width of the state."""
    layers: int = 1
    """Number of LSTM layers, one on top of the other."""
    dropout: float = 0.0
    """Share of entries dropped between layers and before the output layer, in training."""
    embedding: int = 0
    """Width of learned token vectors; 0 feeds tokens one-hot."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        check_positive(hidden=self.hidden, layers=self.layers)
        check_count(embedding=self.embedding)
        check_share(dropout=self.dropout)


@dataclass(frozen=True)
class TruncatedLSTMConfig(LSTMConfig):
    """LSTM trained by truncated backpropagation: no gradient crosses a cut."""

    k_trunc: int = 20
    """Steps between cuts of the gradient; longer than the sequence means no cut."""
    phase: Phase = "start"
    """Where the blocks lie: "start" makes the first block k_trunc long; "end" makes it one step
    shorter, as the released code of Sparse Attentive Backtracking does."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        super().__post_init__()
        check_positive(k_trunc=self.k_trunc)


def truncation_blocks(
    steps: int, k_trunc: int, phase: Phase = "start"
) -> Iterator[tuple[int, int]]:
    """The [start, stop) blocks between cuts.

    With ``phase="start"`` the cuts lie before steps k, 2k, ...; with ``"end"`` before steps
    k-1, 2k-1, ... (counted from 0).
    """
    start = 0
    stop = k_trunc if phase == "start" else k_trunc - 1
    while start < steps:
        if stop > start:
            yield start, min(stop, steps)
            start = stop
        stop += k_trunc


class LSTMModel(nn.Module):
    """Encoder, ``nn.LSTM``, linear readout.

    Args:
        config: Sizes.
        inputs: What the task feeds.
        outputs: What the task wants.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Cost: O(T hidden^2) time and O(T hidden) memory per row.
    """

    def __init__(
        self,
        config: LSTMConfig,
        inputs: InputSpec,
        outputs: OutputSpec,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.encoder = StepEncoder(inputs, config.embedding, device, dtype)
        self.rnn = nn.LSTM(
            self.encoder.size,
            config.hidden,
            config.layers,
            dropout=config.dropout if config.layers > 1 else 0.0,
            batch_first=True,
            **factory(device, dtype),
        )
        self.readout = Readout(config.hidden, outputs, config.dropout, device, dtype)

    def states(self, x: Tensor, state: Carried = ()) -> tuple[Tensor, Carried]:
        """Hidden states (B, T, hidden) of encoded inputs (B, T, D), and (h, c) after them."""
        out, last = self.rnn(x, state or None)
        return out, last

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, size) or (B, T, size), as the task wants; see `InputSpec` for ``x``."""
        out: Tensor = self.readout(self.states(self.encoder(x, lengths))[0], lengths)
        return out

    def stream(self, x: Tensor, state: Carried = ()) -> tuple[Tensor, Carried]:
        """Reads the next steps of sequences; see `Streaming`. The state is (h, c)."""
        states, state = self.states(self.encoder(x), state)
        return self.readout(states), state


class TruncatedLSTMModel(LSTMModel):
    """The same network; the state is detached at every cut, so credit ends there.

    The forward pass equals that of `LSTMModel` with the same weights. Each block between cuts
    runs through the fused ``nn.LSTM``.
    """

    config: TruncatedLSTMConfig

    def states(self, x: Tensor, state: Carried = ()) -> tuple[Tensor, Carried]:
        """Hidden states (B, T, hidden); the gradient of each reaches back to the last cut.

        Blocks are counted from the start of ``x``, and its start is a cut.
        """
        blocks = []
        for start, stop in truncation_blocks(x.shape[1], self.config.k_trunc, self.config.phase):
            state = tuple(s.detach() for s in state)
            out, state = self.rnn(x[:, start:stop], state or None)
            blocks.append(out)
        return torch.cat(blocks, dim=1), state
