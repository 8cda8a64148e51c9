"""Loads the compiled kernels once, on first need, and decides which path an operator takes."""

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from lawful.errors import InputError, expected
from lawful.kernels._build import cpu_features, source_hash

Backend = Literal["auto", "native", "reference"]

LIBRARY_FOLDER = Path(__file__).parent / "_lib"
_BUILD_HINT = "run `python -m lawful.kernels build`"
_forced: ContextVar[Backend] = ContextVar("lawful_backend", default="auto")


@dataclass(frozen=True)
class NativeStatus:
    """Whether the compiled kernels are live, and the reason when they are not."""

    live: bool
    reason: str

    def describe(self) -> str:
        """One line for people."""
        return f"native kernels: {'live' if self.live else 'not live'} ({self.reason})"


@functools.cache
def native_status() -> NativeStatus:
    """Loads the compiled kernels if they are there, fresh, and fit this processor."""
    found = sorted(LIBRARY_FOLDER.glob("lawful_kernels-*.so"))
    if not found:
        return NativeStatus(False, f"not compiled; {_BUILD_HINT}")
    path = LIBRARY_FOLDER / f"lawful_kernels-{source_hash()}.so"
    if not path.is_file():
        return NativeStatus(False, f"compiled from other sources; {_BUILD_HINT}")
    about = path.with_name(path.name + ".json")
    needed = json.loads(about.read_text())["features"] if about.is_file() else []
    missing = sorted(set(needed) - set(cpu_features()))
    if missing:
        lacks = ", ".join(missing[:4])
        return NativeStatus(False, f"compiled for a processor with {lacks}; {_BUILD_HINT}")
    try:
        torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
    except OSError as error:
        return NativeStatus(False, f"cannot be loaded: {error}")
    return NativeStatus(True, str(path.name))


@contextmanager
def force_backend(backend: Backend) -> Iterator[None]:
    """Within the block, operators with ``backend="auto"`` take this path instead.

    Raises:
        InputError: ``backend`` is none of "auto", "native", "reference".
    """
    _check(backend)
    token = _forced.set(backend)
    try:
        yield
    finally:
        _forced.reset(token)


def _check(backend: str) -> None:
    if backend not in ("auto", "native", "reference"):
        raise expected("backend", '"auto", "native" or "reference"', repr(backend))


# The compiler cannot trace a context variable or a cached loader; both are constants to it.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _forced_now() -> Backend:
    return _forced.get()


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _live() -> bool:
    return native_status().live


def use_native(backend: Backend, *tensors: torch.Tensor) -> bool:
    """Whether an operator on these tensors takes the compiled path.

    The compiled path serves float32 and float64 on the CPU. "auto" falls back silently to the
    reference; `native_status` and ``lawful doctor`` tell why.

    Raises:
        InputError: "native" was asked for and cannot be had.
    """
    _check(backend)
    if backend == "auto":
        backend = _forced_now()
    if backend == "reference":
        return False
    fits = all(t.device.type == "cpu" for t in tensors) and all(
        t.dtype in (torch.float32, torch.float64) for t in tensors if t.is_floating_point()
    )
    if fits and _live():
        return True
    if backend == "native":
        why = native_status().describe() if fits else "tensors are not float32/float64 on the CPU"
        raise InputError(f'backend: "native" is not available: {why}')
    return False
