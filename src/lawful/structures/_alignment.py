"""Monotone alignments and hidden Markov models: linear chains with transitions of a given form."""

from collections.abc import Callable
from typing import Any, Self, cast

import torch
from torch import Generator, Tensor
from torch.distributions import constraints

from lawful.errors import expected
from lawful.kernels import Backend
from lawful.structures._chain import LinearChain
from lawful.structures._checks import Lengths, as_lengths, check_rank, log_potential
from lawful.structures._distribution import StructuredDistribution

__all__ = ["HMM", "Alignment"]


class Alignment(StructuredDistribution):
    r"""Monotone alignments of N steps to M positions: each step has one, and never goes back.

    The first step is at position 0, the last at M-1; from one step to the next the position stays
    or moves on by one. Positions marked in ``skip`` may also be jumped over, one at a time, at the
    ends too; that gives connectionist temporal classification, see `ctc`. The score is the sum of
    ``scores[t, z_t]``.

    Args:
        scores: (..., N, M), finite or -inf.
        lengths: (...), steps from there on do not exist.
        positions: (...), the number of positions of each element; None means M.
        skip: (..., M) bool, which positions need not be visited; None means none.
        validate_args: As in torch.distributions.
        backend: As for `LinearChain`.

    `marginals` is (..., N, M): P(step t is at position m). Integer form: LongTensor (..., N) of
    positions, -1 in padding. With more positions than steps there is no alignment:
    log-partition -inf, marginals 0.

    Cost O(N M^2), through the dense chain kernels.

    Raises:
        InputError: NaN or +inf in a valid place, shapes that do not fit, sizes out of range.
    """

    _event_dims = (2,)

    def __init__(
        self,
        scores: Tensor,
        lengths: Lengths = None,
        *,
        positions: Lengths = None,
        skip: Tensor | None = None,
        validate_args: bool | None = None,
        backend: Backend = "auto",
    ) -> None:
        check_rank("scores", scores, 2)
        N, M = scores.shape[-2:]
        batch = scores.shape[:-2]
        super().__init__((scores,), batch, torch.Size([N]), N, lengths, validate_args, backend)
        self.positions = as_lengths(positions, batch, M, scores.device, self._validate_args)
        self.skip = None if skip is None else _as_skip(skip, batch, M)
        inside = self._mask()
        valid = torch.ones(N, M, dtype=torch.bool, device=scores.device)
        if inside is not None:
            valid = valid & inside[..., None]
        if self.positions is not None:
            valid = valid & self._existing()[..., None, :]
        self._check_potentials(["scores"], [valid])
        self._theta = (torch.where(valid, self._theta[0], -torch.inf),)
        self._chain = self._build()

    def _existing(self) -> Tensor:
        """(B, M): which positions exist."""
        M = self._theta[0].shape[-1]
        every = torch.arange(M, device=self._theta[0].device)
        return every < (M if self.positions is None else self.positions[..., None])

    def _skippable(self) -> Tensor:
        M = self._theta[0].shape[-1]
        if self.skip is None:
            return torch.zeros(M, dtype=torch.bool, device=self._theta[0].device)
        return self.skip

    def _build(self) -> LinearChain:
        """The chain whose states are the positions."""
        theta, skip = self._theta[0], self._skippable()
        M = theta.shape[-1]
        place = torch.arange(M, device=theta.device)
        ahead = place - place[:, None]
        over = torch.cat([skip[..., 1:], torch.zeros_like(skip[..., :1])], -1)[..., None]
        move = (ahead == 0) | (ahead == 1) | ((ahead == 2) & over)
        last: int | Tensor = M - 1 if self.positions is None else self.positions[..., None] - 1
        first = (place == 0) | ((place == 1) & skip[..., :1])
        at_last = place == last
        may_skip_last = (at_last & skip).any(-1, keepdim=True)
        end = at_last | ((place == last - 1) & may_skip_last)

        def gate(allowed: Tensor) -> Tensor:
            zero = torch.zeros_like(allowed, dtype=theta.dtype)
            return zero.masked_fill(~allowed, -torch.inf)

        transition = gate(move)
        if transition.dim() > 2:
            transition = transition.unsqueeze(-3)
        return LinearChain(
            theta,
            transition,
            self.lengths,
            start=gate(first),
            end=gate(end),
            validate_args=False,
            backend=self.backend,
        )

    @classmethod
    def ctc(
        cls,
        log_probs: Tensor,
        targets: Tensor,
        lengths: Lengths = None,
        target_lengths: Lengths = None,
        *,
        blank: int = 0,
        validate_args: bool | None = None,
        backend: Backend = "auto",
    ) -> Self:
        """Alignments of frames to labels with optional blanks; -log_partition is the CTC loss.

        Position 2i+1 is label i, even positions are blanks. A blank may be left out unless it
        parts two equal labels.

        Args:
            log_probs: (..., N, V) log-probabilities of the symbols.
            targets: (..., L) int64 labels, none of them ``blank``; anything in padding.
            lengths: (...), number of frames.
            target_lengths: (...), number of labels.
            blank: The blank symbol.
            validate_args: As in torch.distributions.
            backend: As for `LinearChain`.

        Source: Graves et al., "Connectionist temporal classification" (2006).
        """
        check_rank("log_probs", log_probs, 2)
        if targets.dtype != torch.int64 or targets.shape[:-1] != log_probs.shape[:-2]:
            raise expected("targets", "an int64 tensor (..., L)", tuple(targets.shape))
        V, L = log_probs.shape[-1], targets.shape[-1]
        labels = targets.clamp(0, V - 1)
        symbols = torch.full((*targets.shape[:-1], 2 * L + 1), blank, device=targets.device)
        symbols[..., 1::2] = labels
        index = symbols[..., None, :].expand(*log_probs.shape[:-1], 2 * L + 1)
        skip = torch.zeros_like(symbols, dtype=torch.bool)
        skip[..., ::2] = True
        skip[..., 2:-1:2] = labels[..., 1:] != labels[..., :-1]
        batch = log_probs.shape[:-2]
        counts = as_lengths(target_lengths, batch, L, targets.device, True)
        if counts is not None:
            ends = torch.arange(2 * L + 1, device=targets.device) == 2 * counts[..., None]
            skip = skip | ends
        return cls(
            log_probs.gather(-1, index),
            lengths,
            positions=None if counts is None else 2 * counts + 1,
            skip=skip,
            validate_args=validate_args,
            backend=backend,
        )

    @property
    def scores(self) -> Tensor:
        """The scores as given, (..., N, M)."""
        return self._given[0]

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """Scores are finite or -inf (outside padding)."""
        return {"scores": log_potential}

    def _rebuild(self, potentials: tuple[Tensor, ...], lengths: Tensor | None) -> Self:
        batch = potentials[0].shape[:-2]
        positions = None if self.positions is None else self.positions.expand(batch)
        skip = None if self.skip is None else self.skip.expand(*batch, self.skip.shape[-1])
        new = cast(Callable[..., Self], type(self))(
            *potentials,
            lengths=lengths,
            positions=positions,
            skip=skip,
            validate_args=False,
            backend=self.backend,
        )
        new._validate_args = self._validate_args
        return new

    def _check_alike(self, other: Any) -> None:
        super()._check_alike(other)
        if bool((self._skippable() != other._skippable()).any()):
            raise expected("other", "the same positions to skip", "others")
        if not torch.equal(self._existing(), other._existing()):
            raise expected("other", "the same numbers of positions", "others")

    # ---- everything else is the chain's ----------------------------------------------------------

    def _log_partition(self) -> Tensor:
        return self._chain._log_partition()

    def _marginals(self) -> tuple[Tensor, ...]:
        return self._chain._marginals()[:1]

    def _centred(self) -> tuple[tuple[Tensor, ...], Tensor | float]:
        top = self._theta[0].detach()
        top = top.amax(-1) if top.shape[-1] else top.sum(-1)
        top = top.masked_fill(top == -torch.inf, 0.0)
        return (self._theta[0] - top[..., None],), top.double().sum(-1)

    def _argmax(self) -> Tensor:
        return self._chain._argmax()

    def _topk(self, k: int) -> tuple[Tensor, Tensor]:
        return self._chain._topk(k)

    def _sample(self, count: int, generator: Generator | None) -> Tensor:
        return self._chain._sample(count, generator)

    def _score(self, structure: Tensor, potentials: tuple[Tensor, ...]) -> Tensor:
        M = potentials[0].shape[-1]
        if self._size == 0 or M == 0:
            return potentials[0].new_zeros(structure.shape[:-1], dtype=torch.float64)
        x = potentials[0].expand(*structure.shape, M)
        picked = x.gather(-1, structure.clamp(0, M - 1)[..., None])[..., 0]
        inside = self._mask()
        if inside is not None:
            picked = picked.masked_fill(~inside, 0.0)
        total = picked.sum(-1, dtype=torch.float64)
        return total.masked_fill(~self._is_valid(structure), -torch.inf)

    def _indicator(self, structure: Tensor) -> tuple[Tensor, ...]:
        return self._chain._indicator(structure)[:1]

    def _structure(self, indicator: tuple[Tensor, ...]) -> Tensor:
        return self._chain._structure((indicator[0],))

    def _is_valid(self, structure: Tensor) -> Tensor:
        chain = self._chain
        gates = LinearChain(
            torch.zeros_like(chain._theta[0]),
            chain._theta[1],
            self.lengths,
            start=chain._ends[0],
            end=chain._ends[1],
            validate_args=False,
        )
        inside = gates._is_valid(structure)
        return inside & (gates._score(structure, gates._theta) > -torch.inf)

    def _all_structures(self, n: int) -> Tensor:
        every = self._chain._all_structures(n)
        shape = (len(every), *[1] * len(self._batch_shape), self._size)
        valid = self._is_valid(every.reshape(shape).expand(len(every), *self._batch_shape, -1))
        return every[valid.reshape(len(every), -1).any(1)]


def _as_skip(skip: Tensor, batch: torch.Size, M: int) -> Tensor:
    want = f"a bool tensor that broadcasts to {(*batch, M)}"
    if skip.dtype != torch.bool:
        raise expected("skip", want, skip.dtype)
    if skip.dim() == 1 and skip.shape[0] == M:
        return skip
    try:
        return skip.expand(*batch, M)
    except RuntimeError:
        raise expected("skip", want, tuple(skip.shape)) from None


class HMM(LinearChain):
    r"""The posterior over hidden states given observations; log_partition is their log-likelihood.

    Args:
        initial: (..., C) logits of the first state, normalised by log-softmax.
        transition: (C, C) logits, row i is normalised to P(next state | i).
        log_likelihood: (..., N, C), log P(observation t | state); see `discrete`.
        lengths: (...), as for `LinearChain`.
        validate_args: As in torch.distributions.
        backend: As for `LinearChain`.

    ``marginals.unary`` are the smoothed state probabilities. All else is a `LinearChain`'s.
    """

    def __init__(
        self,
        initial: Tensor,
        transition: Tensor,
        log_likelihood: Tensor,
        lengths: Lengths = None,
        validate_args: bool | None = None,
        backend: Backend = "auto",
    ) -> None:
        super().__init__(
            log_likelihood,
            transition.log_softmax(-1),
            lengths,
            start=initial.log_softmax(-1),
            validate_args=validate_args,
            backend=backend,
        )

    @classmethod
    def discrete(
        cls,
        initial: Tensor,
        transition: Tensor,
        emission: Tensor,
        observations: Tensor,
        lengths: Lengths = None,
    ) -> Self:
        """Observations (..., N) int64 among V symbols with emission logits (C, V)."""
        V = emission.shape[-1]
        rows = emission.log_softmax(-1).T[observations.clamp(0, V - 1)]
        return cls(initial, transition, rows, lengths)

    def _rebuild(self, potentials: tuple[Tensor, ...], lengths: Tensor | None) -> Self:
        unary, transition = potentials
        start = cast(Tensor, self._ends[0])
        # log_softmax leaves what is normalised as it is.
        start = start.expand(*unary.shape[:-2], start.shape[-1])
        return type(self)(start, transition, unary, lengths, False, self.backend)
