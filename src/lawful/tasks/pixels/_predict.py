"""Class and probability for the user's own pictures."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from lawful.errors import expected
from lawful.tasks._sequence import place
from lawful.tasks.data import SUFFIXES, as_colour, as_grey, decode, read_arrays, read_idx

if TYPE_CHECKING:
    from lawful.tasks.pixels._task import PixelsTask

Named = tuple[str, np.ndarray[Any, Any]]
_GROUP = 256


def predictions(task: "PixelsTask", model: nn.Module, path: Path) -> Iterator[dict[str, Any]]:
    """One row {"file", "label", "probability"} for each picture, in order of names.

    Pictures in an array file are named ``file[i]``.

    Raises:
        InputError: For a path without pictures, or a picture of another size than the training's.
    """
    group: list[Named] = []
    for named in _pictures(task, path):
        group.append(named)
        if len(group) == _GROUP:
            yield from _classify(task, model, group)
            group = []
    yield from _classify(task, model, group)


def _classify(task: "PixelsTask", model: nn.Module, group: list[Named]) -> list[dict[str, Any]]:
    if not group:
        return []
    model.eval()
    x = task.sequences(np.stack([image for _, image in group]))
    with torch.no_grad():
        chances = model(x.to(place(model))).softmax(-1)
    best, index = chances.max(-1)
    classes = task.facts.classes
    return [
        {"file": name, "label": classes[i], "probability": p}
        for (name, _), i, p in zip(group, index.tolist(), best.tolist(), strict=True)
    ]


def _pictures(task: "PixelsTask", path: Path) -> Iterator[Named]:
    if path.is_dir():
        files = [f for f in sorted(path.rglob("*")) if f.suffix.lower() in SUFFIXES]
        if not files:
            raise expected(str(path), "pictures (" + ", ".join(sorted(SUFFIXES)) + ")", "none")
        for file in files:
            yield str(file), _fit(task, decode(file.read_bytes(), str(file)), str(file))
    elif not path.is_file():
        raise expected(str(path), "a picture, a folder of pictures, or an array", "no such path")
    elif path.suffix.lower() in SUFFIXES:
        yield str(path), _fit(task, decode(path.read_bytes(), str(path)), str(path))
    elif path.suffix in (".npy", ".npz") or "idx" in path.name:
        yield from _from_array(task, path)
    else:
        kinds = ", ".join(sorted(SUFFIXES | {".npy", ".npz"}))
        raise expected(str(path), f"one of {kinds}, or an IDX file", f"*{path.suffix}")


def _fit(task: "PixelsTask", image: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    f = task.facts
    image = as_colour(image) if f.channels == 3 else as_grey(image)
    if image.shape[:2] != (f.height, f.width):
        got = f"{image.shape[1]}x{image.shape[0]}"
        want = f"a picture of {f.width}x{f.height}, the size trained on"
        raise expected(name, want, got, "resize it first")
    return image * (f.peak / 255.0) if f.peak != 255.0 else image


def _from_array(task: "PixelsTask", path: Path) -> Iterator[Named]:
    f = task.facts
    arrays = {"images": read_idx(path)} if "idx" in path.name else read_arrays(path)
    if "images" not in arrays:
        raise expected(str(path), "an array named images", ", ".join(sorted(arrays)))
    images = arrays["images"]
    shape = (f.height, f.width) if f.channels == 1 else (f.height, f.width, 3)
    if images.shape == shape:
        images = images[None]
    if images.shape[1:] != shape or images.dtype.kind not in "uif":
        want = f"numbers of shape (n, {', '.join(map(str, shape))})"
        raise expected(str(path), want, f"{images.dtype} {images.shape}")
    if not np.isfinite(images).all():
        bad = int((~np.isfinite(images.reshape(len(images), -1)).all(1)).argmax())
        raise expected(str(path), "finite pixels", f"NaN or infinity in picture {bad}")
    # Arrays hold pixels on the scale of the training data: 0..peak.
    if images.size and (images.min() < 0 or images.max() > f.peak):
        want = f"pixels in 0..{f.peak:g}, the scale trained on"
        raise expected(str(path), want, f"{images.min():g}..{images.max():g}")
    for i, image in enumerate(images):
        yield f"{path}[{i}]", image
