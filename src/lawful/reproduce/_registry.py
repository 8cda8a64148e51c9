"""What can be reproduced, by name; each is imported when it is asked for."""

import importlib
from typing import TYPE_CHECKING

from lawful.errors import unknown

if TYPE_CHECKING:
    from lawful.reproduce._show import Exhibition
    from lawful.reproduce._tables import Table

_PLACES = {
    "transduction": "lawful.reproduce.attention:TRANSDUCTION",
    "translation": "lawful.reproduce.attention:TRANSLATION",
    "qa": "lawful.reproduce.attention:QA",
    "nli": "lawful.reproduce.attention:NLI",
    "sab-copying": "lawful.reproduce.memory:COPYING",
    "sab-adding": "lawful.reproduce.memory:ADDING",
    "sab-language": "lawful.reproduce.memory:LANGUAGE",
    "sab-images": "lawful.reproduce.memory:IMAGES",
    "sab-transfer": "lawful.reproduce.memory:TRANSFER",
    "sab-ablation": "lawful.reproduce.memory:ABLATION",
    "inpaint": "lawful.reproduce.energy:INPAINT",
    "inpaint-mnist": "lawful.reproduce.energy:INPAINT_MNIST",
    "graphs": "lawful.reproduce.graphs:GRAPHS",
    "anomaly": "lawful.reproduce.graphs:ANOMALY",
    "unitary": "lawful.reproduce.recurrences:UNITARY",
    "unitary-copying": "lawful.reproduce.recurrences:COPYING",
    "unitary-waves": "lawful.reproduce.recurrences:WAVES",
}
#: Names, in the order in which they are shown.
REPRODUCTIONS = tuple(_PLACES)


def get_reproduction(name: str) -> "Table | Exhibition":
    """A table or an exhibition by its name.

    Raises:
        InputError: For an unknown name; it lists the known ones and the nearest.
    """
    if name not in _PLACES:
        raise unknown("reproduce", REPRODUCTIONS, name, "see `lawful reproduce`")
    module, attribute = _PLACES[name].split(":")
    found: Table | Exhibition = getattr(importlib.import_module(module), attribute)
    return found
