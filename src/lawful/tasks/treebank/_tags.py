"""Which column holds the tags, one key of an attribute column included, and spans of BIO tags."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lawful.errors import expected
from lawful.tasks.treebank._sentence import CONLLU_COLUMNS, FEATS, Sentence

_TAGGABLE = ("lemma", "upos", "xpos", "feats", "deprel", "misc")
_BIO = re.compile(r"[BIESLU]-.+|O")


@dataclass(frozen=True)
class TagColumn:
    """The column that holds the tags.

    Args:
        name: "auto" (UPOS of CoNLL-U, else the last column); a CoNLL-U column; "feats:KEY" or
            "misc:KEY" for one attribute; or the number of a column, from 1.
    """

    name: str

    def __post_init__(self) -> None:
        """Refuses names that no file can have."""
        base, colon, key = self.name.partition(":")
        ok = base in ("feats", "misc") and key if colon else base in ("auto", *_TAGGABLE)
        if not (ok or (base.isdecimal() and not colon and int(base) >= 2)):
            want = f"auto, {', '.join(_TAGGABLE)}, feats:KEY, misc:KEY or a column number >= 2"
            raise expected("column", want, self.name)

    def index(self, sentence: Sentence) -> int:
        """The position of the column in a sentence; for "auto" one past the end of bare words.

        Raises:
            InputError: The file has no such column.
        """
        base, width = self.name.partition(":")[0], len(sentence.fields[0])
        if base == "auto":
            return CONLLU_COLUMNS.index("UPOS") if sentence.conllu else max(width - 1, 1)
        if base.isdecimal():
            if int(base) > width:
                raise sentence.error(0, f"expected a column {base}, got {width} columns")
            return int(base) - 1
        if not sentence.conllu:
            raise sentence.error(0, f"column {base!r} needs CoNLL-U, got {width} columns")
        return CONLLU_COLUMNS.index(base.upper())

    @property
    def key(self) -> str:
        """The attribute, if the tag is one."""
        return self.name.partition(":")[2]

    def tags(self, sentence: Sentence) -> list[str]:
        """The tag of each word; "_" where an attribute is absent."""
        values = sentence.column(self.index(sentence))
        return [_attribute(v, self.key) for v in values] if self.key else values

    def written(self, sentence: Sentence, tags: Sequence[str]) -> Sentence:
        """The sentence with these tags in its column."""
        index = self.index(sentence)
        if self.key:
            old = sentence.column(index)
            tags = [
                _with_attribute(o, self.key, t, ordered=index == FEATS)
                for o, t in zip(old, tags, strict=True)
            ]
        return sentence.replaced({index: tags})


def _pairs(value: str) -> list[str]:
    return [] if value == "_" else value.split("|")


def _attribute(value: str, key: str) -> str:
    found = (p.partition("=") for p in _pairs(value))
    return next((v for k, _, v in found if k == key), "_")


def _with_attribute(value: str, key: str, new: str, *, ordered: bool) -> str:
    pairs = _pairs(value)
    at = next((i for i, p in enumerate(pairs) if p.partition("=")[0] == key), len(pairs))
    pairs[at : at + 1] = [] if new == "_" else [f"{key}={new}"]
    if ordered:  # FEATS is sorted by name, whatever the case
        pairs.sort(key=lambda p: p.partition("=")[0].lower())
    return "|".join(pairs) or "_"


def is_bio(tags: Sequence[str]) -> bool:
    """Whether tags mark spans: O, and B-, I- (E-, S-, L-, U-) with a kind after the dash."""
    marked = [t for t in tags if t != "O"]
    return bool(marked) and all(_BIO.fullmatch(t) for t in tags)


def spans(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """The spans (start, end, kind) that tags mark, end exclusive.

    A span begins at B, S or U, at an I or E that continues nothing (the older IOB), and wherever
    the kind changes; it ends before the next beginning or O, and after E, L, S or U.
    """
    found: set[tuple[int, int, str]] = set()
    start, kind = -1, ""
    for i, tag in enumerate([*tags, "O"]):
        mark, _, this = tag.partition("-")
        if start >= 0 and (mark in "BSUO" or this != kind):
            found.add((start, i, kind))
            start = -1
        if mark != "O" and start < 0:
            start, kind = i, this
        if start >= 0 and mark in "ESLU":
            found.add((start, i + 1, kind))
            start = -1
    return found
