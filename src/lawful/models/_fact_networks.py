"""Readers of facts: a question picks some, step by step, and they give the answer.

A model holds several independent initialisations of the same network ("copies") and trains them
side by side; every parameter has a leading dimension R for them. The networks are tiny, so that
ten copies in one tensor cost little more than one, and which start is lucky matters a lot here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lawful.attention import ChainAttention
from lawful.errors import expected
from lawful.models._common import Factory, check_count, check_positive
from lawful.structures import LinearChain

__all__ = [
    "BinaryChainConfig",
    "ChainNetwork",
    "Limit",
    "MemoryNetwork",
    "MemoryNetworkConfig",
    "ReaderConfig",
    "Reading",
    "Sizes",
    "UnaryChainConfig",
]


@dataclass(frozen=True)
class ReaderConfig:
    """What all readers share."""

    width: int = 20
    """Width of the vectors of words, facts and questions."""
    hops: int = 2
    """Facts that are chosen, one after the other."""
    restarts: int = 10
    """Independent initialisations, trained side by side. The one that answers most held-out
    questions is used."""
    init: float = 0.1
    """Standard deviation of the initial weights."""
    gradient_limit: float = 1.25
    """Largest norm of the gradient of the mean loss, for each initialisation on its own; 0 means
    no limit. (The published 40 is of a sum over 32 questions.)"""
    linear_start: int = 560
    """Updates before facts are chosen by a distribution; until then raw scores are their weights.
    By default 20 passes over 900 questions."""
    linear_share: float = 1.0
    """Share of the initialisations that start so."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        check_positive(width=self.width, hops=self.hops, restarts=self.restarts)
        if not self.init > 0:
            raise expected("init", "a number above 0", self.init)
        if not self.gradient_limit >= 0:
            raise expected("gradient_limit", "a number of at least 0", self.gradient_limit)
        check_count(linear_start=self.linear_start)
        if not 0 <= self.linear_share <= 1:
            raise expected("linear_share", "a number in [0, 1]", self.linear_share)


@dataclass(frozen=True)
class MemoryNetworkConfig(ReaderConfig):
    """End-to-end memory network: a softmax over facts at each hop, one hop after the other."""


@dataclass(frozen=True)
class BinaryChainConfig(ReaderConfig):
    """All facts chosen jointly; the choices of neighbouring steps are linked."""


@dataclass(frozen=True)
class UnaryChainConfig(ReaderConfig):
    """All facts chosen jointly, linked only by not repeating one."""


class Reading(NamedTuple):
    """What every copy makes of a batch of questions."""

    logits: Tensor  # (R, B, A) of the answers
    weights: Tensor  # (R, B, K, N): how far each fact is attended to at each step


class Limit(torch.autograd.Function):
    """Parameters as they are; backward, each copy's gradient is limited in norm.

    The loss being the mean over R copies, its gradients are multiplied by R first. So a copy
    trains exactly as it would alone.
    """

    @staticmethod
    def forward(ctx: Any, limit: float, *parameters: Tensor) -> tuple[Tensor, ...]:
        """New views of the parameters (R, ...)."""
        ctx.limit = limit
        return tuple(p.view_as(p) for p in parameters)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Scaled gradients."""
        own = [g * g.shape[0] for g in gradients]
        if not ctx.limit:
            return (None, *own)
        norm = torch.stack([g.flatten(1).norm(dim=1) for g in own]).norm(dim=0)
        factor = (ctx.limit / norm.clamp(min=1e-30)).clamp(max=1.0)
        return (None, *(g * factor.reshape(-1, *[1] * (g.dim() - 1)) for g in own))


class _Hop(nn.Module):
    """q -> Q q + c, with a Q and c of their own for each copy."""

    def __init__(self, copies: int, width: int, made: Factory) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(copies, width, width, **made))
        self.bias = nn.Parameter(torch.empty(copies, width, **made))

    def forward(self, q: Tensor) -> Tensor:
        """(R, ..., D) from (R, ..., D)."""
        flat = q.flatten(1, -2) @ self.weight.mT + self.bias[:, None]
        return flat.reshape(q.shape)


class _Memories(NamedTuple):
    """Questions (R, B, D), facts as each hop looks them up and reads them (R, B, N, D)."""

    question: Tensor
    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    padding: Tensor  # (B, N)
    lengths: Tensor  # (R, B)


class Sizes(NamedTuple):
    """Numbers of words and answers, and the most facts."""

    words: int
    answers: int
    memory: int


class _Network(nn.Module):
    """Tables of words and ages, one of each for every way in which facts are seen."""

    share: Tensor

    def __init__(
        self,
        config: ReaderConfig,
        tables: int,
        sizes: Sizes,
        made: Factory,
    ) -> None:
        super().__init__()
        words, answers, memory = sizes
        r, d = config.restarts, config.width
        self.hops = config.hops
        self.words = nn.Parameter(torch.empty(r, tables, words, d, **made))
        self.ages = nn.Parameter(torch.empty(r, tables, memory, d, **made))
        self.readout = nn.Parameter(torch.empty(r, answers, d, **made))
        share = torch.arange(1, d + 1, **made) / d
        self.register_buffer("share", share, persistent=False)

    def embed(
        self, sentences: Tensor, question: Tensor, facts: Tensor, lengths: Tensor
    ) -> _Memories:
        """The questions and facts of a batch as vectors."""
        # The position encoding is the sum of two terms, each of them a product of one number for
        # the word's place and one for the coordinate; so it goes through sums over words.
        both = sentences.permute(2, 0, 1).flatten(0, 1).to(self.words.dtype)  # (2S, V)
        plain, tilted = (both @ self.words).chunk(2, -2)
        found = plain + self.share * tilted  # (R, tables, S, D)
        steps = torch.arange(facts.shape[1], device=facts.device)
        ages = (lengths[:, None] - 1 - steps).clamp(min=0)
        x = found.index_select(2, facts.flatten()) + self.ages.index_select(2, ages.flatten())
        seen = x.reshape(*x.shape[:2], *facts.shape, x.shape[-1]).unbind(1)
        asked = found[:, 0].index_select(1, question)
        return _Memories(
            asked,
            seen[: self.hops],
            seen[-self.hops :],
            steps >= lengths[:, None],
            lengths.expand(asked.shape[:-1]),
        )

    def answer(self, q: Tensor) -> Tensor:
        """Logits (R, B, A)."""
        return q @ self.readout.mT


def _scores(q: Tensor, keys: Tensor) -> Tensor:
    """(R, B, N) from (R, B, D) and (R, B, N, D)."""
    return (keys @ q[..., None]).squeeze(-1)


def _mix(weights: Tensor, values: Tensor) -> Tensor:
    """(R, B, D) from (R, B, N) and (R, B, N, D)."""
    return (weights[..., None, :] @ values).squeeze(-2)


class MemoryNetwork(_Network):
    """A softmax over facts at each hop."""

    def __init__(self, config: ReaderConfig, sizes: Sizes, made: Factory) -> None:
        super().__init__(config, config.hops + 1, sizes, made)  # o of a hop is x of the next

    def forward(self, linear: Tensor | None, *batch: Tensor) -> Reading:
        """One hop after the other; each context moves the next question."""
        m = self.embed(*batch)
        q, weights = m.question, []
        for keys, values in zip(m.keys, m.values, strict=True):
            score = _scores(q, keys)
            p = score.masked_fill(m.padding, -torch.inf).softmax(-1)
            if linear is not None:
                p = torch.where(linear[:, None, None], score.masked_fill(m.padding, 0.0), p)
            q = q + _mix(p, values)
            weights.append(p)
        return Reading(self.answer(q), torch.stack(weights, -2))


class ChainNetwork(_Network):
    """All facts chosen jointly."""

    def __init__(self, config: ReaderConfig, sizes: Sizes, made: Factory) -> None:
        super().__init__(config, 2 * config.hops, sizes, made)
        pairwise = isinstance(config, BinaryChainConfig)
        self.attention = ChainAttention(config.width, config.hops, pairwise=pairwise, **made)
        if config.hops > 1:
            hop: Any = _Hop(config.restarts, config.width, made)
            self.attention.hop = hop

    def forward(self, linear: Tensor | None, *batch: Tensor) -> Reading:
        """All steps jointly; one context, added to the question of the last step."""
        m = self.embed(*batch)
        questions = [m.question]
        for _ in range(self.hops - 1):
            questions.append(self.attention.hop(questions[-1]))  # type: ignore[misc]
        context, weights = self.attention(m.question, m.keys, m.values, m.lengths)
        if linear is not None:
            own = self._linear(m, questions)
            parts = zip(own.unbind(-2), m.values, strict=True)
            simple = torch.stack([_mix(w, v) for w, v in parts]).sum(0)
            weights = torch.where(linear[:, None, None, None], own, weights)
            context = torch.where(linear[:, None, None], simple, context)
        return Reading(self.answer(questions[-1] + context), weights)

    def _linear(self, m: _Memories, questions: Sequence[Tensor]) -> Tensor:
        """Potentials as weights (R, B, K, N): a step has its own, and what links bring to it.

        w_1 = theta_1;  w_{k+1}(j) = theta_{k+1}(j) + sum_{i != j} w_k(i) <x_i^k, x_j^{k+1}>.
        """
        weights: list[Tensor] = []
        for k, (q, keys) in enumerate(zip(questions, m.keys, strict=True)):
            w = _scores(q, keys)
            if k and self.attention.pairwise:
                last, before = weights[-1], m.keys[k - 1]
                w = w + _scores(_mix(last, before), keys) - last * (before * keys).sum(-1)
            weights.append(w.masked_fill(m.padding, 0.0))
        return torch.stack(weights, -2)

    def chain(self, *batch: Tensor) -> LinearChain:
        """The distribution over sequences of facts."""
        m = self.embed(*batch)
        return self.attention.distribution(m.question, m.keys, m.lengths)
