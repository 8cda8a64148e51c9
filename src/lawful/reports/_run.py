"""Reads a run folder into memory, forgiving everything but a folder that is no run."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lawful.errors import InputError, expected
from lawful.reports._format import as_number, clean, finite
from lawful.tasks.exhibits import Exhibit, load

Floats = npt.NDArray[np.float64]
_NOT_METRICS = {"step", "split"}


@dataclass(frozen=True)
class Series:
    """One metric of one split over the steps."""

    steps: Floats  # (n,), rising
    values: Floats  # (n,), may hold NaN and infinities


@dataclass
class Run:
    """What a run folder holds; ``notes`` says what was missing or damaged."""

    folder: Path
    config: dict[str, Any]
    environment: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    certificate: dict[str, Any] | None = None
    metrics: dict[str, dict[str, Series]] = field(default_factory=dict)  # split -> name -> series
    exhibits: list[Exhibit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def task(self) -> str:
        """The task's name."""
        return clean(self.config.get("task") or "unknown task")

    @property
    def model(self) -> str:
        """The model's name."""
        return clean(self.config.get("model") or "unknown model")

    @property
    def metric(self) -> str:
        """The metric that the run was chosen by: the result's, else the first logged one."""
        named = self.result.get("metric")
        if isinstance(named, str):
            return named
        logged = [n for n in self.metrics.get("valid", {}) if n not in ("loss", "seconds")]
        return logged[0] if logged else "loss"

    @property
    def last_step(self) -> int:
        """The last step of which anything is known."""
        ends = [s.steps[-1] for split in self.metrics.values() for s in split.values()]
        return int(finite(self.result.get("steps")) or max(ends, default=0))


def read_run(folder: Path) -> Run:
    """Reads a run folder; what is missing or damaged is said in ``notes``.

    Raises:
        InputError: the folder does not exist or holds no readable ``config.json``.
    """
    folder = Path(folder)
    if not folder.is_dir():
        got = "a file" if folder.exists() else "no such folder"
        raise expected(str(folder), "a run folder", got, "give the folder `lawful train` wrote")
    run = Run(folder, _config(folder))
    run.environment = _optional(run, "environment.json")
    run.result = _optional(run, "result.json")
    run.certificate = _optional(run, "certificate.json", quiet=True) or None
    run.metrics = _metrics(run, folder / "metrics.jsonl")
    try:
        run.exhibits = load(folder / "exhibits")
    except InputError as error:
        run.notes.append(f"The exhibits could not be read: {clean(error)}")
    return run


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise expected(
            str(folder), "a run folder", "a folder without config.json", "was it made by training?"
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise expected(str(path), "a run's settings as JSON", f"{error}") from error
    if not isinstance(config, dict):
        raise expected(str(path), "a JSON object", type(config).__name__)
    return config


def _optional(run: Run, name: str, quiet: bool = False) -> dict[str, Any]:
    path = run.folder / name
    if not path.is_file():
        if not quiet:
            run.notes.append(f"{name} is missing: the run is in progress, or was ended early.")
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        run.notes.append(f"{name} could not be read: {clean(error)}")
        return {}
    if isinstance(content, dict):
        return content
    run.notes.append(f"{name} was left out: it holds a {type(content).__name__}, not an object.")
    return {}


def _metrics(run: Run, path: Path) -> dict[str, dict[str, Series]]:
    rows: dict[str, list[dict[str, float]]] = {}
    bad: list[int] = []
    last = 0
    for last, split, row in _lines(path):
        if row is None:
            bad.append(last)
        else:
            _append(rows, split, row)
    if not rows:
        run.notes.append("No metrics have been logged yet.")
    if bad and bad[-1] == last:
        run.notes.append("The last line of metrics.jsonl is cut off and was left out.")
        bad.pop()
    if bad:
        where = ", ".join(map(str, bad[:5])) + (", …" if len(bad) > 5 else "")
        run.notes.append(f"Unreadable lines of metrics.jsonl were left out (line {where}).")
    return {split: _columns(r) for split, r in rows.items() if r}


def _lines(path: Path) -> Iterator[tuple[int, str, dict[str, float] | None]]:
    """(line number, split, its numbers), or None for a line that is not a record."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as stream:
        for n, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                step = as_number(record["step"])
            except (ValueError, KeyError, TypeError, RecursionError):
                record, step = None, None
            if not isinstance(record, dict) or step is None or not np.isfinite(step):
                yield n, "", None
                continue
            pairs = ((k, as_number(v)) for k, v in record.items() if k not in _NOT_METRICS)
            row = {clean(k): v for k, v in pairs if v is not None} | {"step": step}
            yield n, clean(record.get("split", "train")), row


def _append(rows: dict[str, list[dict[str, float]]], split: str, row: dict[str, float]) -> None:
    """Adds a row; a resumed run that goes back to an earlier step replaces what came after it."""
    own, step = rows.setdefault(split, []), row["step"]
    if split == "train" and own and own[-1]["step"] > step:
        for other in rows.values():
            while other is not own and other and other[-1]["step"] >= step:
                other.pop()
    while own and own[-1]["step"] > step:
        own.pop()
    if own and own[-1]["step"] == step:
        own[-1] |= row
    else:
        own.append(row)


def _columns(rows: list[dict[str, float]]) -> dict[str, Series]:
    names = dict.fromkeys(k for row in rows for k in row if k != "step")
    result = {}
    for name in names:
        pairs = [(r["step"], r[name]) for r in rows if name in r]
        steps, values = np.asarray(pairs, dtype=np.float64).T
        result[name] = Series(steps, values)
    return result
