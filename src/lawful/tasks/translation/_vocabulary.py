"""Tokens as numbers."""

from collections import Counter
from collections.abc import Iterable, Sequence

from lawful.errors import InputError

PAD, UNKNOWN, START, END = range(4)
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")


class Vocabulary:
    """The tokens that are frequent enough, the most frequent ones first.

    Args:
        tokens: All of them in order of their numbers, without the special ones.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = [*SPECIAL, *tokens]
        self.number = {t: i for i, t in enumerate(self.tokens)}

    @classmethod
    def count(cls, sentences: Iterable[Sequence[str]], at_least: int) -> "Vocabulary":
        """Those that occur ``at_least`` times; equally frequent ones in order of their letters."""
        counts = Counter(t for sentence in sentences for t in sentence)
        kept = [t for t, n in counts.items() if n >= at_least and t not in SPECIAL]
        if not kept:
            raise InputError(f"min_count: no token occurs {at_least} times or more")
        return cls(sorted(kept, key=lambda t: (-counts[t], t)))

    def __len__(self) -> int:
        """Number of tokens, the special ones included."""
        return len(self.tokens)

    def encode(self, sentence: Sequence[str]) -> tuple[int, ...]:
        """Numbers of the tokens; `UNKNOWN` where one is not known."""
        return tuple(self.number.get(t, UNKNOWN) for t in sentence)

    def decode(self, numbers: Iterable[int]) -> list[str]:
        """Tokens up to the end mark, without start and padding."""
        found = []
        for n in numbers:
            if n == END:
                break
            if n not in (PAD, START):
                found.append(self.tokens[n])
        return found

    def unknown(self, sentences: Iterable[Sequence[str]]) -> float:
        """Share of tokens that are not known."""
        total = missed = 0
        for sentence in sentences:
            total += len(sentence)
            missed += sum(t not in self.number for t in sentence)
        return missed / max(total, 1)
