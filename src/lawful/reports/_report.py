"""The page of one run."""

import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lawful.reports import _files, _learning
from lawful.reports._blocks import Block, Grid, Press, pair
from lawful.reports._format import (
    clean,
    duration,
    finite,
    flatten,
    is_fraction,
    label,
    metric,
    number,
)
from lawful.reports._page import page
from lawful.reports._run import Run, read_run

STATUS = {
    "finished": ("finished", "good"),
    "stopped early": ("stopped early", "good"),
    "interrupted": ("interrupted", "warn"),
    "diverged": ("diverged", "bad"),
}
_FILES = {
    "config.json": "every setting",
    "environment.json": "machine and versions",
    "result.json": "the figures above",
    "metrics.jsonl": "everything logged, one line a record",
    "certificate.json": "the measured laws",
    "plots/index.json": "the plots and their numbers",
}


def write_report(run: Path) -> Path:
    """Writes ``report.html`` and ``plots/`` into a run folder, from what the folder holds.

    A run in progress, interrupted or damaged gets a page as well, which says what is missing.

    Args:
        run: The run folder; it must hold ``config.json``.

    Returns:
        The path of the page.

    Raises:
        InputError: the folder is no run folder, or cannot be written to.
    """
    content = read_run(Path(run))
    plots = _files.Folder(content.folder / "plots")
    press = Press(plots)
    curves = _learning_blocks(content, press)
    exhibits = pair(_exhibit_blocks(content, press))
    plots.finish()
    html = page("report.html", plots="plots", **_content(content, curves, exhibits))
    target = content.folder / "report.html"
    _files.write(target, html)
    return target


def _learning_blocks(run: Run, press: Press) -> list[Block]:
    blocks = []
    for name, curves, look in _learning.panels(run):
        block = press.curves(curves, look, name=f"learning-{name}")
        block.notes.insert(0, _learning.remark(look, curves))
        block.notes = [n for n in block.notes if n]
        blocks.append(block)
    left = len(_learning.names(run)) - len(blocks)
    if left > 0:
        run.notes.append(f"{left} more metrics are in metrics.jsonl and not drawn.")
    return pair(blocks)


def _exhibit_blocks(run: Run, press: Press) -> list[Block]:
    blocks = []
    for exhibit in run.exhibits:
        try:
            blocks.append(press.block(exhibit))
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            kind = type(exhibit).__name__
            problem = clean(f"{kind} “{exhibit.title}” could not be drawn: {error}")
            run.notes.append(problem)
    return blocks


def _content(run: Run, curves: list[Block], exhibits: list[Block]) -> dict[str, Any]:
    certificate = certificate_rows(run.certificate) if run.certificate else None
    sections = [
        ("result", "Result", True),
        ("learning", "Learning curves", curves),
        ("exhibits", "What the model does", exhibits),
        ("laws", "Laws", certificate),
        ("settings", "Settings", True),
        ("again", "How to make it again", True),
    ]
    words, tone = status(run)
    return {
        "title": f"{run.model} on {run.task} · lawful",
        "heading": f"{run.model} on {run.task}",
        "status": {"words": words, "tone": tone},
        "summary": summary(run),
        "notes": run.notes,
        "sections": [(i, w) for i, w, there in sections if there],
        "stats": stats(run),
        "bars": bars(run),
        "results": results(run),
        "curves": curves,
        "exhibits": exhibits,
        "certificate": certificate,
        "settings": settings(run),
        "command": command(run),
        "environment": {
            label(k): number(v) for k, v in flatten(run.environment).items() if k != "command"
        },
        "folder": clean(run.folder.resolve().name),
        "files": [(f, w) for f, w in _FILES.items() if (run.folder / f).is_file()],
    }


def status(run: Run) -> tuple[str, str]:
    """The run's state in words, and the tone to say them in."""
    known = run.result.get("status")
    if known is None:
        return "no result yet", "warn"
    return STATUS.get(str(known), (clean(known), "warn"))


def summary(run: Run) -> str:
    """What was trained and how it went, in a few sentences."""
    r, name = run.result, label(run.metric).lower()
    seed = run.config.get("seed")
    size = f" with {number(r['parameters'])} parameters" if r.get("parameters") else ""
    seeded = f", seed {number(seed)}" if seed is not None else ""
    took = finite(r.get("seconds"))
    spent = f" in {duration(took)}" if took is not None else ""
    text = f"The model “{run.model}”{size} was trained on the task “{run.task}”{seeded}, "
    text += f"for {number(run.last_step)} steps{spent}."
    best = _of(r.get("best_valid"), run.metric)
    if best is not None:
        at = f" came at step {number(r['best_step'])}" if r.get("best_step") is not None else ""
        text += f" The best validation {name} was {metric(run.metric, best)}"
        text += f", which{at}." if at else "."
    test = _of(r.get("test"), run.metric)
    if test is not None:
        text += f" On the test data it reaches {metric(run.metric, test)}."
    if r.get("status") == "diverged":
        text += " The loss stopped being finite, and training ended there."
    if not r:
        text += " There is no result yet: the run is in progress, or was ended early."
    return text


def _of(values: Any, name: str) -> Any:
    return values.get(name) if isinstance(values, Mapping) else None


def stats(run: Run) -> list[dict[str, Any]]:
    """The headline figures."""
    r, name = run.result, run.metric
    test, best = _of(r.get("test"), name), _of(r.get("best_valid"), name)
    found: list[dict[str, Any]] = []
    if test is not None:
        beside = "" if bars(run) else _beside(run)
        found.append(_stat(f"Test {label(name).lower()}", metric(name, test), beside, True))
    if best is not None:
        at = f"at step {number(r['best_step'])}" if r.get("best_step") is not None else ""
        words = f"Best validation {label(name).lower()}"
        found.append(_stat(words, metric(name, best), at, test is None))
    found.append(_stat("Steps", number(run.last_step), ""))
    seconds = finite(r.get("seconds"))
    if seconds:
        found.append(_stat("Time", duration(seconds), f"{run.last_step / seconds:.3g} steps/s"))
    if r.get("parameters") is not None:
        found.append(_stat("Parameters", number(r["parameters"]), ""))
    return found


def _stat(name: str, value: str, detail: str, main: bool = False) -> dict[str, Any]:
    return {"name": name, "value": value, "detail": detail, "main": main}


def _beside(run: Run) -> str:
    parts = [f"{label(k)} {metric(run.metric, v)}" for k, v in _baselines(run).items()]
    return ", ".join(parts[:3])


def _baselines(run: Run) -> dict[str, float]:
    """What chance or a simple method reaches, where the result says so under "baselines"."""
    given = run.result.get("baselines")
    pairs = given.items() if isinstance(given, Mapping) else ()
    return {clean(k): value for k, v in pairs if (value := finite(v)) is not None}


def bars(run: Run) -> list[dict[str, Any]]:
    """The test (or validation) metric beside chance and baselines, as bars from 0."""
    ours = _of(run.result.get("test"), run.metric)
    if ours is None:
        ours = _of(run.result.get("best_valid"), run.metric)
    value, baselines = finite(ours), _baselines(run)
    if value is None or not baselines:
        return []
    every = {f"This run ({run.model})": value, **{label(k): v for k, v in baselines.items()}}
    top = 1.0 if is_fraction(run.metric) else max(every.values())
    if not top > 0 or not min(every.values()) >= 0:
        return []
    return [
        {"name": n, "value": metric(run.metric, v), "share": 100 * v / top, "ours": i == 0}
        for i, (n, v) in enumerate(every.items())
    ]


def results(run: Run) -> Grid | None:
    """Every metric on every split."""
    splits = {"best validation": run.result.get("best_valid"), "test": run.result.get("test")}
    known = {k: v for k, v in splits.items() if isinstance(v, Mapping) and v}
    names = list(dict.fromkeys(n for v in known.values() for n in v))
    if not names:
        return None
    rows = [[label(n), *(metric(n, v.get(n)) for v in known.values())] for n in names]
    columns = ["Metric", *(k.capitalize() for k in known)]
    return Grid(columns, [False] + [True] * len(known), rows)


def settings(run: Run) -> list[tuple[str, dict[str, str]]]:
    """The run's settings in groups."""
    parts = {"Task": "task_config", "Model": "model_config", "Training": "train_config"}
    general = {k: number(run.config[k]) for k in ("task", "model", "seed") if k in run.config}
    groups = [("Run", {label(k): v for k, v in general.items()})]
    for words, key in parts.items():
        values = run.config.get(key)
        if isinstance(values, Mapping) and values:
            groups.append((words, {clean(k): number(v) for k, v in flatten(values).items()}))
    return groups


def command(run: Run) -> str:
    """The command that made the run, as it can be pasted into a shell."""
    given = run.environment.get("command", "")
    return clean(shlex.join(map(str, given)) if isinstance(given, list) else given)


def certificate_rows(certificate: Mapping[str, Any]) -> dict[str, Any]:
    """The certificate's rows as text, broken laws first."""
    given = certificate.get("rows")
    rows = [r for r in given if isinstance(r, Mapping)] if isinstance(given, list) else []
    made = []
    for row in rows:
        texts = {k: clean(row.get(k) or "") for k in ("law", "layer", "statement", "source")}
        figures = {k: number(row.get(k)) for k in ("deviation", "tolerance", "cases")}
        mark = _MARKS["untried" if _untried(row) else row.get("holds") is True]
        witness = row.get("witness")
        worst = number(witness) if witness not in (None, "", []) and mark[0] == "bad" else ""
        made.append({**texts, **figures, "mark": mark, "witness": worst})
    counts = Counter(r["mark"][0] for r in made)
    tried = counts["good"] + counts["bad"]
    holds = certificate.get("holds") is True and counts["bad"] == 0 and tried > 0
    verdict = f"All {tried} laws hold." if holds else f"{counts['bad']} of {tried} laws are broken."
    if not tried:
        verdict = "No law was measured."
    if counts["idle"] and tried:
        verdict += f" {counts['idle']} had no case to be measured on."
    order = [mark[0] for mark in _MARKS.values()]
    made.sort(key=lambda r: order.index(r["mark"][0]))
    return {"holds": holds, "verdict": verdict, "rows": made}


# Class and words of a row; broken laws come first.
_MARKS = {
    False: ("bad", "✗ broken"),
    True: ("good", "✓ holds"),
    "untried": ("idle", "no case"),
}


def _untried(row: Mapping[str, Any]) -> bool:
    return "holds" in row and row["holds"] is None and row.get("cases") == 0
