"""The commands that look at runs and at the installation rather than train."""

import contextlib
import csv
import io
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any, Literal

from tyro.conf import Positional

from lawful.cli._parse import parse
from lawful.cli._settings import restore
from lawful.errors import InputError


def tasks(args: Sequence[str]) -> int:
    """Lists what can be trained, with the data each task wants."""
    from rich.console import Console
    from rich.table import Table

    from lawful.tasks import TASKS, get_task

    if args:
        print("usage: lawful tasks\n\nLists what can be trained, with the data each task wants.")
        if args[0] in ("-h", "--help"):
            return 0
        raise InputError(f"tasks: takes no arguments, got {args[0]}")
    table = Table(show_lines=True)
    for title in ("task", "what it does", "data", "models"):
        table.add_column(title, overflow="fold")
    for name in TASKS:
        task = get_task(name)
        models = ", ".join(f"{m}*" if m == task.default_model else m for m in task.models)
        table.add_row(name, task.summary, task.data_help, models)
    Console().print(table)
    print("(* default model)  Options of a task: lawful train TASK --help")
    return 0


@dataclass(frozen=True)
class Evaluate:
    """Measures a run's best model again."""

    run: Positional[Path]
    """Run folder."""
    data: Path | None = None
    """Other data than the run was trained on."""
    split: Literal["train", "valid", "test"] = "test"
    """Which part of the data."""
    set: tuple[str, ...] = ()
    """Other settings of the task than in training, as in eval_blanks=200."""
    out: Path | None = None
    """JSON file for the result, beside the printed table."""


def evaluate(args: Sequence[str]) -> int:
    """Measures a run's best model on its own or other data."""
    options = parse(
        Evaluate, args, prog="lawful evaluate", description=Evaluate.__doc__ or "", default=None
    )
    from lawful.training import evaluate as measure
    from lawful.training import write_json

    task, model, settings = _load(options.run, options.data, changed=options.set)
    source = task.source(options.split)
    values = measure(task, model, source, settings.train_config.eval_batch_size)
    for name, value in values.items():
        print(f"{options.split} {name}: {value:.6g}")
    if options.out is not None:
        facts = {"run": str(options.run), "split": options.split}
        changed = {"set": list(options.set)} if options.set else {}
        write_json(options.out, facts | changed | values)
    return 0


@dataclass(frozen=True)
class Check:
    """Measures every law of the layers of a run's best model; exit code 1 if one is broken."""

    run: Positional[Path]
    """Run folder; the certificate is stored there."""
    data: Path | None = None
    """Other data than the run was trained on."""
    split: Literal["train", "valid", "test"] = "test"
    """Which part of the data the layers are run on."""
    examples: int = 16
    """How many examples."""


def check(args: Sequence[str]) -> int:
    """Measures every law of the layers of a run's best model."""
    options = parse(Check, args, prog="lawful check", description=Check.__doc__ or "", default=None)
    from lawful.training import certify

    if options.examples < 1:
        raise InputError(f"examples: expected a whole number >= 1, got {options.examples}")
    task, model, _ = _load(options.run, options.data)
    certificate = certify(task, model, task.source(options.split), options.examples)
    certificate.save(options.run / "certificate.json")
    print(certificate)
    return 1 if certificate.broken else 0


@dataclass(frozen=True)
class Predict:
    """Predicts for the user's own input with a run's best model."""

    run: Positional[Path]
    """Run folder."""
    input: Positional[Path]
    """File or folder to predict for; what it may hold depends on the task."""
    out: Path | None = None
    """Where to write the predictions: .csv, .json, .jsonl or a format of the task (such as
    .conllu); standard output, as .jsonl, if absent."""
    set: tuple[str, ...] = ()
    """Other settings of the task than in training, as in temperature=0.5."""


def predict(args: Sequence[str]) -> int:
    """Predicts for the user's own input."""
    options, further = _predict_options(args)
    if not options.input.exists():
        raise InputError(f"input: {options.input} does not exist")
    task, model, _ = _load(options.run, None, with_data=False, changed=options.set)
    task.predict_options = further
    if options.out is None:
        sys.stdout.write(_render(task.predict(model, options.input), None))
        return 0
    # The scratch file keeps the ending, by which a task knows what to write.
    scratch = options.out.with_name(f".{options.out.stem}.tmp{options.out.suffix}")
    try:
        if options.out.suffix in task.output_suffixes:
            task.write_predictions(model, options.input, scratch)
        else:
            text = _render(task.predict(model, options.input), options.out, task.output_suffixes)
            scratch.write_text(text, encoding="utf-8")
        scratch.replace(options.out)
    except OSError as error:
        raise InputError(f"out: cannot write {options.out}: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)
    print(f"{options.out}")
    return 0


def _predict_options(args: Sequence[str]) -> tuple[Predict, Any]:
    """The options of every task's prediction, and those of the task of the run that is named."""
    from tyro.conf import OmitArgPrefixes

    from lawful.tasks import get_task
    from lawful.training import RunFolder

    about = Predict.__doc__ or ""
    run = next((Path(x) for x in args if (Path(x) / "config.json").is_file()), None)
    task = get_task(str(RunFolder.open(run).config().get("task"))) if run is not None else None
    if task is None or task.PredictOptions is None:
        got = parse(Predict, args, prog="lawful predict", description=about, default=None)
        return got, None
    fields: list[Any] = [
        ("prediction", OmitArgPrefixes[Predict]),
        ("task", OmitArgPrefixes[task.PredictOptions]),  # type: ignore[misc, name-defined]
    ]
    both: Any = make_dataclass("Predict", fields, frozen=True)
    found = parse(both, args, prog="lawful predict", description=about, default=None)
    return found.prediction, found.task


def _render(rows: Iterable[dict[str, Any]], out: Path | None, also: Sequence[str] = ()) -> str:
    suffix = out.suffix if out is not None else ".jsonl"
    if suffix == ".json":
        return json.dumps(list(rows), indent=1) + "\n"
    if suffix == ".jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows)
    if suffix == ".csv":
        found = list(rows)
        columns = list(dict.fromkeys(k for row in found for k in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
        return text.getvalue()
    endings = ", ".join((".csv", ".json", *also))
    raise InputError(f"out: expected a name ending in {endings} or .jsonl, got {out}")


def _load(
    path: Path, data: Path | None, *, with_data: bool = True, changed: Sequence[str] = ()
) -> tuple[Any, Any, Any]:
    """The task, its best model in evaluation mode, and the settings of a run."""
    from lawful.training import RunFolder, load_weights

    run = RunFolder.open(path)
    checkpoint = run.checkpoint("best") or run.checkpoint("last")
    if checkpoint is None:
        raise InputError(f"run: {path} has no checkpoint yet")
    settings = restore(run, data, changed)
    task = settings.make_task()
    if data is not None or not with_data:
        state = run.path / "task_state.json"
        task.load_state(json.loads(state.read_text()) if state.is_file() else {})
    if with_data:
        task.load()
    model = task.build(settings.model_config)
    load_weights(model, checkpoint)
    return task, model.eval(), settings


@dataclass(frozen=True)
class Report:
    """Makes the HTML page of a run again, or a page that compares several."""

    runs: Positional[tuple[Path, ...]] = field(default=())
    """Run folders."""
    out: Path = Path("comparison.html")
    """Page for a comparison of several runs."""


def report(args: Sequence[str]) -> int:
    """Draws the page of a run, or compares several."""
    options = parse(
        Report, args, prog="lawful report", description=Report.__doc__ or "", default=Report()
    )
    from lawful.reports import compare_report, write_report

    if not options.runs:
        raise InputError("runs: name at least one run folder")
    if len(options.runs) == 1:
        print(write_report(options.runs[0]))
    else:
        print(compare_report(list(options.runs), options.out))
    return 0


def doctor(args: Sequence[str]) -> int:
    """Tells which kernels and optional parts are live, and why not."""
    import importlib.metadata as metadata

    from lawful.kernels import native_status

    if args and args[0] not in ("-h", "--help"):
        raise InputError(f"doctor: takes no arguments, got {args[0]}")
    if args:
        print("usage: lawful doctor\n\nTells which kernels and optional parts are live.")
        return 0
    print(native_status().describe())
    for name in ("torch", "lightning-fabric", "tyro", "tensorboard", "matplotlib", "safetensors"):
        try:
            print(f"{name}: {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            print(f"{name}: not installed (pip install 'lawful[train]')")
    return 0
