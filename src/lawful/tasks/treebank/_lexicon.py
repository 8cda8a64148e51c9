"""Words and characters as numbers: what is known from training, and encoded corpora."""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lawful.errors import InputError

Ints = npt.NDArray[np.int64]
PAD, UNKNOWN, BEGIN, END = range(4)  # the first ids of the character table
_DIGITS = re.compile(r"\d")


def word_key(form: str) -> str:
    """The form under which a word is looked up: lower case, digits as 0."""
    return _DIGITS.sub("0", form.lower())


class Lexicon:
    """The words and characters known from training; ids 0 and 1 are padding and the unknown.

    Args:
        words: Keys of known words, see `word_key`.
        chars: Known characters, with case.
        max_chars: Longer words keep their first and last characters.
    """

    def __init__(self, words: Sequence[str], chars: Sequence[str], max_chars: int) -> None:
        self.words, self.chars, self.max_chars = list(words), list(chars), max_chars
        self._word_ids = {w: i + 2 for i, w in enumerate(self.words)}
        self._char_ids = {c: i + 4 for i, c in enumerate(self.chars)}

    @classmethod
    def of(cls, counts: Counter[str], min_count: int, max_chars: int) -> "Lexicon":
        """Knows the words seen ``min_count`` times or more, and the characters seen twice."""
        keys: Counter[str] = Counter()
        chars: Counter[str] = Counter()
        for form, count in counts.items():
            keys[word_key(form)] += count
            for c in form:
                chars[c] += count
        words = sorted(w for w, n in keys.items() if n >= min_count)
        return cls(words, sorted(c for c, n in chars.items() if n >= 2), max_chars)

    @property
    def word_ids(self) -> int:
        """How many word ids there are."""
        return len(self.words) + 2

    @property
    def char_ids(self) -> int:
        """How many character ids there are."""
        return len(self.chars) + 4

    def word(self, form: str) -> int:
        """The id of a word."""
        return self._word_ids.get(word_key(form), UNKNOWN)

    def spell(self, form: str) -> list[int]:
        """The character ids of a word between its boundary marks."""
        if len(form) > self.max_chars:
            head = self.max_chars - self.max_chars // 2
            form = form[:head] + form[len(form) - self.max_chars // 2 :]
        return [BEGIN, *(self._char_ids.get(c, UNKNOWN) for c in form), END]

    def state(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {"words": self.words, "chars": self.chars, "max_chars": self.max_chars}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Lexicon":
        """Restores what `state` returned.

        Raises:
            InputError: It is not such a form.
        """
        try:
            return cls(state["words"], state["chars"], state["max_chars"])
        except (KeyError, TypeError) as error:
            raise InputError(f"task state: expected a lexicon, got none with {error}") from None


class Strings:
    """Strings stored once each, in sequence: a column of a corpus in four bytes a word."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self.ids: dict[str, int] = {}
        self.flat = array("i")
        self.extend(values)

    def extend(self, values: Iterable[str]) -> None:
        """Appends strings."""
        ids = self.ids
        self.flat.extend([ids.setdefault(v, len(ids)) for v in values])

    def __len__(self) -> int:
        """Length of the sequence."""
        return len(self.flat)

    def __iter__(self) -> Iterator[str]:
        """The strings in sequence."""
        table = list(self.ids)
        return (table[i] for i in self.flat)

    def take(self, positions: Ints) -> "Strings":
        """The sequence of the strings at some positions."""
        table = list(self.ids)
        return Strings(table[self.flat[i]] for i in positions.tolist())

    def counts(self) -> Counter[str]:
        """How often each string occurs."""
        found = np.bincount(np.frombuffer(self.flat, dtype=np.int32), minlength=len(self.ids))
        return Counter(dict(zip(self.ids, found.tolist(), strict=True)))

    def mapped(self, ids: dict[str, int], default: int = -1) -> Ints:
        """The sequence as numbers of another table; ``default`` for what that does not hold."""
        table = np.array([ids.get(s, default) for s in self.ids] or [default], dtype=np.int64)
        result: Ints = table[np.frombuffer(self.flat, dtype=np.int32)]
        return result


@dataclass(frozen=True)
class Words:
    """The words of some sentences as numbers, ready to be cut into batches.

    Args:
        lengths: Words of each sentence, (S,).
        types: For each word of all sentences in a row, its type (distinct form), (W,).
        type_words: Word id of each type, (T,).
        type_chars: Character ids of each type, padded with 0, (T, longest).
    """

    lengths: Ints
    types: Ints
    type_words: Ints
    type_chars: npt.NDArray[np.int32]

    @classmethod
    def of(cls, forms: Strings, lengths: Sequence[int], lexicon: Lexicon) -> "Words":
        """Encodes forms with a lexicon."""
        spelt = [lexicon.spell(form) for form in forms.ids]
        chars = np.zeros((len(spelt), max(map(len, spelt), default=2)), dtype=np.int32)
        for row, ids in zip(chars, spelt, strict=True):
            row[: len(ids)] = ids
        words = np.array([lexicon.word(form) for form in forms.ids], dtype=np.int64)
        types = np.frombuffer(forms.flat, dtype=np.int32).astype(np.int64)
        return cls(np.asarray(lengths, dtype=np.int64), types, words, chars)

    def batch(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """The input of a word encoder for some sentences.

        Returns:
            "words" (B, N) word ids; "chars" (U, L) spellings of the U distinct forms of the batch;
            "spelling" (B, N), rows of "chars"; "lengths" (B,). Padding is 0.
        """
        types = self.pad(self.types, indices, -1)
        distinct, inverse = np.unique(types, return_inverse=True)
        inverse = inverse.reshape(types.shape)
        if distinct[0] < 0:
            distinct, inverse = distinct[1:], np.maximum(inverse - 1, 0)
        chars = self.type_chars[distinct]
        longest = int((chars != PAD).sum(1).max())
        words = np.where(types < 0, PAD, self.type_words[types])
        return {
            "words": torch.from_numpy(words),
            "chars": torch.from_numpy(chars[:, :longest].astype(np.int64)),
            "spelling": torch.from_numpy(inverse.astype(np.int64)),
            "lengths": torch.from_numpy(self.lengths[list(indices)]),
        }

    def pad(self, flat: Ints, indices: Sequence[int], fill: int) -> Ints:
        """The values of some sentences from a flat column (W,), as (B, N) padded with ``fill``."""
        at = np.asarray(indices, dtype=np.int64)
        lengths, starts = self.lengths[at], self._starts[at]
        steps = np.arange(int(lengths.max()))
        inside = steps < lengths[:, None]
        where = np.where(inside, starts[:, None] + steps, 0)
        return np.where(inside, flat[where], fill)

    @cached_property
    def _starts(self) -> Ints:
        return np.concatenate([[0], np.cumsum(self.lengths)[:-1]])
