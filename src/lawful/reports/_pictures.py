"""Turns arrays in [0, 1] into small PNG files and contact sheets."""

import base64
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lawful.reports._format import clean
from lawful.tasks.exhibits import Images

Bytes = npt.NDArray[np.uint8]
SHOWN = 64  # at most this many pictures of an exhibit go into the page
SIDE = 256  # px: larger pictures are made smaller for the page


def frames(images: Images) -> list[Bytes]:
    """The pictures as bytes, (height, width) or (height, width, 3), at most `SHOWN` of them."""
    values = np.asarray(images.images, dtype=np.float64)
    if values.ndim == 4 and values.shape[-1] == 1:
        values = values[..., 0]
    if values.ndim not in (3, 4) or 0 in values.shape[1:] or values.shape[3:] not in ((), (3,)):
        return []
    values = np.nan_to_num(values[:SHOWN], nan=0.5, posinf=1.0, neginf=0.0).clip(0, 1)
    return list((values * 255).round().astype(np.uint8))


def png(frame: Bytes) -> bytes:
    """A picture as PNG, no side longer than `SIDE`."""
    from PIL import Image

    picture = Image.fromarray(frame)
    if max(picture.size) > SIDE:
        picture.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    picture.save(out, format="PNG", optimize=True)
    return out.getvalue()


def data_uri(content: bytes) -> str:
    """A PNG as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")


def sheet(pictures: Sequence[Bytes], columns: int | None) -> bytes:
    """All pictures in one, on a white ground."""
    from PIL import Image

    height, width = pictures[0].shape[:2]
    zoom = max(1, round(64 / max(height, width)))
    across = min(columns or 8, len(pictures))
    down = -(-len(pictures) // across)
    step_x, step_y = width * zoom + 6, height * zoom + 6
    ground = Image.new("RGB", (across * step_x + 6, down * step_y + 6), "white")
    for i, frame in enumerate(pictures):
        picture = Image.fromarray(frame).convert("RGB")
        picture = picture.resize((width * zoom, height * zoom), Image.Resampling.NEAREST)
        ground.paste(picture, (6 + i % across * step_x, 6 + i // across * step_y))
    out = io.BytesIO()
    ground.save(out, format="PNG", optimize=True)
    return out.getvalue()


def numbers(images: Images) -> str:
    """Captions and verdicts as JSON."""
    items: list[dict[str, Any]] = [{"caption": clean(c)} for c in images.captions]
    for item, good in zip(items, images.good or [], strict=False):
        item["good"] = bool(good)
    return json.dumps(items, indent=1, ensure_ascii=False) + "\n"
