"""Puts runs of the transduction task beside the paper's table, and writes them down.

``python benchmarks/_transduction.py RUN... [--out results/transduction]`` measures the best
checkpoint of each run folder by greedy and beam search, prints ours and the paper's numbers, and
writes one JSON file for each run: settings, seed, machine, the course of validation, results.
"""

import argparse
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from _harness import commit, machine
from lawful.cli._inspect import _load
from lawful.tasks.transduction._exhibits import PUBLISHED, _kind, by_depth
from lawful.training import RunFolder, read_metrics, write_json


def measure(path: Path) -> dict[str, Any]:
    """Everything worth keeping of one run."""
    run = RunFolder.open(path)
    task, model, _ = _load(path, None)
    valid = [x for x in read_metrics(run.metrics) if x["split"] == "valid"]
    row, same = _kind(model.config)
    result = run.result()
    facts = json.loads((path / "environment.json").read_text())
    facts["command"] = re.sub(r"--out[ =]\S+", "--out RUN", facts["command"])
    return {
        "config": run.config(),
        "environment": facts,
        "status": "unfinished" if result is None else result["status"],
        "best_step": run.index().get("best"),
        "validation": valid,
        "test_percent": {
            "greedy": by_depth(task, model, "test", 1),
            f"beam {task.config.beam}": by_depth(task, model, "test", task.config.beam),
        },
        "paper": {"row": row, "same_model": same, "percent": PUBLISHED[row]},
        "measured": {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit(),
            "machine": machine(),
        },
    }


def show(name: str, found: dict[str, Any]) -> None:
    """One block of the table."""
    epochs = len(found["validation"])
    print(f"{name}: {found['status']}, {epochs} evaluations, best {found['best_step']}")
    for how, values in found["test_percent"].items():
        print(f"  {how:<10}" + "".join(f"{v:8.1f}" for v in values.values()))
    print(f"  {'paper':<10}" + "".join(f"{v:8.1f}" for v in found["paper"]["percent"].values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print("length to failure in percent at depths 2, 3, 4, 5, 6")
    for path in options.runs:
        found = measure(path)
        show(path.name, found)
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            seed = found["config"]["seed"]
            write_json(options.out / f"{path.name}-seed{seed}.json", found)


if __name__ == "__main__":
    main()
