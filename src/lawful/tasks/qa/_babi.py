"""The bAbI format: stories of numbered sentences, with questions about them."""

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lawful.errors import InputError, expected

__all__ = ["Question", "find_stories", "parse_story", "read_text", "words_of"]

Files = dict[str, tuple[Path, str]]  # by part: a file, or an archive and its member
_NAME = re.compile(r"(qa(\d+)[^/]*)_(train|valid|test)\.txt$")


@dataclass(frozen=True)
class Question:
    """One question with all facts told before it, as words in lower case."""

    facts: tuple[tuple[str, ...], ...]  # oldest first
    words: tuple[str, ...]
    answer: str  # "" if none is given
    support: tuple[int, ...]  # places in ``facts`` of those that answer it, in the file's order


def words_of(sentence: str) -> tuple[str, ...]:
    """Words in lower case, without punctuation.

    >>> words_of("Lena's cat sat down.")
    ("lena's", 'cat', 'sat', 'down')
    """
    return tuple(re.findall(r"[\w']+", sentence.lower()))


def parse_story(text: str, name: str, *, answers: bool = True) -> Iterator[Question]:
    """The questions of a text in bAbI format.

    Lines are ``ID sentence`` or ``ID question<tab>answer<tab>IDs of supporting facts``; ID 1
    starts a new story. A line that ends in a question mark is a question, too, where no answers
    are needed.

    Args:
        text: The lines.
        name: The text's name, for messages.
        answers: Whether every question must have its answer.

    Raises:
        InputError: A malformed line, named with its number.
    """
    facts: dict[int, tuple[str, ...]] = {}
    last = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        place = f"{name}:{number}"
        found = re.match(r"\s*(\d+)\s+(\S.*)", line)
        if not found:
            raise expected(place, "a number and a sentence", repr(line[:60]))
        at, rest = int(found[1]), found[2]
        if at == 1:
            facts = {}
        elif at <= last:
            raise expected(place, f"a line number above {last}, or 1 for a new story", at)
        last = at
        parts = rest.split("\t")
        asked = len(parts) > 1 or (not answers and rest.rstrip().endswith("?"))
        words = words_of(parts[0])
        if not words:
            raise expected(place, "a sentence with words", repr(line[:60]))
        if asked:
            yield _question(facts, words, parts[1:], place, answers)
        else:
            facts[at] = words


def _question(
    facts: dict[int, tuple[str, ...]],
    words: tuple[str, ...],
    rest: list[str],
    place: str,
    answers: bool,
) -> Question:
    answer = rest[0].strip().lower() if rest else ""
    if answers and not answer:
        raise expected(place, "an answer behind the question and a tab", "none")
    if not facts:
        raise expected(place, "a question behind at least one fact", "a question without facts")
    places = {line: i for i, line in enumerate(facts)}
    told = rest[1].split() if len(rest) > 1 else []
    for line in told:
        if not line.isdigit() or int(line) not in places:
            raise expected(place, "line numbers of earlier facts of the story", repr(line))
    support = tuple(places[int(line)] for line in told)
    return Question(tuple(facts.values()), words, answer, support)


def read_text(path: Path, member: str = "") -> str:
    """The text of a file, or of a member of a zip archive.

    Raises:
        InputError: It cannot be read.
    """
    try:
        if not member:
            return path.read_text(encoding="utf-8")
        with zipfile.ZipFile(path) as archive:
            return archive.read(member).decode("utf-8")
    except (OSError, UnicodeDecodeError, zipfile.BadZipFile, RuntimeError) as error:
        raise InputError(f"{member or path}: cannot be read as text: {error}") from None


def find_stories(path: Path, wanted: str) -> tuple[str, Files]:
    """The files of one story kind in a folder or zip archive, or a single file.

    Args:
        path: A folder or zip with ``qaN_NAME_{train,test}.txt``, searched with its subfolders, or
            one such file.
        wanted: N, or NAME (or a part of it); "" where there is only one.

    Returns:
        The name ``qaN_NAME``, and its files by part: train, valid, test; or "whole".

    Raises:
        InputError: Nothing there, several to choose from, no file for training.
    """
    if not path.exists():
        raise InputError(f"data: {path} does not exist")
    if path.is_file() and path.suffix.lower() != ".zip":
        return path.stem, {"whole": (path, "")}
    kinds: dict[tuple[str, str], Files] = {}
    for place, member in _members(path):
        found = _NAME.search(member or place.name)
        if found:
            folder = str(PurePosixPath(member or place.as_posix()).parent)
            kinds.setdefault((folder, found[1]), {})[found[3]] = (place, member)
    (_, name), files = _chosen(path, kinds, wanted)
    if "train" not in files:
        raise expected(f"data: {path}", f"{name}_train.txt", ", ".join(sorted(files)))
    return name, files


def _members(path: Path) -> Iterator[tuple[Path, str]]:
    if path.is_dir():
        yield from ((p, "") for p in sorted(path.rglob("qa*.txt")))
        return
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(archive.namelist())
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"data: {path} cannot be read as a zip archive: {error}") from None
    yield from ((path, n) for n in names if "__MACOSX" not in n)


def _chosen(
    path: Path, kinds: dict[tuple[str, str], Files], wanted: str
) -> tuple[tuple[str, str], Files]:
    if not kinds:
        raise expected(f"data: {path}", "files like qa1_NAME_train.txt", "none")
    number = wanted.lower().removeprefix("qa")
    fits = {
        key: files
        for key, files in kinds.items()
        if not wanted
        or (number.isdigit() and key[1].split("_")[0] == f"qa{int(number)}")
        or (not number.isdigit() and wanted.lower() in key[1].lower())
    }
    if len(fits) == 1:
        return next(iter(fits.items()))
    names = sorted({name for _, name in fits or kinds}, key=lambda n: int(re.findall(r"\d+", n)[0]))
    if len(fits) > len({name for _, name in fits}):
        folders = ", ".join(sorted({folder for folder, _ in fits}))
        raise expected("data", "one version of the stories", f"several: {folders}")
    want = f"--story with one of {', '.join(names)}"
    raise expected("story", want, repr(wanted) if wanted else "nothing")
