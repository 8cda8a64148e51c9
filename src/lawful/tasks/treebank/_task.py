"""What the tagging and the parsing task share: reading, dividing, encoding, predicting."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import nn

from lawful.errors import expected
from lawful.tasks._base import Batch, Split, Task, to_device
from lawful.tasks.treebank._corpus import SPLITS, Shares, Table, divide, read_tables
from lawful.tasks.treebank._files import File, read_sentences
from lawful.tasks.treebank._lexicon import Ints, Lexicon, Strings, Words
from lawful.tasks.treebank._sentence import Sentence

Decode = Callable[[nn.Module, Batch], Iterable[Any]]
_GROUP = 1024  # sentences read before any is predicted, so that batches can be of similar length
_ROWS = 128
_CELLS = 1 << 21  # bound on rows x words x words of a batch of prediction


@dataclass(frozen=True)
class TreebankConfig:
    """How sentences become numbers."""

    min_count: int = 2
    """Times a word must occur in training to get a vector of its own."""
    max_chars: int = 24
    """Characters read of a word; of a longer one, the first and last half of these."""
    valid_share: float = 0.1
    """Share of the sentences for validation, where the data has no such file."""
    test_share: float = 0.1
    """Share of the sentences for testing, where the data has no such file."""
    max_train: int = 0
    """Use only this many training sentences, chosen at random; 0 for all."""

    def __post_init__(self) -> None:
        """Refuses impossible values, naming the field."""
        for name, least in (("min_count", 1), ("max_chars", 2), ("max_train", 0)):
            if getattr(self, name) < least:
                raise expected(name, f"a whole number of at least {least}", getattr(self, name))
        Shares(self.valid_share, self.test_share)


C = TypeVar("C", bound=TreebankConfig)


@dataclass(frozen=True)
class Column:
    """Numbers that go with the words: a flat column (W,) and what fills padding."""

    flat: Ints
    fill: int = -1


class TreebankSource:
    """One part of the data: the words, and columns of numbers beside them."""

    endless = False

    def __init__(self, words: Words, columns: Mapping[str, Column]) -> None:
        self.words, self.columns = words, dict(columns)
        self.lengths = words.lengths

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.lengths)

    def batch(self, indices: Sequence[int]) -> Batch:
        """The input of a word encoder, and each column as (B, N)."""
        batch = self.words.batch(indices)
        for name, column in self.columns.items():
            batch[name] = torch.from_numpy(self.words.pad(column.flat, indices, column.fill))
        return batch


def inputs(batch: Batch) -> tuple[torch.Tensor, ...]:
    """The arguments of a word encoder."""
    return batch["words"], batch["chars"], batch["spelling"], batch["lengths"]


class TreebankTask(Task[C]):
    """A task on the words of sentences; a subclass says which columns it wants of them."""

    higher_is_better: ClassVar[bool] = True
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "epochs": 40, "batch_size": 16, "lr": 2e-3, "schedule": "cosine", "warmup": 20,
        "clip": 5.0, "eval_batch_size": 64,
    }  # fmt: skip

    lexicon: Lexicon | None = None
    tables: dict[Split, Table]
    _sources: dict[Split, TreebankSource]

    @abstractmethod
    def add(self, table: Table, sentence: Sentence) -> None:
        """Puts the wanted columns of a sentence into the table."""

    @abstractmethod
    def learn(self, train: Table) -> None:
        """Takes from the training sentences what `state` keeps, besides the lexicon."""

    @abstractmethod
    def columns(self, table: Table) -> dict[str, Column]:
        """The columns of a source."""

    def load(self) -> None:
        """Reads the sentences and, unless a state was restored, learns the words and labels."""
        tables = read_tables(self.data, self.add)
        shares = Shares(self.config.valid_share, self.config.test_share)
        sizes = {role: len(table) for role, table in tables.items()}
        parts = divide(sizes, shares, self.seed, whole=self.lexicon is not None)
        if 0 < self.config.max_train < len(parts["train"][1]):
            role, chosen = parts["train"]
            order = np.random.default_rng([self.seed, 1]).permutation(chosen)
            parts["train"] = role, np.sort(order[: self.config.max_train])
        self.tables = {split: tables[role].take(at) for split, (role, at) in parts.items()}
        if self.lexicon is None:
            train = self.tables["train"]
            c = self.config
            self.learn(train)
            self.lexicon = Lexicon.of(train.forms.counts(), c.min_count, c.max_chars)
        self._sources = {}

    def source(self, split: Split) -> TreebankSource:
        """The sentences of a part."""
        if split not in self._sources:
            table = self.tables[split]
            assert self.lexicon is not None
            words = Words.of(table.forms, table.lengths, self.lexicon)
            self._sources[split] = TreebankSource(words, self.columns(table))
        return self._sources[split]

    def sentences(self, split: Split) -> Iterator[list[str]]:
        """The words of each sentence of a part."""
        table = self.tables[split]
        forms = iter(table.forms)
        return (list(islice(forms, n)) for n in table.lengths)

    def known(self) -> Lexicon:
        """The lexicon; only after `load` or `load_state`."""
        assert self.lexicon is not None, "load the task first"
        return self.lexicon

    def decoded(
        self,
        model: nn.Module,
        path: Path,
        decode: Decode,
        *,
        single: bool = False,
        check: Callable[[Sentence], None] = lambda _: None,
    ) -> Iterator[tuple[Sentence, Any]]:
        """Each sentence of a file with what ``decode`` found for it, in order."""
        if not path.is_file():
            raise expected("input", "a file", str(path))
        sentences = iter(read_sentences(File(path), single=single))
        while group := list(islice(sentences, _GROUP)):
            for sentence in group:
                check(sentence)
            yield from zip(group, self._decode_group(model, group, decode), strict=True)

    def _decode_group(self, model: nn.Module, group: list[Sentence], decode: Decode) -> list[Any]:
        forms = Strings(form for s in group for form in s.forms)
        words = Words.of(forms, [len(s) for s in group], self.known())
        device = next(model.parameters()).device
        result: list[Any] = [None] * len(group)
        for rows in _similar(words.lengths):
            with torch.no_grad():
                found = decode(model, to_device(words.batch(rows), device))
            for row, value in zip(rows, found, strict=True):
                result[row] = value
        return result


def _similar(lengths: Ints) -> Iterator[list[int]]:
    """Rows in groups of similar length and bounded size, shortest first."""
    rows: list[int] = []
    for row in lengths.argsort(kind="stable").tolist():
        n = int(lengths[row])
        if rows and (len(rows) == _ROWS or (len(rows) + 1) * n * n > _CELLS):
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows


def most_frequent(source: TreebankSource, column: str, values: int, words: int) -> torch.Tensor:
    """For each word id, the value of a column it most often has; of all words for an unseen one."""
    ids, flat = source.words.type_words[source.words.types], source.columns[column].flat
    counts = np.zeros((words, values), dtype=np.int64)
    np.add.at(counts, (ids, flat), 1)
    seen = counts.sum(1) > 0
    return torch.from_numpy(np.where(seen, counts.argmax(1), counts.sum(0).argmax()))


def write_sentences(sentences: Iterable[Sentence], out: Path) -> None:
    """Writes sentences to a file, line endings as they are."""
    with out.open("w", encoding="utf-8", newline="") as file:
        for sentence in sentences:
            file.write(sentence.text())


__all__ = [
    "SPLITS",
    "Column",
    "TreebankConfig",
    "TreebankSource",
    "TreebankTask",
    "inputs",
    "most_frequent",
    "write_sentences",
]
