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
from lawful.unitary._lattice import Origin, Size, as_size, check_kernel, embed, space_axes

__all__ = [
    "conv_apply",
    "conv_cos",
    "conv_exp",
    "conv_function",
    "conv_sin",
    "support_radius",
    "symbol",
    "xp_kernels",
]

_NODES = 96  # of the contour integral, 1.5 times as wide as the spectrum: error (2/3)^96


def _double(x: Tensor) -> Tensor:
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def symbol(kernel: Tensor, size: Size, *, origin: Origin = "centre") -> Tensor:
    """The Fourier transform of a kernel placed on the lattice: the operator's eigenvalues.

    ``K^(k) = sum_a K[a] exp(-i k a)``, computed in double precision.

    Args:
        kernel: (\\*taps), or (C_out, C_in, \\*taps); real or complex.
        size: Sites on each axis.
        origin: "centre", or "zero" for a kernel whose origin is at index 0.

    Returns:
        Complex (\\*size) or (C_out, C_in, \\*size), complex128; frequency 0 first.

    Raises:
        InputError: Rank and ``size`` do not fit, or even taps with origin "centre".
    """
    sides = as_size(size)
    check_kernel(kernel, len(sides), origin)
    return torch.fft.fftn(embed(_double(kernel), sides, origin), dim=space_axes(len(sides)))


def _kernel_of(values: Tensor, dims: int, like: Tensor, real: bool) -> Tensor:
    out = torch.fft.ifftn(values, dim=space_axes(dims))
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
    """The kernel of ``f(t K)`` for an entire function f, e.g. ``torch.cosh``.

    One channel: f of the symbol, elementwise. Several: a contour integral per frequency, which
    differentiates no eigenvectors and so is safe at repeated eigenvalues; it warns when f grows
    so fast on the contour (1.5 times as wide as the spectrum) that cancellation spoils the result.

    Args:
        function: Maps a complex128 tensor elementwise; entire, differentiable by autograd.
        kernel: (\\*taps) or (C, C, \\*taps).
        size: Sites on each axis of the periodic lattice.
        t: Factor on the kernel.
        origin: Where the kernel's origin is.
        real: Return the real part: right when K is real and ``f(conj z) = conj f(z)``.

    Returns:
        (\\*size) or (C, C, \\*size), origin at index 0; complex unless ``real``.
    """
    values = symbol(kernel, size, origin=origin) * t
    dims = len(as_size(size))
    if kernel.ndim == dims:
        return _kernel_of(function(values), dims, kernel, real)
    return _kernel_of(_by_blocks(lambda a: _contour(function, a), values), dims, kernel, real)


def _matrix_cos(blocks: Tensor) -> Tensor:
    return (torch.linalg.matrix_exp(1j * blocks) + torch.linalg.matrix_exp(-1j * blocks)) / 2


def _matrix_sin(blocks: Tensor) -> Tensor:
    return (torch.linalg.matrix_exp(1j * blocks) - torch.linalg.matrix_exp(-1j * blocks)) / 2j


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
    return _kernel_of(values, dims, kernel, real and not isinstance(t, complex))


def conv_exp(
    kernel: Tensor, size: Size, t: float | Tensor = 1.0, *, origin: Origin = "centre"
) -> Tensor:
    """The kernel of the operator exponential ``e^{tK}`` on a periodic grid.

    ``delta + tK + (tK * tK)/2! + ...``, summed exactly as ``F^-1 exp(t F K)``; with channels the
    exponential is of a matrix per frequency. ``t`` runs the flow ``dy/dt = K * y``; ``-t`` undoes
    it. The gradient is one correlation (for one channel, ``dL/dK = conj-flip(e^K) * dL/de^K``) or
    the Frechet derivative of the matrix exponential, finite at K = 0 and repeated eigenvalues.

    Args:
        kernel: (\\*taps) with odd taps and the origin at the centre tap, or (C, C, \\*taps); real
            or complex. Taps beyond the lattice wrap around.
        size: Sites on each axis.
        t: Time, float or 0-d tensor.
        origin: "zero" if the kernel's origin is at index 0 (a kernel of a whole lattice).

    Returns:
        (\\*size) or (C, C, \\*size), **origin at index 0**, in the kernel's dtype (computed in
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
    return _standard(torch.exp, torch.linalg.matrix_exp, kernel, size, t, origin)


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


def sinc(x: Tensor) -> Tensor:
    """sin(x)/x, 1 at 0, with finite derivatives there."""
    return torch.special.sinc(x / math.pi)


def xp_kernels(
    kernel: Tensor,
    size: Size,
    t: float = 1.0,
    a: Tensor | None = None,
    c: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """The four real kernels of ``exp(t [[A, K], [-K', C]])`` acting on two real layers (X, P).

    With ``r = |K^|``: ``XX = PP = cos r``, ``XP = K^ sinc r``, ``PX = -conj(K^) sinc r``; the
    antisymmetric intralayer kernels A, C add a phase and a tilt (closed SU(2) form). Only for
    symmetric K do these reduce to cosine and sine kernels. Orthogonal, determinant 1.

    Args:
        kernel: Real K, (\\*taps), from P to X; any symmetry.
        size: Sites on each axis.
        t: Time.
        a: Real antisymmetric A within X, or None.
        c: Real antisymmetric C within P, or None.

    Returns:
        (XX, XP, PX, PP), each (\\*size) with the origin at index 0.

    Source: Magnasco 2023, sections 6-8; general K and the intralayer parts follow from
        exponentiating the 2 x 2 block of each frequency.
    """
    dims = len(as_size(size))
    values = [None if k is None else symbol(k, size) * t for k in (kernel, a, c)]
    phase_a, phase_c = (None if v is None else v.imag for v in values[1:])
    assert values[0] is not None
    blocks = su2(values[0], phase_a, phase_c)
    xx, xp, px, pp = (_kernel_of(b, dims, kernel, True) for b in blocks)
    return xx, xp, px, pp


def su2(k: Tensor, a: Tensor | None, c: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """exp([[i a, k], [-conj k, i c]]) for complex k and real a, c, elementwise."""
    square = k.real.square() + k.imag.square()
    if a is None and c is None:
        cos, over = _cos_sinc_of_square(square)
        even = cos.to(k.dtype)
        return even, k * over, -k.conj() * over, even
    zero = torch.zeros_like(square)
    a, c = zero if a is None else a, zero if c is None else c
    mean, tilt = (a + c) / 2, (a - c) / 2
    cos, over = _cos_sinc_of_square(square + tilt.square())
    turn = torch.polar(torch.ones_like(mean), mean)
    lean = torch.complex(cos, tilt * over)
    return turn * lean, turn * k * over, -turn * k.conj() * over, turn * lean.conj()


class _CosSinc(torch.autograd.Function):
    """cos sqrt(s) and sinc sqrt(s) as entire functions of s: no square root is differentiated."""

    @staticmethod
    def forward(square: Tensor) -> tuple[Tensor, Tensor]:
        root = square.sqrt()
        return torch.cos(root), sinc(root)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g_cos: Tensor, g_sinc: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        (square,) = ctx.saved_tensors
        cos, over = _cos_sinc_of_square(square)
        # d/ds sinc(sqrt s) = (cos - sinc)/(2 s); its series near 0, where the quotient cancels.
        small = square < 1e-2
        safe = torch.where(small, torch.ones_like(square), square)
        series = -1 / 6 + square * (1 / 60 - square * (1 / 1680 - square * (1 / 90720)))
        slope = torch.where(small, series, (cos - over) / (2 * safe))
        return -g_cos * over / 2 + g_sinc * slope


def _cos_sinc_of_square(square: Tensor) -> tuple[Tensor, Tensor]:
    out: tuple[Tensor, Tensor] = _CosSinc.apply(square)  # type: ignore[no-untyped-call]
    return out


def conv_apply(
    kernel: Tensor, x: Tensor, *, origin: Origin = "zero", channels: bool = False
) -> Tensor:
    """Convolves a field with a kernel on its periodic lattice, by FFT.

    Args:
        kernel: (\\*size) as `conv_exp` returns it; with ``channels``, (C_out, C_in, \\*size). Small
            centred kernels are taken with ``origin="centre"``.
        x: (..., \\*size); with ``channels``, (..., C_in, \\*size).
        origin: Where the kernel's origin is.
        channels: Whether the kernel has channel axes.

    Returns:
        (..., \\*size) or (..., C_out, \\*size); real if both are, dtype of ``x`` or its complex form.
    """
    dims = kernel.ndim - 2 * channels
    if x.ndim < dims + channels:
        raise expected("x", f"at least {dims + channels} axes", tuple(x.shape))
    axes = space_axes(dims)
    field = torch.fft.fftn(x, dim=axes)
    values = symbol(kernel, x.shape[x.ndim - dims :], origin=origin).to(field.dtype)
    if channels:
        out = torch.einsum("oif,...if->...of", values.flatten(2), field.flatten(-dims))
        out = out.unflatten(-1, x.shape[x.ndim - dims :])
    else:
        out = values * field
    out = torch.fft.ifftn(out, dim=axes)
    return out if kernel.is_complex() or x.is_complex() else out.real


def _radius_bound(norm: float, reach: int, tol: float) -> int:
    """Reach * m with sum_{j > m} norm^j / j! < tol."""
    term, m, tail_from = 1.0, 0, max(2 * norm, 1.0)
    while m < tail_from or 2 * term >= tol:
        m += 1
        term *= norm / m
    return max(reach * m, reach)


def support_radius(
    kernel: Tensor, tol: float = 1e-7, t: float = 1.0, *, size: Size | None = None
) -> int:
    """How far e^{tK} reaches: the l1 weight of its kernel beyond this radius is below ``tol``.

    Computed on a lattice that the a-priori bound ``sum_{j>m} s^j/j! < tol`` (s the l1 norm) makes
    large enough; if that lattice would exceed 2^22 sites, the bound itself is returned.

    Args:
        kernel: (\\*taps), one channel, origin at the centre.
        tol: Weight that may lie outside.
        t: Time.
        size: A lattice; warns (`NumericalWarning`) when it is narrower than ``2 R + 1``, where
            the periodic kernel wraps onto itself and differs from that of an infinite lattice.

    Returns:
        R in sites (largest distance along any axis).
    """
    dims = kernel.ndim
    check_kernel(kernel, dims, "centre")
    if not tol > 0:
        raise expected("tol", "a positive number", tol)
    reach = max(k // 2 for k in kernel.shape)
    norm = abs(t) * float(kernel.detach().abs().sum())
    if not math.isfinite(norm):
        raise expected("kernel", "finite entries", "inf or NaN")
    radius = _radius_bound(norm, reach, tol / 2)
    if (2 * radius + 1) ** dims <= 2**22:
        radius = _measured_radius(kernel.detach(), radius, tol, t)
    if size is not None and 2 * radius + 1 > min(as_size(size)):
        message = f"the kernel reaches {radius} sites and wraps onto itself on a lattice of {size}"
        warnings.warn(message, NumericalWarning, stacklevel=2)
    return radius


def _measured_radius(kernel: Tensor, bound: int, tol: float, t: float) -> int:
    dims, side = kernel.ndim, 2 * bound + 1
    weight = conv_exp(_double(kernel), [side] * dims, t).abs()
    line = torch.arange(side, device=kernel.device)
    line = torch.minimum(line, side - line)
    distance = line
    for _ in range(dims - 1):
        distance = torch.maximum(distance[..., None], line)
    shells = weight.new_zeros(bound + 1).index_add(0, distance.flatten(), weight.flatten())
    outside = shells.flip(0).cumsum(0).flip(0)  # outside[r]: weight at distance >= r
    return int((outside >= tol).sum().clamp_min(1)) - 1
