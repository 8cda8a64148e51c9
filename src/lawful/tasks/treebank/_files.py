"""Finding the training, validation and test files in what the user named: a file, folder or zip."""

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from lawful.errors import InputError, expected
from lawful.tasks.treebank._columns import read_columns
from lawful.tasks.treebank._conllu import read_conllu
from lawful.tasks.treebank._sentence import BOM, Sentence

Role = Literal["train", "valid", "test", "whole"]
_COLUMN_ENDINGS = (".conll", ".tsv", ".bio", ".bio2", ".iob", ".iob2", ".txt")
ENDINGS = (".conllu", *_COLUMN_ENDINGS)
_ROLES: dict[str, Role] = {
    "train": "train", "dev": "valid", "valid": "valid", "val": "valid",
    "validation": "valid", "test": "test",
}  # fmt: skip


@dataclass(frozen=True)
class File:
    """A file on disk, or a member of a zip archive."""

    path: Path
    member: str = ""

    @property
    def name(self) -> str:
        """The name for messages."""
        return f"{self.path}:{self.member}" if self.member else str(self.path)

    def lines(self) -> Iterator[bytes]:
        """The file's lines, read as they are asked for.

        Raises:
            InputError: The file cannot be read.
        """
        try:
            if not self.member:
                with self.path.open("rb") as file:
                    yield from file
                return
            with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as packed:
                yield from packed
        except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise InputError(f"{self.name}: cannot be read: {error}") from None


def find_files(path: Path) -> dict[Role, list[File]]:
    """The files to use, by their part: "train", "valid", "test"; or a single file as "whole".

    In a folder or zip archive, names must hold train, dev (or valid) and test as a word of their
    own; CoNLL-U files win over others. One lone file is "whole".

    Raises:
        InputError: Nothing there, or no file for training among several.
    """
    if not path.exists():
        raise InputError(f"data: {path} does not exist")
    if path.is_file() and path.suffix.lower() != ".zip":
        return {"whole": [File(path)]}
    found = _candidates(path)
    if len(found) == 1:
        return {"whole": found}
    parts: dict[Role, list[File]] = {}
    for file in found:
        role = _role(file)
        if role is not None:
            parts.setdefault(role, []).append(file)
    if "train" not in parts:
        want = "files with train, dev and test in their names, or a single file"
        names = ", ".join(PurePosixPath(f.member or f.path.name).name for f in found[:5])
        raise expected(f"data: {path}", want, names or "none", f"endings: {' '.join(ENDINGS)}")
    return parts


def _candidates(path: Path) -> list[File]:
    if path.is_dir():
        files = [File(p) for p in sorted(path.iterdir()) if p.is_file()]
    else:
        try:
            with zipfile.ZipFile(path) as archive:
                names = sorted(i.filename for i in archive.infolist() if not i.is_dir())
        except (OSError, zipfile.BadZipFile) as error:
            raise InputError(f"data: {path} cannot be read as a zip archive: {error}") from None
        files = [File(path, n) for n in names if "__MACOSX" not in n]
    files = [f for f in files if not _base(f).startswith(".")]
    conllu = [f for f in files if _base(f).endswith(".conllu")]
    return conllu or [
        f
        for f in files
        if _base(f).endswith(_COLUMN_ENDINGS) and not _base(f).startswith(("readme", "license"))
    ]


def _base(file: File) -> str:
    return PurePosixPath(file.member or file.path.name).name.lower()


def _role(file: File) -> Role | None:
    for word in re.split("[^a-z]+", _base(file)):
        if word in _ROLES:
            return _ROLES[word]
    return None


def is_conllu(file: File) -> bool:
    """Whether a file is CoNLL-U: by its ending, or else by its first word's line."""
    if file.path.suffix.lower() == ".conllu" or file.member.lower().endswith(".conllu"):
        return True
    for raw in file.lines():
        line = raw.decode("utf-8", "replace").removeprefix(BOM)
        if line.strip() and not line.startswith("#"):
            return len(line.split("\t")) == 10
    return False


def read_sentences(file: File, *, single: bool = False) -> Iterator[Sentence]:
    """The sentences of a CoNLL-U or column file, one at a time.

    Args:
        file: What to read.
        single: Whether one column (words alone) will do in a column file.

    Raises:
        InputError: The file is malformed, with file and line.
    """
    if is_conllu(file):
        return read_conllu(file.lines(), file.name)
    return read_columns(file.lines(), file.name, single=single)
