"""Sphinx settings: `make docs`."""

import re

from lawful import __version__

project = "lawful"
author = "the lawful authors"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"lawful {version}"
exclude_patterns = ["_build"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
suppress_warnings = ["myst.xref_missing"]


def _plain_stars_and_bars(app, what, name, obj, options, lines):
    """Docstrings write shapes as (*batch, N) and moduli as |z|; neither is markup."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            line = re.sub(r"(?<![\\`*\w])(\*{1,2})(?=\w[\w.]*\b(?!\*))", r"\\\1", line)
            lines[i] = re.sub(r"(?<![\\`])\|", r"\\|", line)


def setup(app):
    """Hooks of the build."""
    app.connect("autodoc-process-docstring", _plain_stars_and_bars, priority=1000)
