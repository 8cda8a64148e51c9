"""Films of digits: moving on a canvas, or shown once and then gone."""

from collections.abc import Sequence

import numpy as np

from lawful.tasks._random import below, uniform, words
from lawful.tasks.exhibits import Array

SIDE = 8  # of scikit-learn's digits


def digit_pictures(split: str) -> Array:
    """Scikit-learn's digits of a split, (n, 8, 8) in 0..1."""
    from lawful.tasks.data import load_images

    images = load_images(None, 0.1, 0.2)
    part = getattr(images, split)
    result: Array = part.images.astype(np.float64) / images.peak
    return result


def moving_digits(
    pictures: Array,
    canvas: int,
    steps: int,
    speed: float,
    digits: int,
    walls: bool,
    seed: int,
    stream: int,
    indices: Sequence[int],
) -> Array:
    """Digits that move straight on and bounce off the walls, or wrap around.

    Args:
        pictures: (n, 8, 8) in 0..1.
        canvas: Side of the canvas, at least 8.
        steps: Frames.
        speed: Sites per frame; the direction is drawn.
        digits: How many move; where they overlap, the brighter counts.
        walls: Whether they bounce; otherwise the canvas is periodic.
        seed: Seed of the data.
        stream: Which stream of the seed.
        indices: Which examples.

    Returns:
        (len(indices), steps, 1, canvas, canvas) in 0..1. Positions between sites are interpolated
        linearly.
    """
    w = words(seed, stream, indices, 4 * digits).reshape(len(indices), digits, 4)
    chosen = pictures[below(w[..., 0], len(pictures))]  # (B, digits, 8, 8)
    room = canvas - SIDE if walls else canvas
    start = uniform(w[..., 1:3]).astype(np.float64) * room  # (B, digits, 2)
    angle = 2 * np.pi * uniform(w[..., 3]).astype(np.float64)
    course = speed * np.stack([np.sin(angle), np.cos(angle)], -1)
    at = start[:, None] + np.arange(steps)[:, None, None] * course[:, None]  # (B, T, digits, 2)
    if walls:
        at = room - np.abs(at % (2 * room) - room) if room else np.zeros_like(at)
    rows, columns = (_weights(at[..., axis], canvas) for axis in (0, 1))
    placed = np.einsum("btdya,bdac,btdxc->btdyx", rows, chosen, columns, optimize=True)
    result: Array = placed.max(2)[:, :, None]
    return result


def _weights(at: Array, canvas: int) -> Array:
    """How much each of 8 picture lines adds to each canvas line: (..., canvas, 8)."""
    lines = np.arange(canvas)[:, None] - np.arange(SIDE)
    gap = np.abs((lines - at[..., None, None] + canvas / 2) % canvas - canvas / 2)
    result: Array = np.maximum(0.0, 1.0 - gap)
    return result


def flashes(pictures: Array, blanks: int, seed: int, stream: int, indices: Sequence[int]) -> Array:
    """A picture, then blank frames, then the picture again: (B, blanks + 2, 1, 8, 8)."""
    chosen = pictures[below(words(seed, stream, indices, 1)[:, 0], len(pictures))]
    film = np.zeros((len(chosen), blanks + 2, 1, SIDE, SIDE))
    film[:, 0, 0] = film[:, -1, 0] = chosen
    return film
