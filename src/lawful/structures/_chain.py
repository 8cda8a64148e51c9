"""Linear chains: one state at every step, scores of states and of neighbouring pairs."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self, cast

import torch
from torch import Generator, Tensor
from torch.distributions import constraints

from lawful.errors import expected
from lawful.kernels import Backend, use_native
from lawful.kernels import chain as kernel
from lawful.structures._checks import Lengths, check_potential, check_rank, log_potential
from lawful.structures._distribution import StructuredDistribution

__all__ = ["ChainParts", "LinearChain"]


class ChainParts(NamedTuple):
    """Potentials or marginals of a chain."""

    unary: Tensor
    transition: Tensor


class LinearChain(StructuredDistribution):
    r"""Sequences z of states with score sum_t unary[t, z_t] + sum_t transition[z_t, z_{t+1}].

    There is no transition before the first step. A CRF, an HMM's posterior, segmentation attention.

    Args:
        unary: Score of each state at each step, (..., N, C), finite or -inf.
        transition: (C, C), shared by all steps and batch elements: ``transition[i, j]`` scores
            state i followed by state j. Or (..., N-1, C, C), of its own for each step t -> t+1;
            (..., 1, C, C) is shared over the steps of one batch element. None means all 0.
        lengths: (...), steps from there on do not exist. A chain of length 0 has log-partition 0.
        start: (..., C), added to the first step's scores.
        end: (..., C), added to the last step's scores (of each length).
        validate_args: As in torch.distributions.
        backend: "auto" takes the compiled kernels where they serve.

    `marginals` is a named tuple: ``unary`` (..., N, C) holds P(z_t = c); ``transition`` has the
    layout of the argument, with batch dimensions: for a shared (C, C) it is (..., C, C), the
    expected number of times i is followed by j, whose sum over the batch is the gradient of
    ``log_partition.sum()``; see `edge_marginals` for single steps.

    Integer form: a LongTensor (..., N) of states, -1 in padding.

    Cost O(N C^2) time; memory O(N C) beside the results, for gradients of any order up to the
    second too. The form with scores per step is 5 to 15 times slower than a shared transition.

    Raises:
        InputError: NaN or +inf in a valid position, shapes that do not fit, lengths out of range.
    """

    _event_dims = (2, 2)

    def __init__(
        self,
        unary: Tensor,
        transition: Tensor | None = None,
        lengths: Lengths = None,
        *,
        start: Tensor | None = None,
        end: Tensor | None = None,
        validate_args: bool | None = None,
        backend: Backend = "auto",
    ) -> None:
        check_rank("unary", unary, 2)
        N, C = unary.shape[-2:]
        if C == 0:
            raise expected("unary", "at least one state in its last dimension", tuple(unary.shape))
        batch = unary.shape[:-2]
        if transition is None:
            transition = unary.new_zeros(C, C)
        self._form = _form(transition, unary)
        if self._form != "shared":
            self._event_dims = (2, 3)
            batch = _broadcast(batch, transition.shape[:-3])
            unary = unary.expand(*batch, N, C)
            transition = transition.expand(*batch, *transition.shape[-3:])
        self._ends = (start, end)
        super().__init__(
            (unary, transition), batch, torch.Size([N]), N, lengths, validate_args, backend
        )
        self._theta = (self._with_ends(self._theta[0]), self._theta[1])
        if self._validate_args:
            self._check_chain()

    # ---- arguments -----------------------------------------------------------------------------

    def _with_ends(self, unary: Tensor) -> Tensor:
        """Adds start and end scores to the steps they belong to."""
        start, end = self._ends
        N, C = self._size, unary.shape[-1]
        for name, value in (("start", start), ("end", end)):
            if value is None or not N:
                continue
            check_rank(name, value, 1)
            if value.shape[-1] != C:
                raise expected(name, f"(..., {C})", tuple(value.shape))
            if name == "start" or self.lengths is None:
                at = torch.zeros((), dtype=torch.int64, device=unary.device) + (
                    0 if name == "start" else N - 1
                )
            else:
                at = (self.lengths - 1).clamp(min=0)
            index = at[..., None, None].expand(*self._batch_shape, 1, C)
            source = value.to(unary.dtype)[..., None, :].expand(*self._batch_shape, 1, C)
            unary = unary.expand(*self._batch_shape, N, C).scatter_add(-2, index, source)
        return unary

    def _check_chain(self) -> None:
        inside = self._mask()
        pairs = None
        if inside is not None:
            if self._form == "edge":
                pairs = inside[..., 1:, None, None]
            inside = inside[..., None]
        check_potential("unary", self._theta[0], 2, inside)
        check_potential("transition", self._theta[1], 2, pairs)

    @property
    def unary(self) -> Tensor:
        """The scores of states as given, (..., N, C)."""
        return self._given[0]

    @property
    def transition(self) -> Tensor:
        """The scores of pairs as given; zeros if none were."""
        return self._given[1]

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """Scores are finite or -inf (outside padding)."""
        return {"unary": log_potential, "transition": log_potential}

    def _pack(self, parts: tuple[Tensor, ...]) -> Any:
        return ChainParts(*parts)

    def _rebuild(self, potentials: tuple[Tensor, ...], lengths: Tensor | None) -> Self:
        shape = potentials[0].shape[:-2]
        start, end = (e if e is None else e.expand(*shape, e.shape[-1]) for e in self._ends)
        new = cast(Callable[..., Self], type(self))(
            *potentials,
            lengths=lengths,
            start=start,
            end=end,
            validate_args=False,
            backend=self.backend,
        )
        new._validate_args = self._validate_args
        return new

    def _expanded(self, batch_shape: torch.Size) -> tuple[Tensor, ...]:
        unary, transition = self._given
        unary = unary.expand(batch_shape + unary.shape[-2:])
        if self._form != "shared":
            transition = transition.expand(batch_shape + transition.shape[-3:])
        return unary, transition

    # ---- inference -----------------------------------------------------------------------------

    def _flat(self) -> tuple[Tensor, Tensor, Tensor | None, bool]:
        """Arguments of the kernels: one batch dimension, contiguous."""
        unary, transition = self._theta
        N, C = unary.shape[-2:]
        B = self._batch_shape.numel()
        lengths = self.lengths
        if len(self._batch_shape) != 1:
            unary = unary.reshape(B, N, C)
            lengths = None if lengths is None else lengths.reshape(B)
        if self._form == "shared":
            transition = transition[None]
        elif self._form == "constant":
            transition = transition.reshape(B, C, C)
        else:
            transition = transition.reshape(B, max(N - 1, 0), C, C)
        native = use_native(self.backend, unary, transition)
        lengths = None if lengths is None else lengths.contiguous()
        return unary.contiguous(), transition.contiguous(), lengths, native

    def _shaped(self, x: Tensor, *event: int) -> Tensor:
        return x if len(self._batch_shape) == 1 else x.reshape((*self._batch_shape, *event))

    def _log_partition(self) -> Tensor:
        return self._shaped(kernel.log_partition(*self._flat()))

    def _marginals(self) -> tuple[Tensor, ...]:
        _, mu, pair = kernel.infer(*self._flat())
        pair_shape = tuple(pair.shape[1:])
        if self._form == "constant":
            pair, pair_shape = pair[:, None], (1, *pair_shape)
        return self._shaped(mu, *mu.shape[1:]), self._shaped(pair, *pair_shape)

    @property
    def edge_marginals(self) -> Tensor:
        """P(z_t = i, z_{t+1} = j) for every step, (..., N-1, C, C); 0 from each end on.

        Needs O(N C^2) memory; differentiable.
        """

        def make() -> Tensor:
            unary, transition, lengths, native = self._flat()
            steps = max(self._size - 1, 0)
            if self._form != "edge":
                B, C = unary.shape[0], unary.shape[-1]
                transition = transition[:, None].expand(B, steps, C, C).contiguous()
            pair = kernel.infer(unary, transition, lengths, native)[2]
            return self._cast((self._shaped(pair, *pair.shape[1:]),))[0]

        return self._cached("edges", make)

    def _centred(self) -> tuple[tuple[Tensor, ...], Tensor | float]:
        """The largest score of each step, and of each transition, is subtracted."""
        unary, transition = self._theta
        N, C = unary.shape[-2:]
        if N == 0 or C == 0:
            return self._theta, 0.0
        inside = self._mask()
        top = _finite_max(unary.detach(), 1)
        if inside is not None:
            top = top.masked_fill(~inside, 0.0)
        shift = top.double().sum(-1)
        high = _finite_max(transition.detach(), 2)
        if self._form == "edge":
            if inside is not None:
                high = high.masked_fill(~inside[..., 1:], 0.0)
            shift = shift + high.double().sum(-1)
        else:
            steps = N - 1 if self.lengths is None else (self.lengths - 1).clamp(min=0)
            shift = shift + (high if self._form == "shared" else high[..., 0]).double() * steps
        return (unary - top[..., None], transition - high[..., None, None]), shift

    def _argmax(self) -> Tensor:
        return self._shaped(kernel.best(*self._flat()), self._size)

    def _sample(self, count: int, generator: Generator | None) -> Tensor:
        unary, transition, lengths, native = self._flat()
        shape = (count, *unary.shape[:2])
        dice = torch.rand(shape, generator=generator, dtype=torch.float64, device=unary.device)
        drawn = kernel.sample(unary, transition, lengths, dice, native)
        return drawn.reshape(count, *self._batch_shape, self._size)

    def _topk(self, k: int) -> tuple[Tensor, Tensor]:
        unary, transition, lengths, _ = self._flat()
        states, scores = kernel.k_best(unary, transition, lengths, k)
        return (
            states.reshape(k, *self._batch_shape, self._size),
            scores.reshape(k, *self._batch_shape),
        )

    # ---- structures ----------------------------------------------------------------------------

    def _pairs_inside(self, structure: Tensor) -> Tensor:
        """Whether step t+1 exists, (..., N-1), for a structure with further leading dimensions."""
        inside = self._mask()
        if inside is None:
            return torch.ones_like(structure[..., 1:], dtype=torch.bool)
        return inside[..., 1:].expand(structure[..., 1:].shape)

    def _score(self, structure: Tensor, potentials: tuple[Tensor, ...]) -> Tensor:
        unary, transition = potentials
        C = unary.shape[-1]
        if self._size == 0:
            return unary.new_zeros(structure.shape[:-1], dtype=torch.float64)
        states = structure.clamp(0, C - 1)
        lead = structure.shape[:-1]
        unary = unary.expand(*lead, self._size, C)
        first = unary.gather(-1, states[..., None])[..., 0]
        inside = self._mask()
        if inside is not None:
            first = first.masked_fill(~inside, 0.0)
        pairs = states[..., :-1] * C + states[..., 1:]
        if self._form == "shared":
            second = transition.reshape(-1)[pairs]
        else:
            flat = transition.flatten(-2).expand(*lead, max(self._size - 1, 0), C * C)
            second = flat.gather(-1, pairs[..., None])[..., 0]
        second = second.masked_fill(~self._pairs_inside(structure), 0.0)
        return first.sum(-1, dtype=torch.float64) + second.sum(-1, dtype=torch.float64)

    def _indicator(self, structure: Tensor) -> tuple[Tensor, ...]:
        dtype, C = self._theta[0].dtype, self._theta[0].shape[-1]
        inside = self._mask()
        states = torch.arange(C, device=structure.device)
        one_hot = structure[..., None] == states
        if inside is not None:
            one_hot = one_hot & inside[..., None]
        unary = one_hot.to(dtype)
        pairs = unary[..., :-1, :, None] * unary[..., 1:, None, :]
        if self._form == "shared":
            pairs = pairs.sum(-3)
        elif self._form == "constant":
            pairs = pairs.sum(-3, keepdim=True)
        return unary, pairs

    def _structure(self, indicator: tuple[Tensor, ...]) -> Tensor:
        unary = indicator[0]
        if self._size == 0 or unary.shape[-1] == 0:
            return torch.full(unary.shape[:-1], -1, device=unary.device)
        states = unary.to(torch.float32).argmax(-1)
        inside = self._mask()
        return states if inside is None else states.masked_fill(~inside, -1)

    def _is_valid(self, structure: Tensor) -> Tensor:
        good = (structure >= 0) & (structure < self._theta[0].shape[-1])
        inside = self._mask()
        return (good if inside is None else good | ~inside).all(-1)

    def _all_structures(self, n: int) -> Tensor:
        C = self._theta[0].shape[-1]
        grid = torch.cartesian_prod(*[torch.arange(C)] * n) if n else torch.zeros(1, 0).long()
        grid = grid.reshape(C**n, n)
        return torch.cat([grid, grid.new_full((C**n, self._size - n), -1)], 1)


def _finite_max(x: Tensor, dims: int) -> Tensor:
    """Maximum over the last dimensions, with 0 where that is -inf."""
    top = x.flatten(-dims).amax(-1) if dims > 1 else x.amax(-1)
    return top.masked_fill(top == -torch.inf, 0.0)


def _broadcast(batch: torch.Size, other: torch.Size) -> torch.Size:
    try:
        return cast(torch.Size, torch.broadcast_shapes(batch, other))  # type: ignore[no-untyped-call]
    except RuntimeError:
        want = f"batch dimensions like unary's {tuple(batch)}"
        raise expected("transition", want, tuple(other)) from None


def _form(transition: Tensor, unary: Tensor) -> str:
    """Which kind of transition this is, by its shape."""
    check_rank("transition", transition, 2)
    N, C = unary.shape[-2:]
    shape = tuple(transition.shape)
    if transition.dtype != unary.dtype:
        raise expected("transition", f"the dtype of unary, {unary.dtype}", transition.dtype)
    if shape[-2:] != (C, C) or (len(shape) > 2 and shape[-3] not in (1, max(N - 1, 0))):
        raise expected("transition", f"({C}, {C}) or (..., {max(N - 1, 0)}, {C}, {C})", shape)
    if len(shape) == 2:
        return "shared"
    return "edge" if shape[-3] == max(N - 1, 0) else "constant"
