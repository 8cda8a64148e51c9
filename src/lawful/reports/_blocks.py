"""Turns exhibits into what the page's template shows: figures, tables, pictures, text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from lawful.reports import _arcs, _curves, _files, _graphs, _heatmaps, _pictures
from lawful.reports._format import clean, number, slug
from lawful.reports._style import Drawing
from lawful.reports._svg import inline
from lawful.tasks.exhibits import Arcs, Curves, Exhibit, Graphs, Heatmap, Images, Table, Text

ROWS = 200  # longer tables are cut on the page; the CSV holds all rows
LETTERS = 60_000  # longer texts likewise
BUDGET = 2_300_000  # bytes of figures in a page; later ones are linked to instead
HALF = 480.0  # px: figures up to this wide stand two beside each other


@dataclass(frozen=True)
class Figure:
    """A drawing on the page; ``markup`` is empty where the page would grow too big."""

    markup: Markup
    alt: str
    width: float
    caption: str = ""
    files: tuple[tuple[str, str], ...] = ()  # (words, link)


@dataclass(frozen=True)
class Grid:
    """A table's cells as text, with which columns hold numbers."""

    columns: list[str]
    numeric: list[bool]
    rows: list[list[str]]
    caption: str = ""


@dataclass(frozen=True)
class Picture:
    """One small picture of a grid."""

    source: str
    caption: str
    good: bool | None


@dataclass
class Block:
    """One exhibit on the page."""

    title: str
    notes: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    grid: Grid | None = None
    pictures: list[Picture] = field(default_factory=list)
    columns: int | None = None
    pixelated: bool = False
    text: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    heat: bool = False
    span: str = "full"


def grid(columns: Sequence[Any], rows: Sequence[Sequence[Any]], caption: str = "") -> Grid:
    """A table with its values formatted, its rows cut or filled to the columns."""
    n = len(columns)
    even = [(list(row) + [None] * n)[:n] for row in rows]
    numeric = [
        bool(even) and all(isinstance(r[j], int | float | None) for r in even) for j in range(n)
    ]
    written = [_aligned([r[j] for r in even]) for j in range(n)]
    rows_of_text = [list(row) for row in zip(*written, strict=True)]
    return Grid([clean(c) for c in columns], numeric, rows_of_text, clean(caption))


def _aligned(values: Sequence[Any]) -> list[str]:
    """The values as text; plain decimals of one column get equally many digits."""
    texts = [number(v) for v in values]
    decimal = [t for v, t in zip(values, texts, strict=True) if isinstance(v, float)]
    if not decimal or any("e" in t for t in decimal):
        return texts
    digits = min(4, max(len(t.partition(".")[2]) for t in decimal))
    return [
        f"{v:,.{digits}f}".replace("-", "\N{MINUS SIGN}")
        if isinstance(v, float) and math.isfinite(v)
        else t
        for v, t in zip(values, texts, strict=True)
    ]


class Press:
    """Makes the blocks of one page and writes the plots and numbers behind them."""

    def __init__(self, folder: _files.Folder) -> None:
        self.folder = folder
        self.spent = 0

    def figure(
        self, name: str, drawing: Drawing, numbers: str, alt: str, caption: str = ""
    ) -> Figure:
        """Writes the drawing's files and gives its form for the page."""
        stem = self.folder.claim(slug(name), caption or name)
        svg = self.folder.put(stem, "svg", drawing.svg)
        png = self.folder.put(stem, "png", drawing.png)
        csv = self.folder.put(stem, "csv", numbers)
        markup = inline(drawing.svg, f"f{len(self.folder.index)}", alt)
        files = (("SVG", svg), ("PNG", png), ("numbers", csv))
        if not self._afford(len(markup)):
            markup = ""
        # Markup is safe here: it is matplotlib's own SVG, parsed and written again as XML.
        return Figure(Markup(markup), clean(alt), drawing.width, clean(caption), files)

    def block(self, exhibit: Exhibit) -> Block:
        """The block of an exhibit of any kind."""
        makers: dict[type, Any] = {
            Table: self._table,
            Heatmap: self._heatmap,
            Images: self._images,
            Curves: self.curves,
            Arcs: self._arcs,
            Text: self._text,
            Graphs: self._graphs,
        }
        block: Block = makers[type(exhibit)](exhibit)
        if exhibit.note:
            block.notes.insert(0, clean(exhibit.note))
        return block

    def curves(self, curves: Curves, look: _curves.Look | None = None, name: str = "") -> Block:
        """A block with one chart."""
        drawing = _curves.draw(curves, look)
        numbers = _curves.numbers(curves)
        figure = self.figure(name or curves.title, drawing, numbers, _curves.describe(curves))
        return Block(clean(curves.title), _curves.lost(curves), [figure], span="half")

    def _afford(self, size: int) -> bool:
        fits = self.spent + size <= BUDGET
        self.spent += size if fits else 0
        return fits

    def _table(self, table: Table) -> Block:
        stem = self.folder.claim(slug(table.title), table.title)
        csv = self.folder.put(stem, "csv", _files.table(table.columns, table.rows))
        block = Block(clean(table.title), files=(("numbers", csv),))
        block.grid = grid(table.columns, table.rows[:ROWS], table.title)
        if len(table.rows) > ROWS:
            block.notes.append(f"The first {ROWS} of {number(len(table.rows))} rows.")
        return block

    def _heatmap(self, heatmap: Heatmap) -> Block:
        named = _heatmaps.panels(heatmap)
        matrices = [m for _, m in named]
        block = Block(clean(heatmap.title), _heatmaps.remarks(heatmap, matrices), heat=True)
        if not matrices:
            block.notes.append("There are no values to draw.")
            return block
        span = _heatmaps.scale(heatmap, matrices)
        small = len(matrices) > 1
        for name, matrix in named:
            block.figures.append(
                self.figure(
                    f"{heatmap.title} {name}",
                    _heatmaps.draw(heatmap, matrix, span, small),
                    _heatmaps.numbers(heatmap, matrix),
                    _heatmaps.describe(heatmap, name, matrix),
                    name,
                )
            )
        if not small and block.figures[0].width <= HALF:
            block.span = "half"
        return block

    def _arcs(self, arcs: Arcs) -> Block:
        block = Block(clean(arcs.title), _arcs.remarks(arcs))
        if len(arcs.tokens) == 0:
            block.notes.append("There are no words to draw.")
            return block
        drawing, alt = _arcs.draw(arcs), _arcs.describe(arcs)
        block.figures.append(self.figure(arcs.title, drawing, _arcs.numbers(arcs), alt))
        return block

    def _graphs(self, graphs: Graphs) -> Block:
        block = Block(clean(graphs.title))
        if not graphs.captions:
            block.notes.append("There are no graphs to draw.")
        for index, caption in enumerate(graphs.captions):
            drawing, alt = _graphs.draw(graphs, index), _graphs.describe(graphs, index)
            numbers = _graphs.numbers(graphs, index)
            name = f"{graphs.title} {index + 1}"
            block.figures.append(self.figure(name, drawing, numbers, alt, caption))
        return block

    def _images(self, images: Images) -> Block:
        frames = _pictures.frames(images)
        stem = self.folder.claim(slug(images.title), images.title)
        block = Block(clean(images.title), columns=images.columns)
        files = [("numbers", self.folder.put(stem, "json", _pictures.numbers(images)))]
        if frames:
            sheet = _pictures.sheet(frames, images.columns)
            files.insert(0, ("PNG", self.folder.put(stem, "png", sheet)))
            block.pixelated = max(frames[0].shape[:2]) < 96
        else:
            block.notes.append("There are no pictures to show.")
        block.files = tuple(files)
        for i, frame in enumerate(frames):
            source = _pictures.data_uri(_pictures.png(frame))
            if not self._afford(len(source)):
                break
            good = None if images.good is None else bool(images.good[i])
            caption = clean(images.captions[i]) if i < len(images.captions) else ""
            block.pictures.append(Picture(source, caption, good))
        if len(block.pictures) < len(images.images):
            total = number(len(images.images))
            block.notes.append(f"The first {len(block.pictures)} of {total} pictures.")
        return block

    def _text(self, text: Text) -> Block:
        whole = "\n".join(clean(line) for line in text.lines)
        stem = self.folder.claim(slug(text.title), text.title)
        file = self.folder.put(stem, "txt", whole + "\n")
        block = Block(clean(text.title), text=whole[:LETTERS], files=(("text", file),))
        if len(whole) > LETTERS:
            block.notes.append("The beginning of a longer text.")
        return block


def pair(blocks: Sequence[Block]) -> list[Block]:
    """Widens each half-width block that would stand alone in its row."""
    run: list[Block] = []
    for block in [*blocks, Block("")]:
        if block.span == "half":
            run.append(block)
            continue
        if len(run) % 2:
            run[-1].span = "full"
        run = []
    return list(blocks)
