"""Fills the page templates."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lawful._version import __version__
from lawful.reports import _style
from lawful.reports._format import clean, duration, label, metric, number, slug

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "metric": lambda value, name: metric(name, value),
        "label": label,
        "duration": duration,
        "slug": slug,
    }
    return environment


def page(template: str, **content: Any) -> str:
    """The finished HTML."""
    colours = f":root{{{_style.variables(False)}}}@media screen and (prefers-color-scheme:dark)"
    colours += f"{{:root{{{_style.variables(True)}}}}}"
    filled = _environment().get_template(template)
    return clean(filled.render(colours=colours, version=__version__, **content))
