"""Labelled pictures of one size, in three parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lawful.errors import expected
from lawful.tasks._random import STREAMS, permutation

Pixels = npt.NDArray[Any]  # (n, height, width) or (n, height, width, 3)
Labels = npt.NDArray[np.int64]  # (n,)


@dataclass(frozen=True)
class ImageSet:
    """Pictures (n, height, width) or (n, height, width, 3) and their class numbers (n,)."""

    images: Pixels
    labels: Labels

    def __len__(self) -> int:
        """Number of pictures."""
        return len(self.labels)

    def take(self, indices: npt.NDArray[np.int64]) -> "ImageSet":
        """The pictures at these places."""
        return ImageSet(self.images[indices], self.labels[indices])


@dataclass(frozen=True)
class ImageData:
    """A picture data set: its parts, the names of its classes, and the value of full brightness."""

    train: ImageSet
    valid: ImageSet
    test: ImageSet
    classes: tuple[str, ...]
    peak: float
    origin: str  # one line that says where it came from


def check_images(name: str, images: Pixels, labels: npt.NDArray[Any]) -> ImageSet:
    """The set after checks: shape, finite values, as many labels as pictures, whole labels.

    Args:
        name: File or folder to name in an error.
        images: (n, height, width) or (n, height, width, 3).
        labels: (n,) whole numbers >= 0.

    Raises:
        InputError: For the first thing that does not hold.
    """
    if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[-1] != 3):
        raise expected(name, "pictures (n, height, width[, 3])", f"an array of {images.shape}")
    if 0 in images.shape:
        raise expected(name, "at least one picture", f"an array of {images.shape}")
    if labels.shape != images.shape[:1]:
        raise expected(name, f"{len(images)} labels, one a picture", f"{labels.shape} labels")
    if images.dtype.kind == "f":
        bad = ~np.isfinite(images.reshape(len(images), -1)).all(axis=1)
        if bad.any():
            where = f"NaN or infinity in picture {int(bad.argmax())} ({int(bad.sum())} such)"
            raise expected(name, "finite pixels", where)
    if labels.dtype.kind not in "iu":
        raise expected(name, "whole numbers as labels", labels.dtype)
    if (labels < 0).any():
        raise expected(name, "labels from 0 on", int(labels.min()))
    return ImageSet(images, labels.astype(np.int64))


def count_classes(name: str, labels: Labels) -> int:
    """The number of classes K of training labels, each of 0..K-1 being there.

    Raises:
        InputError: With fewer than two classes, or where a class below the largest is missing.
    """
    counts = np.bincount(labels)
    if (counts == 0).any():
        missing, top = int((counts == 0).argmax()), len(counts) - 1
        got = f"label {top} (picture {int(labels.argmax())}) but none is {missing}"
        raise expected(name, "labels 0..K-1, each of them in use", got)
    if len(counts) < 2:
        raise expected(name, "at least two classes", len(counts))
    return len(counts)


def check_same(name: str, part: ImageSet, train: ImageSet, classes: int) -> None:
    """Raises `InputError` unless a part has the size and the classes of the training pictures."""
    if part.images.shape[1:] != train.images.shape[1:]:
        raise expected(
            name, f"pictures of {_size(train.images)} as in training", _size(part.images)
        )
    if len(part) and part.labels.max() >= classes:
        raise expected(name, f"labels in 0..{classes - 1}", int(part.labels.max()))


def _size(images: Pixels) -> str:
    kind = "colour" if images.ndim == 4 else "grey"
    return f"{images.shape[2]}x{images.shape[1]} {kind}"


def stratified_parts(
    labels: Labels, shares: Sequence[float], seed: int = 0
) -> list[npt.NDArray[np.int64]]:
    """Disjoint index sets of about these shares of every class, then all the rest.

    A class of n pictures gives round(n * share) to each part, by a shuffle that depends on
    ``seed`` and the class alone. Each result is sorted.
    """
    parts: list[list[npt.NDArray[np.int64]]] = [[] for _ in range(len(shares) + 1)]
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        members = members[permutation(seed + int(label), len(members), STREAMS["split"])]
        start = 0
        for part, share in zip(parts, shares, strict=False):
            stop = start + round(len(members) * share)
            part.append(members[start:stop])
            start = stop
        parts[-1].append(members[start:])
    return [np.sort(np.concatenate(p)) for p in parts]


def divide(
    sets: dict[str, ImageSet],
    classes: Sequence[str],
    peak: float,
    origin: str,
    valid_share: float,
    test_share: float,
) -> ImageData:
    """Completes a data set: a missing test or validation part is taken out of the training part.

    Raises:
        InputError: If a part ends up empty.
    """
    train, valid, test = sets["train"], sets.get("valid"), sets.get("test")
    wanted = [0.0 if test else test_share, 0.0 if valid else valid_share]
    for_test, for_valid, rest = stratified_parts(train.labels, wanted)
    whole = train
    train = whole.take(rest)
    test = test or whole.take(for_test)
    valid = valid or whole.take(for_valid)
    for name, part in (("train", train), ("valid", valid), ("test", test)):
        if not len(part):
            got = f"none in the {name} part of {len(whole)} pictures"
            hint = "more pictures per class, or larger shares, are needed"
            raise expected(origin, "pictures in every part", got, hint)
    return ImageData(train, valid, test, tuple(classes), peak, origin)
