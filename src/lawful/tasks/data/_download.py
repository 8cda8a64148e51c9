"""Published data sets by name, fetched once into a cache folder and checked by SHA-256."""

import hashlib
import os
import sys
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lawful.errors import InputError, expected

Progress = Callable[[str, int, int], None]  # file name, bytes so far, bytes in all (0: unknown)


@dataclass(frozen=True)
class Remote:
    """A file to fetch: its name here, its address, and the SHA-256 of its bytes."""

    name: str
    url: str
    sha256: str


_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_CIFAR = "https://www.cs.toronto.edu/~kriz/"

DATASETS: dict[str, tuple[Remote, ...]] = {
    "mnist": tuple(
        Remote(f"{stem}-ubyte.gz", f"{_MNIST}{stem}-ubyte.gz", digest)
        for stem, digest in (
            (
                "train-images-idx3",
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            (
                "train-labels-idx1",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            (
                "t10k-images-idx3",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            (
                "t10k-labels-idx1",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        )
    ),
    "cifar10": (
        Remote(
            "cifar-10-binary.tar.gz",
            f"{_CIFAR}cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
}


def cache_folder() -> Path:
    """Where fetched data is kept: $LAWFUL_CACHE, else lawful/ in the user's cache folder."""
    own = os.environ.get("LAWFUL_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lawful"


def fetch_dataset(name: str, folder: Path | None = None, progress: Progress | None = None) -> Path:
    """The folder that holds a published data set, fetched if it is not there yet.

    Args:
        name: One of `DATASETS`.
        folder: Where to put it; a folder of that name in `cache_folder` by default.
        progress: Told of each piece; a line on a terminal's standard error by default.

    Raises:
        InputError: For an unknown name, or a fetch that failed or brought other bytes.
    """
    if name not in DATASETS:
        raise expected("download", " or ".join(DATASETS), name)
    return fetch(DATASETS[name], folder or cache_folder() / name, progress or report)


def fetch(remotes: Sequence[Remote], folder: Path, progress: Progress | None = None) -> Path:
    """Fetches the files that are missing or damaged; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for remote in remotes:
        target = folder / remote.name
        if not (target.is_file() and _digest_of(target) == remote.sha256):
            _fetch_one(remote, target, progress)
    return folder


def _fetch_one(remote: Remote, target: Path, progress: Progress | None) -> None:
    scratch = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        # The addresses are constants of this module (or the caller's own), never from data.
        with urllib.request.urlopen(remote.url, timeout=60) as source, scratch.open("wb") as sink:
            total = int(source.headers.get("Content-Length") or 0)
            digest = _copy(source, sink, remote.name, total, progress)
        if digest != remote.sha256:
            want = f"SHA-256 {remote.sha256}"
            raise expected(remote.url, want, digest, "the file there is another or came damaged")
        scratch.replace(target)
    except OSError as error:
        hint = "get the files by hand and name their folder with --data"
        raise InputError(f"could not fetch {remote.url}: {error}; {hint}") from error
    finally:
        scratch.unlink(missing_ok=True)


def _copy(
    source: IO[bytes], sink: IO[bytes], name: str, total: int, progress: Progress | None
) -> str:
    digest, done = hashlib.sha256(), 0
    while piece := source.read(1 << 18):
        sink.write(piece)
        digest.update(piece)
        done += len(piece)
        if progress:
            progress(name, done, total)
    return digest.hexdigest()


def _digest_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def report(name: str, done: int, total: int) -> None:
    """Shows progress on standard error, where that is a terminal."""
    if sys.stderr.isatty():
        share = f"{100 * done // total:3d} %" if total else ""
        end = "\n" if done == total else ""
        print(f"\r{name}  {done / 1e6:8.1f} MB {share}", end=end, file=sys.stderr, flush=True)
