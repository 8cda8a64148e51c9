"""The result of a check: one row per law and layer, for people and for programs."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lawful.laws._law import Row


@dataclass(frozen=True)
class Certificate:
    """What was measured. Prints as a table; true where every law that was tried holds."""

    rows: Sequence[Row]

    @property
    def holds(self) -> bool:
        """Whether no law is broken and at least one was tried."""
        tried = [r for r in self.rows if r.holds is not None]
        return bool(tried) and all(r.holds for r in tried)

    @property
    def broken(self) -> list[Row]:
        """The rows whose law does not hold."""
        return [r for r in self.rows if r.holds is False]

    def __bool__(self) -> bool:
        return self.holds

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        if not self.rows:
            return "no layer with laws was found"
        cells = [_cells(r) for r in self.rows]
        head = ("", "layer", "law", "deviation", "tolerance", "cases")
        widths = [max(len(x[i]) for x in (head, *cells)) for i in range(len(head))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(x, widths, strict=True)).rstrip()
                 for x in (head, *cells)]  # fmt: skip
        lines.insert(1, "  ".join("-" * w for w in widths))
        lines += [_complaint(r) for r in self.broken]
        return "\n".join([*lines, self.summary()])

    def summary(self) -> str:
        """One line: how many laws hold, are broken, or could not be tried."""
        kept = sum(r.holds is True for r in self.rows)
        idle = sum(r.holds is None for r in self.rows)
        text = f"{kept} kept, {len(self.broken)} broken"
        return f"{text}, {idle} without a case" if idle else text

    def as_json(self) -> dict[str, Any]:
        """JSON-ready form; deviations that are not finite become strings."""
        rows = []
        for row in self.rows:
            item = asdict(row)
            for key in ("deviation", "tolerance"):
                if not math.isfinite(item[key]):
                    item[key] = str(item[key])
            rows.append(item)
        return {"holds": self.holds, "summary": self.summary(), "rows": rows}

    def save(self, path: Path | str) -> None:
        """Writes the JSON form in one rename."""
        path = Path(path)
        scratch = path.with_name(f".{path.name}.tmp")
        scratch.write_text(json.dumps(self.as_json(), indent=1, default=str) + "\n")
        scratch.replace(path)

    @staticmethod
    def load(path: Path | str) -> "Certificate":
        """Reads what `save` wrote."""
        rows = json.loads(Path(path).read_text())["rows"]
        for row in rows:
            row["deviation"], row["tolerance"] = float(row["deviation"]), float(row["tolerance"])
        return Certificate([Row(**row) for row in rows])


def _cells(row: Row) -> tuple[str, ...]:
    mark = {True: "ok", False: "BROKEN", None: "-"}[row.holds]
    tried = row.holds is not None
    return (
        mark,
        row.layer,
        row.law,
        f"{row.deviation:.2e}" if tried else "",
        f"{row.tolerance:.0e}",
        f"{row.cases:,}" if tried else "no case",
    )


def _complaint(row: Row) -> str:
    return (
        f"BROKEN {row.layer}: {row.statement} ({row.source}); deviation {row.deviation:.3g} "
        f"against {row.tolerance:.3g}, worst case {row.witness}"
    )
