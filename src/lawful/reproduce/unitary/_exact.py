"""What the demonstrations are held against, computed without any Fourier transform of a kernel."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from lawful.reproduce.unitary._fields import wide

__all__ = ["bessel_i", "bessel_j", "dense_exp", "flood", "lifted", "runge_kutta"]


def _backwards(x: float, order: int, sign: float) -> list[float]:
    """Minimal solution of f_{n-1} = (2n/x) f_n + sign f_{n+1}, up to a factor (Miller).

    It starts where the solution is below 1e-80 of its peak, and is taken as 0 beyond.
    """
    start = int(x + 12 * x ** (1 / 3)) + 40
    values, after, here = [0.0] * max(order + 1, start + 1), 0.0, 1e-280
    for n in range(start, -1, -1):
        values[n] = here
        after, here = here, (2 * n / x) * here + sign * after
    return values


def bessel_j(x: float, order: int) -> Tensor:
    """J_0(x) .. J_order(x) by backward recurrence, normalised by J_0 + 2 (J_2 + J_4 + ...) = 1."""
    values = _backwards(x, order, -1.0)
    total = values[0] + 2 * math.fsum(values[2::2])
    return torch.tensor(values[: order + 1], dtype=torch.float64) / total


def bessel_i(x: float, order: int) -> Tensor:
    """e^-x I_0(x) .. e^-x I_order(x), normalised by I_0 + 2 (I_1 + I_2 + ...) = e^x."""
    values = _backwards(x, order, 1.0)
    total = values[0] + 2 * math.fsum(values[1:])
    return torch.tensor(values[: order + 1], dtype=torch.float64) / total


def lifted(kernel: Tensor, size: tuple[int, ...]) -> Tensor:
    r"""The dense matrix of a small centred kernel on a periodic lattice, entry by entry.

    Args:
        kernel: (\*taps), or (C, C', \*taps).
        size: The lattice, N sites.

    Returns:
        (C N, C' N) with ``M[x, y] = K[x - y]``.
    """
    dims, total = len(size), math.prod(size)
    blocks = kernel if kernel.ndim > dims else kernel[None, None]
    eye = torch.eye(total, dtype=wide(kernel).dtype).view(total, *size)
    taps = blocks.shape[2:]
    out = torch.zeros(blocks.shape[0], total, blocks.shape[1], total, dtype=eye.dtype)
    for tap in torch.cartesian_prod(*map(torch.arange, taps)).view(-1, dims).tolist():
        shift = [a - k // 2 for a, k in zip(tap, taps, strict=True)]
        moved = eye.roll(shift, tuple(range(1, dims + 1))).reshape(total, total).T
        weights = wide(blocks[(slice(None), slice(None), *tap)])
        out += weights[:, None, :, None] * moved[None, :, None, :]
    return out.reshape(blocks.shape[0] * total, blocks.shape[1] * total)


def dense_exp(matrix: Tensor) -> Tensor:
    """Matrix exponential: Taylor series of the matrix halved until its norm is below 1/16."""
    halvings = max(0, math.ceil(math.log2(max(float(matrix.abs().sum(1).max()), 1e-9))) + 4)
    small = matrix / 2**halvings
    total = term = torch.eye(len(matrix), dtype=matrix.dtype)
    for j in range(1, 13):
        term = term @ small / j
        total = total + term
    for _ in range(halvings):
        total = total @ total
    return total


def runge_kutta(slope: Callable[[Tensor], Tensor], start: Tensor, time: float, h: float) -> Tensor:
    """Solves y' = slope(y) by the classical method of fourth order."""
    y, steps = start, round(time / h)
    for _ in range(steps):
        k1 = slope(y)
        k2 = slope(y + h / 2 * k1)
        k3 = slope(y + h / 2 * k2)
        k4 = slope(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


def flood(region: Tensor, seed: tuple[int, int]) -> Tensor:
    """The sites of a bool picture that are connected to ``seed`` through their four neighbours."""
    found = torch.zeros_like(region)
    found[seed] = True
    while True:
        grown = found.clone()
        grown[1:] |= found[:-1]
        grown[:-1] |= found[1:]
        grown[:, 1:] |= found[:, :-1]
        grown[:, :-1] |= found[:, 1:]
        grown &= region
        if torch.equal(grown, found):
            return found
        found = grown
