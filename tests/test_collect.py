"""The script that files runs as public results."""

import json
import runpy
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "results" / "collect.py"


def test_a_run_becomes_a_record_and_a_row_without_paths(tmp_path, monkeypatch):
    run, folder = tmp_path / "run", tmp_path / "results"
    run.mkdir()
    files = {
        "config": {"task": "tagging", "model": "crf", "seed": 3, "data": "/home/me/x.zip"},
        "environment": {
            "commit": "abcdef0123456-dirty", "command": "lawful train tagging --data /home/x.zip",
            "cpu": "a | b", "threads": 1, "date": "2026-01-02T03:04:05",
        },
        "result": {"steps": 1200, "seconds": 90, "test": {"loss": 1.0, "accuracy": 0.9441}},
    }  # fmt: skip
    for name, value in files.items():
        (run / f"{name}.json").write_text(json.dumps(value))
    logged = [{"split": "train", "step": 1}, {"split": "valid", "step": 9, "accuracy": 0.9}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in logged))
    for note in ("", "again"):
        args = [str(SCRIPT), str(run), str(folder / "one.json"), "--note", note]
        monkeypatch.setattr(sys, "argv", args)
        runpy.run_path(str(SCRIPT), run_name="__main__")
    text = (folder / "one.json").read_text()
    assert "/home" not in text
    assert json.loads(text)["valid"] == logged[1:]
    rows = [x for x in (folder / "README.md").read_text().splitlines() if x.startswith("| [one]")]
    assert rows == [
        "| [one](one.json) | tagging / crf | accuracy 0.9441 | 1,200 updates, 2 min | 3 "
        "| abcdef0123 | a / b, 1 thread(s) | 2026-01-02 | again |"
    ]
