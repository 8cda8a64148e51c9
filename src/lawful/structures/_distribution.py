"""What every distribution over structures offers, built from a handful of hooks.

A family scores a structure by a sum of log-potentials, so that p(z) = exp(<theta, z> - A(theta)),
where z is written as an indicator in the layout of theta. Everything else follows: marginals are
the gradient of A, entropy is A - <marginals, theta>, and so on. A subclass supplies the hooks
(names with a leading underscore, listed on `StructuredDistribution`) and inherits the rest.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar, cast

import torch
from torch import Generator, Tensor
from torch.distributions import Distribution, constraints

from lawful.errors import InputError, expected
from lawful.kernels import Backend
from lawful.structures._checks import Lengths, as_lengths, check_potential, compute_dtype, tracing
from lawful.structures._values import CallableValue, Support

__all__ = ["StructuredDistribution"]

T = TypeVar("T")
Layout = tuple[Tensor, ...]


class StructuredDistribution(Distribution):
    """Base of all families: a distribution over discrete structures given log-potentials.

    Hooks of a subclass (B is the batch shape, potentials always in compute precision):

    * ``_event_dims``: per potential, how many trailing dimensions belong to one structure.
    * ``_log_partition() -> (B)``: float64 where the kernel accumulates in float64.
    * ``_marginals() -> tuple``: one tensor per potential, 0 in padding; differentiable.
    * ``_argmax() -> structure``, ``_topk(k) -> (k, B, ...), (k, B)``,
      ``_sample(count, generator) -> (count, B, ...)``.
    * ``_indicator(structure) -> tuple``, ``_structure(indicator)``: the two forms of a structure.
    * ``_is_valid(structure) -> (B)`` bool, ``_all_structures(n) -> (count, ...)`` of length n.
    * Optional: ``_score``, ``_centred``, ``_pack``, ``_expanded``, ``_options``.

    The integer form of a structure is a LongTensor with a fill value in padding; the indicator form
    has the layout of the potentials. Marginals, gradients and scores never depend on padding.
    A batch element without any structure has log-partition -inf, marginals 0 and gradients 0.
    """

    has_rsample = False
    has_enumerate_support = True
    _event_dims: tuple[int, ...]

    def __init__(
        self,
        potentials: Layout,
        batch_shape: torch.Size,
        event_shape: torch.Size,
        size: int,
        lengths: Lengths = None,
        validate_args: bool | None = None,
        backend: Backend = "auto",
    ) -> None:
        Distribution.__init__(self, batch_shape, event_shape, validate_args=False)
        # Not what torch.distributions does by default: torch.compile turns that off for good.
        self._validate_args = __debug__ if validate_args is None else validate_args
        first = potentials[0]
        self._size = size  # N, the largest length
        self.lengths = as_lengths(lengths, batch_shape, size, first.device, self._validate_args)
        self.backend = backend
        self._given = potentials
        self._dtype = first.dtype
        wanted = compute_dtype(first.dtype)
        self._theta = tuple(p if p.dtype == wanted else p.to(wanted) for p in potentials)
        self._cache: dict[Any, Any] = {}

    # ---- small services for subclasses -------------------------------------------------------

    def _check_potentials(self, names: Sequence[str], valid: Sequence[Tensor | None]) -> None:
        """Refuses NaN and +inf in valid positions when validation is on."""
        if self._validate_args:
            for name, p, rank, mask in zip(
                names, self._given, self._event_dims, valid, strict=True
            ):
                check_potential(name, p, rank, mask)

    def _mask(self) -> Tensor | None:
        """(B, N) bool, True before each length; None when all are full."""
        if self.lengths is None:
            return None
        steps = torch.arange(self._size, device=self.lengths.device)
        return steps < self.lengths[..., None]

    def _cached(self, name: str, make: Callable[[], T]) -> T:
        # A value made without a graph must not be served to someone who wants gradients.
        inference = not torch.compiler.is_compiling() and torch.is_inference_mode_enabled()
        key = (name, torch.is_grad_enabled(), inference)
        if key not in self._cache:
            self._cache[key] = make()
        return cast(T, self._cache[key])

    def _dot(self, weights: Layout, values: Layout) -> Tensor:
        """Sum of weights * values over one structure, in float64; (B). Weight 0 counts as 0."""
        total: Tensor | None = None
        for w, x, dims in zip(weights, values, self._event_dims, strict=True):
            product = w.double() * torch.where(w != 0, x, torch.zeros_like(x)).double()
            part = product.sum(tuple(range(-dims, 0))) if dims else product
            total = part if total is None else total + part
        return cast(Tensor, total)

    def _infeasible(self) -> Tensor:
        return self._exact_log_partition().detach() == -torch.inf

    def _require_feasible(self, what: str) -> None:
        if tracing():
            return
        bad = self._infeasible()
        if bool(bad.any()):
            where = bad.nonzero()[0].tolist() if bad.dim() else []
            raise InputError(f"{what}: no structure is possible in batch element {where}")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}

    # ---- hooks with defaults -----------------------------------------------------------------

    def _pack(self, parts: Layout) -> Any:
        """The public form of a tuple in the layout of the potentials."""
        return parts[0] if len(parts) == 1 else parts

    def _options(self) -> dict[str, Any]:
        """Further constructor keywords that make an equal object; kl_divergence compares them."""
        return {}

    def _centred(self) -> tuple[Layout, Tensor | float]:
        """Potentials shifted by constants, and the float64 shift (B) of every structure's score.

        Keeps differences such as A - score exact when all scores share a large offset.
        """
        return self._theta, 0.0

    def _expanded(self, batch_shape: torch.Size) -> Layout:
        """The given potentials with their batch dimensions expanded."""
        parts = zip(self._given, self._event_dims, strict=True)
        return tuple(p.expand(batch_shape + p.shape[p.dim() - d :]) for p, d in parts)

    def _log_partition(self) -> Tensor:
        raise NotImplementedError

    def _marginals(self) -> Layout:
        raise NotImplementedError

    def _argmax(self) -> Tensor:
        raise NotImplementedError

    def _topk(self, k: int) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def _sample(self, count: int, generator: Generator | None) -> Tensor:
        raise NotImplementedError

    def _indicator(self, structure: Tensor) -> Layout:
        raise NotImplementedError

    def _structure(self, indicator: Layout) -> Tensor:
        raise NotImplementedError

    def _is_valid(self, structure: Tensor) -> Tensor:
        raise NotImplementedError

    def _all_structures(self, n: int) -> Tensor:
        raise NotImplementedError

    def _score(self, structure: Tensor, potentials: Layout) -> Tensor:
        """Float64 score of integer structures; -inf where a part is forbidden."""
        return self._dot(self._indicator(structure), potentials)

    # ---- the public face ---------------------------------------------------------------------

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """Potentials are checked by the constructor itself, which knows the padding."""
        return {}

    @property
    def support(self) -> constraints.Constraint:
        """Valid structures, in integer form."""
        return Support(self)

    @property
    def potentials(self) -> Any:
        """The log-potentials as given: a tensor, or a named tuple of tensors."""
        return self._pack(self._given)

    @property
    def log_partition(self) -> Tensor:
        """Log sum over structures of exp(score), shape (B); -inf where none is possible."""
        return self._cached("A", lambda: self._exact_log_partition().to(self._theta[0].dtype))

    @property
    def marginals(self) -> Any:
        """Expected indicators, in the layout of the potentials: the gradient of log_partition."""
        return self._cached("mu", lambda: self._pack(self._cast(self._marginals())))

    @property
    def argmax(self) -> Tensor:
        """A structure of highest score, in integer form.

        Raises:
            InputError: A batch element has no possible structure.
        """

        def make() -> Tensor:
            self._require_feasible("argmax")
            return self._argmax()

        return self._cached("argmax", make)

    @property
    def mode(self) -> Tensor:
        """The same as `argmax`, by the name torch.distributions uses."""
        return self.argmax

    @property
    def max_score(self) -> Tensor:
        """The score of `argmax`, shape (B), differentiable; -inf where no structure is possible."""

        def make() -> Tensor:
            theta, shift = self._centred()
            score = (self._score(self._argmax(), theta) + shift).to(self._theta[0].dtype)
            return score.masked_fill(self._infeasible(), -torch.inf)

        return self._cached("max_score", make)

    @property
    def entropy(self) -> Any:
        """-sum p log p in nats, shape (B); 0 where no structure is possible. Also ``entropy()``."""

        def make() -> Any:
            theta, shift = self._centred()
            value = self._finite_log_partition() - shift - self._dot(self._marginals(), theta)
            value = value.clamp(min=0).to(self._theta[0].dtype)
            return value if torch.compiler.is_compiling() else value.as_subclass(CallableValue)

        return self._cached("entropy", make)

    def sample(
        self, sample_shape: Sequence[int] = (), generator: Generator | None = None
    ) -> Tensor:
        """Draws exact, independent structures: integer form, sample_shape + (B) + event.

        Raises:
            InputError: A batch element has no possible structure.
        """
        shape = torch.Size([sample_shape] if isinstance(sample_shape, int) else sample_shape)
        with torch.no_grad():
            self._require_feasible("sample")
            drawn = self._sample(shape.numel(), generator)
        return drawn.reshape(shape + drawn.shape[1:])

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """The k structures of highest score, best first.

        Returns:
            Integer structures (k, B, ...), all distinct, and their scores (k, B), differentiable.
            Where fewer than k exist, the rest is fill value and -inf.

        Raises:
            InputError: ``k`` is not a positive integer.
        """
        if not isinstance(k, int) or k < 1:
            raise expected("k", "a positive integer", repr(k))
        with torch.no_grad():
            structures, found = self._topk(k)
        theta, shift = self._centred()
        exists = found > -torch.inf
        scores = (self._score(structures, theta) + shift).to(self._theta[0].dtype)
        return structures, torch.where(exists, scores, torch.full_like(scores, -torch.inf))

    def score(self, value: Any) -> Tensor:
        """Sum of the potentials of the parts of a structure, shape (..., B). Padding is ignored.

        Args:
            value: Integer form, or indicator form in the layout of `marginals`; further leading
                dimensions are allowed.
        """
        structure = self.from_indicator(value) if self._is_indicator(value) else value
        self._check_structure(structure)
        theta, shift = self._centred()
        return (self._score(structure, theta) + shift).to(self._theta[0].dtype)

    def log_prob(self, value: Any) -> Tensor:
        """score(value) - log_partition, shape (..., B), at most 0; -inf for the impossible."""
        structure = self.from_indicator(value) if self._is_indicator(value) else value
        self._check_structure(structure)
        theta, shift = self._centred()
        score = self._score(structure, theta)
        # An impossible element must not give -inf + inf, nor a NaN gradient.
        result = score - (self._finite_log_partition() - shift)
        result = result.clamp(max=0).masked_fill(self._infeasible(), -torch.inf)
        return result.to(self._theta[0].dtype)

    def cross_entropy(self, other: Self) -> Tensor:
        """-E_self[other.log_prob], shape (B); +inf where other excludes what self may draw.

        Raises:
            InputError: ``other`` is of another family, size, lengths or options.
        """
        self._check_alike(other)
        weights = self._marginals()
        theta, shift = other._centred()
        value = other._finite_log_partition() - shift - self._dot(weights, _finite(theta))
        outside = torch.zeros((), dtype=torch.bool, device=value.device)
        for w, x, dims in zip(weights, theta, self._event_dims, strict=True):
            broken = (w > 0) & (x == -torch.inf)
            outside = outside | (broken.flatten(-dims).any(-1) if dims else broken)
        outside = outside | (other._infeasible() & ~self._infeasible())
        return value.masked_fill(outside, torch.inf).to(self._theta[0].dtype)

    def expectation(self, values: Any) -> Tensor:
        """E[<values, z>] = sum of marginals * values, shape (B), differentiable in both.

        Args:
            values: Tensor or tuple in the layout of the potentials; padding is ignored.
        """
        parts = tuple(values) if isinstance(values, tuple) else (values,)
        if len(parts) != len(self._theta):
            raise expected("values", f"{len(self._theta)} tensors", len(parts))
        return self._dot(self._marginals(), parts).to(self._theta[0].dtype)

    def to_indicator(self, structure: Tensor) -> Any:
        """Integer form to indicator form (layout of the potentials, their dtype; 0 in padding)."""
        self._check_structure(structure)
        return self._pack(self._cast(self._indicator(structure)))

    def from_indicator(self, indicator: Any) -> Tensor:
        """Indicator form to integer form (fill value in padding)."""
        return self._structure(tuple(indicator) if isinstance(indicator, tuple) else (indicator,))

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All structures, (count, B, ...); exponentially many, so for tiny sizes only.

        Raises:
            InputError: The batch elements have different lengths, hence different supports.
        """
        n = self._size
        if self.lengths is not None and self.lengths.numel():
            low, high = (int(x) for x in self.lengths.aminmax())
            if low != high:
                raise InputError("enumerate_support: batch elements have different lengths")
            n = low
        found = self._all_structures(n)
        event = found.shape[1:]
        found = found.reshape(found.shape[:1] + (1,) * len(self._batch_shape) + event)
        return found.expand(found.shape[:1] + self._batch_shape + event) if expand else found

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Self:
        """The same distribution with a larger batch shape; no memory is copied."""
        shape = torch.Size(batch_shape)
        lengths = None if self.lengths is None else self.lengths.expand(shape)
        return self._rebuild(self._expanded(shape), lengths)

    def _rebuild(self, potentials: Layout, lengths: Tensor | None) -> Self:
        make = cast(Callable[..., Self], type(self))
        new = make(
            *potentials,
            lengths=lengths,
            validate_args=False,
            backend=self.backend,
            **self._options(),
        )
        new._validate_args = self._validate_args
        return new

    def __repr__(self) -> str:
        shapes = f"batch_shape={tuple(self._batch_shape)}, event_shape={tuple(self._event_shape)}"
        extra = "".join(f", {k}={v!r}" for k, v in self._options().items())
        return f"{type(self).__name__}({shapes}{extra})"

    # ---- checks ------------------------------------------------------------------------------

    def _cast(self, parts: Layout) -> Layout:
        return tuple(p if p.dtype == self._dtype else p.to(self._dtype) for p in parts)

    def _exact_log_partition(self) -> Tensor:
        return self._cached("A64", lambda: self._log_partition().double())

    def _finite_log_partition(self) -> Tensor:
        """A in float64 with 0 for the impossible, so that differences stay free of NaN."""
        return self._exact_log_partition().masked_fill(self._infeasible(), 0.0)

    def _is_indicator(self, value: Any) -> bool:
        return isinstance(value, tuple) or value.is_floating_point() or value.dtype == torch.bool

    def _check_structure(self, structure: Tensor) -> None:
        rank = len(self._event_shape)
        if structure.shape[structure.dim() - rank :] != self._event_shape:
            got = tuple(structure.shape)
            raise expected("structure", f"trailing shape {tuple(self._event_shape)}", got)
        if not self._validate_args or tracing():
            return
        if not bool(self._is_valid(structure).all()):
            raise InputError(f"structure: not a valid structure of {self!r}")

    def _check_alike(self, other: Any) -> None:
        if type(other) is not type(self):
            raise expected("other", type(self).__name__, type(other).__name__)
        if other._event_shape != self._event_shape or other._options() != self._options():
            raise expected("other", repr(self), repr(other))
        mine, theirs = self.lengths, other.lengths
        if (mine is None and theirs is None) or tracing():
            return
        full = torch.tensor(self._size, device=self._theta[0].device)
        mine, theirs = (full if x is None else x for x in (mine, theirs))
        if bool((mine != theirs).any()):
            raise InputError("other: the two distributions have different lengths")


def _finite(parts: Layout) -> Layout:
    return tuple(x.masked_fill(x.detach() == -torch.inf, 0.0) for x in parts)
