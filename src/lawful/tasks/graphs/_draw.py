"""Graphs as small pictures, colours by a number of each node."""

from typing import Any

import numpy as np

from lawful.tasks.exhibits import Array
from lawful.tasks.graphdata._graphs import Floats, Ints
from lawful.tasks.graphdata.layout import layout

SIDE = 240  # pixels
_SMOOTH = 3  # drawn so many times larger, then made smaller
_LOW, _HIGH = np.array([222, 235, 247]), np.array([8, 48, 107])


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
