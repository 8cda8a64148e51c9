"""Words as numbers, and vectors for them from a file."""

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lawful.errors import InputError, expected

__all__ = ["BUCKETS", "ROOT", "Vocabulary", "read_vectors"]

ROOT = 1  # the symbol before every sentence; 0 is padding
BUCKETS = 100  # ids that unknown words share, by a hash of the word
_FIRST = 2 + BUCKETS
Floats = npt.NDArray[np.float32]


class Vocabulary:
    """Known words, each with an id; an unknown one gets one of `BUCKETS` ids by its hash."""

    def __init__(self, words: Sequence[str], lowercase: bool) -> None:
        self.words, self.lowercase = list(words), lowercase
        self._ids = {w: i for i, w in enumerate(self.words, _FIRST)}

    @classmethod
    def of(cls, sentences: Iterable[Sequence[str]], lowercase: bool, least: int) -> "Vocabulary":
        """The words that occur ``least`` times or more."""
        counts = Counter(w.lower() if lowercase else w for s in sentences for w in s)
        return cls(sorted(w for w, n in counts.items() if n >= least), lowercase)

    def __len__(self) -> int:
        """Number of ids."""
        return _FIRST + len(self.words)

    def encode(self, sentence: Sequence[str]) -> list[int]:
        """The ids of a sentence behind the root symbol."""
        found = [ROOT]
        for word in sentence:
            word = word.lower() if self.lowercase else word
            bucket = 2 + zlib.crc32(word.encode()) % BUCKETS
            found.append(self._ids.get(word, bucket))
        return found

    def table(self, vectors: dict[str, Floats]) -> Floats:
        """Rows of length 1 for all ids: the words' vectors, random ones for root and buckets.

        Args:
            vectors: One for every known word.
        """
        size = len(next(iter(vectors.values())))
        rng = np.random.default_rng(0)  # the same for every run: nothing here is learned
        rows = rng.standard_normal((len(self), size)).astype(np.float32)
        rows[0] = 1.0
        for i, word in enumerate(self.words, _FIRST):
            rows[i] = vectors[word]
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        rows[0] = 0.0
        return rows

    def state(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"words": self.words, "lowercase": self.lowercase}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Vocabulary":
        """From what `state` returned."""
        if not isinstance(state.get("words"), list):
            raise InputError("task state: expected the words of an nli run, got none")
        return cls(state["words"], bool(state.get("lowercase", True)))


def read_vectors(path: Path, wanted: set[str]) -> dict[str, Floats]:
    """Vectors of the wanted words from a text file: a word and its numbers on each line.

    A first line of two numbers (count and size, as word2vec writes it) is passed over.

    Raises:
        InputError: The file cannot be read, lines differ in size, or no wanted word is there.
    """
    found: dict[str, Floats] = {}
    size = 0
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, 1):
                cells = line.rstrip().split(" ")
                if number == 1 and len(cells) == 2:
                    continue
                size = size or len(cells) - 1
                word = " ".join(cells[:-size]) if size else ""
                if word in wanted and word not in found:
                    found[word] = _numbers(cells[-size:], size, f"{path}:{number}")
                elif len(cells) <= size:
                    raise expected(f"{path}:{number}", f"a word and {size} numbers", len(cells))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"vectors: {path} cannot be read as text: {error}") from None
    if not found:
        raise expected(f"vectors: {path}", "vectors of words that occur in the data", "none")
    return found


def _numbers(cells: Sequence[str], size: int, place: str) -> Floats:
    try:
        row = np.array(cells, np.float32)
    except ValueError:
        row = np.full(size, np.nan, np.float32)
    if not np.isfinite(row).all():
        raise expected(place, f"a word and {size} finite numbers", " ".join(cells[:3]) + " ...")
    return row
