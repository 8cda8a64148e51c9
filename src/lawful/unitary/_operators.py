"""A built exponential: constant for one forward pass, applied as often as wanted.

Each operator is a plan (which transform, which kind of product) plus the tensors that carry the
gradient, so that a recurrence can be replayed with the same tensors (`with_tensors`).
"""

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from lawful.kernels.spectral import spectral_apply, spectral_outer
from lawful.unitary._boundaries import Transform
from lawful.unitary._chebyshev import series

__all__ = ["BlockOperator", "Operator", "PairOperator", "PhaseOperator", "SeriesOperator"]


class Operator(Protocol):
    """What layers and recurrences need of a built exponential."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that carry the gradient."""

    def with_tensors(self, *tensors: Tensor) -> "Operator":
        """The same plan with other tensors."""

    def __call__(self, x: Tensor) -> Tensor:
        """Applies it to a field (B, C, *size)."""

    def inverse(self, y: Tensor) -> Tensor:
        """Undoes it: the adjoint."""


def phase_modes(u: Tensor, x: Tensor, adjoint: bool = False) -> Tensor:
    """Multiplies modes (B, C, *modes) by phases (C, *modes)."""
    return x * (u.conj() if adjoint else u)


def block_modes(u: Tensor, x: Tensor, adjoint: bool = False) -> Tensor:
    """One matrix per mode on (B, C, *modes); real modes (of a box) take the real part of u."""
    shape = x.shape[2:]
    flat = x.flatten(2)
    if not flat.is_complex():
        flat = torch.complex(flat, torch.zeros_like(flat))
        return spectral_apply(u, flat, adjoint=adjoint).real.unflatten(2, shape)
    return spectral_apply(u, flat, adjoint=adjoint).unflatten(2, shape)


def _plain(u: Tensor, x: Tensor, transform: Transform, blocks: bool, adjoint: bool) -> Tensor:
    product = block_modes if blocks else phase_modes
    return transform.backward(product(u, transform.forward(x), adjoint))


class _Spectral(torch.autograd.Function):
    """Transform, multiply, transform back, with four transforms for value and gradients.

    The transforms are isometries: ``dL/dx`` is the adjoint product of the transformed gradient and
    ``dL/du`` its outer product with the transformed input, bins that stand for two counted twice.
    """

    @staticmethod
    def forward(
        u: Tensor, x: Tensor, transform: Transform, blocks: bool, adjoint: bool
    ) -> tuple[Tensor, Tensor]:
        modes = transform.forward(x)
        product = block_modes if blocks else phase_modes
        return transform.backward(product(u, modes, adjoint)), modes

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        u, x, ctx.transform, ctx.blocks, ctx.adjoint = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(u, x, output[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Any, ...]:
        u, x, modes = ctx.saved_tensors
        if torch.is_grad_enabled():  # a derivative of this derivative is wanted
            y = _plain(u, x, ctx.transform, ctx.blocks, ctx.adjoint)
            return *torch.autograd.grad(y, (u, x), g, create_graph=True), None, None, None
        product = block_modes if ctx.blocks else phase_modes
        g_modes = ctx.transform.forward(g)
        g_u = g_x = None
        if ctx.needs_input_grad[1]:
            g_x = ctx.transform.backward(product(u, g_modes, not ctx.adjoint))
        if ctx.needs_input_grad[0]:
            weights = ctx.transform.weights(g.device)
            if weights is not None:
                g_modes = g_modes * weights.to(g.dtype)
            left, right = (modes, g_modes) if ctx.adjoint else (g_modes, modes)
            g_u = _outer(u, left, right, ctx.blocks)
        return g_u, g_x, None, None, None


def _outer(u: Tensor, left: Tensor, right: Tensor, blocks: bool) -> Tensor:
    if blocks:
        flat = [t.flatten(2) for t in (left, right)]
        flat = [t if t.is_complex() else torch.complex(t, torch.zeros_like(t)) for t in flat]
        return spectral_outer(flat[0], flat[1], u)
    if left.shape[0] == 1:
        return left[0] * right[0].conj()
    return torch.linalg.vecdot(right, left, dim=0)


def _run(u: Tensor, x: Tensor, transform: Transform, blocks: bool, adjoint: bool) -> Tensor:
    wanted = torch.is_grad_enabled() and (u.requires_grad or x.requires_grad)
    if not wanted:
        return _plain(u, x, transform, blocks, adjoint)
    y: Tensor = _Spectral.apply(u, x, transform, blocks, adjoint)[0]  # type: ignore[no-untyped-call]
    return y


@dataclass(frozen=True)
class PhaseOperator:
    """One phase per mode and channel: kernels that do not mix channels."""

    transform: Transform
    u: Tensor  # (C, *modes), complex
    angle: Tensor | None = None  # of u, in double precision

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The phases."""
        return (self.u,)

    def with_tensors(self, *tensors: Tensor) -> Self:
        """The same plan with other phases."""
        return replace(self, u=tensors[0])

    def __call__(self, x: Tensor) -> Tensor:
        """Applies it."""
        return _run(self.u, x, self.transform, False, False)

    def inverse(self, y: Tensor) -> Tensor:
        """Undoes it."""
        return _run(self.u, y, self.transform, False, True)

    def modes(self, x: Tensor, adjoint: bool = False) -> Tensor:
        """Applies it (or its adjoint) to transformed fields."""
        return phase_modes(self.u, x, adjoint)


@dataclass(frozen=True)
class BlockOperator:
    """One unitary matrix per mode: kernels between channels."""

    transform: Transform
    u: Tensor  # as pack_blocks returns it

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The packed matrices."""
        return (self.u,)

    def with_tensors(self, *tensors: Tensor) -> Self:
        """The same plan with other matrices."""
        return replace(self, u=tensors[0])

    def __call__(self, x: Tensor) -> Tensor:
        """Applies it."""
        return _run(self.u, x, self.transform, True, False)

    def inverse(self, y: Tensor) -> Tensor:
        """Undoes it."""
        return _run(self.u, y, self.transform, True, True)

    def modes(self, x: Tensor, adjoint: bool = False) -> Tensor:
        """Applies it (or its adjoint) to transformed fields."""
        return block_modes(self.u, x, adjoint)


def pack_pair(x: Tensor) -> Tensor:
    """Real (B, 2G, *size), X layers then P layers -> complex (B, G, *size), P + iX."""
    groups = x.shape[1] // 2
    return torch.complex(x[:, groups:], x[:, :groups])


def unpack_pair(z: Tensor) -> Tensor:
    """Inverse of `pack_pair`."""
    return torch.cat([z.imag, z.real], dim=1)


def negated(x: Tensor, dims: int) -> Tensor:
    """x[-k] on the last ``dims`` axes."""
    axes = tuple(range(-dims, 0))
    return x.flip(axes).roll([1] * dims, axes)


@dataclass(frozen=True)
class PairOperator:
    """Real (X, P) layers as one complex field Z = P + iX: ``Z^(k) -> alpha Z^(k) + beta Z^(-k)*``.

    Any real orthogonal convolution of two real layers has this form, so one complex FFT each way
    serves both layers; beta vanishes for symmetric K, whose operator is e^{iK}.
    """

    transform: Transform
    alpha: Tensor  # (G, *modes)
    beta: Tensor | None
    angle: Tensor | None = None  # of alpha in double precision, when beta is None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """alpha, and beta if there is one."""
        return (self.alpha,) if self.beta is None else (self.alpha, self.beta)

    def with_tensors(self, *tensors: Tensor) -> Self:
        """The same plan with other coefficients."""
        return replace(self, alpha=tensors[0], beta=tensors[1] if len(tensors) > 1 else None)

    def packed(self, z: Tensor, adjoint: bool = False) -> Tensor:
        """Applies it to packed fields."""
        if self.beta is None:
            return _run(self.alpha, z, self.transform, False, adjoint)
        return self.transform.backward(self.modes(self.transform.forward(z), adjoint))

    def modes(self, x: Tensor, adjoint: bool = False) -> Tensor:
        """Applies it to the transform of packed fields."""
        y = phase_modes(self.alpha, x, adjoint)
        if self.beta is None:
            return y
        dims = len(self.transform.size)
        beta = negated(self.beta, dims) if adjoint else self.beta
        return y + beta * negated(x, dims).conj()

    def __call__(self, x: Tensor) -> Tensor:
        """Applies it."""
        return unpack_pair(self.packed(pack_pair(x)))

    def inverse(self, y: Tensor) -> Tensor:
        """Undoes it."""
        return unpack_pair(self.packed(pack_pair(y), adjoint=True))


@dataclass(frozen=True)
class SeriesOperator:
    """The Chebyshev series on a lattice with zeros outside."""

    kernel: Tensor  # M/b as a real kernel (2C, 2C, *taps) or (C, C, *taps)
    coefficients: tuple[float, ...]
    complex_fields: bool

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The scaled kernel."""
        return (self.kernel,)

    def with_tensors(self, *tensors: Tensor) -> Self:
        """The same plan with another kernel of no larger norm."""
        return replace(self, kernel=tensors[0])

    def _run(self, x: Tensor, sign: float) -> Tensor:
        if not self.complex_fields:
            return series(x, sign * self.kernel, self.coefficients)
        parts = torch.cat([x.real, x.imag], dim=1)
        real, imag = series(parts, sign * self.kernel, self.coefficients).chunk(2, dim=1)
        return torch.complex(real, imag)

    def __call__(self, x: Tensor) -> Tensor:
        """Applies it."""
        return self._run(x, 1.0)

    def inverse(self, y: Tensor) -> Tensor:
        """Undoes it: the same series with the sign of the kernel changed."""
        return self._run(y, -1.0)


SpectralOperator = PhaseOperator | BlockOperator | PairOperator
