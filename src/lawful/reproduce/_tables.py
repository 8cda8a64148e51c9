"""A paper's table as data: its rows are `lawful train` commands, its numbers stand beside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Measure:
    """One column: a metric of the runs' test results, in the paper's unit."""

    key: str  # its name in the test metrics of a run
    title: str  # heading, with the unit
    scale: float = 1.0  # the metric times this is in the table's unit
    digits: int = 1
    form: Literal["f", "e"] = "f"  # decimals, or a power of ten for what spans many

    def show(self, value: float) -> str:
        """The value as text."""
        return f"{value:.{self.digits}{self.form}}"


@dataclass(frozen=True)
class Row:
    """One row: what is trained, and what the paper printed for it."""

    key: str  # a short name, which its run folders carry
    title: str
    command: Sequence[str]  # arguments of `lawful train`, the task first
    quick: Sequence[str] = ()  # what the scaled-down form adds; later options win
    published: Mapping[str, float] = field(default_factory=dict)  # by measure, in its unit
    note: str = ""  # how it differs from the paper's row
    in_quick: bool = True  # whether the scaled-down form has this row
    of: str = ""  # the row whose runs it reads: a baseline needs no runs of its own
    baseline: str = ""  # which of their baselines; it has the runs' main metric only


@dataclass(frozen=True)
class Table:
    """A published table and how its rows are trained here."""

    name: str
    title: str
    source: str  # paper and table
    text: str  # what is compared, and what differs from the paper
    measures: Sequence[Measure]
    rows: Sequence[Row]
    cost: str  # processor time of the full and of the quick form, in words
    seeds: Sequence[int] = (1, 2, 3)
    quick_seeds: Sequence[int] = (1,)
    data: str | None = None  # what --data has to name; None where the data are generated
    quick_text: str = ""  # what the scaled-down form leaves out
    each: str = "seed"  # what a seed stands for: a fold, say
