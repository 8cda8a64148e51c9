"""Pictures in class folders, on disk or in zip files: [train|valid|test]/class/picture.png."""

import io
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from lawful.errors import InputError, expected
from lawful.tasks.data._images import (
    ImageData,
    ImageSet,
    Pixels,
    check_images,
    check_same,
    divide,
)

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm"}
)
_SPLITS = {
    "train": "train",
    "training": "train",
    "valid": "valid",
    "val": "valid",
    "validation": "valid",
    "dev": "valid",
    "test": "test",
    "testing": "test",
}
_GREY_MODES = frozenset({"1", "L", "LA", "F"})


@dataclass(frozen=True)
class _Entry:
    parts: tuple[str, ...]  # folders and file name, from the root of the data set
    where: str  # named in errors
    read: Callable[[], bytes]


def decode(raw: bytes, where: str) -> Pixels:
    """A picture's bytes as uint8 values: (height, width) if grey, else (height, width, 3).

    Raises:
        InputError: If they are no picture, or a damaged one.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(raw)) as image:
            if image.mode.startswith("I"):  # 16 bits a pixel
                return (np.asarray(image).astype(np.int64) // 257).clip(0, 255).astype(np.uint8)
            grey = image.mode in _GREY_MODES
            return np.asarray(image.convert("L" if grey else "RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{where}: expected a picture, got {error}") from error


def as_colour(image: Pixels) -> Pixels:
    """(height, width, 3), grey repeated."""
    return image if image.ndim == 3 else np.repeat(image[..., None], 3, axis=-1)


def as_grey(image: Pixels) -> Pixels:
    """(height, width): the luma 0.299 R + 0.587 G + 0.114 B of a colour picture."""
    if image.ndim == 2:
        return image
    luma: Pixels = image @ np.array([0.299, 0.587, 0.114])
    return luma.round().astype(np.uint8)


def read_class_folders(
    paths: Sequence[Path], origin: str, valid_share: float, test_share: float
) -> ImageData:
    """The pictures of one data set spread over folders and zip files.

    A picture's class is its folder. Where the top folders are named train, valid (val, dev) or
    test, they are the parts; otherwise shares of every class are taken out. Grey pictures among
    coloured ones become coloured.

    Raises:
        InputError: For no pictures, pictures outside class folders, damaged ones, other sizes,
            or a test class that training lacks.
    """
    with ExitStack() as stack:
        entries = _without_wrapper([e for p in paths for e in _list(p, stack)])
        if not entries:
            suffixes = ", ".join(sorted(SUFFIXES))
            raise expected(origin, f"pictures ({suffixes}) in class folders", "none")
        groups = _group(entries, origin)
        names = _class_names(groups, origin)
        loaded = {
            split: [(decode(e.read(), e.where), names.index(c), e.where) for c, e in members]
            for split, members in groups.items()
        }
    colour = any(image.ndim == 3 for items in loaded.values() for image, _, _ in items)
    first: list[tuple[tuple[int, ...], str]] = []
    sets = {split: _stack(items, colour, first) for split, items in loaded.items()}
    for part in sets.values():
        check_same(origin, part, sets["train"], len(names))
    return divide(sets, names, 255.0, origin, valid_share, test_share)


def _list(path: Path, stack: ExitStack) -> Iterator[_Entry]:
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            parts = file.relative_to(path).parts
            if file.suffix.lower() in SUFFIXES and not any(p.startswith(".") for p in parts):
                yield _Entry(parts, str(file), file.read_bytes)
        return
    try:
        archive = stack.enter_context(zipfile.ZipFile(path))
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: expected a zip file, got {error}") from error
    for info in sorted(archive.infolist(), key=lambda i: i.filename):
        name = PurePosixPath(info.filename)
        hidden = any(p.startswith((".", "__MACOSX")) for p in name.parts)
        if name.suffix.lower() in SUFFIXES and not hidden and not info.is_dir():
            yield _Entry(name.parts, f"{path}:{name}", _reader(archive, info, path))


def _reader(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            return archive.read(info)
        except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
            raise InputError(f"{path}:{info.filename}: cannot be unpacked: {error}") from error

    return read


def _without_wrapper(entries: list[_Entry]) -> list[_Entry]:
    # A zip file often holds one folder with everything in it.
    while entries:
        tops = {e.parts[0].lower() for e in entries}
        deep = min(len(e.parts) for e in entries)
        if len(tops) > 1 or deep < 3 or tops & _SPLITS.keys():
            break
        entries = [_Entry(e.parts[1:], e.where, e.read) for e in entries]
    return entries


def _group(entries: list[_Entry], origin: str) -> dict[str, list[tuple[str, _Entry]]]:
    groups: dict[str, list[tuple[str, _Entry]]] = {}
    divided = any(e.parts[0].lower() in _SPLITS and len(e.parts) > 2 for e in entries)
    for entry in entries:
        split = _SPLITS.get(entry.parts[0].lower()) if divided else "train"
        inner = entry.parts[1:] if divided else entry.parts
        if split is None or len(inner) < 2:
            want = "class/picture under train, valid or test" if divided else "class/picture"
            raise expected(origin, want, entry.where)
        groups.setdefault(split, []).append((inner[0], entry))
    if "train" not in groups:
        raise expected(origin, "a train folder", ", ".join(sorted(groups)))
    return groups


def _class_names(groups: dict[str, list[tuple[str, _Entry]]], origin: str) -> list[str]:
    names = {c for c, _ in groups["train"]}
    ordered = sorted(names, key=(int if all(n.isdecimal() for n in names) else str))
    if len(names) < 2:
        raise expected(origin, "at least two class folders", ", ".join(ordered))
    for split, members in groups.items():
        for name, entry in members:
            if name not in names:
                raise expected(entry.where, f"a class that train has in the {split} part", name)
    return ordered


def _stack(
    items: list[tuple[Pixels, int, str]], colour: bool, first: list[tuple[tuple[int, ...], str]]
) -> ImageSet:
    images = []
    for image, _, where in items:
        image = as_colour(image) if colour else image
        if not first:
            first.append((image.shape, where))
        shape, reference = first[0]
        if image.shape != shape:
            want = f"a picture of {shape[1]}x{shape[0]} like {reference}"
            raise expected(where, want, f"{image.shape[1]}x{image.shape[0]}")
        images.append(image)
    labels = np.array([label for _, label, _ in items], dtype=np.int64)
    return check_images(items[0][2], np.stack(images), labels)
