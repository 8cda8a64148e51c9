"""Forecasts for the user's own frames: as arrays, and as films."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from lawful.errors import expected
from lawful.tasks._sequence import place
from lawful.tasks.exhibits import Array
from lawful.tasks.fields._arrays import read_recordings

if TYPE_CHECKING:
    from lawful.tasks.fields._task import FieldsTask

_FILM_SIDE = 256  # least side of a film's pictures, in pixels


def _observed(task: "FieldsTask", path: Path) -> Array:
    """The last frames of each sample, as many as are observed: (samples, k, C, *size)."""
    f = task.facts
    shape = (f.channels, *f.size)
    found = read_recordings(path, task.settled.layout)
    frames = found["frames"] if "frames" in found else found["test"]
    if tuple(frames.shape[2:]) != shape:
        want = f"frames of shape {shape} (channels x space), as trained on"
        raise expected(str(path), want, tuple(frames.shape[2:]))
    if frames.shape[1] < task.settled.observe:
        want = f"at least the {task.settled.observe} frames that are observed"
        raise expected(str(path), want, frames.shape[1])
    recent: Array = frames[:, -task.settled.observe :]
    return recent


def forecasts(task: "FieldsTask", model: nn.Module, path: Path) -> Iterator[Array]:
    r"""The frames that follow each sample's last, (horizon, C, \*size), in the data's units."""
    model.eval()
    for frames in _observed(task, path):
        with torch.no_grad():
            said = model(task.scaled(frames[None]).to(place(model)), task.settled.horizon)
        yield task.restored(said)[0]


def write_forecast(task: "FieldsTask", model: nn.Module, path: Path, out: Path) -> None:
    """Writes an array with the axes of the input (.npy), or a film of its first field (.gif)."""
    found = np.stack(list(forecasts(task, model, path)))
    if Path(out.name.removesuffix(".tmp")).suffix == ".gif":
        observed = _observed(task, path)[0]
        _write_film(observed[:, 0], found[0][:, 0], out)
        return
    samples = task.settled.layout == "samples" or (
        task.settled.layout == "auto" and found.ndim - 3 >= 2 and len(found) > 1
    )
    with out.open("wb") as stream:
        np.save(stream, found if samples or len(found) > 1 else found[0])


def _write_film(observed: Array, forecast: Array, out: Path) -> None:
    """Observed frames with a grey bar above them, then forecast frames with a red one."""
    from PIL import Image

    frames = np.concatenate([observed, forecast])
    while frames.ndim > 3:
        frames = frames[:, frames.shape[1] // 2]  # the middle layer
    if frames.ndim == 2:
        frames = frames[:, None].repeat(max(1, frames.shape[1] // 4), 1)
    low, span = float(frames.min()), max(float(np.ptp(frames)), 1e-12)
    grey = (255 * (frames - low) / span).round().astype(np.uint8)
    times = max(1, _FILM_SIDE // max(grey.shape[1:]))
    pictures = []
    for i, frame in enumerate(grey):
        big = frame.repeat(times, 0).repeat(times, 1)
        colour = np.repeat(big[..., None], 3, 2)
        bar = np.zeros((8, colour.shape[1], 3), np.uint8)
        bar[:] = (128, 128, 128) if i < len(observed) else (214, 39, 40)
        pictures.append(Image.fromarray(np.concatenate([bar, colour])))
    with out.open("wb") as stream:
        pictures[0].save(
            stream, "GIF", save_all=True, append_images=pictures[1:], duration=80, loop=0
        )
