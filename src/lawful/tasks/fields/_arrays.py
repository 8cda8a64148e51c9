"""Frames from the user's array files."""

from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np

from lawful.errors import InputError, expected
from lawful.tasks.exhibits import Array

Layout = Literal["auto", "time", "samples"]
SPLITS = ("train", "valid", "test")
_AXES = "time x channels x space, or samples x time x channels x space"


def read_recordings(path: Path, layout: Layout = "auto") -> dict[str, Array]:
    r"""Frames of a .npy, .npz or Zarr file as (samples, time, channels, \*space), float64.

    Args:
        path: The file; an .npz (or Zarr group) holds "train", "valid" and "test", or one array,
            or one named "frames".
        layout: What the first axis is. "auto": 3 or 4 axes are one recording (time x channels x
            1 or 2 of space), 5 or 6 are samples (x time x channels x 2 or 3 of space).

    Returns:
        Arrays by split, or one under "frames".

    Raises:
        InputError: No such file, another format, a wrong number of axes, an empty axis, numbers
            that are not real, NaN, or infinity; the message names the first bad frame.
    """
    found = _open(path)
    if set(found) & set(SPLITS):
        missing = [s for s in SPLITS if s not in found]
        if missing:
            raise expected(str(path), "arrays train, valid and test", f"no {missing[0]}")
        found = {s: found[s] for s in SPLITS}
    elif "frames" in found:
        found = {"frames": found["frames"]}
    elif len(found) == 1:
        found = {"frames": next(iter(found.values()))}
    else:
        names = ", ".join(sorted(found)) or "none"
        raise expected(str(path), "an array named frames, or train, valid and test", names)
    return {name: _checked(array, layout, f"{path}[{name}]") for name, array in found.items()}


def _open(path: Path) -> dict[str, Array]:
    if path.is_dir() or path.suffix == ".zarr":
        return _open_zarr(path)
    if not path.is_file():
        raise expected(str(path), "an .npy, .npz or Zarr file of frames", "no such file")
    if path.suffix not in (".npy", ".npz"):
        raise expected(str(path), "an .npy, .npz or Zarr file of frames", f"*{path.suffix}")
    try:
        with path.open("rb") as stream:
            loaded: Any = np.load(stream, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {"frames": loaded}
            return {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise InputError(f"{path}: expected an array file, got {error}") from error


def _open_zarr(path: Path) -> dict[str, Array]:
    if not path.exists():
        raise expected(str(path), "an .npy, .npz or Zarr file of frames", "no such file")
    try:
        import zarr
    except ImportError as error:
        raise InputError(f"{path}: Zarr files need the package zarr: pip install zarr") from error
    try:
        store: Any = zarr.open(str(path), mode="r")
        if hasattr(store, "shape"):
            return {"frames": np.asarray(store[...])}
        return {name: np.asarray(store[name][...]) for name in store}
    except Exception as error:  # zarr's own errors share no base class
        raise InputError(f"{path}: expected a Zarr array or group, got {error}") from error


def _checked(array: Array, layout: Layout, name: str) -> Array:
    if array.dtype.kind not in "uif":
        raise expected(name, "real numbers", str(array.dtype))
    samples = layout == "samples" or (layout == "auto" and array.ndim >= 5)
    dims = array.ndim - (3 if samples else 2)
    if not 1 <= dims <= 3:
        hint = "--layout says whether the first axis counts samples"
        raise expected(name, f"{_AXES}, with 1 to 3 axes of space", f"shape {array.shape}", hint)
    if 0 in array.shape:
        raise expected(name, "no empty axis", f"shape {array.shape}")
    array = array.astype(np.float64)
    if not samples:
        array = array[None]
    good = np.isfinite(array.reshape(*array.shape[:2], -1)).all(-1)
    if not good.all():
        sample, frame = (int(i) for i in np.argwhere(~good)[0])
        where = f"frame {frame} of sample {sample}" if samples else f"frame {frame}"
        raise expected(name, "finite numbers", f"NaN or infinity in {where}")
    return array


def split_recordings(frames: Array, need: int, name: str) -> dict[str, Array]:
    """Training, validation and test parts: 70, 15 and 15 % of the samples, or of the time of one.

    Args:
        frames: (samples, time, ...).
        need: Frames that a part must have at least.
        name: For messages.

    Raises:
        InputError: Too few frames for every part to hold one example.
    """
    axis = 0 if len(frames) >= 3 else 1
    count = frames.shape[axis]
    held = max(1 if axis == 0 else need, round(0.15 * count))
    train = count - 2 * held
    if frames.shape[1] < need or train < (1 if axis == 0 else need):
        want = f"at least {need if axis == 0 else 3 * need} frames (an example has {need})"
        hint = "shorten --observe, --horizon or --train-horizon"
        raise expected(name, want, frames.shape[1], hint)
    parts = np.split(frames, [train, train + held], axis=axis)
    return dict(zip(SPLITS, parts, strict=True))
