"""Readers of facts: a question picks some, step by step, and they give the answer.

A model holds several independent initialisations of the same network ("copies") and trains them
side by side; every parameter has a leading dimension R for them. The networks are tiny, so that
ten copies in one tensor cost little more than one, and which start is lucky matters a lot here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from lawful.attention import ChainAttention
from lawful.errors import expected
from lawful.models._common import Factory, check_count, check_positive, factory, valid_steps
from lawful.structures import LinearChain

__all__ = [
    "BinaryChainConfig",
    "FactReader",
    "MemoryNetworkConfig",
    "ReaderConfig",
    "Reading",
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

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        check_positive(width=self.width, hops=self.hops, restarts=self.restarts)
        if not self.init > 0:
            raise expected("init", "a number above 0", self.init)
        if not self.gradient_limit >= 0:
            raise expected("gradient_limit", "a number of at least 0", self.gradient_limit)
        check_count(linear_start=self.linear_start)


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


class _Limit(torch.autograd.Function):
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


class _Sizes(NamedTuple):
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
        sizes: _Sizes,
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


class _MemoryNetwork(_Network):
    def __init__(self, config: ReaderConfig, sizes: _Sizes, made: Factory) -> None:
        super().__init__(config, config.hops + 1, sizes, made)  # o of a hop is x of the next

    def forward(self, linear: bool, *batch: Tensor) -> Reading:
        """One hop after the other; each context moves the next question."""
        m = self.embed(*batch)
        q, weights = m.question, []
        for keys, values in zip(m.keys, m.values, strict=True):
            score = _scores(q, keys)
            if linear:
                p = score.masked_fill(m.padding, 0.0)
            else:
                p = score.masked_fill(m.padding, -torch.inf).softmax(-1)
            q = q + _mix(p, values)
            weights.append(p)
        return Reading(self.answer(q), torch.stack(weights, -2))


class _ChainReader(_Network):
    def __init__(self, config: ReaderConfig, sizes: _Sizes, made: Factory) -> None:
        super().__init__(config, 2 * config.hops, sizes, made)
        pairwise = isinstance(config, BinaryChainConfig)
        self.attention = ChainAttention(config.width, config.hops, pairwise=pairwise, **made)
        if config.hops > 1:
            hop: Any = _Hop(config.restarts, config.width, made)
            self.attention.hop = hop

    def forward(self, linear: bool, *batch: Tensor) -> Reading:
        """All steps jointly; one context, added to the question of the last step."""
        m = self.embed(*batch)
        questions = [m.question]
        for _ in range(self.hops - 1):
            questions.append(self.attention.hop(questions[-1]))  # type: ignore[misc]
        if linear:
            weights = self._linear(m, questions)
            parts = zip(weights.unbind(-2), m.values, strict=True)
            context = torch.stack([_mix(w, v) for w, v in parts]).sum(0)
        else:
            context, weights = self.attention(m.question, m.keys, m.values, m.lengths)
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


class FactReader(nn.Module):
    r"""Answers questions from facts; several copies side by side.

    Facts and questions are sums of word vectors with the position encoding
    l_kj = (1 - j/J) - (k/d)(1 - 2j/J) (word j of J, coordinate k of d); a fact also has a learned
    vector for its age. Hop k looks facts up by one table of words and ages, as x_i^k, and reads
    them by another, as o_i^k: K + 1 tables for the memory network, where o^k = x^{k+1}, and 2K for
    chains. Questions use the first table.

        memory network:  p_k = softmax_i(x_i^k . q_k),  q_{k+1} = q_k + sum_i p_k(i) o_i^k
        chains:          p(z_1..z_K) by `ChainAttention`,  c = sum_k sum_i p(z_k = i) o_i^k,
                         q_{k+1} = Q q_k + b;

    the answer is softmax(W q_{K+1}), or softmax(W (q_K + c)) for chains.

    Args:
        config: `MemoryNetworkConfig`, `BinaryChainConfig` or `UnaryChainConfig`.
        words: Number of words.
        answers: Number of possible answers.
        memory: Largest number of facts.
        device: Where the parameters live.
        dtype: Their floating-point type.

    The buffer ``ranking`` (R) has the copies from the best to the worst, for whoever measures them
    to fill. ``updates`` counts training calls; in the first ``linear_start`` raw scores take the
    place of the distribution: p_k(i) = x_i^k . q_k, and for chains

        w_1 = theta_1,  w_{k+1}(j) = theta_{k+1}(j) + sum_{i != j} w_k(i) <x_i^k, x_j^{k+1}>.

    Chains hardly learn without.

    Source: Sukhbaatar et al. (2015), "End-to-end memory networks"; Kim et al. (2017), section 4.3
    and appendix A.4. Departures: W is a table of its own over the answers seen in training, inner
    potentials count once (see `ChainAttention`), and the linear start of chains is ours: theirs, to
    normalise the potentials or not, changes no marginal.
    """

    ranking: Tensor
    updates: Tensor
    kinds: ClassVar[dict[type[Any], type[Any]]] = {
        MemoryNetworkConfig: _MemoryNetwork,
        BinaryChainConfig: _ChainReader,
        UnaryChainConfig: _ChainReader,
    }

    def __init__(
        self,
        config: ReaderConfig,
        words: int,
        answers: int,
        memory: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(words=words, answers=answers, memory=memory)
        self.config = config
        kind = next((k for k in type(config).__mro__ if k in self.kinds), None)
        if kind is None:
            known = ", ".join(k.__name__ for k in self.kinds)
            raise expected("config", f"one of {known}", type(config).__name__)
        made = factory(device, dtype)
        self.network = self.kinds[kind](config, _Sizes(words, answers, memory), made)
        self.register_buffer("ranking", torch.arange(config.restarts, device=device))
        self.register_buffer("updates", torch.zeros((), dtype=torch.long, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """All weights normal with standard deviation config.init; ranks and counts start anew."""
        for p in self.parameters():
            nn.init.normal_(p, std=self.config.init)
        self.ranking.copy_(torch.arange(len(self.ranking)))
        self.updates.zero_()

    @property
    def linear(self) -> bool:
        """Whether raw scores are still the weights."""
        return int(self.updates) < self.config.linear_start

    def forward(
        self, sentences: Tensor, question: Tensor, facts: Tensor, lengths: Tensor
    ) -> Reading:
        """Reads.

        Args:
            sentences: The distinct sentences of a batch as sums over their words (S, V, 2): of
                1 - j/J, and of 2j/J - 1, for word j of J.
            question: Which sentence is the question, (B).
            facts: Which sentences are the facts, oldest first, (B, N); anything in padding.
            lengths: Number of facts, (B), at least 1.
        """
        names, values = zip(*self.network.named_parameters(), strict=True)
        views = _Limit.apply(self.config.gradient_limit, *values)  # type: ignore[no-untyped-call]
        limited = dict(zip(names, views, strict=True))
        batch = (self.linear, sentences, question, facts, lengths)
        found: Reading = functional_call(self.network, limited, batch)
        if self.training:
            self.updates += 1
        return found

    def chain(
        self, sentences: Tensor, question: Tensor, facts: Tensor, lengths: Tensor
    ) -> LinearChain | None:
        """The `LinearChain` over the steps, batch shape (R, B); None for the memory network."""
        if not isinstance(self.network, _ChainReader):
            return None
        return self.network.chain(sentences, question, facts, lengths)

    def choose(
        self, sentences: Tensor, question: Tensor, facts: Tensor, lengths: Tensor
    ) -> tuple[Reading, Tensor]:
        """A reading, and the likeliest sequence of facts (R, B, K): jointly, or hop by hop."""
        batch = (sentences, question, facts, lengths)
        reading, chain = self(*batch), self.chain(*batch)
        if chain is not None:  # unlike argmax, topk takes chains without any sequence
            return reading, chain.topk(1)[0][0]
        padding = ~valid_steps(lengths, facts.shape[1])[:, None]
        return reading, reading.weights.masked_fill(padding, -torch.inf).argmax(-1)

    def extra_repr(self) -> str:
        """The number of copies."""
        return f"restarts={self.config.restarts}"
