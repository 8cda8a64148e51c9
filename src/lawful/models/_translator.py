"""Sequence to sequence with recurrent encoder and decoder, and a choice of source attention."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lawful.attention import SegmentationAttention, SigmoidAttention, SoftmaxAttention
from lawful.errors import expected
from lawful.models._common import Factory, check_positive, check_share, factory
from lawful.models._search import State, beam_search

__all__ = [
    "SegmentationTranslatorConfig",
    "SigmoidTranslatorConfig",
    "TranslatorConfig",
    "TranslatorModel",
]


@dataclass(frozen=True)
class TranslatorConfig:
    """Softmax attention: the decoder looks at one source position, in expectation."""

    width: int = 128
    """Width of embeddings, of the decoder and of the encoder (both directions together)."""
    layers: int = 2
    """LSTM layers of the encoder and of the decoder."""
    dropout: float = 0.3
    """Share dropped between LSTM layers and before the output layer, in training."""
    bidirectional: bool = False
    """Read the source in both directions; the paper's encoder reads it once."""
    bridge: bool = False
    """Start the decoder from the encoder's last state; the paper's starts from zeros."""
    init: float = 0.1
    """Initial weights are uniform between minus this and this."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        check_positive(width=self.width, layers=self.layers)
        check_share(dropout=self.dropout)
        if not self.init > 0:
            raise expected("init", "a number above 0", self.init)
        if self.bidirectional and self.width % 2:
            raise expected("width", "an even number with bidirectional", self.width)
        if self.bidirectional and self.bridge:
            raise expected("bridge", "an encoder of one direction", "bidirectional")


@dataclass(frozen=True)
class SigmoidTranslatorConfig(TranslatorConfig):
    """Sigmoid attention: any positions, each on its own."""


@dataclass(frozen=True)
class SegmentationTranslatorConfig(TranslatorConfig):
    """Segmentation attention: segments of neighbouring positions."""

    total: float = 2.0
    """What the weights of a step sum to; 0 leaves the plain marginals (eq. 2 of the paper)."""
    ends: bool = True
    """Score the first and the last position as the released code does."""
    transition_decay: float = 0.005
    """l2 penalty on the four scores of neighbours, times half their squares."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        super().__post_init__()
        for name in ("total", "transition_decay"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise expected(name, "a number of at least 0", getattr(self, name))


class TranslatorModel(nn.Module):
    r"""LSTM encoder, LSTM decoder, attention without input feeding.

        h_i = LSTM(x)_i,  h'_j = LSTM(y)_j,  theta_ji = h_i^T W h'_j,
        c_j = sum_i weights(theta_j)_i h_i,  p(y_{j+1}) = softmax(V tanh(U [c_j; h'_j]) + b)

    Args:
        config: `TranslatorConfig` or one of its kinds, which choose the weights.
        source_size: Number of source tokens; 0 is padding.
        target_size: Number of target tokens; 0 is padding.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Source: Kim et al. (2017), section 4.2 and appendix A.3; the form of Luong et al. (2015).
    """

    def __init__(
        self,
        config: TranslatorConfig,
        source_size: int,
        target_size: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        made = factory(device, dtype)
        n, k = config.width, 2 if config.bidirectional else 1
        between = config.dropout if config.layers > 1 else 0.0
        self.config = config
        self.source = nn.Embedding(source_size, n, **made)
        self.target = nn.Embedding(target_size, n, **made)
        self.encoder = nn.LSTM(
            n, n // k, config.layers, batch_first=True, dropout=between, bidirectional=k == 2,
            **made,
        )  # fmt: skip
        self.decoder = nn.LSTM(n, n, config.layers, batch_first=True, dropout=between, **made)
        self.attention = _attention(config, made)
        self.mix = nn.Linear(2 * n, n, bias=False, **made)
        self.dropout = nn.Dropout(config.dropout)
        self.readout = nn.Linear(n, target_size, **made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """All weights uniform within config.init, the table of neighbours included."""
        for p in self.parameters():
            nn.init.uniform_(p, -self.config.init, self.config.init)

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, State]:
        """Source states (B, N, width), and the decoder's first state (layers, B, width) twice.

        Args:
            source: Tokens (B, N).
            lengths: (B), each at least 1.
        """
        packed = pack_padded_sequence(
            self.source(source), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        out, (h, c) = self.encoder(packed)
        states: Tensor = pad_packed_sequence(out, batch_first=True, total_length=source.shape[1])[0]
        if self.config.bridge:
            return states, (h, c)
        zero = states.new_zeros(self.config.layers, len(source), self.config.width)
        return states, (zero, zero)

    def predict(self, h: Tensor, states: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, T, V) and weights (B, T, N) from decoder states (B, T, width)."""
        context, weights = self.attention(h, states, lengths=lengths)
        mixed = self.mix(torch.cat([context, h], -1)).tanh()
        return self.readout(self.dropout(mixed)), weights

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, V) of the token behind each of ``target`` (B, T)."""
        return self._decode(source, lengths, target)[0]

    def alignment(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Attention of the decoder (B, T, N) when it is fed ``target``."""
        return self._decode(source, lengths, target)[1]

    def marginals(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor | None:
        """Chance (B, T, N) that a position is attended to, before any division by their sum.

        None for softmax attention, which attends to exactly one.
        """
        if isinstance(self.attention, SoftmaxAttention):
            return None
        h, states = self._states(source, lengths, target)
        found = self.attention.distribution(h, states, lengths).marginals
        plain: Tensor = found if isinstance(found, Tensor) else found.unary[..., 1]
        return plain

    def _decode(self, source: Tensor, lengths: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return self.predict(*self._states(source, lengths, target), lengths)

    def _states(self, source: Tensor, lengths: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """States of the decoder (B, T, width) when it is fed ``target``, and of the source."""
        states, first = self.encode(source, lengths)
        return self.decoder(self.target(target), first)[0], states

    def penalty(self) -> Tensor:
        """The l2 penalty on the scores of neighbours; 0 without segmentation."""
        if not isinstance(self.attention, SegmentationAttention):
            return self.readout.bias.new_zeros(())
        assert isinstance(self.config, SegmentationTranslatorConfig)
        square: Tensor = self.attention.transition.square().sum()
        return self.config.transition_decay / 2 * square

    @torch.no_grad()
    def generate(
        self,
        source: Tensor,
        lengths: Tensor,
        *,
        start: int,
        end: int,
        limit: int,
        width: int = 1,
    ) -> tuple[Tensor, Tensor]:
        """Best output (B, T) by beam search and its log-probability (B); see `beam_search`."""
        states, first = self.encode(source, lengths)
        states, lengths = (x.repeat_interleave(width, 0) for x in (states, lengths))
        # The search keeps hypotheses first; the LSTM wants layers first.
        begin = tuple(s.transpose(0, 1).repeat_interleave(width, 0) for s in first)

        def step(tokens: Tensor, state: State) -> tuple[Tensor, State]:
            h, c = (s.transpose(0, 1).contiguous() for s in state)
            out, (h, c) = self.decoder(self.target(tokens)[:, None], (h, c))
            logits = self.predict(out, states, lengths)[0][:, 0]
            return logits, (h.transpose(0, 1), c.transpose(0, 1))

        return beam_search(
            step, begin, rows=len(source), width=width, start=start, end=end, limit=limit
        )


def _attention(
    config: TranslatorConfig, made: Factory
) -> SoftmaxAttention | SigmoidAttention | SegmentationAttention:
    n = config.width
    if isinstance(config, SegmentationTranslatorConfig):
        return SegmentationAttention(n, total=config.total or None, ends=config.ends, **made)
    if isinstance(config, SigmoidTranslatorConfig):
        return SigmoidAttention(n, **made)
    return SoftmaxAttention(n, **made)
