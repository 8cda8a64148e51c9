"""Reading column files: a word and its tag on each line, a blank line after each sentence."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from lawful.errors import InputError
from lawful.tasks.treebank._conllu import blocks, decoded
from lawful.tasks.treebank._sentence import BOM, Sentence, refusal

_BLANKS = re.compile(r"[ \t]+")


def read_columns(lines: Iterable[bytes], name: str, *, single: bool = False) -> Iterator[Sentence]:
    """The sentences of a file of two or more columns parted by spaces or tabs, one at a time.

    The first column holds the words. Lines that start with ``-DOCSTART-`` are passed over.

    Args:
        lines: The file's lines as bytes, with endings.
        name: The file's name, for messages.
        single: Whether one column (words alone) will do, as for prediction.

    Raises:
        InputError: Lines with differing numbers of columns, with file and line; bad encoding; a
            file without sentences.
    """
    width, began = 0, 0
    ready: Sentence | None = None
    carried: list[str] = []
    for first, block in blocks(decoded(lines, name)):
        sentence = _sentence(block, name, first)
        if not sentence.words:
            carried += block  # a document mark goes out with the sentence after it
            continue
        if not width:
            width, began = len(sentence.fields[0]), sentence.first + sentence.words[0]
            if width == 1 and not single:
                raise refusal(name, began, "expected a word and its tag, got one column")
        for i, fields in enumerate(sentence.fields):
            if len(fields) != width:
                want = f"expected {width} columns as in line {began}"
                raise sentence.error(i, f"{want}, got {len(fields)}")
        if ready is not None:
            yield ready
        ready, carried = _with_lines(sentence, before=carried), []
    if ready is None:
        raise InputError(f"{name}: expected words in columns, got a file without sentences")
    yield _with_lines(ready, after=carried)


def _sentence(block: list[str], name: str, first: int) -> Sentence:
    words, fields = [], []
    for i, line in enumerate(block):
        text = line.removeprefix(BOM).strip(" \t\r\n")
        if text and not text.startswith("-DOCSTART-"):
            words.append(i)
            fields.append(tuple(_BLANKS.split(text)))
    return Sentence(name, first, tuple(block), tuple(words), tuple(fields), conllu=False)


def _with_lines(
    sentence: Sentence, before: Sequence[str] = (), after: Sequence[str] = ()
) -> Sentence:
    shift = len(before)
    return replace(
        sentence,
        first=sentence.first - shift,
        lines=(*before, *sentence.lines, *after),
        words=tuple(i + shift for i in sentence.words),
    )
