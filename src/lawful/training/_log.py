"""Writes the metrics of a run: JSON lines always, TensorBoard beside them."""

import json
import math
from pathlib import Path
from types import TracebackType
from typing import Any

from lawful.training._run import RunFolder


class MetricLog:
    """Appends to ``metrics.jsonl`` and TensorBoard; use as a context manager."""

    def __init__(self, run: RunFolder, start_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._file = run.metrics.open("a", buffering=1)
        self._board = SummaryWriter(str(run.tensorboard), purge_step=start_step + 1)

    def write(self, split: str, step: int, seconds: float, **values: float) -> None:
        """Logs the scalars of one split at one step."""
        line: dict[str, Any] = {"step": step, "seconds": round(seconds, 3), "split": split}
        line.update(values)
        self._file.write(json.dumps(line) + "\n")
        for name, value in values.items():
            if math.isfinite(value):
                self._board.add_scalar(f"{name}/{split}", value, step)

    def __enter__(self) -> "MetricLog":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        self._board.close()


class NoLog(MetricLog):
    """The log of processes that must not write (every rank but 0)."""

    def __init__(self) -> None:
        pass

    def write(self, split: str, step: int, seconds: float, **values: float) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a metrics file; a torn last line is passed over."""
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines
