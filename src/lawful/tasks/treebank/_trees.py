"""Facts about dependency trees: crossing arcs, lifting them, and what counts as punctuation."""

import unicodedata
from collections.abc import Sequence

from lawful.tasks.treebank._sentence import UPOS, Sentence


def crossing_arc(heads: Sequence[int]) -> int:
    """A word (0-based) whose arc is not projective, the shortest such arc; -1 where all are.

    An arc from h to m is projective if every word between descends from h. ``heads`` is 0-based,
    -1 for the root, and free of cycles. O(N^2) at worst.
    """
    best, length = -1, len(heads) + 1
    for m, h in enumerate(heads):
        if h < 0 or abs(h - m) >= length:
            continue
        if not all(_descends(heads, k, h) for k in range(min(h, m) + 1, max(h, m))):
            best, length = m, abs(h - m)
    return best


def _descends(heads: Sequence[int], word: int, ancestor: int) -> bool:
    while word >= 0 and word != ancestor:
        word = heads[word]
    return word == ancestor


def projective(heads: Sequence[int]) -> list[int]:
    """The tree made projective by lifting: the shortest crossing arc moves to its head's head.

    Source: Nivre and Nilsson 2005, "Pseudo-projective dependency parsing", the lifting step.
    """
    lifted = list(heads)
    while (word := crossing_arc(lifted)) >= 0:
        lifted[word] = lifted[lifted[word]]
    return lifted


def is_punctuation(sentence: Sentence) -> list[bool]:
    """Which words are punctuation: UPOS is PUNCT or, where that is absent, only such characters."""
    found = []
    for form, upos in zip(sentence.forms, sentence.column(UPOS), strict=True):
        signs = all(unicodedata.category(c).startswith("P") for c in form)
        found.append(upos == "PUNCT" or (upos == "_" and signs))
    return found
