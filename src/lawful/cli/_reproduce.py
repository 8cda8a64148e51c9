"""``lawful reproduce``: a paper's table or demonstrations, ours beside theirs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lawful.cli._parse import parse
from lawful.cli._settings import Settings, resolve
from lawful.cli._train import run_training
from lawful.errors import InputError
from lawful.reproduce import (
    REPRODUCTIONS,
    Exhibition,
    Job,
    Measured,
    Table,
    figure_cells,
    get_reproduction,
    make_exhibition,
    make_table,
)
from lawful.training import RunFolder


@dataclass(frozen=True)
class Reproduce:
    """Which part of it, from what, and where to."""

    quick: bool = False
    """A scaled-down form that takes minutes, labelled so."""
    data: Path | None = None
    """The data, where the table needs some."""
    out: Path | None = None
    """Folder of the runs and the table; by default runs/NAME or runs/NAME-quick. What is done
    there already is kept, so an interrupted reproduction goes on where it stopped."""
    seeds: tuple[int, ...] = field(default=())
    """Seeds in place of the table's own."""
    rows: tuple[str, ...] = field(default=())
    """Only these rows of a table, by their short names."""
    threads: int = 0
    """Threads of the CPU kernels; 0 leaves torch's choice."""
    progress: bool = True
    """Show a progress display."""


def reproduce(args: Sequence[str]) -> int:
    """Reproduces what the first argument names; lists everything if there is none."""
    if not args or args[0] in ("-h", "--help"):
        return _list()
    if args[0].startswith("-"):
        raise InputError("reproduce: name a table first, as in `lawful reproduce transduction`")
    what = get_reproduction(args[0])
    options = parse(
        Reproduce,
        args[1:],
        prog=f"lawful reproduce {what.name}",
        description=_description(what),
        default=Reproduce(),
    )
    folder = options.out or Path("runs", what.name + ("-quick" if options.quick else ""))
    more = ["--threads", str(options.threads), f"--{'' if options.progress else 'no-'}progress"]
    job = Job(folder, options.quick, options.seeds, options.rows, options.data, more)
    if isinstance(what, Table):
        return _table(what, job)
    if options.rows:
        raise InputError(f"rows: {what.name} is not a table of runs")
    return _exhibition(what, job)


def _description(what: Table | Exhibition) -> str:
    parts = [f"{what.title} ({what.source}).", what.text, f"Takes {what.cost}."]
    if isinstance(what, Table):
        parts.append("Rows: " + ", ".join(row.key for row in what.rows) + ".")
    if what.data is not None:
        parts.append(f"Data: {what.data}.")
    if what.quick_text:
        parts.append(f"With --quick: {what.quick_text}")
    return "\n\n".join(parts)


def _list() -> int:
    from rich.console import Console
    from rich.table import Table as Printed

    printed = Printed(show_lines=True)
    for title in ("name", "what it is", "source", "takes", "data"):
        printed.add_column(title, overflow="fold")
    for name in REPRODUCTIONS:
        what = get_reproduction(name)
        printed.add_row(name, what.title, what.source, what.cost, what.data or "generated")
    print("usage: lawful reproduce NAME [--quick] [options]\n")
    Console().print(printed)
    print("`lawful reproduce NAME --help` tells more.")
    return 0


def _train(args: Sequence[str]) -> int:
    """One run of a table; one that is finished already is left as it is."""
    settings = resolve(args[0], args[1:])  # refuses a run that had other settings
    return 0 if _finished(settings) else run_training(settings)


def _finished(settings: Settings) -> bool:
    """Whether the run is done, and was not asked to go on for longer this time."""
    run = RunFolder(settings.run_path())
    result = run.result()
    if result is None or result.get("status") not in ("finished", "stopped early"):
        return False
    steps = ("steps", "epochs")
    stored, now = run.config()["train_config"], settings.as_json()["train_config"]
    return all(stored[name] == now[name] for name in steps)


def _table(table: Table, job: Job) -> int:
    code, measured = make_table(table, job, _train)
    if measured.runs:
        _print(measured)
    if code:
        print(f"stopped; the same command goes on in {job.folder}")
        return code
    print(f"report: {job.folder / 'report.html'}")
    return 0


def _print(measured: Measured) -> None:
    from rich.console import Console
    from rich.table import Table as Printed

    printed = Printed(title=f"{measured.table.title} ({measured.table.source})")
    for i, heading in enumerate(measured.headings()):
        printed.add_column(heading, justify="left" if i < 2 else "right")
    for line in measured.lines():
        printed.add_row(*line)
    Console(soft_wrap=False).print(printed)
    print(measured.note())


def _exhibition(shown: Exhibition, job: Job) -> int:
    from rich.progress import track

    broken = 0
    rows: list[tuple[Any, ...]] = []
    for made in track(make_exhibition(shown, job), shown.title, shown.count):
        for figure in made.figures:
            rows.append((made.key, *figure_cells(figure)[:4]))
            broken += figure.holds is False
    from rich.console import Console
    from rich.table import Table as Printed

    printed = Printed(title=f"{shown.title} ({shown.source})")
    for heading in ("", "figure", "ours", "held against", "verdict"):
        printed.add_column(heading, overflow="fold")
    for row in rows:
        printed.add_row(*row)
    Console().print(printed)
    print(f"report: {job.folder / 'report.html'}")
    return 1 if broken else 0
