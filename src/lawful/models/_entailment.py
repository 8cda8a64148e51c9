"""Does one sentence follow from another: decomposable attention, with trees inside sentences."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lawful.attention import SyntacticAttention
from lawful.errors import expected
from lawful.models._common import Factory, check_positive, check_share, factory, valid_steps
from lawful.structures import StructuredDistribution

__all__ = [
    "EntailmentConfig",
    "EntailmentModel",
    "HardParentEntailmentConfig",
    "ParsedEntailmentConfig",
    "SentencePair",
    "SimpleEntailmentConfig",
    "TreeEntailmentConfig",
]


@dataclass(frozen=True)
class EntailmentConfig:
    """Words are compared as they are."""

    width: int = 100
    """Width of words after projection, and of every hidden layer; the paper, with thirty times the
    data, has 300."""
    embedding: int = 100
    """Width of trained word vectors; no effect where vectors are given."""
    dropout: float = 0.1
    """Share of numbers dropped before every layer in training; 0.2 in the paper."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        check_positive(width=self.width, embedding=self.embedding)
        check_share(dropout=self.dropout)

    @property
    def wants(self) -> str:
        """What a parser has to give: "heads", "marginals" or nothing."""
        return ""


@dataclass(frozen=True)
class SimpleEntailmentConfig(EntailmentConfig):
    """Each word also attends to another one of its sentence, by a softmax over all."""

    score_units: int = 50
    """Units of the scoring LSTM in each direction; 100 in the paper."""
    squash: bool = True
    """Keep scores within [-1, 1] by an outer tanh, as in the paper."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        super().__post_init__()
        check_positive(score_units=self.score_units)


@dataclass(frozen=True)
class TreeEntailmentConfig(SimpleEntailmentConfig):
    """Each word also attends to its parent, over all dependency trees."""

    crossing: bool = False
    """Allow arcs to cross: any spanning tree instead of projective ones."""


@dataclass(frozen=True)
class HardParentEntailmentConfig(EntailmentConfig):
    """Each word also sees its head, in the best tree of a trained parser (--parser)."""

    @property
    def wants(self) -> str:
        """What a parser has to give: "heads", "marginals" or nothing."""
        return "heads"


@dataclass(frozen=True)
class ParsedEntailmentConfig(EntailmentConfig):
    """Each word also sees its soft parent by a trained parser (--parser), which stays fixed."""

    @property
    def wants(self) -> str:
        """What a parser has to give: "heads", "marginals" or nothing."""
        return "marginals"


class SentencePair(NamedTuple):
    """Premises and hypotheses of a batch; the first token of each is the root symbol."""

    premise: Tensor  # token ids (B, N)
    premise_lengths: Tensor  # (B)
    hypothesis: Tensor  # (B, M)
    hypothesis_lengths: Tensor  # (B)
    premise_parents: Tensor | None = None  # (B, N, N), [word, parent], if a parser gives them
    hypothesis_parents: Tensor | None = None  # (B, M, M)


class _Layers(nn.Sequential):
    """Linear maps with ReLU, with dropout before each."""

    def __init__(self, inputs: int, width: int, dropout: float, made: Factory) -> None:
        parts: list[nn.Module] = []
        for size in (inputs, width):
            parts += [nn.Dropout(dropout), nn.Linear(size, width, **made), nn.ReLU()]
        super().__init__(*parts)


class EntailmentModel(nn.Module):
    r"""Decomposable attention over the words of two sentences.

    With words a_i, b_j, each a projected vector x_i or [x_i; soft parent of i],

        e_ij = F(a_i) . F(b_j),  beta_i = sum_j softmax_j(e_ij) b_j,  alpha_j likewise,
        v_1 = sum_i G([a_i; beta_i]),  v_2 = sum_j G([b_j; alpha_j]),
        p(label) = softmax(V H([v_1; v_2]) + c).

    F, G, H are two layers of ReLU. The scorer of `SyntacticAttention` reads unprojected vectors;
    soft parents average projected ones.

    Args:
        config: `EntailmentConfig` or one of its kinds.
        words: Number of token ids; 0 is padding.
        labels: Number of labels.
        vectors: Fixed vectors (words, W) in place of trained ones.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Source: Parikh et al. (2016), "A decomposable attention model"; Kim et al. (2017), section 4.4
    and appendix A.5. Departure: no initial normal(0, 0.01) weights; torch's own are used.
    """

    vectors: Tensor | None

    def __init__(
        self,
        config: EntailmentConfig,
        words: int,
        labels: int,
        vectors: Tensor | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(words=words, labels=labels)
        if vectors is not None and (vectors.dim() != 2 or len(vectors) != words):
            raise expected("vectors", f"{words} rows, one a word", tuple(vectors.shape))
        made = factory(device, dtype)
        n, drop = config.width, config.dropout
        size = config.embedding if vectors is None else vectors.shape[1]
        self.config, self.labels = config, labels
        self.table = nn.Embedding(words, size, 0, **made) if vectors is None else None
        self.register_buffer("vectors", None if vectors is None else vectors.to(**made))
        self.project = nn.Linear(size, n, bias=False, **made)
        self.parser = _scorer(config, size, made)
        both = n if type(config) is EntailmentConfig else 2 * n
        self.attend = _Layers(both, n, drop, made)
        self.compare = _Layers(2 * both, n, drop, made)
        self.aggregate = _Layers(2 * n, n, drop, made)
        self.readout = nn.Linear(n, labels, **made)

    def _embed(self, tokens: Tensor) -> Tensor:
        if self.table is None:
            assert self.vectors is not None
            fixed: Tensor = self.vectors[tokens]
            return fixed
        found: Tensor = self.table(tokens)
        return found

    def _words(self, tokens: Tensor, lengths: Tensor, given: Tensor | None) -> Tensor:
        """What stands for each word (B, N, n or 2n)."""
        raw = self._embed(tokens)
        x: Tensor = self.project(raw)
        if self.config.wants:
            if given is None:
                raise expected("parents", f"{self.config.wants} of a parser", None)
            return torch.cat([x, given.to(x.dtype) @ x], -1)
        if self.parser is None:
            return x
        return torch.cat([x, self.parser(raw, values=x, lengths=lengths)[0]], -1)

    def parents(self, tokens: Tensor, lengths: Tensor) -> Tensor | None:
        """Weights of the parents (B, N, N), [word, parent]; None without attention of its own."""
        if self.parser is None:
            return None
        weights: Tensor = self.parser(self._embed(tokens), lengths=lengths)[1]
        return weights

    def trees(self, tokens: Tensor, lengths: Tensor) -> StructuredDistribution | None:
        """The distribution whose marginals `parents` are; None without attention of its own."""
        if self.parser is None:
            return None
        found: StructuredDistribution = self.parser.distribution(
            self._embed(tokens), lengths=lengths
        )
        return found

    def scores(self, pair: SentencePair) -> tuple[Tensor, Tensor, Tensor]:
        """Words of both sentences, and e (B, N, M), -inf where either is padding."""
        a = self._words(pair.premise, pair.premise_lengths, pair.premise_parents)
        b = self._words(pair.hypothesis, pair.hypothesis_lengths, pair.hypothesis_parents)
        e = self.attend(a) @ self.attend(b).mT
        real = valid_steps(pair.premise_lengths, a.shape[1])[..., None]
        real = real & valid_steps(pair.hypothesis_lengths, b.shape[1])[:, None]
        return a, b, e.masked_fill(~real, -torch.inf)

    def alignment(self, pair: SentencePair) -> Tensor:
        """Where each word of the hypothesis looks in the premise, (B, M, N)."""
        return _softmax(self.scores(pair)[2].mT)

    def forward(self, pair: SentencePair) -> Tensor:
        """Logits (B, labels)."""
        a, b, e = self.scores(pair)
        v1 = self._compared(a, _softmax(e) @ b, pair.premise_lengths)
        v2 = self._compared(b, _softmax(e.mT) @ a, pair.hypothesis_lengths)
        logits: Tensor = self.readout(self.aggregate(torch.cat([v1, v2], -1)))
        return logits

    def _compared(self, own: Tensor, other: Tensor, lengths: Tensor) -> Tensor:
        v = self.compare(torch.cat([own, other], -1))
        total: Tensor = v.masked_fill(~valid_steps(lengths, v.shape[1])[..., None], 0.0).sum(1)
        return total


def _softmax(e: Tensor) -> Tensor:
    """Over the last dimension; rows of padding, all -inf, become 0."""
    empty = (e == -torch.inf).all(-1, keepdim=True)
    return e.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)


def _scorer(config: EntailmentConfig, size: int, made: Factory) -> SyntacticAttention | None:
    if not isinstance(config, SimpleEntailmentConfig):
        return None
    tree = config if isinstance(config, TreeEntailmentConfig) else None
    return SyntacticAttention(
        size,
        config.score_units,
        structure="softmax" if tree is None else "spanning" if tree.crossing else "projective",
        squash=config.squash,
        **made,
    )
