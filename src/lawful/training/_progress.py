"""The progress display: a live bar on a terminal, a plain line per evaluation elsewhere."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class Progress:
    """What the loop tells people; this base is silent."""

    def step(self, step: int, loss: float) -> None:
        """After each update."""

    def evaluated(self, step: int, values: Mapping[str, float], best: bool) -> None:
        """After each evaluation."""


class _Bar(Progress):
    def __init__(self, bar: Any, total: int, start: int, metric: str) -> None:
        self._bar, self._metric, self._value = bar, metric, float("nan")
        self._start, self._began = start, time.perf_counter()
        self._task = bar.add_task("training", total=total, completed=start, info="")

    def step(self, step: int, loss: float) -> None:
        rate = (step - self._start) / max(time.perf_counter() - self._began, 1e-9)
        value = "" if self._value != self._value else f"{self._metric} {self._value:.4g}  "
        info = f"loss {loss:.4g}  {value}{rate:.1f} steps/s"
        self._bar.update(self._task, completed=step, info=info)

    def evaluated(self, step: int, values: Mapping[str, float], best: bool) -> None:
        self._value = values[self._metric]


class _Lines(Progress):
    def __init__(self, total: int, metric: str) -> None:
        self._total, self._metric, self._loss = total, metric, float("nan")
        self._began = time.perf_counter()

    def step(self, step: int, loss: float) -> None:
        self._loss = loss

    def evaluated(self, step: int, values: Mapping[str, float], best: bool) -> None:
        parts = [
            f"step {step}/{self._total}",
            f"loss {self._loss:.4g}",
            f"valid loss {values['loss']:.4g}",
            f"{self._metric} {values[self._metric]:.4g}{' (best)' if best else ''}",
            f"{time.perf_counter() - self._began:.0f} s",
        ]
        print("  ".join(parts), flush=True)


@contextmanager
def show_progress(total: int, start: int, metric: str, *, silent: bool) -> Iterator[Progress]:
    """The display for a run of ``total`` updates that begins after ``start``."""
    if silent:
        yield Progress()
    elif not sys.stdout.isatty():
        yield _Lines(total, metric)
    else:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[info]}"),
            TimeRemainingColumn(),
        )
        with RichProgress(*columns) as bar:
            yield _Bar(bar, total, start, metric)
