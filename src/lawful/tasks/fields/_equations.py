"""Exact solutions of linear equations on a periodic lattice, by their spectra, in double precision.

Initial fields are random, band-limited, without a mean, and of energy 1.
"""

import math
from collections.abc import Sequence

import numpy as np

from lawful.tasks._random import words
from lawful.tasks.exhibits import Array

#: Fields of each equation: the wave has a pressure and one velocity per axis.
FIELDS = {"wave": 1, "schroedinger": 2, "advection": 1}


def field_count(equation: str, dims: int) -> int:
    """Channels of an equation's frames."""
    return FIELDS[equation] + (dims if equation == "wave" else 0)


def wave_numbers(size: tuple[int, ...]) -> Array:
    """Wave vectors in radians per site, (dims, *size)."""
    axes = [2 * math.pi * np.fft.fftfreq(n) for n in size]
    return np.stack(np.meshgrid(*axes, indexing="ij"))


def solutions(
    equation: str,
    size: tuple[int, ...],
    steps: int,
    speed: float,
    modes: int,
    seed: int,
    stream: int,
    indices: Sequence[int],
) -> Array:
    r"""Films of random solutions, one for each index.

    * "wave", the first-order form of linear acoustics: ``p_t = -c div v``, ``v_t = -c grad p``;
      channels p, v_1, ..., v_dims. Energy ``mean(p^2 + |v|^2)``.
    * "schroedinger", a free particle: ``i psi_t = -(c / 2) laplacian psi``; channels Re psi,
      Im psi. Energy (the norm) ``mean |psi|^2``.
    * "advection": ``u_t = -c . grad u`` along the direction (1, 1/2, 1/4). Energy ``mean u^2``.

    Args:
        equation: Which.
        size: Sites on each axis.
        steps: Frames, a time unit apart.
        speed: c, in sites per frame ("schroedinger": sites squared per frame).
        modes: Highest wave number of the initial field on each axis, below half the sites.
        seed: Seed of the data.
        stream: Which stream of the seed.
        indices: Which examples.

    Returns:
        (len(indices), steps, channels, \*size), float64.
    """
    dims = len(size)
    k = wave_numbers(size)
    parts = 2 if equation == "wave" else 1
    noise = _normals(seed, stream, indices, 2 * parts * math.prod(size))
    noise = noise.reshape(len(noise), parts, 2, *size)
    start = _band_limited(noise, size, modes, complex_fields=equation == "schroedinger")
    t = np.arange(steps).reshape(-1, *[1] * dims)
    if equation == "wave":
        length = np.sqrt((k**2).sum(0))
        turn = speed * length * t
        p, b = start[:, 0, None], start[:, 1, None]
        across = 1j * (b * np.cos(turn) - p * np.sin(turn))  # along each wave vector
        ways = k / np.where(length > 0, length, 1.0)
        spectra = np.stack([p * np.cos(turn) + b * np.sin(turn), *(w * across for w in ways)], 2)
        fields = np.fft.ifftn(spectra, axes=tuple(range(-dims, 0))).real
    else:
        if equation == "schroedinger":
            turn = 0.5 * speed * (k**2).sum(0) * t
        else:
            course = speed * 0.5 ** np.arange(dims)
            turn = np.tensordot(course, k, 1) * t
        found = np.fft.ifftn(start * np.exp(-1j * turn), axes=tuple(range(-dims, 0)))
        real = equation == "advection"
        fields = found.real[:, :, None] if real else np.stack([found.real, found.imag], 2)
    axes = tuple(range(2, fields.ndim))
    energy = (fields**2).sum(2).mean(tuple(range(2, fields.ndim - 1)))[:, :1]
    result: Array = fields / np.sqrt(energy).reshape(-1, 1, *[1] * len(axes))
    return result


def energy(frames: Array) -> Array:
    r"""What the equations keep: squares summed over channels, averaged over sites.

    Args:
        frames: (..., C, \*size) with three or more axes; the first two are kept.

    Returns:
        (B, T) from (B, T, C, \*size).
    """
    total: Array = (frames.astype(np.float64) ** 2).sum(2).mean(tuple(range(2, frames.ndim - 1)))
    return total


def _normals(seed: int, stream: int, indices: Sequence[int], count: int) -> Array:
    """Standard normal numbers by the Box-Muller transform."""
    half = -(-count // 2)
    u = (words(seed, stream, indices, 2 * half).astype(np.float64) + 0.5) / 2.0**32
    radius = np.sqrt(-2 * np.log(u[:, :half]))
    angle = 2 * math.pi * u[:, half:]
    both: Array = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], 1)
    return both[:, :count]


def _band_limited(
    noise: Array, size: tuple[int, ...], modes: int, *, complex_fields: bool
) -> Array:
    """Spectra (n, parts, *size) of smooth random fields from noise (n, parts, 2, *size)."""
    dims = len(size)
    axes = tuple(range(-dims, 0))
    field = noise[:, :, 0] + 1j * noise[:, :, 1] if complex_fields else noise[:, :, 0]
    spectra = np.fft.fftn(field, axes=axes)
    counts = np.stack(np.meshgrid(*[np.abs(np.fft.fftfreq(n) * n) for n in size], indexing="ij"))
    shape = np.exp(-2.0 * (counts**2).sum(0) / max(modes, 1) ** 2)
    shape[(counts > modes).any(0)] = 0.0
    shape[(0,) * dims] = 0.0
    result: Array = spectra * shape
    return result
