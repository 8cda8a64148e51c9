"""Parallel sentences from the user's files: two files a part, or one of two columns."""

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lawful.errors import InputError, expected
from lawful.tasks._base import Split
from lawful.tasks._random import permutation

Pair = tuple[str, str]
_PARTS: dict[Split, tuple[str, ...]] = {
    "train": ("train",),
    "valid": ("valid", "dev", "validation", "val"),
    "test": ("test",),
}
_TABLES = (".tsv", ".txt")
_SHARE = 0.05  # of one file, for validation and again for testing


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs by part, and where they came from."""

    parts: dict[Split, list[Pair]]
    origin: str
    dropped: int  # pairs with nothing on one side


def read_corpus(path: Path, source: str, target: str) -> Corpus:
    """Reads a folder or zip file of parts, or one file of two columns.

    Args:
        path: A folder or a zip with ``train.SOURCE``, ``train.TARGET``, ``valid`` (or ``dev``)
            and ``test`` likewise, or with ``train.tsv`` and so on; or one ``.tsv`` file, of which
            5 % each are put aside for validation and testing.
        source: Ending of the source files, such as "ja"; "" where one can tell.
        target: Ending of the target files.

    Raises:
        InputError: Nothing that fits, files of different length, or text that is not UTF-8.
    """
    files = _files(path)
    if path.is_file() and path.suffix in _TABLES:
        return _clean(_split(_columns(path.name, next(iter(files.values())))), str(path))
    parts: dict[Split, list[Pair]] = {}
    for split, names in _PARTS.items():
        parts[split] = _part(path, files, names, source, target)
    return _clean(parts, str(path))


def _files(path: Path) -> dict[str, bytes]:
    """Contents by file name; only called for a path that exists."""
    try:
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.is_file())
            return {p.name: p.read_bytes() for p in inside if _wanted(p.name)}
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                names = [n for n in archive.namelist() if _wanted(PurePosixPath(n).name)]
                return {PurePosixPath(n).name: archive.read(n) for n in names}
        if path.is_file() and path.suffix in _TABLES:
            return {path.name: path.read_bytes()}
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"data: cannot read {path}: {error}") from None
    what = "does not exist" if not path.exists() else "is none of them"
    raise InputError(f"data: expected a folder, a zip file or a .tsv file, but {path} {what}")


def _wanted(name: str) -> bool:
    stem = PurePosixPath(name).stem
    return any(stem in names for names in _PARTS.values())


def _part(
    path: Path, files: dict[str, bytes], names: Sequence[str], source: str, target: str
) -> list[Pair]:
    for name in names:
        for ending in _TABLES:
            if name + ending in files:
                return _columns(name + ending, files[name + ending])
        endings = sorted(
            PurePosixPath(f).suffix[1:] for f in files if PurePosixPath(f).stem == name
        )
        if not endings:
            continue
        sides = [_ending(path, endings, given) for given in (source, target)]
        if sides[0] == sides[1]:
            raise expected("source and target", "two different languages", sides[0])
        columns = [_lines(f"{name}.{e}", files[f"{name}.{e}"]) for e in sides]
        if len(columns[0]) != len(columns[1]):
            counts = f"{len(columns[0])} and {len(columns[1])}"
            raise expected(
                str(path), f"as many lines in {name}.{sides[0]} as in .{sides[1]}", counts
            )
        return list(zip(*columns, strict=True))
    wanted = f"{names[0]}.tsv, or {names[0]}.SOURCE and {names[0]}.TARGET"
    raise expected(str(path), wanted, "neither")


def _ending(path: Path, endings: Sequence[str], given: str) -> str:
    if given in endings:
        return given
    told = " and ".join(endings)
    if not given:
        raise InputError(f"{path}: name the languages with --source and --target, of {told}")
    raise expected(str(path), f"files ending in .{given}", told)


def _lines(name: str, content: bytes) -> list[str]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise expected(name, "UTF-8 text", f"byte {error.start} that is not") from None
    return [line.rstrip("\r\n") for line in io.StringIO(text)]


def _columns(name: str, content: bytes) -> list[Pair]:
    found = []
    for number, line in enumerate(_lines(name, content), 1):
        cells = line.split("\t")
        if len(cells) != 2:
            raise expected(f"{name}:{number}", "two columns with a tab between", f"{len(cells)}")
        found.append((cells[0], cells[1]))
    return found


def _split(pairs: list[Pair]) -> dict[Split, list[Pair]]:
    """A fixed share of one file for each part, whatever the run's seed."""
    order = permutation(0, len(pairs)).tolist()
    aside = max(1, int(_SHARE * len(pairs)))
    cuts: dict[Split, slice] = {
        "test": slice(0, aside),
        "valid": slice(aside, 2 * aside),
        "train": slice(2 * aside, None),
    }
    return {name: [pairs[i] for i in sorted(order[cut])] for name, cut in cuts.items()}


def _clean(parts: dict[Split, list[Pair]], origin: str) -> Corpus:
    kept = {k: [p for p in v if p[0].strip() and p[1].strip()] for k, v in parts.items()}
    for name, pairs in kept.items():
        if not pairs:
            raise expected(origin, f"at least one sentence pair for {name}", "none")
    dropped = sum(len(parts[k]) - len(kept[k]) for k in parts)
    return Corpus(kept, origin, dropped)
