"""Attention in K steps over n facts: a chain whose states are the facts."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lawful.attention._inputs import Inputs, Lengths, arrange, padding_of
from lawful.attention._laws import GRADIENT, PADDING, RANGE, SUM
from lawful.attention._scores import Device, ScoreName, make_score
from lawful.errors import expected
from lawful.structures import LinearChain

__all__ = ["ChainAttention"]

Steps = Tensor | Sequence[Tensor]


class ChainAttention(nn.Module):
    r"""Picks one of n facts at each of K steps; the choices of neighbouring steps are linked.

    With queries q_1 = q, q_{k+1} = Q q_k + c and facts x_i, the sequence z_1..z_K has the score

        sum_k theta(q_k, x_{z_k}) + sum_k <x_{z_k}, x_{z_{k+1}}>,

    and the context is sum_k sum_i p(z_k = i) v_i. All K choices are made jointly: a fact that is
    only useful as a stepping stone is found through its link.

    Args:
        size: D, the size of queries.
        steps: K.
        key_size: K of the facts; D if None.
        pairwise: Link neighbouring steps by the dot products of their facts (the binary model);
            without, only ``repeat`` links them.
        repeat: Whether a fact may be chosen twice in a row.
        score: theta, as in `SoftmaxAttention`; "dot" as in the paper.
        bias: Whether the map Q from one step's query to the next has a bias c.
        hard: Weights of the best sequence instead of the expectation; no gradient in the scores.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Where no sequence exists (one fact, two steps, no repetition) weights and context are 0.

    Cost: O(Q K N (D + N)) time, O(Q K N) memory beside the N x N links.

    Source: Kim et al. (2017), section 4.3 and appendix A.4. Departure: each theta counts once; the
    formula as printed counts those of inner steps twice (no difference for K = 2).
    """

    laws = (RANGE, SUM, GRADIENT, PADDING)
    _reads_itself = False

    def __init__(
        self,
        size: int,
        steps: int = 2,
        *,
        key_size: int | None = None,
        pairwise: bool = True,
        repeat: bool = False,
        score: ScoreName = "dot",
        bias: bool = True,
        hard: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("size", size), ("steps", steps)):
            if value < 1:
                raise expected(name, "a whole number of at least 1", value)
        self.steps, self.pairwise, self.repeat, self.hard = steps, pairwise, repeat, hard
        self.score = make_score(score, size, key_size, None, device, dtype)
        self.hop = nn.Linear(size, size, bias, device=device, dtype=dtype) if steps > 1 else None

    def reset_parameters(self) -> None:
        """Draws the parameters afresh."""
        for part in (self.score, self.hop):
            reset: Any = getattr(part, "reset_parameters", None)
            if reset is not None:
                reset()

    def forward(
        self, query: Tensor, keys: Steps, values: Steps | None = None, lengths: Lengths = None
    ) -> tuple[Tensor, Tensor]:
        """Attends.

        Args:
            query: (..., D), or (..., Q, D) for several queries over the same facts.
            keys: Facts (..., N, K); or K tensors of that shape, one for each step.
            values: (..., N, V), or one tensor for each step; the keys if None.
            lengths: (...), facts from there on do not exist.

        Returns:
            The context (..., V) or (..., Q, V), and the weights (..., K, N) or (..., Q, K, N): the
            probability of each fact at each step, 0 in padding.

        Raises:
            InputError: Shapes that do not fit together, lengths out of range.
        """
        x, each = self._arrange(query, keys, values, lengths)
        weights = scores = self._scores(x, each)
        if scores.numel():  # without any fact there is no chain to ask
            weights = self._read(self._distribution(scores, x, each, validate=False))
        own = each  # values of each step (..., K, N, V), where they differ
        if values is not None:
            own = None if isinstance(values, Tensor) else self._stack("values", values, x)
        if own is None:
            context = weights.sum(-2) @ x.values
        else:
            context = (weights.transpose(-3, -2) @ own).sum(-3)
        return (context[..., 0, :], weights[..., 0, :, :]) if x.single else (context, weights)

    def distribution(self, query: Tensor, keys: Steps, lengths: Lengths = None) -> LinearChain:
        """The chain over the steps: its states are facts, its `edge_marginals` pairs of facts.

        Arguments as those of the call. The batch shape is (...), or (..., Q) for several queries.
        """
        x, each = self._arrange(query, keys, None, lengths)
        scores = self._scores(x, each)
        return self._distribution(scores[..., 0, :, :] if x.single else scores, x, each)

    # ---- parts -----------------------------------------------------------------------------------

    def _arrange(
        self, query: Tensor, keys: Steps, values: Steps | None, lengths: Lengths
    ) -> tuple[Inputs, Tensor | None]:
        """Checked inputs, and the facts of each step (..., K, N, D) where they differ."""
        shared = keys if isinstance(keys, Tensor) else self._first("keys", keys)
        one = values if values is None or isinstance(values, Tensor) else values[0]
        x = arrange(query, shared, one, lengths)
        return x, None if isinstance(keys, Tensor) else self._stack("keys", keys, x)

    def _first(self, name: str, parts: Sequence[Tensor]) -> Tensor:
        if len(parts) != self.steps:
            raise expected(name, f"a tensor, or {self.steps} (one for each step)", len(parts))
        return parts[0]

    def _stack(self, name: str, parts: Steps, x: Inputs) -> Tensor:
        """(..., K, N, D), zero in padding."""
        self._first(name, parts if isinstance(parts, Sequence) else [parts])
        try:
            stacked = torch.stack(list(parts), -3)
        except RuntimeError:
            raise expected(name, "tensors of one shape", [tuple(p.shape) for p in parts]) from None
        if stacked.shape[-2] != x.keys.shape[-2]:
            raise expected(name, f"{x.keys.shape[-2]} facts each", tuple(parts[0].shape))
        padding = padding_of(x.lengths, stacked.shape[-2])
        return stacked if padding is None else stacked.masked_fill(padding[..., None, :, None], 0)

    def _scores(self, x: Inputs, each: Tensor | None) -> Tensor:
        """Theta (..., Q, K, N)."""
        queries = [x.query]
        for _ in range(self.steps - 1):
            queries.append(self.hop(queries[-1]))  # type: ignore[misc]
        if each is None:
            stacked = torch.stack(queries, -2)  # (..., Q, K, D)
            flat: Tensor = self.score(stacked.flatten(-3, -2), x.keys)
            return flat.reshape(*stacked.shape[:-1], flat.shape[-1])
        scores: Tensor = self.score(torch.stack(queries, -3), each)  # (..., K, Q, N)
        return scores.transpose(-3, -2)

    def _links(self, x: Inputs, each: Tensor | None) -> Tensor | None:
        """Potentials of neighbouring steps, or None: (N, N), or (..., 1 or K-1, N, N)."""
        n = x.keys.shape[-2]
        same = None
        if not self.repeat:
            same = torch.eye(n, dtype=torch.bool, device=x.keys.device)
        if not self.pairwise or self.steps == 1:
            blank = x.keys.new_zeros(n, n)
            return None if same is None else blank.masked_fill(same, -torch.inf)
        if each is None:
            links = (x.keys @ x.keys.mT)[..., None, :, :]
        else:
            links = each[..., :-1, :, :] @ each[..., 1:, :, :].mT
        return links if same is None else links.masked_fill(same, -torch.inf)

    def _distribution(
        self, scores: Tensor, x: Inputs, each: Tensor | None, validate: bool | None = None
    ) -> LinearChain:
        queries = scores.dim() > x.keys.dim()  # scores have the dimension Q
        padding = padding_of(x.lengths, scores.shape[-1])
        if padding is not None:
            hidden = padding[..., None, None, :] if queries else padding[..., None, :]
            scores = scores.masked_fill(hidden, -torch.inf)
        links = self._links(x, each)
        if links is not None:
            links = links.to(scores.dtype)
            if links.dim() > 2 and queries:
                links = links[..., None, :, :, :]
        return LinearChain(scores, links, validate_args=validate)

    def _read(self, d: LinearChain) -> Tensor:
        if self.hard:  # unlike argmax, topk takes elements without any sequence
            states = d.topk(1)[0][0]
            facts = torch.arange(d.unary.shape[-1], device=states.device)
            return (states[..., None] == facts).to(d.unary.dtype)
        weights: Tensor = d.marginals.unary
        return weights

    def _law_parts(
        self, query: Tensor, keys: Steps, values: Steps | None, lengths: Lengths
    ) -> tuple[Tensor, Callable[[Tensor], LinearChain]]:
        x, each = self._arrange(query, keys, values, lengths)
        scores = self._scores(x, each)
        scores = scores[..., 0, :, :] if x.single else scores
        return scores, lambda s: self._distribution(s, x, each)

    def _sums(
        self, weights: Tensor, query: Tensor, keys: Steps, values: Steps | None, lengths: Lengths
    ) -> Tensor:
        """How far the weights of each step are from summing to 1, or 0 without any sequence."""
        some = self.distribution(query, keys, lengths).log_partition > -torch.inf
        return (weights.sum(-1) - some[..., None].to(weights.dtype)).abs()

    def extra_repr(self) -> str:
        """Steps and links."""
        links = f"steps={self.steps}, pairwise={self.pairwise}, repeat={self.repeat}"
        return links + (", hard=True" if self.hard else "")
