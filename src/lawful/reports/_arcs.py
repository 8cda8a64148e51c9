"""Draws a tree over a sentence as arcs above its words."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lawful.reports import _files
from lawful.reports._format import clean, shorten
from lawful.reports._style import FONT, Drawing, figure, light, render, text
from lawful.tasks.exhibits import Arcs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVEL = 24.0  # px of height for each arc that another one spans
_WORD = FONT + 2
_GAP = 18.0


def draw(arcs: Arcs) -> Drawing:
    """The tree; heads that differ from ``gold`` dashed, and the gold arcs below the words."""
    words = [shorten(t, 24) or "∅" for t in arcs.tokens]
    centres, width = _places(words)
    mine = _heads(arcs.heads, len(words))
    gold = _heads(arcs.gold, len(words)) if arcs.gold is not None else None
    missed = [i for i in range(len(words)) if gold is not None and mine[i] != gold[i]]
    above = _levels({(h, m) for m, h in enumerate(mine) if h is not None and h >= 0})
    below = _levels({(h, m) for m in missed if gold and (h := gold[m]) is not None and h >= 0})
    top = max(max(above.values(), default=0), 1) * _LEVEL + 22
    bottom = max(max(below.values(), default=0), 1) * _LEVEL + 12 if missed else 4.0
    fig = figure(max(width, 120.0), top + bottom + 22)
    fig.set_layout_engine("none")
    axes = fig.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set(xlim=(0, max(width, 120.0)), ylim=(-bottom - 22, top))
    for i, word in enumerate(words):
        colour = light("s1" if i in missed else "ink")
        axes.text(centres[i], -14, text(word), ha="center", fontsize=_WORD, color=colour)
    for m, h in enumerate(mine):
        label = clean(arcs.labels[m]) if arcs.labels is not None and m < len(arcs.labels) else ""
        _one(axes, centres, h, m, above, wrong=m in missed, label=label)
    for m in missed:
        if gold is not None:
            _one(axes, centres, gold[m], m, below, under=True)
    return render(fig)


def _places(words: Sequence[str]) -> tuple[list[float], float]:
    x, centres = 12.0, []
    for word in words:
        half = max(len(word) * _WORD * 0.6, 20.0) / 2
        centres.append(x + half)
        x += 2 * half + _GAP
    return centres, x - _GAP + 12.0


def _heads(heads: Sequence[int], n: int) -> list[int | None]:
    """The heads cut or filled to n; None where there is no such token (or the token itself)."""
    known = [int(h) for h in heads][:n]
    known += [n] * (n - len(known))
    return [h if -1 <= h < n and h != m else None for m, h in enumerate(known)]


def _levels(spans: set[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """How high each arc must rise: one more than the highest arc inside it."""
    levels: dict[tuple[int, int], int] = {}
    for span in sorted(spans, key=lambda s: (abs(s[0] - s[1]), s)):
        low, high = min(span), max(span)
        inside = [v for (a, b), v in levels.items() if low <= min(a, b) and max(a, b) <= high]
        levels[span] = 1 + max(inside, default=0)
    return levels


def _one(
    axes: "Axes",
    centres: Sequence[float],
    head: int | None,
    modifier: int,
    levels: dict[tuple[int, int], int],
    wrong: bool = False,
    under: bool = False,
    label: str = "",
) -> None:
    """One arc from head to modifier; a straight arrow from outside for a root."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    if head is None:
        return
    sign, base = (-1.0, -20.0) if under else (1.0, 2.0)
    colour = light("muted" if under else "s1" if wrong else "s0")
    end = centres[modifier]
    if head < 0:
        peak = base + sign * (26.0 if under else 0.9 * _LEVEL)
        outline, start = Outline([(end, peak), (end, base + sign * 4)]), end
        label = label or "root"
    else:
        # Arcs leave a head beside its middle, on the side that they go to, and enter at the middle.
        start = centres[head] + (6.0 if modifier > head else -6.0)
        rises = levels[head, modifier] * _LEVEL + 6  # 3/4 of the control points' height
        peak, rise = base + sign * rises, base + sign * rises * 4 / 3
        corners = [(start, base), (start, rise), (end, rise), (end, base + sign * 4)]
        outline = Outline(corners, [Outline.MOVETO, *[Outline.CURVE4] * 3])
    dashed = (0, (4, 2)) if wrong or under else "solid"
    axes.add_patch(
        PathPatch(outline, fill=False, edgecolor=colour, linewidth=1.5, linestyle=dashed)
    )
    tip = [(end - 3.2, base + sign * 6), (end + 3.2, base + sign * 6), (end, base)]
    axes.fill(*zip(*tip, strict=True), color=colour, linewidth=0)
    if label:
        _label(axes, (start + end) / 2, peak, sign, label, colour)


def _label(axes: "Axes", x: float, peak: float, sign: float, label: str, colour: str) -> None:
    axes.text(
        x,
        peak,
        text(shorten(label, 14)),
        ha="center",
        va="center",
        fontsize=FONT - 2,
        color=colour,
        bbox={"facecolor": light("card"), "edgecolor": "none", "pad": 1.2},
    )


def describe(arcs: Arcs) -> str:
    """Alternative text: each word with its head."""
    words = [shorten(t, 24) for t in arcs.tokens]
    heads = _heads(arcs.heads, len(words))
    parts = [f"{w} ← {_named(words, h)}" for w, h in zip(words[:60], heads, strict=False)]
    more = f"; and {len(words) - 60} more words" if len(words) > 60 else ""
    return clean(f"Tree over a sentence, word ← head: {'; '.join(parts)}{more}")


def remarks(arcs: Arcs) -> list[str]:
    """How the tree compares with gold, and what could not be drawn."""
    n = len(arcs.tokens)
    heads = _heads(arcs.heads, n)
    notes = []
    if arcs.gold is not None:
        gold = _heads(arcs.gold, n)
        same = sum(a == b for a, b in zip(heads, gold, strict=True))
        tail = "." if same == n else "; the others are dashed, with the gold arcs below."
        notes.append(f"{same} of {n} heads agree with the gold tree{tail}")
    lost = heads.count(None)
    if lost:
        notes.append(f"{lost} words have no head that could be drawn.")
    return notes


def numbers(arcs: Arcs) -> str:
    """One row a word: index, word, head, label, gold head."""
    n = len(arcs.tokens)
    gold: list[Any] = [""] * n if arcs.gold is None else list(arcs.gold)
    labels = [""] * n if arcs.labels is None else list(arcs.labels)
    columns = (range(n), map(clean, arcs.tokens), arcs.heads, map(clean, labels), gold)
    return _files.table(["index", "token", "head", "label", "gold"], zip(*columns, strict=False))


def _named(words: Sequence[str], head: int | None) -> str:
    return "nothing" if head is None else "root" if head < 0 else words[head]
