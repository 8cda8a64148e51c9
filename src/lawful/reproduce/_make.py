"""Makes a table or an exhibition in a folder: what is done already is kept, the rest is run."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lawful.errors import InputError, expected
from lawful.reports import Section, compare_report, write_exhibition
from lawful.reproduce._figures import Demonstration
from lawful.reproduce._measured import Measured, Run
from lawful.reproduce._show import Exhibition, figure_cells, figure_record
from lawful.reproduce._tables import Row, Table
from lawful.tasks.exhibits import Table as TableExhibit
from lawful.training import environment, write_json

#: Trains by the arguments of `lawful train`; 0 when done, 130 when stopped by Ctrl-C.
Train = Callable[[Sequence[str]], int]


@dataclass(frozen=True)
class Job:
    """What of a table is made, and where."""

    folder: Path
    quick: bool = False
    seeds: Sequence[int] = ()  # none: those of the table
    rows: Sequence[str] = ()  # none: all
    data: Path | None = None
    more: Sequence[str] = ()  # further arguments for every run


def chosen_rows(table: Table, job: Job) -> list[Row]:
    """The rows to train.

    Raises:
        InputError: A row that the table does not have.
    """
    known = [row.key for row in table.rows]
    for key in job.rows:
        if key not in known:
            raise expected("rows", "some of " + ", ".join(known), repr(key))
    trained = [row for row in table.rows if not row.of]
    if job.rows:
        wanted = {row.of or row.key for row in table.rows if row.key in job.rows}
        return [row for row in trained if row.key in wanted]
    return [row for row in trained if row.in_quick or not job.quick]


def check_data(made: Table | Exhibition, job: Job) -> None:
    """Refuses data that are missing, or that nothing would read."""
    if made.data is None and job.data is not None:
        raise expected("data", f"nothing: {made.name} generates its own", str(job.data))
    if made.data is not None and job.data is None:
        raise InputError(f"data: {made.name} wants --data, {made.data}")
    if job.data is not None and not job.data.exists():
        raise InputError(f"data: {job.data} does not exist")


def plan(table: Table, job: Job) -> list[tuple[Row, int, list[str]]]:
    """All runs of a job, a seed of every row before the next: row, seed, training arguments.

    The arguments leave out where the data lie. Runs of other rows and seeds that lie finished in
    the folder belong to the table as well.
    """
    seeds = job.seeds or (table.quick_seeds if job.quick else table.seeds)
    wanted = [(row, seed) for seed in seeds for row in chosen_rows(table, job)]
    wanted += [pair for pair in _finished(table, job.folder) if pair not in wanted]
    return [
        (row, seed, [*row.command, *(row.quick if job.quick else ()), *job.more])
        for row, seed in wanted
    ]


def _finished(table: Table, folder: Path) -> list[tuple[Row, int]]:
    found = []
    for row in table.rows:
        for place in sorted(folder.glob(f"{row.key}-seed*")):
            seed = place.name.removeprefix(f"{row.key}-seed")
            if seed.isdecimal() and (place / "result.json").is_file():
                found.append((row, int(seed)))
    return found


def make_table(table: Table, job: Job, train: Train) -> tuple[int, Measured]:
    """Trains what is missing; the record is written anew after every run, the pages at the end.

    Returns:
        0, or 130 where Ctrl-C stopped a run, and what has been measured.
    """
    check_data(table, job)
    measured = Measured(table, job.quick)
    runs = plan(table, job)
    given, told = ([], []) if job.data is None else (["--data", str(job.data)], ["--data", "DATA"])
    code = 0
    for number, (row, seed, arguments) in enumerate(runs, 1):
        folder = job.folder / f"{row.key}-seed{seed}"
        print(f"[{number}/{len(runs)}] {row.title}, seed {seed}", flush=True)
        place = ["--seed", str(seed), "--out", str(folder), "--resume"]
        code = train([*arguments, *given, *place])
        if code:
            break
        done = [*measured.runs.get(row.key, []), Run.read(folder, seed, [*arguments, *told])]
        measured.runs[row.key] = sorted(done, key=lambda run: run.seed)
        _save(measured, job.folder)
    if measured.runs:
        _draw(measured, job.folder)
    return code, measured


def _save(measured: Measured, folder: Path) -> None:
    """Writes ``table.json`` and ``table.md``."""
    write_json(folder / "table.json", measured.record())
    scratch = folder / ".table.md.tmp"
    scratch.write_text(measured.markdown(), encoding="utf-8")
    scratch.replace(folder / "table.md")


def _draw(measured: Measured, folder: Path) -> None:
    """Draws ``report.html``, and ``runs.html`` which compares the runs."""
    table = measured.table
    runs = [run for of_row in measured.runs.values() for run in of_row]
    compare_report([run.folder for run in runs], folder / "runs.html")
    commands = [[run.command, run.folder.name] for run in runs]
    sections = [
        Section("Ours beside the paper's", table.text, [measured.exhibit()]),
        Section(
            "How each was made",
            "runs.html beside this page compares the runs: learning curves, settings, time.",
            [TableExhibit("Commands", ("command", "run folder"), commands)],
        ),
    ]
    write_exhibition(folder / "report.html", table.title, table.source, sections, "reproduction")


def make_exhibition(shown: Exhibition, job: Job) -> Iterator[Demonstration]:
    """Makes one demonstration after another, and at the end writes the record and the page."""
    check_data(shown, job)
    job.folder.mkdir(parents=True, exist_ok=True)
    seed = (job.seeds or shown.seeds)[0]
    done: list[tuple[Demonstration, float]] = []
    start = time.perf_counter()
    for made in shown.make(quick=job.quick, seed=seed):
        done.append((made, time.perf_counter() - start))
        yield made
        start = time.perf_counter()
    record: dict[str, Any] = {
        "name": shown.name,
        "title": shown.title,
        "source": shown.source,
        "quick": job.quick,
        "seed": seed,
        "command": f"lawful reproduce {shown.name}{' --quick' if job.quick else ''} --seeds {seed}",
        # Its own command names a folder of this machine.
        "environment": {k: v for k, v in environment().items() if k != "command"},
        "demonstrations": [
            {
                "key": made.key,
                "title": made.title,
                "text": made.text,
                "seconds": round(seconds, 2),
                "figures": [figure_record(f) for f in made.figures],
            }
            for made, seconds in done
        ],
    }
    write_json(job.folder / "figures.json", record)
    sections = [
        Section(f"{d.key} · {d.title}", d.text, [figure_table(d), *d.exhibits]) for d, _ in done
    ]
    lead = f"{shown.source}. {shown.text}"
    if job.quick:
        lead += f" Scaled down: {shown.quick_text}"
    write_exhibition(job.folder / "report.html", shown.title, lead, sections, "reproduction")


def figure_table(made: Demonstration) -> TableExhibit:
    """The figures of a demonstration as a table."""
    columns = ("figure", "ours", "held against", "verdict", "note")
    return TableExhibit(f"Figures of {made.key}", columns, [figure_cells(f) for f in made.figures])
