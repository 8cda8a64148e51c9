"""Errors and warnings of the library, so that callers can tell and filter them."""

from typing import Any

__all__ = [
    "InputError",
    "NumericalWarning",
    "PerformanceWarning",
    "TrainingDivergedError",
    "expected",
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
