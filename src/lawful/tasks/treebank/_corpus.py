"""Sentences collected into columns, and their division into training, validation and test parts."""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from lawful.errors import InputError, expected
from lawful.tasks._base import Split
from lawful.tasks.treebank._files import File, Role, find_files, read_sentences
from lawful.tasks.treebank._lexicon import Ints, Strings
from lawful.tasks.treebank._sentence import Sentence

EMBEDDED = Path(__file__).parent.parent / "embedded" / "sample.conllu"
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


@dataclass
class Table:
    """Columns of many sentences: the words, further strings, and whole numbers."""

    forms: Strings = field(default_factory=Strings)
    lengths: "array[int]" = field(default_factory=lambda: array("i"))
    strings: dict[str, Strings] = field(default_factory=dict)
    numbers: "dict[str, array[int]]" = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.lengths)

    def add(
        self,
        forms: Sequence[str],
        strings: Mapping[str, Sequence[str]],
        numbers: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Appends a sentence."""
        self.forms.extend(forms)
        self.lengths.append(len(forms))
        for name, values in strings.items():
            self.strings.setdefault(name, Strings()).extend(values)
        for name, integers in (numbers or {}).items():
            self.numbers.setdefault(name, array("i")).extend(integers)

    def take(self, sentences: Ints) -> "Table":
        """The table of some of the sentences."""
        if len(sentences) == len(self) and (np.diff(sentences) == 1).all():
            return self
        lengths = np.asarray(self.lengths, dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        ranges = [range(starts[i], starts[i + 1]) for i in sentences]
        words = np.fromiter((w for r in ranges for w in r), dtype=np.int64)
        return Table(
            self.forms.take(words),
            array("i", lengths[sentences].tolist()),
            {name: column.take(words) for name, column in self.strings.items()},
            {name: array("i", np.asarray(c)[words].tolist()) for name, c in self.numbers.items()},
        )


Add = Callable[[Table, Sentence], None]


def read_tables(path: Path | None, add: Add) -> dict[Role, Table]:
    """The sentences of each part of the user's data (the embedded sample, if None).

    Args:
        path: File, folder or zip archive.
        add: Puts what the task wants of a sentence into the table.

    Raises:
        InputError: Missing or malformed files.
    """
    parts: dict[Role, list[File]]
    parts = {"whole": [File(EMBEDDED)]} if path is None else find_files(path)
    return {role: table_of(files, add) for role, files in parts.items()}


def table_of(files: Iterable[File], add: Add) -> Table:
    """All sentences of some files as one table."""
    table = Table()
    for file in files:
        for sentence in read_sentences(file):
            add(table, sentence)
    return table


@dataclass(frozen=True)
class Shares:
    """How a file without parts of its own is divided."""

    valid: float
    test: float

    def __post_init__(self) -> None:
        """Refuses impossible shares."""
        if min(self.valid, self.test) <= 0 or self.valid + self.test >= 1:
            want = "shares above 0 with a sum below 1"
            raise expected("valid_share and test_share", want, (self.valid, self.test))


def divide(
    sizes: Mapping[Role, int], shares: Shares, seed: int, *, whole: bool
) -> dict[Split, tuple[Role, Ints]]:
    """Which sentences of which table belong to each part.

    Parts that have no file are cut out of the training sentences (or of the single file) by a fixed
    shuffle. With ``whole``, a single file is every part in full: other data for a finished run.

    Raises:
        InputError: Too few sentences to cut from.
    """
    if whole and "whole" in sizes:
        return {split: ("whole", np.arange(sizes["whole"])) for split in SPLITS}
    base: Role = "whole" if "whole" in sizes else "train"
    order = np.random.default_rng(seed).permutation(sizes[base])
    result: dict[Split, tuple[Role, Ints]] = {}
    cut: tuple[tuple[Literal["valid", "test"], float], ...]
    cut = (("valid", shares.valid), ("test", shares.test))
    for split, share in cut:
        if split in sizes:
            result[split] = (split, np.arange(sizes[split]))
            continue
        count = max(round(share * sizes[base]), 1)
        result[split] = (base, np.sort(order[:count]))
        order = order[count:]
    if not len(order):
        raise InputError(f"data: expected at least 3 sentences, got {sizes[base]}")
    result["train"] = (base, np.sort(order))
    return result
