"""A built exponential: constant for one forward pass, applied as often as wanted.

Each operator is a plan (which transform, which kind of product) plus the tensors that carry the
gradient, so that a recurrence can be replayed with the same tensors (`with_tensors`).
"""

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from lawful.kernels.spectral import packed_apply, packed_outer, spectral_apply, spectral_outer
from lawful.unitary._boundaries import PackedFourier, Transform
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

    @property
    def packed(self) -> bool:
        """Whether real layers run as complex fields P + iX (`pack_pair`)."""

    def turn(self, z: Tensor, adjoint: bool = False) -> Tensor:
        """Applies it, or its adjoint, to fields in the form in which they run."""


def phase_modes(u: Tensor, x: Tensor, adjoint: bool = False) -> Tensor:
    """Multiplies modes (B, C, *modes) by phases (C, *modes)."""
    return x * (u.conj() if adjoint else u)


def block_modes(u: Tensor, x: Tensor, adjoint: bool = False) -> Tensor:
    """One matrix per mode on (B, C, *modes); real modes (of a box) take the real part of u."""
    shape = x.shape[2:]
    flat = x.flatten(2)
    if not flat.is_complex():
        flat = torch.complex(flat, torch.zeros_like(flat))
        y = spectral_apply(u, flat, adjoint=adjoint).real
        return y.reshape(*y.shape[:2], *shape)
    y = spectral_apply(u, flat, adjoint=adjoint)
    return y.view(*y.shape[:2], *shape)


@dataclass(frozen=True)
class _Product:
    """How modes are multiplied, in one of three layouts, and the transform around it.

    With pairs of layers in packed fields the compiled product reads and writes the spectrum of
    the packed field itself; elsewhere the modes are separated first.
    """

    transform: Transform
    blocks: bool

    def _fused(self, u: Tensor) -> bool:
        return self.blocks and u.ndim == 5 and isinstance(self.transform, PackedFourier)

    def around(self, u: Tensor) -> Transform:
        """The transform before and after `multiply`."""
        if self._fused(u):
            assert isinstance(self.transform, PackedFourier)
            return self.transform.whole
        return self.transform

    def multiply(self, u: Tensor, x: Tensor, adjoint: bool) -> Tensor:
        """U x per mode, or U^H x."""
        if self._fused(u):
            assert isinstance(self.transform, PackedFourier)
            plus, minus = self.transform.pairs(x.device)
            return packed_apply(u, x.flatten(2), plus, minus, adjoint).view(x.shape)
        return block_modes(u, x, adjoint) if self.blocks else phase_modes(u, x, adjoint)

    def outer(self, u: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """Gradient for u: sum over the batch of left times conj right, mirrored modes twice."""
        if self._fused(u):
            assert isinstance(self.transform, PackedFourier)
            return packed_outer(left.flatten(2), right.flatten(2), *self.transform.pairs(u.device))
        weights = self.transform.weights(left.device)
        if weights is not None:
            left = left * weights.to(left.dtype)
        return _outer(u, left, right, self.blocks)

    def plain(self, u: Tensor, x: Tensor, adjoint: bool) -> Tensor:
        """The whole as separate operations, differentiable twice."""
        product = block_modes if self.blocks else phase_modes
        return self.transform.backward(product(u, self.transform.forward(x), adjoint))

    def value(self, u: Tensor, x: Tensor, adjoint: bool) -> Tensor:
        """The same value by the fastest way, no gradient kept."""
        around = self.around(u)
        return around.backward(self.multiply(u, around.forward(x), adjoint))


class _Spectral(torch.autograd.Function):
    """Transform, multiply, transform back, with four transforms for value and gradients.

    The transforms are isometries: ``dL/dx`` is the adjoint product of the transformed gradient and
    ``dL/du`` its outer product with the transformed input, bins that stand for two counted twice.
    """

    @staticmethod
    def forward(u: Tensor, x: Tensor, product: _Product, adjoint: bool) -> tuple[Tensor, Tensor]:
        around = product.around(u)
        modes = around.forward(x)
        return around.backward(product.multiply(u, modes, adjoint)), modes

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        u, x, ctx.product, ctx.adjoint = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(u, x, output[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Any, ...]:
        u, x, modes = ctx.saved_tensors
        product, adjoint = ctx.product, ctx.adjoint
        if torch.is_grad_enabled():  # a derivative of this derivative is wanted
            y = product.plain(u, x, adjoint)
            return *torch.autograd.grad(y, (u, x), g, create_graph=True), None, None
        around = product.around(u)
        g_modes = around.forward(g)
        g_u = g_x = None
        if ctx.needs_input_grad[1]:
            g_x = around.backward(product.multiply(u, g_modes, not adjoint))
        if ctx.needs_input_grad[0]:
            pair = (modes, g_modes) if adjoint else (g_modes, modes)
            g_u = product.outer(u, *pair)
        return g_u, g_x, None, None


def _outer(u: Tensor, left: Tensor, right: Tensor, blocks: bool) -> Tensor:
    if blocks:
        flat = [t.flatten(2) for t in (left, right)]
        flat = [t if t.is_complex() else torch.complex(t, torch.zeros_like(t)) for t in flat]
        return spectral_outer(flat[0], flat[1], u)
    if left.shape[0] == 1:
        return left[0] * right[0].conj()
    out: Tensor = torch.linalg.vecdot(right, left, dim=0)
    return out


def _run(u: Tensor, x: Tensor, product: _Product, adjoint: bool) -> Tensor:
    if not (torch.is_grad_enabled() and (u.requires_grad or x.requires_grad)):
        return product.value(u, x, adjoint)
    y: Tensor = _Spectral.apply(u, x, product, adjoint)[0]  # type: ignore[no-untyped-call]
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

    @property
    def packed(self) -> bool:
        """No."""
        return False

    def turn(self, z: Tensor, adjoint: bool = False) -> Tensor:
        """Applies it or its adjoint."""
        return _run(self.u, z, _Product(self.transform, False), adjoint)

    def __call__(self, x: Tensor) -> Tensor:
        """Applies it."""
        return self.turn(x)

    def inverse(self, y: Tensor) -> Tensor:
        """Undoes it."""
        return self.turn(y, True)

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

    @property
    def packed(self) -> bool:
        """Whether pairs of real layers share complex fields."""
        return isinstance(self.transform, PackedFourier)

    def turn(self, z: Tensor, adjoint: bool = False) -> Tensor:
        """Applies it or its adjoint, to packed fields if `packed`."""
        return _run(self.u, z, _Product(self.transform, True), adjoint)

    def __call__(self, x: Tensor) -> Tensor:
        """Applies it."""
        return unpack_pair(self.turn(pack_pair(x))) if self.packed else self.turn(x)

    def inverse(self, y: Tensor) -> Tensor:
        """Undoes it."""
        return unpack_pair(self.turn(pack_pair(y), True)) if self.packed else self.turn(y, True)

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

    @property
    def packed(self) -> bool:
        """Always."""
        return True

    def turn(self, z: Tensor, adjoint: bool = False) -> Tensor:
        """Applies it or its adjoint to packed fields."""
        if self.beta is None:
            return _run(self.alpha, z, _Product(self.transform, False), adjoint)
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
        return unpack_pair(self.turn(pack_pair(x)))

    def inverse(self, y: Tensor) -> Tensor:
        """Undoes it."""
        return unpack_pair(self.turn(pack_pair(y), True))


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

    @property
    def packed(self) -> bool:
        """No."""
        return False

    def turn(self, z: Tensor, adjoint: bool = False) -> Tensor:
        """Applies it or its adjoint: the same series with the sign of the kernel changed."""
        return self._run(z, -1.0 if adjoint else 1.0)

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
