"""A page of exhibits under headings of one's own, apart from any run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lawful.reports import _files
from lawful.reports._blocks import Press, pair
from lawful.reports._format import clean, slug
from lawful.reports._page import page
from lawful.tasks.exhibits import Exhibit


@dataclass(frozen=True)
class Section:
    """A heading, a paragraph, and what is shown under them."""

    title: str
    text: str = ""
    exhibits: Sequence[Exhibit] = field(default_factory=list)


def write_exhibition(
    target: Path, title: str, lead: str, sections: Sequence[Section], kind: str = "exhibition"
) -> Path:
    """Writes one self-contained page; plots and their numbers go into a folder beside it.

    Args:
        target: Where the page goes, a name ending in ``.html``.
        title: Heading of the page.
        lead: What the reader should know first, a sentence or two.
        sections: What is shown, in order.
        kind: A word or two above the heading.

    Returns:
        The path of the page.

    Raises:
        InputError: ``target`` cannot be written.
    """
    target = Path(target)
    plots = _files.Folder(target.parent / f"{target.stem}_plots")
    press = Press(plots)
    shown = [
        {
            "id": f"{slug(s.title)}-{i}",
            "title": clean(s.title),
            "text": clean(s.text),
            "blocks": pair([press.block(e) for e in s.exhibits]),
        }
        for i, s in enumerate(sections)
    ]
    plots.finish()
    html = page(
        "exhibition.html",
        plots=plots.path.name,
        title=f"{clean(title)} · lawful",
        heading=clean(title),
        lead=clean(lead),
        kind=clean(kind),
        sections=[(s["id"], s["title"]) for s in shown],
        shown=shown,
    )
    _files.write(target, html)
    return target
