"""Pictures without labels, brought to one size: what a task needs that only looks at pixels."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lawful.errors import expected
from lawful.tasks._random import STREAMS, permutation
from lawful.tasks.data._cifar import ARCHIVE, is_batch
from lawful.tasks.data._folders import (
    _SPLITS,
    SUFFIXES,
    _Entry,
    _list,
    _without_wrapper,
    as_colour,
    as_grey,
    decode,
)
from lawful.tasks.data._idx import find_idx
from lawful.tasks.data._load import _peak, load_digits, load_images, read_arrays

Channels = Literal["auto", "grey", "colour"]
Bytes = npt.NDArray[Any]  # (n, height, width) or (n, height, width, 3)


@dataclass(frozen=True)
class Pictures:
    """Pictures of one size in three parts, with pixels of 0..peak."""

    train: Bytes
    valid: Bytes
    test: Bytes
    peak: float
    origin: str


def fit_picture(image: Bytes, height: int, width: int) -> Bytes:
    """A picture scaled until it just covers ``height`` x ``width``, its middle cut out.

    Args:
        image: (h, w) or (h, w, 3), bytes; or (h, w) float32.
        height: Wanted rows.
        width: Wanted columns.
    """
    from PIL import Image, ImageOps

    if image.shape[:2] == (height, width):
        return image
    fitted = ImageOps.fit(Image.fromarray(image), (width, height), Image.Resampling.BICUBIC)
    return np.asarray(fitted)


def load_pictures(
    path: Path | None,
    *,
    size: int = 0,
    channels: Channels = "auto",
    valid_share: float = 0.1,
    test_share: float = 0.1,
) -> Pictures:
    """Pictures from whatever the user names, or the embedded digits for None.

    Args:
        path: A folder (or zip file) of pictures at any depth, in train, valid and test folders or
            not; a .npy array (n, height, width[, 3]); an .npz file with ``images``, or
            ``train_images``, ``test_images``, ...; a folder of MNIST's IDX or of CIFAR-10's files.
        size: Side of the squares that pictures are scaled and cut to; 0 keeps their size, which
            must then be the same for all.
        channels: Whether pictures become grey or coloured; "auto" leaves them, and makes grey ones
            among coloured ones coloured.
        valid_share: Share for validation, where the data has no such part.
        test_share: Share for testing, where the data has no such part.

    Raises:
        InputError: Nothing of these kinds, damaged files, pictures of several sizes, an empty part.
    """
    parts, peak, origin = _read(path, size, valid_share, test_share)
    whole = _same_kind([*parts.values()], channels)
    made = dict(zip(parts, (_resized(x, size, peak) for x in whole), strict=True))
    shapes = {x.shape[1:] for x in made.values()}
    if len(shapes) > 1:
        raise expected(origin, "pictures of one size in every part", sorted(shapes))
    return _complete(made, peak, origin, valid_share, test_share)


def _read(
    path: Path | None, size: int, valid_share: float, test_share: float
) -> tuple[dict[str, Bytes], float, str]:
    if path is not None and not path.exists():
        raise expected(str(path), "a folder or file with pictures", "no such path")
    if path is not None and path.suffix.lower() in (".npy", ".npz"):
        return _from_arrays(path)
    if path is None or _is_labelled(path):
        data = (
            load_digits(valid_share, test_share)
            if path is None
            else load_images(path, valid_share, test_share)
        )
        sets = {"train": data.train, "valid": data.valid, "test": data.test}
        return {k: v.images for k, v in sets.items()}, data.peak, data.origin
    return _from_files(path, size), 255.0, str(path)


def _is_labelled(path: Path) -> bool:
    """Whether the path holds one of the published data sets that have a format of their own."""
    if path.is_file():
        return path.name.lower().endswith((".tar.gz", ".tgz", ".tar"))
    folders = [path, *(f for f in path.glob("*") if f.is_dir()), path / "MNIST/raw"]
    return any(
        find_idx(f) or (f / ARCHIVE).is_file() or any(is_batch(x.name) for x in f.iterdir())
        for f in folders
        if f.is_dir()
    )


def _from_arrays(path: Path) -> tuple[dict[str, Bytes], float, str]:
    arrays = read_arrays(path)
    names = {"images": "train", **{f"{p}_images": p for p in ("train", "valid", "test")}}
    parts = {names[k]: v for k, v in arrays.items() if k in names}
    if "train" not in parts:
        got = ", ".join(sorted(arrays)) or "none"
        raise expected(str(path), "an array images, or train_images", got)
    peaks = set()
    for name, images in parts.items():
        where = f"{path}:{name}"
        if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[-1] != 3):
            raise expected(where, "pictures (n, height, width[, 3])", images.shape)
        if 0 in images.shape:
            raise expected(where, "at least one picture", images.shape)
        if images.dtype.kind == "f" and not np.isfinite(images).all():
            bad = int((~np.isfinite(images.reshape(len(images), -1)).all(1)).argmax())
            raise expected(where, "finite pixels", f"NaN or infinity in picture {bad}")
        peaks.add(_peak(where, images))
    if len(peaks) > 1:
        raise expected(str(path), "the same kind of pixels in every part", sorted(peaks))
    return parts, peaks.pop(), str(path)


def _from_files(path: Path, size: int) -> dict[str, Bytes]:
    zips = [path] if path.is_file() else sorted(path.glob("*.zip"))
    if path.is_file() and path.suffix.lower() != ".zip":
        want = "a folder or zip file of pictures, an .npy or .npz file, MNIST or CIFAR-10"
        raise expected(str(path), want, f"*{path.suffix}")
    with ExitStack() as stack:
        entries = [e for p in (zips or [path]) for e in _list(p, stack)]
        if not entries:
            raise expected(str(path), f"pictures ({', '.join(sorted(SUFFIXES))})", "none")
        groups: dict[str, list[Bytes]] = {}
        for split, entry in _by_split(_without_wrapper(entries), path):
            image = decode(entry.read(), entry.where)
            groups.setdefault(split, []).append(_fit(image, size, groups, entry))
    colour = any(x.ndim == 3 for items in groups.values() for x in items)
    kind = as_colour if colour else as_grey
    return {split: np.stack([kind(x) for x in items]) for split, items in groups.items()}


def _by_split(entries: Sequence[_Entry], path: Path) -> Iterator[tuple[str, _Entry]]:
    divided = any(e.parts[0].lower() in _SPLITS and len(e.parts) > 1 for e in entries)
    for entry in entries:
        split = _SPLITS.get(entry.parts[0].lower()) if divided else "train"
        if split is None:
            raise expected(str(path), "every picture under train, valid or test", entry.where)
        yield split, entry
    if divided and not any(_SPLITS.get(e.parts[0].lower()) == "train" for e in entries):
        raise expected(str(path), "a train folder", ", ".join({e.parts[0] for e in entries}))


def _fit(image: Bytes, size: int, groups: dict[str, list[Bytes]], entry: _Entry) -> Bytes:
    if size:
        return fit_picture(image, size, size)
    first = next((x for items in groups.values() for x in items), image)
    if image.shape[:2] != first.shape[:2]:
        want = f"a picture of {first.shape[1]}x{first.shape[0]} like the others"
        got = f"{image.shape[1]}x{image.shape[0]}"
        raise expected(entry.where, want, got, "or give --image-size to bring all to one size")
    return image


def _same_kind(parts: Sequence[Bytes], channels: Channels) -> list[Bytes]:
    """All parts (n, h, w) or all (n, h, w, 3)."""
    colour = any(x.ndim == 4 for x in parts) if channels == "auto" else channels == "colour"
    return [_recolour(x, colour) for x in parts]


def _recolour(images: Bytes, colour: bool) -> Bytes:
    if colour:
        return images if images.ndim == 4 else np.repeat(images[..., None], 3, -1)
    if images.ndim == 3:
        return images
    luma: Bytes = images @ np.array([0.299, 0.587, 0.114])
    if images.dtype == np.uint8:
        luma = luma.round()
    return luma.astype(images.dtype)


def _resized(images: Bytes, size: int, peak: float) -> Bytes:
    if not size or images.shape[1:3] == (size, size):
        return images
    scaled = (images * (255.0 / peak)).round().astype(np.uint8)
    fitted = np.stack([fit_picture(x, size, size) for x in scaled])
    return fitted if peak == 255.0 else fitted.astype(np.float32) * np.float32(peak / 255.0)


def _complete(
    parts: dict[str, Bytes], peak: float, origin: str, valid_share: float, test_share: float
) -> Pictures:
    """Takes what parts are missing out of the training pictures, in a fixed shuffle."""
    whole = parts["train"]
    order = permutation(0, len(whole), STREAMS["split"])
    start = 0
    for name, share in (("test", test_share), ("valid", valid_share)):
        if name not in parts:
            stop = start + round(len(whole) * share)
            parts[name] = whole[np.sort(order[start:stop])]
            start = stop
    parts["train"] = whole[np.sort(order[start:])] if start else whole
    for name, part in parts.items():
        if not len(part):
            got = f"none in the {name} part of {len(whole)} pictures"
            raise expected(origin, "pictures in every part", got, "more pictures are needed")
    return Pictures(parts["train"], parts["valid"], parts["test"], peak, origin)
