"""Text from files, its parts, and characters as numbers."""

import gzip
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from lawful.errors import InputError, expected

Form = Literal["plain", "ptb-words", "ptb-characters"]
Codes = npt.NDArray[np.int64]
UNKNOWN = 0  # code of every character that the training text does not hold
UNKNOWN_SIGN = "\ufffd"  # how it is written
_NAMES = {
    "train": ("train", "training"),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test", "testing"),
}


@dataclass(frozen=True)
class Alphabet:
    """Characters as numbers: 0 for any unknown one, then the known ones by code point.

    Args:
        characters: The known characters, in order, none twice.
    """

    characters: str

    @staticmethod
    def of(text: str, min_count: int = 1) -> "Alphabet":
        """The characters that occur at least ``min_count`` times."""
        return Alphabet("".join(sorted(c for c, n in Counter(text).items() if n >= min_count)))

    def __len__(self) -> int:
        """Number of codes, with that of unknown characters."""
        return len(self.characters) + 1

    def encode(self, text: str) -> Codes:
        """Codes (len(text),) in 0..len-1."""
        known, points = _points(self.characters), _points(text)
        if not len(known):
            return np.zeros(len(points), np.int64)
        at = np.searchsorted(known, points).clip(max=len(known) - 1)
        return np.where(known[at] == points, at + 1, UNKNOWN).astype(np.int64)

    def decode(self, codes: Iterable[int]) -> str:
        """Text of codes; U+FFFD stands for unknown characters."""
        return "".join(self.characters[c - 1] if c else UNKNOWN_SIGN for c in codes)


def _points(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def ptb_characters(words: str) -> str:
    """Penn Treebank's characters from its words, one sentence a line.

    Blanks around a line are dropped, a blank within it becomes ``_``, the end of a line stays a
    character of its own. Written with a blank after each character this is, byte for byte, the
    character form that others publish (5,017,482 characters to train, 50 distinct).
    """
    lines = words.split("\n")
    if lines and not lines[-1].strip(" "):
        lines.pop()
    return "".join(line.strip(" ").replace(" ", "_") + "\n" for line in lines)


def in_form(text: str, form: Form, where: str) -> str:
    """The characters to model of a text in one of the forms.

    Raises:
        InputError: "ptb-characters" of a text that is not single characters between blanks.
    """
    if form == "ptb-words":
        return ptb_characters(text)
    if form == "ptb-characters":
        characters, blanks = text[::2], text[1::2]
        if set(blanks) - {" "} or " " in characters:
            raise expected(where, "single characters, each with one blank behind it", "other text")
        return characters
    return text


def out_of_form(text: str, form: Form) -> str:
    """Modelled characters as a person reads them."""
    return text if form == "plain" else text.replace("_", " ")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, plain or ``.gz``; the ends of all lines are newlines.

    Raises:
        InputError: It cannot be read, or is no UTF-8 text.
    """
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise expected(str(path), "UTF-8 text", f"byte {error.start} that is none") from error
    except (OSError, EOFError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_texts(
    path: Path, form: Form = "plain", valid_share: float = 0.05, test_share: float = 0.05
) -> dict[str, str]:
    """The training, validation and test text that a file or folder holds.

    One file is cut by position: the last ``test_share`` of its characters are the test text, and
    the ``valid_share`` before them the validation text. A folder has one file for each part, with
    "train", "valid" (or "val", "dev") and "test" as a word of its name, or a single file.

    Args:
        path: File or folder.
        form: "plain" as it stands; "ptb-words" see `ptb_characters`; "ptb-characters" that form
            ready made, a blank after each character.
        valid_share: Share of the characters, above 0.
        test_share: Share of the characters, above 0.

    Returns:
        "train", "valid" and "test".

    Raises:
        InputError: No such path, no or several files for a part, an unreadable or empty one.
    """
    if path.is_dir():
        files = _files_of_parts(path)
        if isinstance(files, dict):
            texts = {part: in_form(read_text(f), form, str(f)) for part, f in files.items()}
            for part, text in texts.items():
                if not text:
                    raise expected(str(files[part]), "a text", "an empty file")
            return texts
        path = files
    elif not path.is_file():
        raise expected(str(path), "a text file, or a folder of them", "no such path")
    text = in_form(read_text(path), form, str(path))
    if not text:
        raise expected(str(path), "a text", "an empty file")
    return cut(text, valid_share, test_share)


def cut(text: str, valid_share: float, test_share: float) -> dict[str, str]:
    """The three parts of one text, by position."""
    test = len(text) - round(test_share * len(text))
    valid = test - round(valid_share * len(text))
    return {"train": text[:valid], "valid": text[valid:test], "test": text[test:]}


def _files_of_parts(folder: Path) -> dict[str, Path] | Path:
    files = sorted(f for f in folder.iterdir() if f.is_file() and not f.name.startswith("."))
    words = {f: set(re.split(r"[._\- ]+", f.name.lower())) for f in files}
    found = {part: [f for f in files if words[f] & set(own)] for part, own in _NAMES.items()}
    if not any(found.values()) and len(files) == 1:
        return files[0]
    for part, own in found.items():
        if len(own) != 1:
            got = ", ".join(f.name for f in own or files) or "an empty folder"
            raise expected(str(folder), f"one file with {part!r} as a word of its name", got)
    return {part: own[0] for part, own in found.items()}
