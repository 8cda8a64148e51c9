"""Files a finished run as a public result: one JSON file, and a row in the folder's README.

python results/collect.py RUN results/ud-ewt/tagging-crf.json [--note "..."]

The JSON holds the run's settings, seed, commit, machine, versions, date, time and measures as the
training program wrote them. Paths of this machine are cut down to file names.
"""

import argparse
import json
import re
import shlex
from pathlib import Path

START, END = "<!-- rows: made by results/collect.py -->", "<!-- end of rows -->"


def collect(run: Path, note: str = "") -> dict:
    """The public record of a run."""
    config, environment, result = (
        json.loads((run / f"{name}.json").read_text())
        for name in ("config", "environment", "result")
    )
    if config.get("data"):
        config["data"] = Path(config["data"]).name
    words = shlex.split(environment["command"])
    environment["command"] = " ".join(Path(w).name if "/" in w else w for w in words)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    valid = [x for x in map(json.loads, lines) if x["split"] == "valid"]
    record = {"config": config, "environment": environment, "result": result, "valid": valid}
    return {**record, "note": note} if note else record


def row(name: str, record: dict) -> str:
    """The record as a row of the table."""
    config, environment, result = record["config"], record["environment"], record["result"]
    measures = ", ".join(f"{k} {_show(v)}" for k, v in result["test"].items() if k != "loss")
    minutes = result["seconds"] / 60
    commit = re.sub("[^0-9a-f].*", "", environment["commit"] or "?")[:10]
    cells = (
        f"[{name}]({name}.json)", f"{config['task']} / {config['model']}", measures,
        f"{result['steps']:,} updates, {minutes:.0f} min", config["seed"], commit,
        f"{environment['cpu']}, {environment['threads']} thread(s)", environment["date"][:10],
        record.get("note", ""),
    )  # fmt: skip
    return "| " + " | ".join(str(c).replace("|", "/") for c in cells) + " |"


def _show(value: float) -> str:
    return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.4f}"


def write_table(folder: Path) -> None:
    """Makes the table in the folder's README again from all of its records."""
    readme = folder / "README.md"
    names = (
        "result", "task / model", "test", "training", "seed", "commit", "machine", "date", "note",
    )  # fmt: skip
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    for path in sorted(folder.glob("*.json")):
        lines.append(row(path.stem, json.loads(path.read_text())))
    table = "\n".join([START, *lines, END])
    text = readme.read_text() if readme.is_file() else f"# {folder.name}\n\n{START}\n{END}\n"
    before, rest = text.split(START)
    readme.write_text(before + table + rest.split(END)[1])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--note", default="")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    record = collect(options.run, options.note)
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    write_table(options.out.parent)


if __name__ == "__main__":
    main()
