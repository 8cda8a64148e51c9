"""The page that holds several runs against each other."""

import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lawful.errors import expected
from lawful.reports import _curves, _files, _learning
from lawful.reports._blocks import Block, Press, pair
from lawful.reports._format import (
    as_number,
    clean,
    duration,
    finite,
    flatten,
    label,
    metric,
    number,
)
from lawful.reports._page import page
from lawful.reports._report import status
from lawful.reports._run import Run, read_run
from lawful.tasks.exhibits import Curves

_PARTS = ("model_config", "task_config", "train_config")


@dataclass(frozen=True)
class Group:
    """Runs of one task and one setting, which differ by their seeds only."""

    name: str
    runs: list[Run]
    place: int  # in the palette

    def values(self, split: str, name: str) -> list[float]:
        """The metric of each run that has it."""
        parts = [r.result.get(split) for r in self.runs]
        found = [as_number(p[name]) for p in parts if isinstance(p, dict) and name in p]
        return [v for v in found if v is not None]


def compare_report(runs: list[Path], out: Path) -> Path:
    """Writes a page that compares runs: results, learning curves, and the settings that differ.

    Runs of one task whose settings differ by the seed only are taken together, with the mean and
    the standard deviation over the seeds.

    Args:
        runs: Run folders, one or more.
        out: Where the page goes: a name ending in ``.html``, or a folder for ``compare.html``.
            Plots go into a folder beside the page.

    Returns:
        The path of the page.

    Raises:
        InputError: no runs were given, one of them is no run folder, or ``out`` cannot be written.
    """
    if not runs:
        raise expected("runs", "at least one run folder", "none")
    unique = list({Path(r).resolve(): Path(r) for r in runs}.values())
    read = [read_run(r) for r in unique]
    out = Path(out)
    target = out if out.suffix.lower() in (".html", ".htm") else out / "compare.html"
    plots = _files.Folder(target.parent / f"{target.stem}_plots")
    press = Press(plots)
    names = _names(read)
    tasks = [_task(t, [r for r in read if r.task == t], press) for t in _unique(read)]
    plots.finish()
    html = page("compare.html", plots=plots.path.name, **_content(read, names, tasks, target))
    _files.write(target, html)
    return target


def _unique(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(r.task for r in runs))


def _names(runs: Sequence[Run]) -> list[str]:
    """Folder names, with as many parents as it takes to tell them apart."""
    paths = [r.folder.resolve().parts for r in runs]
    depth = 1
    while len({p[-depth:] for p in paths}) < len(paths) and depth < max(map(len, paths)):
        depth += 1
    return [clean("/".join(p[-depth:])) for p in paths]


def flat(run: Run) -> dict[str, str]:
    """All settings of a run but its seed, as text."""
    parts = {k: run.config.get(k) or {} for k in _PARTS}
    found = {"model": run.model}
    for part in parts.values():
        if isinstance(part, dict):
            found |= {clean(k): number(v) for k, v in flatten(part).items()}
    found.pop("seed", None)
    return found


def group(runs: Sequence[Run]) -> list[Group]:
    """Runs of one task put together by their settings, named by what differs."""
    by: dict[str, list[Run]] = {}
    for run in runs:
        by.setdefault(json.dumps(flat(run), sort_keys=True), []).append(run)
    keys = differing([flat(members[0]) for members in by.values()])
    groups = []
    for place, members in enumerate(by.values()):
        own = flat(members[0])
        told = [f"{k}={own[k]}" for k in keys if k != "model" and k in own][:3]
        groups.append(Group(", ".join([own["model"], *told]), members, place))
    return groups


def differing(settings: Sequence[dict[str, str]]) -> list[str]:
    """The settings that are not the same everywhere, those all have first."""
    keys = dict.fromkeys(k for s in settings for k in s)
    found = [k for k in keys if len({s.get(k) for s in settings}) > 1]
    return sorted(found, key=lambda k: sum(k not in s for s in settings))


def _task(name: str, runs: list[Run], press: Press) -> dict[str, Any]:
    groups = group(runs)
    settings = [flat(g.runs[0]) for g in groups]
    keys = differing(settings)
    return {
        "name": name,
        "results": _results(groups, runs),
        "curves": _curves_of(name, groups, runs, press),
        "keys": keys,
        "settings": [
            {"name": g.name, "place": g.place % 8, "cells": [s.get(k, "\N{EN DASH}") for k in keys]}
            for g, s in zip(groups, settings, strict=True)
        ],
    }


def _results(groups: Sequence[Group], runs: Sequence[Run]) -> dict[str, Any]:
    name = _metric(runs)
    rows: list[dict[str, Any]] = []
    for g in groups:
        test, best = g.values("test", name), g.values("best_valid", name)
        seconds = [v for r in g.runs if (v := finite(r.result.get("seconds")))]
        sizes = {r.result.get("parameters") for r in g.runs} - {None}
        rows.append(
            {
                "name": g.name,
                "place": g.place % 8,
                "runs": len(g.runs),
                "test": spread(name, test),
                "valid": spread(name, best),
                "parameters": ", ".join(number(s) for s in sizes) or "\N{EN DASH}",
                "time": duration(statistics.mean(seconds)) if seconds else "\N{EN DASH}",
                "score": _score(test or best),
            }
        )
    higher = next((r.result["higher_is_better"] for r in runs if "higher_is_better" in r.result), 0)
    scores = [r["score"] for r in rows if r["score"] is not None]
    best_score = (max(scores) if higher else min(scores)) if len(scores) > 1 else None
    for row in rows:
        row["best"] = best_score is not None and row["score"] == best_score
    return {"metric": label(name), "rows": rows, "seeds": any(len(g.runs) > 1 for g in groups)}


def _metric(runs: Sequence[Run]) -> str:
    named = [r.metric for r in runs if r.result] or [r.metric for r in runs]
    return max(named, key=named.count)


def _score(values: Sequence[float]) -> float | None:
    finite = [v for v in values if np.isfinite(v)]
    return statistics.mean(finite) if finite else None


def spread(name: str, values: Sequence[float]) -> str:
    """The value; or the mean, the standard deviation and the number of values."""
    if not values:
        return "\N{EN DASH}"
    if len(values) == 1 or not np.isfinite(values).all():
        return ", ".join(metric(name, v) for v in values)
    mean = metric(name, statistics.mean(values))
    deviation = metric(name, statistics.stdev(values))
    return f"{mean.removesuffix(' %')} ± {deviation}"


def _curves_of(
    task: str, groups: Sequence[Group], runs: Sequence[Run], press: Press
) -> list[Block]:
    metric_name = _metric(runs)
    wanted = [("valid", metric_name), ("valid", "loss"), ("train", "loss")]
    blocks = []
    for split, name in dict.fromkeys(wanted):
        series, colours, unnamed = _overlay(groups, split, name)
        if not series:
            continue
        values = np.concatenate([np.array(y) for _, y in series.values()])
        words = {"valid": "validation", "train": "training"}[split]
        title = f"{label(name)}, {words}"
        curves = Curves(title, series, xlabel="step", log_y=_curves.wide(values))
        look = _curves.Look(colours, list(series) if split == "train" else (), unnamed, pale=False)
        blocks.append(press.curves(curves, look, name=f"{task}-{split}-{name}"))
        blocks[-1].notes = [n for n in [_learning.remark(look, curves)] if n] + blocks[-1].notes
    return pair(blocks)


def _overlay(
    groups: Sequence[Group], split: str, name: str
) -> tuple[dict[str, tuple[list[float], list[float]]], dict[str, int], list[str]]:
    """A line a run, runs of one group in one colour and named once."""
    series: dict[str, tuple[list[float], list[float]]] = {}
    colours: dict[str, int] = {}
    unnamed = []
    for g in groups:
        for i, run in enumerate(g.runs):
            found = run.metrics.get(split, {}).get(name)
            if found is None:
                continue
            words = g.name if i == 0 else f"{g.name} ({run.folder.name})"
            while words in series:
                words += " "
            series[words] = (found.steps.tolist(), found.values.tolist())
            colours[words] = g.place
            if i > 0:
                unnamed.append(words)
    return series, colours, unnamed


def _content(
    runs: Sequence[Run], names: Sequence[str], tasks: list[dict[str, Any]], target: Path
) -> dict[str, Any]:
    listed = []
    for run, name in zip(runs, names, strict=True):
        words, tone = status(run)
        report = run.folder / "report.html"
        link = os.path.relpath(report, target.parent) if report.is_file() else ""
        seed = number(run.config.get("seed"))
        entry = {"name": name, "link": Path(link).as_posix() if link else "", "seed": seed}
        about = {"task": run.task, "model": run.model, "status": words, "tone": tone}
        listed.append({**entry, **about, "notes": run.notes})
    n, t = len(runs), len(tasks)
    many = "one task" if t == 1 else f"{t} tasks"
    count = "One run" if n == 1 else f"{n} runs"
    summary = f"{count} of {many}: {', '.join(dict.fromkeys(r.model for r in runs))}."
    return {
        "title": "Comparison of runs · lawful",
        "heading": "Comparison of runs",
        "summary": summary,
        "sections": [(f"task-{i}", t["name"]) for i, t in enumerate(tasks)] + [("runs", "Runs")],
        "tasks": tasks,
        "runs": listed,
    }
