"""The look of every page and plot: colours for light and dark, fonts, axes, and rendering.

The plots are drawn once, in the light colours. On the page each of these colours is replaced by
the name of a CSS variable, so that one drawing follows the reader's light or dark setting.
"""

import io
import math
import threading
import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lawful.reports._format import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# name -> (light, dark). Series colours keep 3:1 against the card in both, and stay apart for
# readers who are red-green or blue-yellow blind; dashes and markers tell them apart as well.
COLOURS: dict[str, tuple[str, str]] = {
    "page": ("#f4f6f9", "#0d1117"),
    "card": ("#ffffff", "#161b22"),
    "ink": ("#1c2128", "#e6edf3"),
    "muted": ("#59636e", "#9da7b3"),
    "line": ("#d5dbe2", "#30363d"),
    "grid": ("#e8ecf1", "#272d35"),
    "good": ("#0a7d4f", "#3fcf8e"),
    "bad": ("#b3261e", "#ff8379"),
    "warn": ("#8a5a00", "#e3b341"),
    "s0": ("#0b64b8", "#58a6ff"),
    "s1": ("#cc4e00", "#ff9a57"),
    "s2": ("#00795c", "#42d3a5"),
    "s3": ("#96408b", "#e39ad8"),
    "s4": ("#8b6a02", "#dfb94d"),
    "s5": ("#1b87b3", "#79d4f5"),
    "s6": ("#a8324e", "#ff8fa8"),
    "s7": ("#6e5bd0", "#b4a6ff"),
}
SERIES = [light for name, (light, _) in COLOURS.items() if name[0] == "s" and name[1:].isdigit()]
DASHES = ["solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2))]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
FONT = 11.5
_DRAWING = threading.Lock()  # matplotlib's settings and Python's warning filters are per process


def light(name: str) -> str:
    """The light form of a colour of the house, for drawing."""
    return COLOURS[name][0]


def variables(dark: bool) -> str:
    """The colours as CSS custom properties."""
    return "".join(f"--{name}:{pair[dark]};" for name, pair in COLOURS.items())


@dataclass(frozen=True)
class Drawing:
    """A rendered figure: a standalone SVG, and the same as PNG at twice the size."""

    svg: str
    png: bytes
    width: float  # in px of the page
    height: float


def figure(width: float, height: float) -> "Figure":
    """An empty figure of this size in px of the page (one point of the drawing each)."""
    from matplotlib.figure import Figure

    return Figure(
        figsize=(width / 72, height / 72), facecolor=light("card"), layout="constrained", dpi=72
    )


def text(value: Any) -> str:
    """User text that matplotlib must not read as mathematics."""
    return clean(value).replace("$", r"\$")


def dress(axes: "Axes", grid: bool = True) -> None:
    """Quiet axes: no box, a light grid, muted labels."""
    axes.set_facecolor("none")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(light("line"))
    axes.tick_params(
        which="both", length=0, labelsize=FONT, labelcolor=light("muted"), color=light("line")
    )
    axes.xaxis.label.set(color=light("muted"), fontsize=FONT)
    axes.yaxis.label.set(color=light("muted"), fontsize=FONT)
    if grid:
        axes.set_axisbelow(True)
        axes.grid(visible=True, which="major", axis="y", color=light("grid"), linewidth=1)


def tick_text(value: float, spacing: float) -> str:
    """A tick's label with just the decimals that its axis needs.

    >>> tick_text(0.5, 0.25), tick_text(20000, 5000), tick_text(3e-7, 1e-7)
    ('0.50', '20,000', '3e-7')
    >>> tick_text(0.00102, 2e-5), tick_text(2e6, 1e6), tick_text(1234000, 1000)
    ('0.00102', '2e6', '1,234,000')
    """
    if value == 0:
        return "0"
    size = abs(value)
    if (size >= 1e6 and spacing > size / 100) or (size < 1e-4 and spacing < 1e-4):
        mantissa, _, exponent = f"{value:.3g}".partition("e")
        return f"{mantissa}e{int(exponent)}" if exponent else mantissa
    decimals = 0
    while (
        spacing > 0
        and decimals < 10
        and not math.isclose(spacing, round(spacing, decimals), rel_tol=1e-6)
    ):
        decimals += 1
    return f"{value:,.{decimals}f}".replace("-", "\N{MINUS SIGN}")


def ticks(axis: Any, log: bool, whole: bool = False) -> None:
    """Few ticks, with plain labels (no offsets, no mathematics)."""
    from matplotlib.ticker import Formatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    class Plain(Formatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return tick_text(x, 0.0)

        def format_ticks(self, values: Any) -> list[str]:
            gaps = [abs(float(b) - float(a)) for a, b in pairwise(values)]
            return [tick_text(float(x), min(gaps, default=0.0)) for x in values]

    if not log:
        steps = [1, 2, 5, 10] if whole else [1, 2, 2.5, 5, 10]
        axis.set_major_locator(MaxNLocator(5, steps=steps, integer=whole))
        axis.set_major_formatter(Plain())
        return
    low, high = sorted(axis.get_view_interval())
    narrow = high < 100 * max(low, 1e-300)
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,), numticks=6))
    axis.set_major_formatter(FuncFormatter(lambda x, pos: tick_text(x, x)))
    axis.set_minor_formatter(NullFormatter())


def render(fig: "Figure") -> Drawing:
    """Draws the figure once as SVG (text stays text) and once as PNG."""
    import matplotlib

    width, height = (float(side) * 72 for side in fig.get_size_inches())
    svg, png = io.StringIO(), io.BytesIO()
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "lawful", "path.simplify": True}
    with _DRAWING, warnings.catch_warnings(), matplotlib.rc_context(settings):
        # The page uses the reader's fonts, so a glyph that matplotlib's font lacks is no loss.
        warnings.filterwarnings("ignore", message=r"(?s).*Glyph .* missing from")
        warnings.filterwarnings("ignore", message=r"(?s).*constrained_layout not applied")
        fig.savefig(svg, format="svg", metadata={"Date": None})
        fig.set_layout_engine("none")  # the layout of the SVG holds
        fig.savefig(png, format="png", dpi=144)
    return Drawing(svg.getvalue(), png.getvalue(), width, height)
