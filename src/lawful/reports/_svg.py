"""Makes matplotlib's SVG fit for standing inside a page: themed, scaled, no stray ids."""

import re
from xml.etree import ElementTree

from lawful.reports._format import clean
from lawful.reports._style import COLOURS

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_VARIABLES = {pair[0]: f"var(--{name})" for name, pair in reversed(COLOURS.items())}
_HEX = re.compile("#[0-9a-f]{6}")
_POINTS = re.compile(r"(\d+\.\d\d)\d+")
_REFERENCE = re.compile(r"#([\w.-]+)")


def inline(svg: str, prefix: str, alt: str) -> str:
    """The SVG as an element for HTML.

    Fixed sizes go (the page scales it), the house's colours become CSS variables, ids carry the
    prefix and are dropped where nothing refers to them, and the alternative text is attached.
    """
    root = ElementTree.fromstring(svg)
    referred = _referred(root)
    for element in root.iter():
        for child in [c for c in element if c.tag == f"{{{_SVG}}}metadata"]:
            element.remove(child)
        _retouch(element, prefix, referred)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", clean(alt))
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    return ElementTree.tostring(root, encoding="unicode")


def _referred(root: ElementTree.Element) -> set[str]:
    used: set[str] = set()
    for element in root.iter():
        for name, value in element.attrib.items():
            if name.endswith("href") or "url(#" in value:
                used |= set(_REFERENCE.findall(value))
    return used


def _retouch(element: ElementTree.Element, prefix: str, referred: set[str]) -> None:
    attributes = element.attrib
    if attributes.get("id") in referred:
        attributes["id"] = f"{prefix}-{attributes['id']}"
    else:
        attributes.pop("id", None)
    for name, value in list(attributes.items()):
        if name == "d":
            attributes[name] = _POINTS.sub(r"\1", value)
        elif name.endswith("href") and value.startswith("#"):
            attributes[name] = f"#{prefix}-{value[1:]}"
        elif "url(#" in value:
            attributes[name] = value.replace("url(#", f"url(#{prefix}-")
        elif name in ("style", "fill", "stroke"):
            attributes[name] = _HEX.sub(lambda m: _VARIABLES.get(m[0], m[0]), value)
