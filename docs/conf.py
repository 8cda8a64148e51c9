"""Sphinx settings: `make docs`."""

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
