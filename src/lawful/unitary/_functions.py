"""Functions of a convolution operator, given by the kernel of the result.

On a periodic lattice the operator of kernel K is diagonal in Fourier space (a matrix per frequency
when it has channels), so ``f(K)`` has the symbol ``f(K^)``: O(N log N) instead of O(N^3).
"""

import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from lawful.errors import NumericalWarning, expected
from lawful.unitary._exponential import matrix_exp
from lawful.unitary._lattice import Origin, Size, as_size, check_kernel, embed, space_axes

__all__ = [
    "conv_apply",
    "conv_cos",
    "conv_exp",
    "conv_function",
    "conv_sin",
    "symbol",
]

_NODES = 96  # of the contour integral, 1.5 times as wide as the spectrum: error (2/3)^96


def double(x: Tensor) -> Tensor:
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def symbol(kernel: Tensor, size: Size, *, origin: Origin = "centre") -> Tensor:
    r"""The Fourier transform of a kernel placed on the lattice: the operator's eigenvalues.

    ``K^(k) = sum_a K[a] exp(-i k a)``, computed in double precision.

    Args:
        kernel: (\*taps), or (C_out, C_in, \*taps); real or complex.
        size: Sites on each axis.
        origin: "centre", or "zero" for a kernel whose origin is at index 0.

    Returns:
        Complex (\*size) or (C_out, C_in, \*size), complex128; frequency 0 first.

    Raises:
        InputError: Rank and ``size`` do not fit, or even taps with origin "centre".
    """
    sides = as_size(size)
    check_kernel(kernel, len(sides), origin)
    out: Tensor = torch.fft.fftn(embed(double(kernel), sides, origin), dim=space_axes(len(sides)))
    return out


def kernel_of(values: Tensor, dims: int, like: Tensor, real: bool) -> Tensor:
    out: Tensor = torch.fft.ifftn(values, dim=space_axes(dims))
    if real:
        return out.real.to(like.dtype if not like.is_complex() else torch.float64)
    single = like.dtype in (torch.float32, torch.complex64, torch.float16, torch.bfloat16)
    return out.to(torch.complex64 if single else torch.complex128)


def _by_blocks(function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """Applies a matrix function to values (C, C, *size), frequency by frequency."""
    if values.shape[0] != values.shape[1]:
        got = f"{values.shape[0]} x {values.shape[1]} channels"
        raise expected("kernel", "as many output as input channels", got)
    return function(values.movedim((0, 1), (-2, -1))).movedim((-2, -1), (0, 1))


def _contour(function: Callable[[Tensor], Tensor], blocks: Tensor) -> Tensor:
    """f(A) = mean over a circle around the spectrum of f(z) (z - c) (z - A)^-1."""
    eye = torch.eye(blocks.shape[-1], dtype=blocks.dtype, device=blocks.device)
    with torch.no_grad():
        centre = blocks.diagonal(dim1=-2, dim2=-1).mean(-1)
        away = torch.linalg.eigvals(blocks - centre[..., None, None] * eye).abs().amax(-1)
        radius = 1.5 * away + 0.5
    total, largest = torch.zeros_like(blocks), torch.zeros_like(radius)
    for j in range(_NODES):
        angle = 2 * math.pi * (j + 0.5) / _NODES
        step = radius * complex(math.cos(angle), math.sin(angle))
        weight = function(centre + step)
        largest = torch.maximum(largest, (weight * step).detach().abs())
        resolvent = torch.linalg.inv((centre + step)[..., None, None] * eye - blocks)
        total = total + (weight * step / _NODES)[..., None, None] * resolvent
    lost = largest * 1e-16 / torch.linalg.matrix_norm(total.detach()).clamp_min(1e-300)
    if lost.numel() and not float(lost.max()) < 1e-6:
        message = f"conv_function: cancellation loses about {float(lost.max()):.1g} of the result"
        warnings.warn(message, NumericalWarning, stacklevel=4)
    return total


def conv_function(
    function: Callable[[Tensor], Tensor],
    kernel: Tensor,
    size: Size,
    t: float | Tensor = 1.0,
    *,
    origin: Origin = "centre",
    real: bool = False,
) -> Tensor:
    r"""The kernel of ``f(t K)`` for an entire function f, e.g. ``torch.cosh``.

    One channel: f of the symbol, elementwise. Several: a contour integral per frequency, which
    differentiates no eigenvectors and so is safe at repeated eigenvalues; it warns when f grows
    so fast on the contour (1.5 times as wide as the spectrum) that cancellation spoils the result.

    Args:
        function: Maps a complex128 tensor elementwise; entire, differentiable by autograd.
        kernel: (\*taps) or (C, C, \*taps).
        size: Sites on each axis of the periodic lattice.
        t: Factor on the kernel.
        origin: Where the kernel's origin is.
        real: Return the real part: right when K is real and ``f(conj z) = conj f(z)``.

    Returns:
        (\*size) or (C, C, \*size), origin at index 0; complex unless ``real``.
    """
    values = symbol(kernel, size, origin=origin) * t
    dims = len(as_size(size))
    if kernel.ndim == dims:
        return kernel_of(function(values), dims, kernel, real)
    return kernel_of(_by_blocks(lambda a: _contour(function, a), values), dims, kernel, real)


def _matrix_cos(blocks: Tensor) -> Tensor:
    out: Tensor = (matrix_exp(1j * blocks) + matrix_exp(-1j * blocks)) / 2
    return out


def _matrix_sin(blocks: Tensor) -> Tensor:
    out: Tensor = (matrix_exp(1j * blocks) - matrix_exp(-1j * blocks)) / 2j
    return out


def _standard(
    scalar: Callable[[Tensor], Tensor],
    matrix: Callable[[Tensor], Tensor],
    kernel: Tensor,
    size: Size,
    t: float | Tensor,
    origin: Origin,
) -> Tensor:
    values = symbol(kernel, size, origin=origin) * t
    dims = len(as_size(size))
    values = scalar(values) if kernel.ndim == dims else _by_blocks(matrix, values)
    real = not (kernel.is_complex() or (isinstance(t, Tensor) and t.is_complex()))
    return kernel_of(values, dims, kernel, real and not isinstance(t, complex))


def conv_exp(
    kernel: Tensor, size: Size, t: float | Tensor = 1.0, *, origin: Origin = "centre"
) -> Tensor:
    r"""The kernel of the operator exponential ``e^{tK}`` on a periodic grid.

    ``delta + tK + (tK * tK)/2! + ...``, summed exactly as ``F^-1 exp(t F K)``; with channels the
    exponential is of a matrix per frequency. ``t`` runs the flow ``dy/dt = K * y``; ``-t`` undoes
    it. The gradient is one correlation (for one channel, ``dL/dK = conj-flip(e^K) * dL/de^K``) or
    the Frechet derivative of the matrix exponential, finite at K = 0 and repeated eigenvalues.

    Args:
        kernel: (\*taps) with odd taps and the origin at the centre tap, or (C, C, \*taps); real
            or complex. Taps beyond the lattice wrap around.
        size: Sites on each axis.
        t: Time, float or 0-d tensor.
        origin: "zero" if the kernel's origin is at index 0 (a kernel of a whole lattice).

    Returns:
        (\*size) or (C, C, \*size), **origin at index 0**, in the kernel's dtype (computed in
        double precision).

    Raises:
        InputError: Rank and ``size`` do not fit, or even taps with origin "centre".

    Cost: O(N log N), with channels O(N (C^2 log N + C^3)).

    Source: Magnasco 2023 (arXiv 2302.07396), sections 1 and 3.

    Example:
        >>> import torch
        >>> shift = torch.tensor([-0.5, 0.0, 0.5], dtype=torch.float64)
        >>> conv_exp(shift, 8).square().sum().item()  # antisymmetric, so orthogonal
        1.0
    """
    return _standard(torch.exp, matrix_exp, kernel, size, t, origin)


def conv_cos(
    kernel: Tensor, size: Size, t: float | Tensor = 1.0, *, origin: Origin = "centre"
) -> Tensor:
    """The kernel of ``cos(tK)``, the even half of the series; see `conv_exp` for the arguments."""
    return _standard(torch.cos, _matrix_cos, kernel, size, t, origin)


def conv_sin(
    kernel: Tensor, size: Size, t: float | Tensor = 1.0, *, origin: Origin = "centre"
) -> Tensor:
    """The kernel of ``sin(tK)``, the odd half of the series; see `conv_exp` for the arguments."""
    return _standard(torch.sin, _matrix_sin, kernel, size, t, origin)


def conv_apply(
    kernel: Tensor, x: Tensor, *, origin: Origin = "zero", channels: bool = False
) -> Tensor:
    r"""Convolves a field with a kernel on its periodic lattice, by FFT.

    Args:
        kernel: (\*size) as `conv_exp` returns it; with ``channels``, (C_out, C_in, \*size). Small
            centred kernels are taken with ``origin="centre"``.
        x: (..., \*size); with ``channels``, (..., C_in, \*size).
        origin: Where the kernel's origin is.
        channels: Whether the kernel has channel axes.

    Returns:
        (..., \*size) or (..., C_out, \*size); real if both are, dtype of ``x`` or its complex form.
    """
    dims = kernel.ndim - 2 * channels
    if x.ndim < dims + channels:
        raise expected("x", f"at least {dims + channels} axes", tuple(x.shape))
    axes = space_axes(dims)
    field = torch.fft.fftn(x, dim=axes)
    values = symbol(kernel, x.shape[x.ndim - dims :], origin=origin).to(field.dtype)
    if channels:
        out = torch.einsum("oif,...if->...of", values.flatten(2), field.flatten(-dims))
        out = out.reshape(*out.shape[:-1], *x.shape[x.ndim - dims :])
    else:
        out = values * field
    y: Tensor = torch.fft.ifftn(out, dim=axes)
    return y if kernel.is_complex() or x.is_complex() else y.real
