"""The exponential on a lattice with zeros outside, where no fast transform exists.

The lifted operator M of an anti-Hermitian kernel is block Toeplitz and still anti-Hermitian, so
``e^{tM}`` is unitary. ``e^{tM} x = J_0(s) x + 2 sum_m J_m(s) Q_m`` with ``Q_0 = x``,
``Q_1 = (M/b) x``, ``Q_{m+1} = 2 (M/b) Q_m + Q_{m-1}`` and ``s = t b``, b >= |M|: Chebyshev
polynomials, stable in single precision at any norm where the Taylor series cancels.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lawful.unitary._lattice import space_axes

__all__ = ["bessel", "norm_bound", "terms"]


def bessel(s: float, count: int) -> list[float]:
    """J_0(s) .. J_{count-1}(s), by downward recurrence normalised with J_0 + 2 sum J_2m = 1."""
    if s == 0:
        return [1.0] + [0.0] * (count - 1)
    start = 2 * ((max(count, int(abs(s))) + 40 + int(2 * abs(s) ** 0.5)) // 2)
    values = [0.0] * (start + 1)
    above, here, total = 0.0, 1e-300, 0.0
    for m in range(start, -1, -1):
        values[m] = here
        total += here * (1.0 if m == 0 else 2.0) if m % 2 == 0 else 0.0
        above, here = here, 2 * m / s * here - above
        if abs(here) > 1e250:
            values = [v * 1e-250 for v in values]
            above, here, total = above * 1e-250, here * 1e-250, total * 1e-250
    return [v / total for v in values[:count]]


def terms(s: float, tol: float) -> list[float]:
    """Coefficients J_0(s), 2 J_1(s), ... up to where all later ones are below ``tol``."""
    count = int(abs(s) + 8 * abs(s) ** (1 / 3) * max(1.0, math.log10(1 / tol) / 8)) + 24
    values = bessel(s, count)
    last = max((m for m in range(count) if abs(values[m]) > tol / 8), default=0)
    return [v if m == 0 else 2 * v for m, v in enumerate(values[: last + 1])]


def norm_bound(kernel: Tensor, dims: int) -> float:
    """An upper bound of the operator norm of an anti-Hermitian kernel (C, C, *taps).

    The sharper of the l1 norm of the taps and the maximum of the symbol on a grid of 8 points per
    degree, enlarged by 1/cos(pi/8) per axis (Bernstein's inequality for a trigonometric
    polynomial between the grid points).
    """
    kernel = kernel.detach().to(torch.complex128)
    taps = kernel.shape[2:]
    l1 = float(torch.linalg.matrix_norm(kernel.movedim((0, 1), (-2, -1)), ord=2).sum())
    grid = [max(1, 8 * (k // 2)) for k in taps]
    padded = torch.fft.fftn(kernel, s=grid, dim=space_axes(dims)).movedim((0, 1), (-2, -1))
    if any(g < k for g, k in zip(grid, taps, strict=True)):  # fftn would have cropped taps
        return l1
    peak = float(torch.linalg.matrix_norm(padded, ord=2).max())
    slack = math.prod(1.0 if k == 1 else 1 / math.cos(math.pi / 8) for k in taps)
    return min(l1, peak * slack)


def correlate(x: Tensor, kernel: Tensor) -> Tensor:
    """True convolution of real x (B, C_in, *size) with (C_out, C_in, *taps), zeros outside."""
    dims = x.ndim - 2
    conv = (torch.conv1d, torch.conv2d, torch.conv3d)[dims - 1]
    weight = kernel.flip(space_axes(dims))  # torch's conv is correlation
    padding = [k // 2 for k in kernel.shape[2:]]
    out: Tensor = conv(x, weight, None, 1, padding)
    return out


def series(x: Tensor, kernel: Tensor, coefficients: Sequence[float]) -> Tensor:
    """sum_m coefficients[m] Q_m; kernel is M/b, real (C, C, *taps), x real (B, C, *size)."""
    total = coefficients[0] * x
    if len(coefficients) == 1:
        return total
    before, here = x, correlate(x, kernel)
    total = total + coefficients[1] * here
    for c in coefficients[2:]:
        before, here = here, torch.add(before, correlate(here, kernel), alpha=2)
        total = torch.add(total, here, alpha=c)
    return total


def real_blocks(kernel: Tensor) -> Tensor:
    """Complex (C, C, *taps) -> real (2C, 2C, *taps) acting on (real parts, imaginary parts)."""
    top = torch.cat([kernel.real, -kernel.imag], dim=1)
    return torch.cat([top, torch.cat([kernel.imag, kernel.real], dim=1)], dim=0)
