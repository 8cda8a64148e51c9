"""Kernels and small helpers that the demonstrations share."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = [
    "DERIVATIVE",
    "LAPLACIAN",
    "centred",
    "gap",
    "line",
    "moments",
    "offsets",
    "picture",
    "plane",
    "source",
    "wide",
]

LAPLACIAN = torch.tensor([1.0, -2.0, 1.0], dtype=torch.float64)
DERIVATIVE = torch.tensor([-0.5, 0.0, 0.5], dtype=torch.float64)


def plane(along: Tensor, across: Tensor | None = None) -> Tensor:
    """A kernel of the plane that acts as one kernel on each axis, summed: (3, 3)."""
    out = torch.zeros(3, 3, dtype=along.dtype)
    out[:, 1] += along
    out[1, :] += along if across is None else across
    return out


def wide(x: Tensor) -> Tensor:
    """In double precision."""
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def source(seed: int) -> torch.Generator:
    """A random generator of its own for each demonstration."""
    return torch.Generator().manual_seed(seed)


def gap(a: Tensor, b: Tensor | float) -> float:
    """Largest absolute difference; a NaN counts as infinite."""
    worst = float((a - b).abs().max())
    return worst if worst == worst else float("inf")


def offsets(sites: int) -> Tensor:
    """Index j of a lattice as the signed distance from its origin, -N/2 <= x < N/2."""
    x = torch.arange(sites)
    return torch.where(x < (sites + 1) // 2, x, x - sites).double()


def centred(kernel: Tensor) -> Tensor:
    """A kernel with its origin moved from index 0 to the middle, for pictures."""
    out: Tensor = torch.fft.fftshift(kernel)
    return out


def moments(kernel: Tensor) -> tuple[float, float, float, float]:
    """Mass, mean, variance and third cumulant of a kernel on a line, origin at index 0."""
    x = offsets(len(kernel))
    mass = float(kernel.sum())
    mean = float((x * kernel).sum()) / mass
    away = x - mean
    variance = float((away**2 * kernel).sum()) / mass
    return mass, mean, variance, float((away**3 * kernel).sum()) / mass


def line(y: Tensor, x: Tensor | None = None) -> tuple[Sequence[float], Sequence[float]]:
    """A series for `Curves`: (x, y), x counting from 0 by default."""
    x = torch.arange(len(y)) if x is None else x
    return x.tolist(), y.tolist()


def picture(field: Tensor, top: float | None = None) -> npt.NDArray[Any]:
    """A real field as grey values in [0, 1]; black at 0 and white at ``top`` (its maximum)."""
    top = float(field.max()) if top is None else top
    out: npt.NDArray[Any] = (field / (top or 1.0)).clamp(0, 1).to(torch.float32).numpy()
    return out.astype(np.float32)
