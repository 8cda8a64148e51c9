"""torch_geometric, where it is needed."""

import importlib
import warnings
from types import ModuleType

from lawful.errors import InputError


def geometric(part: str, purpose: str) -> ModuleType:
    """The module ``torch_geometric.PART``; its own outdated calls at import warn nobody.

    Raises:
        InputError: It is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return importlib.import_module(f"torch_geometric.{part}")
    except ImportError as error:
        hint = "pip install 'lawful[graph]'"
        raise InputError(f"{purpose} needs torch_geometric ({error}); {hint}") from error
