"""A reader of facts: a question picks some, step by step, and they give the answer."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from lawful.errors import expected
from lawful.models._common import check_positive, factory, valid_steps
from lawful.models._fact_networks import (
    BinaryChainConfig,
    ChainNetwork,
    Limit,
    MemoryNetwork,
    MemoryNetworkConfig,
    ReaderConfig,
    Reading,
    Sizes,
    UnaryChainConfig,
)
from lawful.structures import LinearChain

__all__ = ["FactReader"]


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
    place of the distribution in a share of the copies: p_k(i) = x_i^k . q_k, and for chains

        w_1 = theta_1,  w_{k+1}(j) = theta_{k+1}(j) + sum_{i != j} w_k(i) <x_i^k, x_j^{k+1}>.

    Whether that helps chains depends on the data and on the learning rate.

    Source: Sukhbaatar et al. (2015), "End-to-end memory networks"; Kim et al. (2017), section 4.3
    and appendix A.4. Departures: W is a table of its own over the answers seen in training, inner
    potentials count once (see `ChainAttention`), and the linear start of chains is ours: theirs, to
    normalise the potentials or not, changes no marginal.
    """

    ranking: Tensor
    updates: Tensor
    kinds: ClassVar[dict[type[Any], type[Any]]] = {
        MemoryNetworkConfig: MemoryNetwork,
        BinaryChainConfig: ChainNetwork,
        UnaryChainConfig: ChainNetwork,
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
        self.network = self.kinds[kind](config, Sizes(words, answers, memory), made)
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
    def linear(self) -> Tensor | None:
        """Of which copies raw scores are still the weights, (R) bool; None if of none."""
        count = round(self.config.linear_share * len(self.ranking))
        if not count or int(self.updates) >= self.config.linear_start:
            return None
        return torch.arange(len(self.ranking), device=self.ranking.device) < count

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
        views = Limit.apply(self.config.gradient_limit, *values)  # type: ignore[no-untyped-call]
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
        if not isinstance(self.network, ChainNetwork):
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
