"""Errors and warnings of the library, so that callers can tell and filter them."""

import difflib
from collections.abc import Sequence
from typing import Any

__all__ = [
    "InputError",
    "NumericalWarning",
    "PerformanceWarning",
    "TrainingDivergedError",
    "expected",
    "unknown",
]


class InputError(ValueError):
    """A bad argument, file or setting, found where it entered. The command line exits with 2."""


class TrainingDivergedError(RuntimeError):
    """The loss or its gradient became infinite or NaN; the last good checkpoint is kept."""


class NumericalWarning(UserWarning):
    """The result is defined but numerically delicate."""


class PerformanceWarning(UserWarning):
    """A slower path is taken than the one the caller probably wants."""


def expected(name: str, want: str, got: Any, hint: str = "") -> InputError:
    """Builds (does not raise) the error for argument ``name``: what was expected and what came."""
    tail = f"; {hint}" if hint else ""
    return InputError(f"{name}: expected {want}, got {got}{tail}")


def unknown(name: str, known: Sequence[str], got: str, otherwise: str = "") -> InputError:
    """An error for a name that is none of the known ones; it suggests the nearest.

    Args:
        name: The argument.
        known: The names that exist.
        got: The name that came.
        otherwise: The hint where nothing known is near.
    """
    near = difflib.get_close_matches(got, known, 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else otherwise
    return expected(name, "one of " + ", ".join(known), repr(got), hint)
