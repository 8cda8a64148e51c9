"""What a reproduction reports: numbers beside what they should be, and things to look at."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lawful.tasks.exhibits import Exhibit


@dataclass(frozen=True)
class Figure:
    """One measured number, and what it is held against.

    Attributes:
        name: What was measured, with its unit.
        value: The measured value.
        published: The paper's value, where it prints one.
        expected: The value that theory gives, where there is one.
        at_most: The bound below which the claim holds.
        at_least: The bound above which the claim holds.
        note: A remark for the reader: what differs from the paper, say.
    """

    name: str
    value: float
    published: float | None = None
    expected: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the value keeps its bounds; None where none was stated."""
        if self.at_most is None and self.at_least is None:
            return None
        above = self.at_least is None or self.value >= self.at_least
        below = self.at_most is None or self.value <= self.at_most
        return above and below


@dataclass(frozen=True)
class Demonstration:
    """One claim of a paper, shown: what was done, its figures, and pictures of it."""

    key: str  # a short name: "E1"
    title: str
    text: str  # one paragraph: what was computed, at which sizes, against what
    figures: Sequence[Figure]
    exhibits: Sequence[Exhibit] = field(default_factory=list)
