"""A paper's demonstrations, which are computed rather than trained."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lawful.reproduce._figures import Demonstration, Figure


@dataclass(frozen=True)
class Exhibition:
    """Demonstrations of one paper, made one after another."""

    name: str
    title: str
    source: str
    text: str
    make: Callable[..., Iterator[Demonstration]]  # (quick, seed)
    count: int  # how many `make` yields, for the progress display
    cost: str
    seeds: Sequence[int] = (0,)
    data: str | None = None
    quick_text: str = ""


def figure_cells(figure: Figure) -> tuple[str, ...]:
    """A figure as cells: name, ours, what it is held against, verdict, note."""
    beside = []
    if figure.published is not None:
        beside.append(f"{figure.published:.4g} (paper)")
    if figure.expected is not None:
        beside.append(f"{figure.expected:.6g} (theory)")
    if figure.at_most is not None:
        beside.append(f"\N{LESS-THAN OR EQUAL TO} {figure.at_most:.3g}")
    if figure.at_least is not None:
        beside.append(f"\N{GREATER-THAN OR EQUAL TO} {figure.at_least:.3g}")
    verdict = {True: "holds", False: "broken", None: ""}[figure.holds]
    return figure.name, f"{figure.value:.4g}", ", ".join(beside), verdict, figure.note


def figure_record(figure: Figure) -> dict[str, Any]:
    """A figure as JSON-ready values, without what it does not have."""
    named = {k: v for k, v in vars(figure).items() if v is not None and v != ""}
    return named | ({} if figure.holds is None else {"holds": figure.holds})
