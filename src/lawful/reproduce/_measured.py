"""Runs of a table put together: means over seeds, as a record, as cells, as Markdown."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lawful.reproduce._tables import Measure, Row, Table
from lawful.tasks.exhibits import Table as TableExhibit

DASH = "\N{EN DASH}"


@dataclass(frozen=True)
class Run:
    """One finished run of a row."""

    seed: int
    folder: Path
    command: str
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    result: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path, seed: int, command: Sequence[str]) -> "Run":
        """From the files of its run folder."""
        parts = {
            name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
            for name in ("config", "environment", "result")
        }
        if parts["config"].get("data"):  # where a person keeps the data is nobody's business
            parts["config"]["data"] = Path(parts["config"]["data"]).name
        words = " ".join(["lawful", "train", *command, "--seed", str(seed)])
        parts["environment"].pop("command", None)
        return cls(seed, folder, words, **parts)

    def value(self, measure: Measure, baseline: str = "") -> float | None:
        """The measure in the table's unit; None where the run has no such metric.

        With ``baseline`` not the run's own, but what that baseline has of its main metric.
        """
        found = (self.result.get("test") or {}).get(measure.key)
        if baseline:
            main = self.result.get("metric") == measure.key
            found = (self.result.get("baselines") or {}).get(baseline) if main else None
        return None if found is None else float(found) * measure.scale


@dataclass
class Measured:
    """A table with the runs that are done so far."""

    table: Table
    quick: bool
    runs: dict[str, list[Run]] = field(default_factory=dict)  # by row

    def runs_of(self, row: Row) -> list[Run]:
        """The runs that a row is read from."""
        return self.runs.get(row.of or row.key, [])

    def values(self, row: Row, measure: Measure) -> list[float]:
        """The measure of each run of a row."""
        found = (run.value(measure, row.baseline) for run in self.runs_of(row))
        return [v for v in found if v is not None]

    def cells(self, row: Row) -> list[str]:
        """Ours, in the order of the measures: mean, and standard deviation over the seeds."""
        return [_spread(self.values(row, m), m) for m in self.table.measures]

    def published(self, row: Row) -> list[str]:
        """The paper's numbers in the same order."""
        found = [row.published.get(m.key) for m in self.table.measures]
        return [
            DASH if v is None else m.show(v)
            for v, m in zip(found, self.table.measures, strict=True)
        ]

    def lines(self) -> list[list[str]]:
        """The whole table, the paper's row below ours where there is one."""
        lines = []
        for row in self.table.rows:
            if not self.runs_of(row):
                continue
            count = len(self.runs_of(row))
            number = f"{count} {self.table.each}{'s'[: count != 1]}"
            lines.append([row.title, f"ours, {number}", *self.cells(row)])
            if row.published:
                lines.append(["", "paper", *self.published(row)])
        return lines

    def headings(self) -> list[str]:
        """Of the columns of `lines`."""
        return ["model", "", *(m.title for m in self.table.measures)]

    def exhibit(self) -> TableExhibit:
        """The table as an exhibit."""
        return TableExhibit(self.table.title, self.headings(), self.lines(), self.note())

    def note(self) -> str:
        """What a reader has to know about the numbers."""
        parts = []
        if any(len(runs) > 1 for runs in self.runs.values()):
            parts.append(f"Ours: mean ± standard deviation over {self.table.each}s.")
        if self.quick:
            parts.append(f"Scaled down: {self.table.quick_text}")
        parts += [f"{r.title}: {r.note}." for r in self.table.rows if r.note and self.runs_of(r)]
        return " ".join(parts)

    def markdown(self) -> str:
        """The table for a README."""
        rows = [self.headings(), ["---"] * len(self.headings()), *self.lines()]
        table = "\n".join("| " + " | ".join(c.replace("|", "/") for c in r) + " |" for r in rows)
        facts = f"{self.table.source}. {self.table.text}"
        return f"# {self.table.title}\n\n{facts}\n\n{table}\n\n{self.note()}\n"

    def record(self) -> dict[str, Any]:
        """Everything, JSON-ready."""
        return {
            "name": self.table.name,
            "title": self.table.title,
            "source": self.table.source,
            "quick": self.quick,
            "measures": [asdict(m) for m in self.table.measures],
            "rows": [self._row(row) for row in self.table.rows if self.runs_of(row)],
        }

    def _row(self, row: Row) -> dict[str, Any]:
        values = {m.key: self.values(row, m) for m in self.table.measures}
        return {
            "key": row.key,
            "title": row.title,
            "note": row.note,
            "published": dict(row.published),
            "ours": {k: _summary(v) for k, v in values.items() if v},
            "runs": [
                {k: v for k, v in vars(run).items() if k != "folder"}
                for run in self.runs.get(row.key, [])
            ],
        }


def _summary(values: Sequence[float]) -> dict[str, Any]:
    spread = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "sd": spread, "n": len(values)}


def _spread(values: Sequence[float], measure: Measure) -> str:
    if not values:
        return DASH
    mean = measure.show(statistics.fmean(values))
    if len(values) == 1 or not all(map(math.isfinite, values)):
        return mean
    return f"{mean} ± {measure.show(statistics.stdev(values))}"
