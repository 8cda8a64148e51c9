"""A sentence of a column file: its lines exactly as they stand, and the words found in them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lawful.errors import InputError

CONLLU_COLUMNS = (
    "ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC",
)  # fmt: skip
ID, FORM, LEMMA, UPOS, XPOS, FEATS, HEAD, DEPREL, DEPS, MISC = range(10)
BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Sentence:
    """The lines of a sentence and the fields of its words.

    Joining ``lines`` of all sentences gives the file back, byte for byte: comments, multiword
    tokens, empty nodes, blank lines and line endings are kept as they are.

    Args:
        name: The file, for messages.
        first: Number of the first line in the file, from 1.
        lines: Every line with its ending.
        words: For each word, its index in ``lines``.
        fields: For each word, its columns.
        conllu: Whether this is CoNLL-U; otherwise the columns are parted by blanks.
    """

    name: str
    first: int
    lines: tuple[str, ...]
    words: tuple[int, ...]
    fields: tuple[tuple[str, ...], ...]
    conllu: bool

    def __len__(self) -> int:
        """Number of words."""
        return len(self.words)

    @property
    def forms(self) -> list[str]:
        """The words as written."""
        return self.column(FORM if self.conllu else 0)

    def column(self, index: int) -> list[str]:
        """One column of all words."""
        return [f[index] for f in self.fields]

    def error(self, word: int, message: str) -> InputError:
        """The error to raise for a word (from 0), with file and line."""
        return refusal(self.name, self.first + self.words[word], message)

    def replaced(self, columns: dict[int, Sequence[str]]) -> "Sentence":
        """The same sentence with the values of some columns replaced, all else unchanged.

        The index after the last column appends one.
        """
        lines, fields = list(self.lines), [list(f) for f in self.fields]
        for i, at in enumerate(self.words):
            for index, values in columns.items():
                lines[at] = self._put(lines[at], index, values[i])
                fields[i][index : index + 1] = [values[i]]
        done = tuple(tuple(f) for f in fields)
        return Sentence(self.name, self.first, tuple(lines), self.words, done, self.conllu)

    def _put(self, line: str, index: int, value: str) -> str:
        body = line.rstrip("\r\n")
        parts = re.split("(\t)" if self.conllu else r"((?<=\S)[ \t]+(?=\S))", body)
        if 2 * index < len(parts):
            # A byte order mark, and blanks at the ends of the line, stay where they are.
            old = parts[2 * index]
            core = old.removeprefix(BOM) if self.conllu else old.strip(f" \t{BOM}")
            parts[2 * index] = old.replace(core, value, 1)
        else:
            parts[-1] = parts[-1].rstrip(" \t")
            parts += [parts[1] if len(parts) > 1 else "\t", value]
        return "".join(parts) + line[len(body) :]

    def text(self) -> str:
        """The lines as one string."""
        return "".join(self.lines)


def refusal(name: str, line: int, message: str) -> InputError:
    """The error for a line of a file."""
    return InputError(f"{name}, line {line}: {message}")
