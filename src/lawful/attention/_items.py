"""Attention over items: pick one, pick any, or pick segments of neighbours."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lawful.attention._inputs import Inputs, Lengths, arrange, padding_of
from lawful.attention._laws import GRADIENT, NORMALISED, PADDING, RANGE, SUM
from lawful.attention._scores import Device, ScoreName, make_score
from lawful.errors import expected
from lawful.structures import Bernoulli, Categorical, LinearChain, StructuredDistribution

__all__ = ["SegmentationAttention", "SigmoidAttention", "SoftmaxAttention"]


class _ItemAttention(nn.Module):
    """What the three share: score, structure, weights, context. A subclass names the structure."""

    _reads_itself = False

    def __init__(
        self,
        query_size: int | None = None,
        key_size: int | None = None,
        *,
        score: ScoreName = "auto",
        hidden: int | None = None,
        hard: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.score = make_score(score, query_size, key_size, hidden, device, dtype)
        self.hard = hard

    def reset_parameters(self) -> None:
        """Draws the parameters afresh."""
        reset: Any = getattr(self.score, "reset_parameters", None)
        if reset is not None:
            reset()

    def forward(
        self, query: Tensor, keys: Tensor, values: Tensor | None = None, lengths: Lengths = None
    ) -> tuple[Tensor, Tensor]:
        """Attends.

        Args:
            query: (..., D), or (..., Q, D) for several queries over the same keys.
            keys: (..., N, K).
            values: (..., N, V); the keys if None.
            lengths: (...), keys from there on do not exist; whatever stands there has no effect.

        Returns:
            The context (..., V) or (..., Q, V), and the weights (..., N) or (..., Q, N), 0 in
            padding. Without any key (length 0) both are 0.

        Raises:
            InputError: Shapes that do not fit together, lengths out of range.
        """
        x = arrange(query, keys, values, lengths)
        weights = self._weights(self.score(x.query, x.keys), x.lengths)
        context = weights @ x.values
        return (context[..., 0, :], weights[..., 0, :]) if x.single else (context, weights)

    def distribution(
        self, query: Tensor, keys: Tensor, lengths: Lengths = None
    ) -> StructuredDistribution:
        """The distribution whose marginals are the weights: to sample from, argmax, entropy, ...

        Arguments as those of the call. The batch shape is (...), or (..., Q) for several queries.
        """
        x = arrange(query, keys, None, lengths)
        found: StructuredDistribution = self._distribution(*self._scored(x))
        return found

    def _scored(self, x: Inputs) -> tuple[Tensor, Tensor | None]:
        scores = self.score(x.query, x.keys)
        if x.single:
            return scores[..., 0, :], x.lengths
        return scores, None if x.lengths is None else x.lengths[..., None]

    def _weights(self, scores: Tensor, lengths: Tensor | None) -> Tensor:
        """(..., Q, N) from scores (..., Q, N) and lengths (...)."""
        size = None if lengths is None else lengths[..., None]
        return self._read(self._distribution(scores, size, validate=False))

    def _distribution(
        self, scores: Tensor, lengths: Tensor | None, validate: bool | None = None
    ) -> Any:
        raise NotImplementedError

    def _read(self, d: Any) -> Tensor:
        """The weights, in the layout of the scores."""
        found: Tensor = d.to_indicator(d.argmax) if self.hard else d.marginals
        return found

    def _law_parts(
        self, query: Tensor, keys: Tensor, values: Tensor | None, lengths: Lengths
    ) -> tuple[Tensor, Callable[[Tensor], StructuredDistribution]]:
        scores, size = self._scored(arrange(query, keys, values, lengths))
        return scores, lambda s: self._distribution(s, size)

    def _sums(
        self,
        weights: Tensor,
        query: Tensor,
        keys: Tensor,
        values: Tensor | None,
        lengths: Lengths,
    ) -> Tensor:
        """How far the weights of each query are from summing to what they should."""
        x = arrange(query, keys, values, lengths)
        some = torch.as_tensor(keys.shape[-2] if x.lengths is None else x.lengths) > 0
        some = some if x.single or x.lengths is None else some[..., None]
        want = some.to(weights.dtype) * (getattr(self, "total", None) or 1.0)
        return (weights.sum(-1) - want).abs()

    def extra_repr(self) -> str:
        """Only what differs from the default."""
        return "hard=True" if self.hard else ""


class SoftmaxAttention(_ItemAttention):
    r"""Picks one item: p(z = i) = softmax(theta)_i, context = sum_i p(z = i) v_i.

    Args:
        query_size: D; may be left out for dot products.
        key_size: K; D if None.
        score: "bilinear" k^T W q (the default where sizes are given), "mlp" s^T tanh(W_q q + W_k k
            + b), "dot" (the default without sizes) or "scaled_dot".
        hidden: Hidden units of "mlp"; D if None.
        hard: Weights of the best item alone instead of the expectation; no gradient in the scores.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Cost: O(Q N (K + V)). Source: Kim et al. (2017), Structured Attention Networks, eq. 1.

    >>> attend = SoftmaxAttention()
    >>> context, weights = attend(torch.randn(2, 4), torch.randn(2, 7, 4))
    >>> context.shape, weights.shape
    (torch.Size([2, 4]), torch.Size([2, 7]))
    """

    laws = (RANGE, SUM, GRADIENT, PADDING)

    def _weights(self, scores: Tensor, lengths: Tensor | None) -> Tensor:
        if self.hard:
            return super()._weights(scores, lengths)
        padding = padding_of(lengths, scores.shape[-1])
        if padding is None:
            return scores.softmax(-1)
        # Not -inf, whose softmax is NaN where everything is padding.
        hidden = padding[..., None, :]
        lowest = torch.finfo(scores.dtype).min
        return scores.masked_fill(hidden, lowest).softmax(-1).masked_fill(hidden, 0.0)

    def _distribution(
        self, scores: Tensor, lengths: Tensor | None, validate: bool | None = None
    ) -> Categorical:
        return Categorical(scores, lengths, validate_args=validate)


class SigmoidAttention(_ItemAttention):
    r"""Picks any items, independently: p(z_i = 1) = sigmoid(theta_i), context = sum_i p(z_i) v_i.

    The weights need not sum to anything. Arguments as those of `SoftmaxAttention`.

    Source: Kim et al. (2017), section 4.2, the baseline of segmentation attention.
    """

    laws = (RANGE, GRADIENT, PADDING)

    def _weights(self, scores: Tensor, lengths: Tensor | None) -> Tensor:
        if self.hard:
            return super()._weights(scores, lengths)
        padding = padding_of(lengths, scores.shape[-1])
        weights = scores.sigmoid()
        return weights if padding is None else weights.masked_fill(padding[..., None, :], 0.0)

    def _distribution(
        self, scores: Tensor, lengths: Tensor | None, validate: bool | None = None
    ) -> Bernoulli:
        return Bernoulli(scores, lengths, validate_args=validate)

    def _read(self, d: Any) -> Tensor:
        return super()._read(d).to(d.unary.dtype)


class SegmentationAttention(_ItemAttention):
    r"""Picks segments of neighbouring items: a chain of binary variables over the positions.

    p(z) is proportional to exp(sum_i theta_i z_i + sum_i b[z_i, z_{i+1}]) with a learned 2 x 2
    table b (`transition`). The weights are the marginals p(z_i = 1), divided by
    gamma = sum_i p(z_i = 1) / total, so that they sum to ``total`` (lambda in the paper):

        context = sum_i p(z_i = 1) / gamma  v_i

    Args:
        query_size: D; may be left out for dot products.
        key_size: K; D if None.
        total: What the weights sum to, 2 as in the paper; None leaves the marginals as they are,
            each in [0, 1] (eq. 2).
        ends: Score the first and last position by the mean of b over the missing neighbour, as the
            released code does.
        score: As in `SoftmaxAttention`.
        hidden: Hidden units of "mlp"; D if None.
        hard: Weights of the best segmentation instead of the expectation (also divided by gamma;
            0 where it picks nothing); no gradient in the scores and the table.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Cost: O(Q N). Where the marginals sum to less than 3e-29 (1e-231 in double precision), the
    weights sum to less than ``total`` and go to 0.

    Source: Kim et al. (2017), section 4.2 and eq. 2. Departure: each theta_i counts once, as in the
    released code; the pairwise formula as printed counts those of inner positions twice.
    """

    laws = (RANGE, SUM, GRADIENT, NORMALISED, PADDING)

    def __init__(
        self,
        query_size: int | None = None,
        key_size: int | None = None,
        *,
        total: float | None = 2.0,
        ends: bool = False,
        score: ScoreName = "auto",
        hidden: int | None = None,
        hard: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            query_size,
            key_size,
            score=score,
            hidden=hidden,
            hard=hard,
            device=device,
            dtype=dtype,
        )
        if total is not None and not 0 < total < float("inf"):
            raise expected("total", "a number above 0, or None", total)
        self.total = total
        self.ends = ends
        self.transition = nn.Parameter(torch.zeros(2, 2, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Draws the score afresh; the table becomes 0, so that positions are independent."""
        super().reset_parameters()
        nn.init.zeros_(self.transition)

    def _distribution(
        self, scores: Tensor, lengths: Tensor | None, validate: bool | None = None
    ) -> LinearChain:
        unary = torch.stack([torch.zeros_like(scores), scores], -1)
        b = self.transition.to(scores.dtype)
        start, end = (b.mean(0), b.mean(1)) if self.ends else (None, None)
        return LinearChain(unary, b, lengths, start=start, end=end, validate_args=validate)

    def _read(self, d: Any) -> Tensor:
        parts = d.to_indicator(d.argmax) if self.hard else d.marginals
        weights: Tensor = parts.unary[..., 1]
        if self.total is None:
            return weights
        # One division of numbers of like size: its derivative stays finite down to the floor, where
        # that of total / mass, -total / mass^2, would not.
        floor = torch.finfo(weights.dtype).tiny ** 0.75
        return self.total * (weights / weights.sum(-1, keepdim=True).clamp(min=floor))

    def extra_repr(self) -> str:
        """Only what differs from the default."""
        parts = [f"total={self.total}", "ends=True" if self.ends else "", super().extra_repr()]
        return ", ".join(p for p in parts if p)
