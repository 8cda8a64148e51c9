"""The IDX format of MNIST: a header of sizes, then the numbers, plain or gzipped.

Four bytes 0, 0, type, dimensions; one big-endian 32-bit size per dimension; then the values in
C order, big-endian.
"""

import gzip
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lawful.errors import InputError, expected
from lawful.tasks.data._images import (
    ImageData,
    ImageSet,
    check_images,
    check_same,
    count_classes,
    divide,
)

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_PARTS = {"train": ("train",), "test": ("t10k", "test")}


def read_idx(path: Path) -> npt.NDArray[Any]:
    """The array of an IDX file, gzipped or not (told by its first bytes).

    Raises:
        InputError: For a missing, truncated or overlong file, or a wrong magic number.
    """
    raw = _read(path)
    if len(raw) < 4 or raw[0] or raw[1] or raw[2] not in _TYPES or not raw[3]:
        want = "an IDX file (first bytes 0, 0, type, dimensions)"
        raise expected(str(path), want, f"{len(raw)} bytes that begin with {raw[:4].hex(' ')}")
    dtype, dims = np.dtype(_TYPES[raw[2]]), raw[3]
    start = 4 + 4 * dims
    if len(raw) < start:
        raise expected(str(path), f"a header of {start} bytes", f"{len(raw)} bytes: truncated")
    shape = tuple(int(s) for s in np.frombuffer(raw, ">u4", dims, 4))
    need = dtype.itemsize
    for size in shape:
        need *= size  # Python's own numbers: a header cannot overflow them
    if len(raw) != start + need:
        problem = "truncated" if len(raw) < start + need else "too long"
        want = f"{need} bytes of data for sizes {shape}"
        raise expected(str(path), want, f"{len(raw) - start} bytes: {problem}")
    values = np.frombuffer(raw, dtype, offset=start).reshape(shape)
    return values.astype(dtype.newbyteorder("="))


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise expected(str(path), "an IDX file", "no such file")
    raw = path.read_bytes()
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path}: expected a whole gzip file, got {error}") from error


def find_idx(folder: Path) -> dict[str, Path]:
    """The IDX files of a folder by role ("train-images", ...); empty where there are none."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        name = path.name.lower()
        if "idx" not in name or not path.is_file():
            continue
        for part, prefixes in _PARTS.items():
            for what in ("images", "labels"):
                if name.startswith(prefixes) and what in name:
                    found.setdefault(f"{part}-{what}", path)
    return found


def read_idx_folder(folder: Path, valid_share: float, test_share: float) -> ImageData:
    """MNIST and its like: train and t10k (or test) images and labels of a folder.

    Without test files a share of the training pictures is the test part.

    Raises:
        InputError: For a missing file, or files that do not fit together.
    """
    found = find_idx(folder)
    sets: dict[str, ImageSet] = {}
    classes = 0
    for part in ("train", "test"):
        pair = [found.get(f"{part}-{what}") for what in ("images", "labels")]
        if part == "test" and not any(pair):
            continue
        for what, path in zip(("images-idx3", "labels-idx1"), pair, strict=True):
            if path is None:
                stem = "t10k" if part == "test" else part
                got = ", ".join(sorted(p.name for p in found.values()))
                raise expected(str(folder), f"a file {stem}-{what}-ubyte[.gz]", got)
        sets[part] = _read_pair(*(p for p in pair if p is not None))
        if part == "train":
            classes = count_classes(str(pair[1]), sets[part].labels)
        check_same(str(found[f"{part}-images"]), sets[part], sets["train"], classes)
    names = [str(i) for i in range(classes)]
    return divide(sets, names, 255.0, f"IDX files in {folder}", valid_share, test_share)


def _read_pair(images_path: Path, labels_path: Path) -> ImageSet:
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.ndim != 3 or images.dtype != np.uint8:
        got = f"{images.dtype} of sizes {images.shape}"
        raise expected(str(images_path), "bytes of sizes (pictures, height, width)", got)
    if labels.ndim != 1:
        raise expected(str(labels_path), "one dimension", f"sizes {labels.shape}")
    if len(labels) != len(images):
        want = f"{len(images)} labels, as many as pictures in {images_path.name}"
        raise expected(str(labels_path), want, len(labels))
    return check_images(str(images_path), images, labels)
