"""Reading pairs of sentences: SNLI's own formats, tab-separated lines, aligned files."""

import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lawful.errors import InputError, expected

__all__ = ["LABELS", "Pair", "read_pairs", "read_parts", "words_of"]

LABELS = ("entailment", "neutral", "contradiction")
_ROLES = {"train": "train", "dev": "valid", "valid": "valid", "val": "valid", "test": "test"}
_ENDINGS = (".jsonl", ".tsv", ".txt", ".csv")
_PREMISE = ("sentence1", "premise", "sentence_a")
_HYPOTHESIS = ("sentence2", "hypothesis", "sentence_b")
_LABEL = ("gold_label", "label", "entailment_judgment")


@dataclass(frozen=True)
class Pair:
    """Words of premise and hypothesis, and the label, "" if none is given."""

    premise: tuple[str, ...]
    hypothesis: tuple[str, ...]
    label: str


def words_of(sentence: str, parse: str = "") -> tuple[str, ...]:
    """Tokens: those of a binary parse where there is one, else words and punctuation marks.

    >>> words_of("A man isn't at Tom's.")
    ('A', 'man', 'is', "n't", 'at', 'Tom', "'s", '.')
    """
    if parse.strip():
        return tuple(t for t in parse.split() if t not in ("(", ")"))
    plain = sentence.replace("\u2019", "'")
    return tuple(re.findall(r"\w+(?=n't)|n't|'\w+|\w+(?:-\w+)*|[^\w\s]", plain))


def label_of(text: str, names: Sequence[str], place: str) -> str | None:
    """The label that a text stands for: a name, its beginning, or a number; None for "-".

    Raises:
        InputError: Anything else.
    """
    text = text.strip().lower()
    if text in ("", "-"):
        return None
    if text.isdigit() and names:
        if 1 <= int(text) <= len(names):
            return names[int(text) - 1]
        raise expected(place, f"a label in 1..{len(names)}", text)
    found = [name for name in LABELS if name.startswith(text) or text.startswith(name[:6])]
    if len(found) != 1:
        hint = "--label-names tells what numbers mean" if text.isdigit() else ""
        raise expected(place, "a label: " + ", ".join(LABELS), repr(text), hint)
    return found[0]


def read_pairs(
    text: str, name: str, names: Sequence[str] = (), *, labelled: bool = True
) -> list[Pair]:
    """The pairs of a file's text; those with the label "-" are left out.

    Lines are JSON objects as in SNLI; or tab-separated under a header with sentence1, sentence2 and
    gold_label; or tab-separated without a header: label(s), premise, hypothesis. Where no labels
    are needed, a line may hold the two sentences alone.

    Raises:
        InputError: A malformed line, named with its number.
    """
    lines = [(f"{name}:{i}", line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise expected(name, "pairs of sentences", "an empty file")
    if lines[0][1].lstrip().startswith("{"):
        rows: Iterator[_Row] = (_json(place, line) for place, line in lines)
    else:
        rows = _columns(lines, labelled)
    pairs = []
    for place, (label, premise, hypothesis) in rows:
        kept = label_of(label, names, place)
        if not (premise and hypothesis):
            raise expected(place, "two sentences with words", "an empty one")
        if kept is None and labelled:
            continue
        pairs.append(Pair(premise, hypothesis, kept or ""))
    return pairs


_Row = tuple[str, tuple[str, tuple[str, ...], tuple[str, ...]]]


def _json(place: str, line: str) -> _Row:
    try:
        item = json.loads(line)
        given = {k.lower(): str(v) for k, v in item.items()}
    except (ValueError, AttributeError):
        raise expected(place, "a JSON object", repr(line[:60])) from None
    return place, _named(place, given)


def _named(place: str, given: Mapping[str, str]) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    def pick(options: Sequence[str]) -> str:
        found = next((given[o] for o in options if o in given), None)
        if found is None:
            raise expected(place, f"a field {options[0]}", ", ".join(given))
        return found

    label = next((given[o] for o in _LABEL if o in given), "")
    premise = words_of(pick(_PREMISE), given.get("sentence1_binary_parse", ""))
    hypothesis = words_of(pick(_HYPOTHESIS), given.get("sentence2_binary_parse", ""))
    return label, premise, hypothesis


def _columns(lines: Sequence[tuple[str, str]], labelled: bool) -> Iterator[_Row]:
    header = [c.strip().lower() for c in lines[0][1].split("\t")]
    if any(c in header for c in _PREMISE):
        for place, line in lines[1:]:
            cells = line.split("\t")
            if len(cells) < len(header):
                raise expected(place, f"{len(header)} columns", len(cells))
            yield place, _named(place, dict(zip(header, cells, strict=False)))
        return
    for place, line in lines:
        cells = line.split("\t")
        if len(cells) < 2 + labelled:
            want = "label, premise and hypothesis" if labelled else "two sentences"
            raise expected(place, f"{want} between tabs", repr(line[:60]))
        label = cells[0] if len(cells) > 2 else ""
        yield place, (label, words_of(cells[-2]), words_of(cells[-1]))


# ---- files and archives --------------------------------------------------------------------------


def read_parts(path: Path, names: Sequence[str]) -> dict[str, list[Pair]]:
    """The pairs of a file, folder or zip archive by part: train, valid, test; or "whole".

    Names hold train, dev (or valid) and test as a word of their own. Files ``s1.PART``,
    ``s2.PART`` and ``labels.PART`` are aligned by line.

    Raises:
        InputError: Nothing to read, or something malformed.
    """
    texts = dict(_texts(path))
    parts: dict[str, list[Pair]] = {}
    for part, name, text in _aligned(texts):
        parts.setdefault(part, []).extend(read_pairs(text, name, names))
    rest = {n: t for n, t in texts.items() if n.lower().endswith(_ENDINGS)}
    roles = {n: _role(n) for n in rest}
    if len(rest) == 1 and not parts:
        only = next(iter(rest))
        return {roles[only] or "whole": read_pairs(rest[only], only, names)}
    for name, text in rest.items():
        part = roles[name]
        if part:
            parts.setdefault(part, []).extend(read_pairs(text, name, names))
    if not parts:
        raise expected(f"data: {path}", "files with train, dev or test in their names", "none")
    return parts


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    if not path.exists():
        raise InputError(f"data: {path} does not exist")
    try:
        if path.is_file() and path.suffix.lower() == ".zip":
            with zipfile.ZipFile(path) as archive:
                for name in sorted(archive.namelist()):
                    if _wanted(name):
                        yield name, archive.read(name).decode("utf-8")
            return
        files = [path] if path.is_file() else [p for p in sorted(path.iterdir()) if p.is_file()]
        for file in files:
            if path.is_file() or _wanted(file.name):
                yield str(file), file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, zipfile.BadZipFile, RuntimeError) as error:
        raise InputError(f"data: {path} cannot be read as text: {error}") from None


def _wanted(name: str) -> bool:
    base = PurePosixPath(name).name.lower()
    if "__MACOSX" in name or base.startswith((".", "readme", "license")):
        return False
    return base.endswith(_ENDINGS) or base.startswith(("s1.", "s2.", "labels."))


def _role(name: str) -> str:
    words = re.split("[^a-z]+", PurePosixPath(name).name.lower())
    return next((_ROLES[w] for w in words if w in _ROLES), "")


def _aligned(texts: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for name, first in texts.items():
        base = PurePosixPath(name).name
        if not base.startswith("s1."):
            continue
        places = [name[: -len(base)] + base.replace("s1.", k, 1) for k in ("s2.", "labels.")]
        missing = [p for p in places if p not in texts]
        if missing:
            raise expected(name, f"{missing[0]} beside it", "none")
        columns = [t.splitlines() for t in (texts[places[1]], first, texts[places[0]])]
        if len({len(c) for c in columns}) > 1:
            raise expected(name, "as many lines as in s2 and labels", [len(c) for c in columns])
        yield (
            _role(base) or "whole",
            name,
            "\n".join("\t".join(r) for r in zip(*columns, strict=True)),
        )
