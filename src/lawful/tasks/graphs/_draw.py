"""Graphs as small pictures: places of nodes by distances, colours by a number of each node."""

from typing import Any

import numpy as np

from lawful.tasks.exhibits import Array
from lawful.tasks.graphdata._graphs import Floats, Ints

SIDE = 240  # pixels
_SMOOTH = 3  # drawn so many times larger, then made smaller
_LOW, _HIGH = np.array([222, 235, 247]), np.array([8, 48, 107])
_ROUNDS = 60


def layout(count: int, edges: Ints) -> Floats:
    """Places (n, 2) in the unit square, near what the numbers of edges between nodes ask for.

    Stress majorisation from a start by the two main coordinates of the distances: nodes that
    cannot reach each other are put a little farther than the farthest that can.

    Source: Gansner, Koren, North 2004, "Graph drawing by stress majorization".
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    if count == 1:
        return np.full((1, 2), 0.5)
    matrix = csr_array((np.ones(edges.shape[1]), (edges[0], edges[1])), (count, count))
    distance = shortest_path(matrix, directed=False, unweighted=True)
    reached = distance[np.isfinite(distance)].max(initial=1.0)
    distance = np.where(np.isfinite(distance), distance, reached + 1.5)
    place = _main_coordinates(distance)
    weight = 1 / np.maximum(distance, 1e-9) ** 2
    np.fill_diagonal(weight, 0)
    laplacian = np.diag(weight.sum(1)) - weight
    inverse = np.linalg.pinv(laplacian)
    for _ in range(_ROUNDS):
        apart = np.linalg.norm(place[:, None] - place[None], axis=-1)
        pull = -weight * distance / np.maximum(apart, 1e-6)
        np.fill_diagonal(pull, 0)
        np.fill_diagonal(pull, -pull.sum(1))
        place = inverse @ (pull @ place)
    place = place - place.min(0)
    scaled: Floats = 0.5 + (place - place.max(0) / 2) / max(place.max(), 1e-9)
    return scaled


def _main_coordinates(distance: Floats) -> Floats:
    squares = distance**2
    centred = squares - squares.mean(0) - squares.mean(1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    place = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0))
    # Nodes that are alike to all others would stay on one spot for ever.
    found: Floats = place + 0.01 * np.random.default_rng(0).standard_normal(place.shape)
    return found


def picture(count: int, edges: Ints, strength: Floats) -> Array:
    """A graph as a picture (SIDE, SIDE, 3) in [0, 1].

    Args:
        count: Nodes.
        edges: (2, E).
        strength: (n,) in [0, 1]: the more, the darker and larger a node.
    """
    from PIL import Image, ImageDraw

    side = SIDE * _SMOOTH
    ground = Image.new("RGB", (side, side), "white")
    pen = ImageDraw.Draw(ground)
    radius = side * min(0.04, 0.16 / np.sqrt(count))
    margin = 2.2 * radius
    place = margin + layout(count, edges) * (side - 2 * margin)
    for a, b in edges.T.tolist():
        if a < b:
            line = (*place[a].tolist(), *place[b].tolist())
            pen.line(line, fill=(150, 150, 150), width=2 * _SMOOTH)
    for (x, y), value in zip(place.tolist(), strength.tolist(), strict=True):
        r = radius * (0.7 + 0.7 * value)
        colour: Any = tuple(((1 - value) * _LOW + value * _HIGH).astype(int).tolist())
        pen.ellipse((x - r, y - r, x + r, y + r), fill=colour, outline=(70, 70, 70), width=_SMOOTH)
    small = ground.resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    pixels: Array = np.asarray(small, np.float32) / 255
    return pixels
