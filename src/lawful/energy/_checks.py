"""Refusals shared by the layers of this package."""

import math
from typing import Any

from torch import Tensor

from lawful.errors import expected


def count(name: str, value: Any, least: int = 1) -> int:
    """``value`` if it is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise expected(name, f"an int >= {least}", repr(value))
    return value


def positive(name: str, value: Any, zero: bool = False) -> float:
    """``value`` as a float if it is finite and positive (or zero, if ``zero``)."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise expected(name, f"a finite number {'>=' if zero else '>'} 0", repr(value))
    return float(value)


def choice(name: str, value: Any, among: tuple[str, ...]) -> None:
    """Refuses a ``value`` that is none of ``among``."""
    if value not in among:
        raise expected(name, "one of " + ", ".join(map(repr, among)), repr(value))


def tokens(name: str, x: Any, dim: int) -> None:
    """Refuses anything but a floating (..., N, dim) tensor."""
    if not isinstance(x, Tensor):
        raise expected(name, f"a tensor (..., N, {dim})", type(x).__name__)
    if x.dim() < 2 or x.shape[-1] != dim:
        raise expected(name, f"shape (..., N, {dim})", tuple(x.shape))
    if not x.is_floating_point():
        raise expected(name, "floating-point values", x.dtype)
