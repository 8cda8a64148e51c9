"""Finds out what a path holds, and reads it."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lawful.errors import InputError, expected
from lawful.tasks.data._cifar import ARCHIVE, is_batch, read_cifar
from lawful.tasks.data._folders import SUFFIXES, read_class_folders
from lawful.tasks.data._idx import find_idx, read_idx_folder
from lawful.tasks.data._images import (
    ImageData,
    ImageSet,
    check_images,
    check_same,
    count_classes,
    divide,
)

KINDS = (
    "IDX files (MNIST), CIFAR-10's *.bin files or archive, class folders of pictures "
    "(or zip files of them), or an .npz file with images and labels"
)


def load_digits(valid_share: float = 0.1, test_share: float = 0.2) -> ImageData:
    """scikit-learn's 1,797 scanned digits, 8x8 pixels of 0..16: real and always at hand.

    With the default shares 1,259 train, 179 validate and 359 test, whatever the seed of a run.

    Source: Alpaydin and Kaynak (1998), "Optical recognition of handwritten digits", UCI.

    Raises:
        InputError: If scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits as load
    except ImportError as error:
        hint = 'pip install "lawful[train]", or name a folder with --data'
        raise InputError(f"the embedded digits need scikit-learn; {hint}") from error
    bunch: Any = load()
    images = bunch.images.astype(np.uint8)
    whole = check_images("digits", images, bunch.target)
    names = [str(i) for i in range(10)]
    return divide({"train": whole}, names, 16.0, "digits of scikit-learn", valid_share, test_share)


def load_images(path: Path | None, valid_share: float = 0.1, test_share: float = 0.2) -> ImageData:
    """Labelled pictures from whatever the user names, or the embedded digits for None.

    Args:
        path: A folder or file of one of `KINDS`.
        valid_share: Share of each class for validation, where the data has no such part.
        test_share: Share of each class for testing, where the data has no such part.

    Raises:
        InputError: If there is nothing of these kinds, or what is there is damaged.
    """
    if path is None:
        return load_digits(valid_share, test_share)
    if not path.exists():
        raise expected(str(path), "a folder or file with pictures", "no such path")
    if path.is_file():
        return _load_file(path, valid_share, test_share)
    return _load_folder(path, valid_share, test_share)


def _load_file(path: Path, valid_share: float, test_share: float) -> ImageData:
    name = path.name.lower()
    if name.endswith(".npz"):
        return _load_npz(path, valid_share, test_share)
    if name.endswith(".zip"):
        return read_class_folders([path], str(path), valid_share, test_share)
    if name.endswith((".tar.gz", ".tgz", ".tar")):
        return read_cifar(path, valid_share, test_share)
    if "idx" in name:
        raise expected(str(path), "the folder of the IDX files", "one of the files")
    raise expected(str(path), KINDS, "a file of another kind")


def _load_folder(path: Path, valid_share: float, test_share: float) -> ImageData:
    for folder in [path, *(f for f in sorted(path.glob("*")) if f.is_dir()), path / "MNIST/raw"]:
        if not folder.is_dir():
            continue
        if find_idx(folder):
            return read_idx_folder(folder, valid_share, test_share)
        if any(is_batch(f.name) for f in folder.iterdir()):
            return read_cifar(folder, valid_share, test_share)
        if (folder / ARCHIVE).is_file():
            return read_cifar(folder / ARCHIVE, valid_share, test_share)
        if (folder / "data_batch_1").is_file():
            hint = "get the binary version (*.bin): pickles are not opened"
            raise expected(str(folder), KINDS, "CIFAR-10's Python pickles", hint)
    zips = sorted(path.glob("*.zip"))
    if zips:
        return read_class_folders(zips, str(path), valid_share, test_share)
    if not any(f.suffix.lower() in SUFFIXES for f in path.rglob("*")):
        empty = "an empty folder" if not any(path.iterdir()) else "none of these"
        raise expected(str(path), KINDS, empty)
    return read_class_folders([path], str(path), valid_share, test_share)


def _load_npz(path: Path, valid_share: float, test_share: float) -> ImageData:
    arrays = read_arrays(path)
    sets: dict[str, ImageSet] = {}
    for part, prefix in (
        ("train", ""),
        ("train", "train_"),
        ("valid", "valid_"),
        ("test", "test_"),
    ):
        if f"{prefix}images" in arrays:
            if f"{prefix}labels" not in arrays:
                raise expected(str(path), f"an array {prefix}labels", ", ".join(sorted(arrays)))
            name = f"{path}:{prefix}images"
            sets[part] = check_images(name, arrays[f"{prefix}images"], arrays[f"{prefix}labels"])
    if "train" not in sets:
        raise expected(
            str(path), "arrays images and labels (or train_..., test_...)", ", ".join(arrays)
        )
    count = count_classes(str(path), sets["train"].labels)
    peaks = set()
    for part, found in sets.items():
        check_same(f"{path}:{part}", found, sets["train"], count)
        peaks.add(_peak(f"{path}:{part}", found.images))
    if len(peaks) > 1:
        raise expected(str(path), "the same kind of pixels in every part", sorted(peaks))
    names = [str(i) for i in range(count)]
    return divide(sets, names, peaks.pop(), str(path), valid_share, test_share)


def _peak(name: str, images: npt.NDArray[Any]) -> float:
    if images.dtype == np.uint8:
        return 255.0
    if images.dtype.kind != "f":
        raise expected(name, "bytes, or floats in [0, 1]", images.dtype)
    if images.min() < 0 or images.max() > 1:
        raise expected(name, "floats in [0, 1]", f"{images.min():g}..{images.max():g}")
    return 1.0


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an .npz file, or the one of an .npy file under the name "images".

    Raises:
        InputError: If it is none, or would need pickle.
    """
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"images": loaded}
        with loaded:
            return {k: loaded[k] for k in loaded.files}
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise InputError(f"{path}: expected a NumPy file, got {error}") from error
