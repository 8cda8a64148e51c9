"""CIFAR-10 in its published binary form: records of one label byte and 3 x 32 x 32 pixels."""

import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lawful.errors import InputError, expected
from lawful.tasks.data._images import ImageData, ImageSet, check_images, divide

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_RECORD = 1 + 3 * 32 * 32
ARCHIVE = "cifar-10-binary.tar.gz"


def is_batch(name: str) -> bool:
    """Whether a file of this name holds CIFAR-10 records."""
    return name.endswith(".bin") and name.startswith(("data_batch_", "test_batch"))


def read_records(raw: bytes, where: str) -> ImageSet:
    """Pictures (n, 32, 32, 3) and labels of one batch file.

    Raises:
        InputError: For a size that is no whole number of records, or a label above 9.
    """
    if not raw or len(raw) % _RECORD:
        raise expected(where, f"records of {_RECORD} bytes", f"{len(raw)} bytes: truncated")
    records = np.frombuffer(raw, np.uint8).reshape(-1, _RECORD)
    labels = records[:, 0]
    if labels.max() > 9:
        raise expected(where, "labels in 0..9", f"{labels.max()} in record {labels.argmax()}")
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return check_images(where, np.ascontiguousarray(images), labels)


def read_cifar(path: Path, valid_share: float, test_share: float) -> ImageData:
    """CIFAR-10 from a folder of ``*.bin`` files or from the published archive.

    Raises:
        InputError: For missing, truncated or damaged files.
    """
    parts: dict[str, list[ImageSet]] = {}
    for name, raw in _from_archive(path) if path.is_file() else _from_folder(path):
        part = "test" if name.startswith("test") else "train"
        parts.setdefault(part, []).append(read_records(raw, f"{path}:{name}"))
    if "train" not in parts:
        raise expected(str(path), "data_batch_1.bin and its fellows", "none of them")
    sets = {
        part: ImageSet(
            np.concatenate([s.images for s in found]), np.concatenate([s.labels for s in found])
        )
        for part, found in parts.items()
    }
    return divide(sets, CLASSES, 255.0, f"CIFAR-10 in {path}", valid_share, test_share)


def _from_folder(folder: Path) -> Iterator[tuple[str, bytes]]:
    for file in sorted(folder.iterdir()):
        if is_batch(file.name):
            yield file.name, file.read_bytes()


def _from_archive(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with tarfile.open(path) as archive:
            members = {Path(m.name).name: m for m in archive.getmembers() if m.isfile()}
            for name in sorted(members):
                if is_batch(name):
                    stream = archive.extractfile(members[name]) or io.BytesIO()
                    yield name, stream.read()
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise InputError(f"{path}: expected a whole tar archive, got {error}") from error
