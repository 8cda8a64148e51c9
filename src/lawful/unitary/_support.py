"""How far the exponential of a small kernel reaches."""

import math
import warnings

import torch
from torch import Tensor

from lawful.errors import NumericalWarning, expected
from lawful.unitary._functions import conv_exp, double
from lawful.unitary._lattice import Size, as_size, check_kernel

__all__ = ["support_radius"]


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
    r"""How far e^{tK} reaches: the l1 weight of its kernel beyond this radius is below ``tol``.

    Computed on a lattice that the a-priori bound ``sum_{j>m} s^j/j! < tol`` (s the l1 norm) makes
    large enough; if that lattice would exceed 2^22 sites, the bound itself is returned.

    Args:
        kernel: (\*taps), one channel, origin at the centre.
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
    weight = conv_exp(double(kernel), [side] * dims, t).abs()
    line = torch.arange(side, device=kernel.device)
    line = torch.minimum(line, side - line)
    distance = line
    for _ in range(dims - 1):
        distance = torch.maximum(distance[..., None], line)
    shells = weight.new_zeros(bound + 1).index_add(0, distance.flatten(), weight.flatten())
    outside = shells.flip(0).cumsum(0).flip(0)  # outside[r]: weight at distance >= r
    return int((outside >= tol).sum().clamp_min(1)) - 1
