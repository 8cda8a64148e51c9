"""Segmentations with labels: semi-Markov chains."""

from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.distributions import constraints

from lawful.errors import expected
from lawful.kernels import Backend
from lawful.kernels import segments as kernel
from lawful.structures._checks import Lengths, check_potential, check_rank, log_potential
from lawful.structures._distribution import StructuredDistribution

__all__ = ["SegmentParts", "SemiMarkov"]


class SegmentParts(NamedTuple):
    """Potentials or marginals of a segmentation."""

    segments: Tensor
    transition: Tensor


class SemiMarkov(StructuredDistribution):
    r"""Cuts N steps into labelled segments of at most K steps.

    The score is the sum of ``segments[n, k, c]`` over the segments (start n, k+1 steps, label c)
    and of ``transition[c, d]`` over neighbouring segments labelled c and d.

    Args:
        segments: (..., N, K, C), finite or -inf; entries that reach past the end are ignored.
        transition: (C, C), shared by the batch; None means all 0.
        lengths: (...), steps from there on do not exist. Length 0 has log-partition 0.
        validate_args: As in torch.distributions.
        backend: Accepted for uniformity; there is one path, in plain torch.

    `marginals` is a named tuple: ``segments`` in its layout, ``transition`` (..., C, C) with the
    expected number of neighbouring labels.

    Integer form: a LongTensor (..., N): c where a segment labelled c begins, C + c where it goes
    on, -1 in padding; so ``z % C`` labels the steps.

    Cost O(N C (K + C)), computed in float64; derivatives keep a graph of that size.
    Source: Sarawagi and Cohen, "Semi-Markov conditional random fields" (2004).

    Raises:
        InputError: NaN or +inf in a valid position, shapes that do not fit, lengths out of range.
    """

    _event_dims = (3, 2)

    def __init__(
        self,
        segments: Tensor,
        transition: Tensor | None = None,
        lengths: Lengths = None,
        validate_args: bool | None = None,
        backend: Backend = "auto",
    ) -> None:
        check_rank("segments", segments, 3)
        N, self._K, C = segments.shape[-3:]
        if transition is None:
            transition = segments.new_zeros(C, C)
        check_rank("transition", transition, 2)
        if transition.shape != (C, C) or transition.dtype != segments.dtype:
            want = f"({C}, {C}) of {segments.dtype}"
            raise expected("transition", want, f"{tuple(transition.shape)} of {transition.dtype}")
        batch = segments.shape[:-3]
        super().__init__(
            (segments, transition), batch, torch.Size([N]), N, lengths, validate_args, backend
        )
        if self._validate_args:
            check_potential("segments", segments, 3, self._inside()[..., None])
            check_potential("transition", transition, 2)

    @property
    def segments(self) -> Tensor:
        """The scores of segments as given."""
        return self._given[0]

    @property
    def transition(self) -> Tensor:
        """The scores of neighbouring labels as given; zeros if none were."""
        return self._given[1]

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """Scores are finite or -inf (outside padding)."""
        return {"segments": log_potential, "transition": log_potential}

    def _pack(self, parts: tuple[Tensor, ...]) -> Any:
        return SegmentParts(*parts)

    def _expanded(self, batch_shape: torch.Size) -> tuple[Tensor, ...]:
        segments, transition = self._given
        return segments.expand(batch_shape + segments.shape[-3:]), transition

    def _ends(self) -> Tensor:
        """Lengths of shape (B), full ones if none were given."""
        if self.lengths is not None:
            return self.lengths
        return torch.full(self._batch_shape, self._size, device=self._theta[0].device)

    def _inside(self) -> Tensor:
        """(B, N, K): which segments end in time."""
        starts = torch.arange(self._size, device=self._theta[0].device)[:, None]
        spans = torch.arange(1, self._K + 1, device=starts.device)
        return starts + spans <= self._ends()[..., None, None]

    # ---- inference -----------------------------------------------------------------------------

    def _flat(self) -> tuple[Tensor, Tensor, Tensor]:
        segments, transition = self._theta
        segments = segments.reshape(self._batch_shape.numel(), *segments.shape[-3:])
        return segments, transition, self._ends().reshape(-1)

    def _log_partition(self) -> Tensor:
        return kernel.log_partition(*self._flat()).reshape(self._batch_shape)

    def _marginals(self) -> tuple[Tensor, ...]:
        _, mu, counts = kernel.infer(*self._flat())
        shape = tuple(self._batch_shape)
        return mu.reshape(*shape, *mu.shape[1:]), counts.reshape(*shape, *counts.shape[1:])

    def _argmax(self) -> Tensor:
        return self._topk(1)[0][0]

    def _topk(self, k: int) -> tuple[Tensor, Tensor]:
        states, scores = kernel.k_best(*self._flat(), k)
        shape = (k, *self._batch_shape)
        return states.reshape(*shape, self._size), scores.reshape(shape)

    def _sample(self, count: int, generator: Generator | None) -> Tensor:
        segments, transition, lengths = self._flat()
        shape = (count, *segments.shape[:2], 2)
        dice = torch.rand(shape, generator=generator, dtype=torch.float64, device=segments.device)
        drawn = kernel.sample(segments, transition, lengths, dice)
        return drawn.reshape(count, *self._batch_shape, self._size)

    # ---- structures ----------------------------------------------------------------------------

    def _spans(self, structure: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Whether a segment begins at each step, how many steps it spans, and its label."""
        C = self._theta[0].shape[-1]
        steps = torch.arange(self._size, device=structure.device)
        ends = self._ends()[..., None]
        begins = (structure >= 0) & (structure < C) & (steps < ends)
        stops = torch.where(begins, steps, ends)
        # The next begin after n: running minimum from the right, moved by one.
        following = stops.flip(-1).cummin(-1).values.flip(-1)
        following = torch.cat([following[..., 1:], ends.expand(*stops.shape[:-1], 1)], -1)
        return begins, (following - steps).clamp(min=1), structure.clamp(min=0) % max(C, 1)

    def _indicator(self, structure: Tensor) -> tuple[Tensor, ...]:
        dtype, C = self._theta[0].dtype, self._theta[0].shape[-1]
        begins, spans, labels = self._spans(structure)
        all_spans = torch.arange(1, self._K + 1, device=structure.device)
        all_labels = torch.arange(C, device=structure.device)
        one_span = (spans[..., None] == all_spans) & begins[..., None]
        one_label = labels[..., None] == all_labels
        segments = one_span[..., None] & one_label[..., None, :]
        here = (one_label & begins[..., None]).to(dtype)
        # Label of the segment before each begin: that of the step before it.
        before = one_label[..., :-1, :].to(dtype)
        counts = before.mT @ here[..., 1:, :]
        return segments.to(dtype), counts

    def _structure(self, indicator: tuple[Tensor, ...]) -> Tensor:
        x, C = indicator[0] > 0.5, self._theta[0].shape[-1]
        steps = torch.arange(self._size, device=x.device)
        inside = steps < self._ends()[..., None]
        begins = x.flatten(-2).any(-1) & inside
        labels = x.any(-2).to(torch.int64).argmax(-1) if self._size and C else steps
        since = torch.where(begins, steps, -1).cummax(-1).values if self._size else steps
        spread = (
            labels.gather(-1, since.clamp(min=0)) if self._size else labels.expand(x.shape[:-2])
        )
        states = torch.where(begins, spread, spread + C)
        return states.masked_fill(~inside, -1)

    def _is_valid(self, structure: Tensor) -> Tensor:
        C = self._theta[0].shape[-1]
        steps = torch.arange(self._size, device=structure.device)
        inside = steps < self._ends()[..., None]
        begins, spans, _ = self._spans(structure)
        previous = torch.cat([structure[..., :1] - 1, structure[..., :-1]], -1)
        goes_on = (structure >= C) & (structure < 2 * C) & (steps > 0)
        goes_on = goes_on & (previous % max(C, 1) == structure % max(C, 1))
        good = (begins & (spans <= self._K)) | goes_on
        return (good | ~inside).all(-1)

    def _all_structures(self, n: int) -> Tensor:
        C = self._theta[0].shape[-1]
        rows: list[list[int]] = [[]]
        found = []
        while rows:
            row = rows.pop()
            if len(row) == n:
                found.append(row + [-1] * (self._size - n))
                continue
            for span in range(1, min(self._K, n - len(row)) + 1):
                rows.extend([*row, c, *[c + C] * (span - 1)] for c in range(C))
        return torch.tensor(found, dtype=torch.int64).reshape(len(found), self._size)
