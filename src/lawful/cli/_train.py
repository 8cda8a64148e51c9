"""``lawful train``: one run from settings to report."""

import random
import sys
from collections.abc import Sequence
from typing import Any

from lawful.cli._settings import Settings, resolve
from lawful.errors import InputError


def train(args: Sequence[str]) -> int:
    """Trains a task; the first argument names it, the rest are settings."""
    if not args or args[0] in ("-h", "--help"):
        return _usage(0 if args else 2)
    if args[0].startswith("-"):
        raise InputError("train: name a task first, as in `lawful train pixels`")
    return run_training(resolve(args[0], args[1:]))


def _usage(code: int) -> int:
    from lawful.tasks import TASKS

    text = (
        "usage: lawful train TASK [options]\n\n"
        "Trains a model on a task, and leaves a run folder with a report.\n"
        f"Tasks: {', '.join(sorted(TASKS))}. "
        "`lawful train TASK --help` lists the options of one, `lawful tasks` describes them."
    )
    print(text, file=sys.stderr if code else sys.stdout)
    return code


def run_training(settings: Settings) -> int:
    """Runs to the end (0), or until Ctrl-C (130)."""
    import torch

    from lawful.training import RunFolder, Trainer, make_fabric, write_json

    path, options = settings.run_path(), settings.options
    resuming = options.resume and (path / "config.json").is_file()
    if not resuming:
        RunFolder.refuse(path)
    if settings.train_config.threads:
        torch.set_num_threads(settings.train_config.threads)
    fabric = make_fabric(settings.train_config)
    task = settings.make_task()
    task.load()
    _seed_everything(options.seed)
    model = task.build(settings.model_config)
    if fabric.is_global_zero:
        run = RunFolder.open(path) if resuming else RunFolder.create(path, settings.as_json())
        if not resuming:
            write_json(path / "task_state.json", task.state())
    fabric.barrier()
    run = RunFolder.open(path)
    trainer = Trainer(
        task, model, settings.train_config, run, fabric=fabric, silent=not options.progress
    )
    if resuming:
        trainer.resume()
        if fabric.is_global_zero:
            write_json(path / "config.json", settings.as_json())
    _announce(settings, trainer, fabric.is_global_zero)
    status = trainer.fit()
    result = trainer.conclude(status)
    if fabric.is_global_zero:
        if status == "interrupted":
            print(f"\nstopped at step {result['steps']}; continue with --out {path} --resume")
        else:
            _finish(task, trainer, result, with_report=options.report)
    fabric.barrier()
    return 130 if status == "interrupted" else 0


def _seed_everything(seed: int) -> None:
    import numpy as np
    import torch

    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 # for users' code that draws from the global one
    random.seed(seed)


def _announce(settings: Settings, trainer: Any, speak: bool) -> None:
    if not (speak and settings.options.progress):
        return
    count = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    print(
        f"{settings.task_class.name} with {settings.model}: {count:,} parameters, "
        f"{len(trainer.train_source):,} training examples"
        f"{' (generated, no end)' if trainer.train_source.endless else ''}, "
        f"{trainer.total:,} updates -> {trainer.run.path}",
        flush=True,
    )


def _finish(task: Any, trainer: Any, result: dict[str, Any], *, with_report: bool) -> None:
    from lawful.tasks import exhibits
    from lawful.training import certify

    exhibits.save(task.exhibits(trainer.model, "test"), trainer.run.exhibits)
    certificate = certify(task, trainer.model, task.source("test"))
    if certificate.rows:
        certificate.save(trainer.run.path / "certificate.json")
    print_result(result)
    if certificate.rows:
        print(f"laws: {certificate.summary()}")
    if with_report:
        from lawful.reports import write_report

        print(f"report: {write_report(trainer.run.path)}")


def print_result(result: dict[str, Any]) -> None:
    """The outcome of a run as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{result['status']} after {result['steps']:,} updates")
    table.add_column("metric")
    table.add_column("validation", justify="right")
    table.add_column("test", justify="right")
    valid, test = result.get("best_valid") or {}, result.get("test") or {}
    for name in dict.fromkeys([*valid, *test]):
        cells = (f"{d[name]:.5g}" if name in d else "" for d in (valid, test))
        table.add_row(name, *cells)
    Console(soft_wrap=False).print(table)
