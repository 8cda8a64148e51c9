"""A tagger: scores of tags at each word, and of tags beside each other."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from lawful.laws import Law
from lawful.models._structured import laws_of_distribution
from lawful.models._words import WordEncoder, WordEncoderConfig
from lawful.structures import LinearChain


@dataclass(frozen=True)
class CRFTaggerConfig(WordEncoderConfig):
    """A linear-chain conditional random field over the encoder."""


@dataclass(frozen=True)
class SoftmaxTaggerConfig(WordEncoderConfig):
    """The baseline: every tag on its own."""


class TagScores(NamedTuple):
    """Log-potentials of a chain of tags: unary (B, N, C), transition (C, C), start and end (C)."""

    unary: Tensor
    transition: Tensor
    start: Tensor
    end: Tensor

    def chain(self, lengths: Tensor) -> LinearChain:
        """The distribution of the tag sequences of sentences of these lengths (B,)."""
        # Not validated: a loss that became NaN is for the training loop to report.
        return LinearChain(
            self.unary,
            self.transition,
            lengths,
            start=self.start,
            end=self.end,
            validate_args=False,
        )


def _chain(model: Any, args: tuple[Any, ...]) -> LinearChain:
    scores: TagScores = model(*args)
    return scores.chain(args[3])


class Tagger(nn.Module):
    """Log-potentials of the tags of a sentence.

    ``transition[i, j]`` scores tag i followed by tag j; ``start`` and ``end`` score the first and
    last tag. Without ``chained`` all three are zero and fixed.

    Args:
        config: Sizes of the encoder.
        words: Number of word ids.
        chars: Number of character ids.
        tags: Number of tags, C.
        chained: Whether neighbouring tags influence each other.
        device: Where the parameters live.
        dtype: Their floating-point type.
    """

    laws: ClassVar[tuple[Law, ...]] = laws_of_distribution(_chain)

    def __init__(
        self,
        config: WordEncoderConfig,
        words: int,
        chars: int,
        tags: int,
        *,
        chained: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.encoder = WordEncoder(config, words, chars, device, dtype)
        self.linear = nn.Linear(self.encoder.size, tags, device=device, dtype=dtype)
        self.chained = chained
        for name, shape in (("transition", (tags, tags)), ("start", (tags,)), ("end", (tags,))):
            value = torch.zeros(shape, device=device, dtype=dtype)
            if chained:
                self.register_parameter(name, nn.Parameter(value))
            else:
                self.register_buffer(name, value, persistent=False)

    transition: Tensor
    start: Tensor
    end: Tensor

    def forward(self, words: Tensor, chars: Tensor, spelling: Tensor, lengths: Tensor) -> TagScores:
        """The potentials; arguments as of `WordEncoder.forward`."""
        unary = self.linear(self.encoder(words, chars, spelling, lengths))
        return TagScores(unary, self.transition, self.start, self.end)

    def extra_repr(self) -> str:
        """Kind and number of tags."""
        return f"tags={len(self.start)}, chained={self.chained}"
