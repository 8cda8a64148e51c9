"""A run folder: everything that one training run leaves behind, written so that nothing is lost.

Layout: ``config.json``, ``environment.json``, ``metrics.jsonl``, ``tensorboard/``,
``checkpoints/`` (``index.json`` names the last and the best), ``exhibits/``, ``result.json``, and
what the reports add. Every file is written under a temporary name and renamed.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from lawful._version import __version__
from lawful.errors import InputError


def write_json(path: Path, value: Any) -> None:
    """Writes JSON in one rename."""
    scratch = path.with_name(f".{path.name}.tmp")
    scratch.write_text(json.dumps(value, indent=1, default=str) + "\n")
    scratch.replace(path)


def environment() -> dict[str, Any]:
    """Machine, versions, commit and date: what a reader needs to judge a result."""
    return {
        "lawful": __version__,
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["lawful", *sys.argv[1:]]),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def _commit() -> str | None:
    """The commit of a source checkout; None for an installed package."""
    here = Path(__file__).resolve().parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (x.partition(":")[2].strip() for x in lines if x.startswith("model name"))
    return next(names, platform.machine())


class RunFolder:
    """Paths and small files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.metrics = path / "metrics.jsonl"
        self.exhibits = path / "exhibits"
        self.tensorboard = path / "tensorboard"

    @staticmethod
    def refuse(path: Path) -> None:
        """Raises `InputError` where a new run cannot be made: the folder is taken."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            what = "holds a run already" if (path / "config.json").is_file() else "is not empty"
            raise InputError(
                f"out: {path} {what}; continue a run with --resume, or name another folder"
            )

    @classmethod
    def create(cls, path: Path, config: dict[str, Any]) -> "RunFolder":
        """Makes a new run folder.

        Raises:
            InputError: The folder exists and is not empty, or cannot be written.
        """
        cls.refuse(path)
        run = cls(path)
        try:
            run.checkpoints.mkdir(parents=True, exist_ok=True)
            write_json(path / "environment.json", environment())
            write_json(path / "config.json", config)
        except OSError as error:
            raise InputError(f"out: cannot write to {path}: {error.strerror}") from None
        return run

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Opens an existing run folder.

        Raises:
            InputError: There is no run.
        """
        if not (path / "config.json").is_file():
            raise InputError(f"run: {path} is not a run folder (it has no config.json)")
        return cls(path)

    def config(self) -> dict[str, Any]:
        """The settings the run was started with."""
        return _read(self.path / "config.json")

    def result(self) -> dict[str, Any] | None:
        """The outcome, or None while there is none."""
        path = self.path / "result.json"
        return _read(path) if path.is_file() else None

    def index(self) -> dict[str, Any]:
        """Names of the last and the best checkpoint; empty before the first."""
        path = self.checkpoints / "index.json"
        return _read(path) if path.is_file() else {}

    def checkpoint(self, which: str) -> Path | None:
        """The folder of the "last" or "best" checkpoint, if there is one."""
        name = self.index().get(which)
        return self.checkpoints / name if name else None

    def commit_checkpoint(self, made: Path, name: str, *, best: bool) -> None:
        """Puts a finished checkpoint in place, repoints the index, removes what nothing names."""
        target = self.checkpoints / name
        if target.exists():
            shutil.rmtree(target)
        made.rename(target)
        index = self.index()
        index["last"] = name
        if best:
            index["best"] = name
        write_json(self.checkpoints / "index.json", index)
        for old in self.checkpoints.iterdir():
            if old.is_dir() and old.name not in index.values():
                shutil.rmtree(old, ignore_errors=True)

    def keep_metrics_until(self, step: int) -> None:
        """Drops log lines after ``step`` (and a torn last line), before resuming from there."""
        if not self.metrics.is_file():
            return
        kept = []
        for line in self.metrics.read_text().splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line)
            except (json.JSONDecodeError, KeyError):
                continue
        scratch = self.metrics.with_name(".metrics.tmp")
        scratch.write_text("".join(f"{x}\n" for x in kept))
        scratch.replace(self.metrics)


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"run: cannot read {path}: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"run: {path} does not hold a JSON object")
    return value
