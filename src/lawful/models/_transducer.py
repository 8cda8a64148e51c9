"""Sequence to sequence, where source symbols may attend to their parents in a tree."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lawful.attention import SoftmaxAttention, SyntacticAttention
from lawful.errors import expected
from lawful.models._common import check_positive, factory
from lawful.models._search import State, beam_search

__all__ = [
    "Memory",
    "SimpleTransducerConfig",
    "TransducerConfig",
    "TransducerModel",
    "TreeTransducerConfig",
]


@dataclass(frozen=True)
class TransducerConfig:
    """Decoder with attention over bare source symbols."""

    width: int = 50
    """Width of the symbols' vectors and of the decoder."""
    init: float = 0.1
    """Initial weights are uniform between minus this and this."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        check_positive(width=self.width)
        if not self.init > 0:
            raise expected("init", "a number above 0", self.init)


@dataclass(frozen=True)
class SimpleTransducerConfig(TransducerConfig):
    """Each source symbol also attends to another one, by a softmax over all of them."""

    parser: int = 50
    """Units of the scoring LSTM in each direction."""
    squash: bool = True
    """Keep scores within [-1, 1] by an outer tanh, as in the paper; without it, attention can
    become sharp."""
    heads: int = 1
    """Attentions of each symbol, every one with scores of its own from its share of units."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        super().__post_init__()
        check_positive(parser=self.parser, heads=self.heads)


@dataclass(frozen=True)
class TreeTransducerConfig(SimpleTransducerConfig):
    """Each source symbol also attends to its parent, over all dependency trees."""

    crossing: bool = False
    """Allow arcs to cross: any spanning tree instead of projective ones."""
    single_root: bool = False
    """Exactly one symbol hangs from the root."""
    uniform: bool = False
    """A control: all trees equally likely, nothing learned."""


class Memory(NamedTuple):
    """What the decoder attends to."""

    vectors: Tensor  # (B, N, M)
    lengths: Tensor  # (B)


class TransducerModel(nn.Module):
    r"""Encoder without order of its own, LSTM decoder with bilinear attention.

    A source symbol is x_i, or [x_i; c_i] with the context c_i of `SyntacticAttention`, whose LSTM
    is all that sees the order of symbols. The decoder runs from a zero state,

        h_j = LSTM(y_j, h_{j-1}),  a_ji = softmax_i(x_i W h_j),  m_j = sum_i a_ji x_i,
        p(y_{j+1}) = softmax(V tanh(U [m_j; h_j]) + b).

    Args:
        config: `TransducerConfig` or one of its kinds.
        symbols: Number of different tokens, source and target together.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Source: Kim et al. (2017), section 4.1 and appendix A.2.
    """

    def __init__(
        self,
        config: TransducerConfig,
        symbols: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        made = factory(device, dtype)
        n = config.width
        self.config = config
        self.source = nn.Embedding(symbols, n, **made)
        self.target = nn.Embedding(symbols, n, **made)
        self.parser = _parser(config, device, dtype)
        memory = n if self.parser is None else n * (1 + self.parser.heads)
        self.decoder = nn.LSTM(n, n, batch_first=True, **made)
        self.attention = SoftmaxAttention(n, memory, **made)
        self.mix = nn.Linear(memory + n, n, bias=False, **made)
        self.readout = nn.Linear(n, symbols, **made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """All weights uniform within config.init."""
        for p in self.parameters():
            nn.init.uniform_(p, -self.config.init, self.config.init)

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """What the decoder attends to, from symbols (B, N) and lengths (B)."""
        x = self.source(source)
        if self.parser is not None:
            x = torch.cat([x, self.parser(x, lengths=lengths)[0]], -1)
        return Memory(x, lengths)

    def parents(self, source: Tensor, lengths: Tensor) -> Tensor | None:
        """Weights of the parents (B, H, N, N), child before parent; None without a parser."""
        if self.parser is None:
            return None
        weights: Tensor = self.parser(self.source(source), lengths=lengths)[1]
        return weights[:, None] if self.parser.heads == 1 else weights

    def predict(self, h: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Logits (B, T, symbols) and attention (B, T, N) from decoder states (B, T, n)."""
        m, weights = self.attention(h, memory.vectors, lengths=memory.lengths)
        return self.readout(self.mix(torch.cat([m, h], -1)).tanh()), weights

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, symbols) of the token behind each of ``target`` (B, T)."""
        h = self.decoder(self.target(target))[0]
        return self.predict(h, self.encode(source, lengths))[0]

    def alignment(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Attention of the decoder (B, T, N) when it is fed ``target``."""
        h = self.decoder(self.target(target))[0]
        return self.predict(h, self.encode(source, lengths))[1]

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
        rows = len(source)
        memory = Memory(*(x.repeat_interleave(width, 0) for x in self.encode(source, lengths)))
        zero = memory.vectors.new_zeros(rows * width, self.config.width)

        def step(tokens: Tensor, state: State) -> tuple[Tensor, State]:
            h, c = (s[None].contiguous() for s in state)
            out, (h, c) = self.decoder(self.target(tokens)[:, None], (h, c))
            return self.predict(out, memory)[0][:, 0], (h[0], c[0])

        return beam_search(
            step, (zero, zero), rows=rows, width=width, start=start, end=end, limit=limit
        )


def _parser(
    config: TransducerConfig, device: torch.device | str | None, dtype: torch.dtype | None
) -> SyntacticAttention | None:
    if not isinstance(config, SimpleTransducerConfig):
        return None
    tree = config if isinstance(config, TreeTransducerConfig) else None
    return SyntacticAttention(
        config.width,
        config.parser,
        structure="softmax" if tree is None else "spanning" if tree.crossing else "projective",
        single_root=tree is not None and tree.single_root,
        uniform=tree is not None and tree.uniform,
        squash=config.squash,
        heads=config.heads,
        device=device,
        dtype=dtype,
    )
