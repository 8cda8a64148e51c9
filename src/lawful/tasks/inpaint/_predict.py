"""Completes the user's own pictures, and draws how it came about."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lawful.errors import InputError, expected
from lawful.tasks._sequence import place
from lawful.tasks.data import SUFFIXES, as_colour, as_grey, decode, fit_picture, read_arrays
from lawful.tasks.exhibits import Array

if TYPE_CHECKING:
    from lawful.tasks.inpaint._facts import Facts
    from lawful.tasks.inpaint._task import InpaintTask

_SIDE = 192  # px: small pictures are enlarged to about this in films and strips
_SHOWN = 13  # states of a strip
_HOLD = 1500  # ms that a film rests on its last picture


@dataclass(frozen=True)
class InpaintPredictOptions:
    """What is hidden of the user's picture, and what is drawn."""

    mask: Path | None = None
    """Picture of the same size in which white marks the pixels to fill in; a patch with a marked
    pixel is hidden whole. Without it patches are hidden as in testing."""
    strip: Path | None = None
    """Also draw the course of one picture, with its energy, into this .png file."""
    settle_steps: int | None = None
    """Steps, in place of the network's own number."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        if self.settle_steps is not None and self.settle_steps < 1:
            raise expected("settle_steps", "a whole number of at least 1", self.settle_steps)
        if self.strip is not None and self.strip.suffix.lower() != ".png":
            raise expected("strip", "a name ending in .png", self.strip)


class _Item(NamedTuple):
    name: str
    picture: Array  # (H, W) or (H, W, 3), bytes
    marked: Array | None  # (H, W) bool: pixels to fill in; None where patches are drawn


class _Done(NamedTuple):
    """A picture completed."""

    frames: Array  # (T+1, H, W[, 3]) in [0, 1]: before each step and at the end
    masked: Array  # the same size as a frame: what the network saw
    hidden: Array  # (N,) bool
    energies: Array | None  # (S, T+1) of S blocks
    error: float  # squared, on the hidden patches, of pixels in 0..1


def predictions(task: "InpaintTask", model: nn.Module, path: Path) -> Iterator[dict[str, Any]]:
    """One row for each picture: hidden patches, energies, and, without a mask, the error.

    Of several blocks the energy is the last one's.

    Raises:
        InputError: No pictures, or a mask that does not fit.
    """
    options = _options(task)
    strip = options.strip
    for i, item in enumerate(_items(task, path)):
        done = _complete(task, model, item, i)
        if strip is not None:
            if i:
                raise expected("strip", "one picture", f"several in {path}")
            save_strip(done, strip)
        row = {"file": item.name, "patches": len(done.hidden), "hidden": int(done.hidden.sum())}
        if item.marked is None:
            row["masked_mse_unit"] = done.error
        if done.energies is not None:
            row |= {
                "first_energy": float(done.energies[-1, 0]),
                "energy": float(done.energies[-1, -1]),
            }
        yield row


def write_pictures(task: "InpaintTask", model: nn.Module, path: Path, out: Path) -> None:
    """The completed picture as .png, or the course of its completion as .gif.

    Raises:
        InputError: Several pictures; or as for `predictions`.
    """
    found = _items(task, path)
    item = next(found)
    if next(found, None) is not None:
        hint = "name one picture, or write .csv, .json or .jsonl"
        raise expected("input", f"one picture for a {out.suffix} file", f"several in {path}", hint)
    done = _complete(task, model, item, 0)
    if out.suffix.lower() == ".gif":
        _save_film(done, out)
    else:
        _image(done.frames[-1]).save(out, format="PNG")
    if _options(task).strip is not None:
        save_strip(done, _options(task).strip)


def _options(task: "InpaintTask") -> Any:
    return task.predict_options or InpaintPredictOptions()


def _items(task: "InpaintTask", path: Path) -> Iterator[_Item]:
    """The pictures of a file or folder, brought to the size of the training pictures."""
    facts, mask = task.facts, _options(task).mask
    for name, raw in _raw(path):
        picture = as_colour(raw) if facts.channels == 3 else as_grey(raw)
        fitted = fit_picture(picture, facts.height, facts.width)
        if fitted.shape != picture.shape:
            size, want = _size(picture), f"{facts.width}x{facts.height}"
            print(f"{name}: {size}, scaled and cut to the network's {want}", file=sys.stderr)
        yield _Item(name, fitted, None if mask is None else _marks(mask, picture, facts))


def _raw(path: Path) -> Iterator[tuple[str, Array]]:
    if path.is_dir():
        files = [f for f in sorted(path.rglob("*")) if f.suffix.lower() in SUFFIXES]
        if not files:
            raise expected(str(path), f"pictures ({', '.join(sorted(SUFFIXES))})", "none")
        for file in files:
            yield str(file), decode(file.read_bytes(), str(file))
    elif path.suffix.lower() in (".npy", ".npz"):
        yield from _from_array(path)
    elif path.suffix.lower() in SUFFIXES:
        yield str(path), decode(path.read_bytes(), str(path))
    else:
        kinds = ", ".join(sorted(SUFFIXES | {".npy", ".npz"}))
        raise expected(str(path), f"a folder, or one of {kinds}", f"*{path.suffix}")


def _from_array(path: Path) -> Iterator[tuple[str, Array]]:
    arrays = read_arrays(path)
    if "images" not in arrays:
        raise expected(str(path), "an array named images", ", ".join(sorted(arrays)))
    images = arrays["images"]
    if images.ndim == 2 or (images.ndim == 3 and images.shape[-1] == 3):
        images = images[None]
    if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[-1] != 3):
        raise expected(str(path), "pictures (n, height, width[, 3])", images.shape)
    if 0 in images.shape:
        raise expected(str(path), "at least one picture", images.shape)
    if images.dtype.kind == "f":
        if not (np.isfinite(images).all() and images.min() >= 0 and images.max() <= 1):
            raise expected(str(path), "bytes, or floats in [0, 1]", "others")
        images = (images * 255).round().astype(np.uint8)
    if images.dtype != np.uint8:
        raise expected(str(path), "bytes, or floats in [0, 1]", images.dtype)
    for i, image in enumerate(images):
        yield f"{path}[{i}]", image


def _marks(path: Path, picture: Array, facts: "Facts") -> Array:
    """Pixels (H, W) that a mask picture marks, scaled and cut like the picture itself.

    A pixel that a marked one has any weight in is marked, so none that is kept knows of them.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"mask: cannot read {path}: {error.strerror}") from None
    mask = as_grey(decode(raw, str(path)))
    if mask.shape != picture.shape[:2]:
        raise expected("mask", f"the picture's size of {_size(picture)}", _size(mask))
    weight = fit_picture((mask > 127).astype(np.float32), facts.height, facts.width)
    marked: Array = np.abs(weight) > 1e-6
    if not marked.any():
        raise expected("mask", "white pixels where the picture is to be filled in", "none")
    return marked


def _complete(task: "InpaintTask", model: nn.Module, item: _Item, index: int) -> _Done:
    facts, there = task.facts, place(model)
    if item.marked is None:
        hidden = task.fixed_masks("test", [index]).hidden
        marked = facts.spread(hidden)[0].numpy()
    else:
        marked = item.marked
        touched = torch.from_numpy(marked)[None, None].repeat(1, facts.channels, 1, 1)
        hidden = facts.to_patches(touched).any(-1)
        if bool(hidden.all()):
            raise expected("mask", "a visible patch", "a marked pixel in every one of them")
    x = facts.to_patches(facts.normalise(item.picture[None], 255.0))
    model.eval()
    with torch.no_grad():
        course = model.course(x.to(there), hidden.to(there), _options(task).settle_steps)  # type: ignore[operator]
    path = course.path[:, 0].cpu()  # (T+1, N, P)
    error = (path[-1] - x[0])[hidden[0]] * facts.pixel_deviation()
    energies = None
    if course.energies is not None:
        energies = course.energies[..., 0].cpu().numpy()
        energies = energies.reshape(-1, energies.shape[-1])
    frames = _blend(facts, path, item.picture, marked)
    return _Done(
        frames,
        _blend(facts, torch.zeros_like(path[:1]), item.picture, marked)[0],
        hidden[0].numpy(),
        energies,
        float(error.square().mean()),
    )


def _blend(facts: "Facts", path: Tensor, picture: Array, marked: Array) -> Array:
    """Frames in [0, 1] that keep every pixel of the picture that is not marked."""
    frames = facts.to_pictures(facts.from_patches(path))
    inside = marked[..., None] if facts.channels == 3 else marked
    return np.where(inside, frames, picture.astype(np.float32) / 255.0)


def _size(picture: Array) -> str:
    return f"{picture.shape[1]}x{picture.shape[0]}"


def _image(frame: Array, zoom: int = 1) -> Any:
    from PIL import Image

    image = Image.fromarray((frame * 255).round().astype(np.uint8))
    wide = (image.width * zoom, image.height * zoom)
    return image.resize(wide, Image.Resampling.NEAREST) if zoom > 1 else image


def _save_film(done: _Done, out: Path) -> None:
    """The masked picture, then every step, then a rest."""
    zoom = max(1, _SIDE // max(done.masked.shape[:2]))
    frames = [_image(f, zoom).convert("RGB") for f in (done.masked, *done.frames)]
    times = [600, *[120] * (len(frames) - 2), _HOLD]
    frames[0].save(
        out, format="GIF", save_all=True, append_images=frames[1:], duration=times, loop=0
    )


def save_strip(done: _Done, out: Path) -> None:
    """Draws the masked picture and the states beside each other over the curve of the energy.

    Written under another name and renamed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    last = len(done.frames) - 1
    steps = np.unique(np.linspace(0, last, min(_SHOWN, last + 1)).round().astype(int))
    across = len(steps) + 1
    figure = Figure(figsize=(1.1 * across, 1.5 if done.energies is None else 3.2))
    FigureCanvasAgg(figure)
    rows = 1 if done.energies is None else 2
    grid = figure.add_gridspec(rows, across, height_ratios=[1, 1.2][:rows], hspace=0.35)
    titles = ["masked", *(f"step {i}" for i in steps)]
    for i, frame in enumerate([done.masked, *done.frames[steps]]):
        axes = figure.add_subplot(grid[0, i])
        axes.imshow(frame, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(titles[i], fontsize=8)
        axes.set_axis_off()
    if done.energies is not None:
        axes = figure.add_subplot(grid[1, :])
        for i, block in enumerate(done.energies):
            start = i * (len(block) - 1)
            axes.plot(range(start, start + len(block)), block, color="black", marker=".")
        axes.set(xlabel="step", ylabel="energy")
        axes.spines[["top", "right"]].set_visible(False)
    scratch = out.with_name(f".{out.stem}.tmp{out.suffix}")
    try:
        figure.savefig(scratch, dpi=120, bbox_inches="tight")
        scratch.replace(out)
    except OSError as error:
        raise InputError(f"strip: cannot write {out}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
