"""Tables of runs: what is trained, what is kept, what is reported."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lawful import cli
from lawful.cli._settings import resolve
from lawful.errors import InputError
from lawful.reproduce import (
    REPRODUCTIONS,
    Demonstration,
    Exhibition,
    Figure,
    Job,
    Measure,
    Measured,
    Row,
    Table,
    get_reproduction,
    make_exhibition,
    make_table,
)
from lawful.reproduce._make import plan
from lawful.reproduce._measured import DASH, Run
from lawful.tasks.exhibits import Text

SMALL = ("--steps", "3", "--eval-every", "3", "--batch-size", "4", "--hidden", "4")
TABLE = Table(
    name="toy",
    title="A toy table",
    source="nowhere, Table 0",
    text="What it is.",
    measures=[Measure("accuracy", "accuracy, %", 100.0), Measure("loss", "nats", digits=3)],
    rows=[
        Row("one", "first", ("copying", "--blanks", "3", *SMALL), ("--steps", "2"),
            {"accuracy": 99.5}, "a remark"),
        Row("two", "second", ("copying", "--model", "lstm-tbptt", "--blanks", "3", *SMALL),
            in_quick=False),
    ],
    cost="no time",
    seeds=(0, 1),
    quick_seeds=(5,),
    quick_text="less of all.",
)  # fmt: skip


def fake_run(folder: Path, accuracy: float, data: str | None = None) -> None:
    folder.mkdir(parents=True)
    files = {
        "config": {"task": "copying", "model": "sab", "seed": 0, "data": data},
        "environment": {"commit": "abc", "date": "2000-01-01", "command": "secret/path"},
        "result": {"status": "finished", "steps": 3, "test": {"accuracy": accuracy}},
    }
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_every_command_of_a_table_is_one_that_train_takes(name):
    what = get_reproduction(name)
    assert what.name == name
    if isinstance(what, Exhibition):
        return
    keys = [row.key for row in what.rows]
    assert len(set(keys)) == len(keys)
    known = {m.key for m in what.measures}
    for row in what.rows:
        assert set(row.published) <= known, row.key
        assert bool(row.of) != bool(row.command)
        assert not row.of or row.of in keys
        for extra in ((), row.quick) if row.command else ():
            resolve(row.command[0], [*row.command[1:], *extra])


def test_an_unknown_name_is_told_with_the_nearest():
    with pytest.raises(InputError, match="did you mean transduction"):
        get_reproduction("transducton")


def test_the_plan_makes_a_seed_of_every_row_before_the_next(tmp_path):
    found = [(row.key, seed) for row, seed, _ in plan(TABLE, Job(tmp_path))]
    assert found == [("one", 0), ("two", 0), ("one", 1), ("two", 1)]
    quick = plan(TABLE, Job(tmp_path, quick=True, more=("--threads", "1")))
    assert [(row.key, seed) for row, seed, _ in quick] == [("one", 5)]
    assert quick[0][2][-4:] == ["--steps", "2", "--threads", "1"]
    named = plan(TABLE, Job(tmp_path, quick=True, rows=("two",), seeds=(7,)))
    assert [(row.key, seed) for row, seed, _ in named] == [("two", 7)]


def test_finished_runs_of_other_seeds_and_rows_belong_to_the_table(tmp_path):
    fake_run(tmp_path / "two-seed4", 0.5)
    (tmp_path / "two-seed9").mkdir()  # begun only
    job = Job(tmp_path, rows=("one",), seeds=(7,))
    assert [(row.key, seed) for row, seed, _ in plan(TABLE, job)] == [("one", 7), ("two", 4)]


def test_powers_of_ten():
    measure = Measure("x", "x", form="e")
    assert measure.show(0.000123) == "1.2e-04"


def test_unknown_rows_and_unwanted_data_are_refused(tmp_path):
    with pytest.raises(InputError, match="rows: expected some of one, two, got 'three'"):
        make_table(TABLE, Job(tmp_path, rows=("three",)), lambda _: 0)
    with pytest.raises(InputError, match="toy generates its own"):
        make_table(TABLE, Job(tmp_path, data=tmp_path), lambda _: 0)


def test_the_record_holds_means_spreads_settings_and_no_path(tmp_path):
    calls = []

    def train(arguments):
        calls.append(list(arguments))
        folder = Path(arguments[arguments.index("--out") + 1])
        fake_run(folder, 0.25 * (1 + len(calls)))
        return 0

    code, measured = make_table(TABLE, Job(tmp_path / "t", rows=("one",)), train)
    assert code == 0
    assert len(calls) == 2
    assert all("--resume" in c for c in calls)
    record = json.loads((tmp_path / "t" / "table.json").read_text())
    (row,) = record["rows"]
    assert row["ours"]["accuracy"] == {
        "mean": 62.5,
        "sd": pytest.approx(17.6777, abs=1e-3),
        "n": 2,
    }
    assert [run["seed"] for run in row["runs"]] == [0, 1]
    assert row["runs"][0]["environment"]["commit"] == "abc"
    assert row["runs"][0]["command"].startswith("lawful train copying --blanks 3")
    text = json.dumps(record)
    assert str(tmp_path) not in text
    assert "secret" not in text
    lines = measured.lines()
    assert lines == [
        ["first", "ours, 2 seeds", "62.5 ± 17.7", DASH],
        ["", "paper", "99.5", DASH],
    ]
    assert "over seeds" in measured.note()
    folds = Measured(replace(TABLE, each="fold"), False, measured.runs)
    assert folds.lines()[0][1] == "ours, 2 folds"
    assert "standard deviation over folds" in folds.note()
    baseline = Row("guess", "guessing", (), of="one", baseline="chance")
    more = replace(TABLE, rows=[*TABLE.rows, baseline])
    runs = [
        replace(r, result={**r.result, "metric": "accuracy", "baselines": {"chance": 0.125}})
        for r in measured.runs["one"]
    ]
    beside = Measured(more, False, {"one": runs})
    assert beside.lines()[-1] == ["guessing", "ours, 2 seeds", "12.5 ± 0.0", DASH]
    assert beside.record()["rows"][-1]["runs"] == []
    wanted = plan(more, Job(tmp_path / "none", rows=("guess",), seeds=(0,)))
    assert [row.key for row, *_ in wanted] == ["one"]
    markdown = (tmp_path / "t" / "table.md").read_text()
    assert f"| first | ours, 2 seeds | 62.5 ± 17.7 | {DASH} |" in markdown
    assert "first: a remark." in markdown
    page = (tmp_path / "t" / "report.html").read_text()
    assert "62.5 ± 17.7" in page


def test_where_the_data_lie_is_not_recorded(tmp_path):
    table = Table("toy", "Toy", "s", "t", TABLE.measures, TABLE.rows, "c", (0,), data="a folder")

    def train(arguments):
        assert arguments[arguments.index("--data") + 1] == str(tmp_path)
        fake_run(Path(arguments[arguments.index("--out") + 1]), 0.5, str(tmp_path / "mnist"))
        return 0

    job = Job(tmp_path / "t", rows=("one",), data=tmp_path)
    _, measured = make_table(table, job, train)
    (run,) = measured.runs["one"]
    assert run.config["data"] == "mnist"
    assert "--data DATA" in run.command
    assert str(tmp_path) not in json.dumps(measured.record())
    with pytest.raises(InputError, match="data: toy wants --data, a folder"):
        make_table(table, Job(tmp_path / "u"), train)


def test_a_stopped_run_ends_the_job_and_keeps_what_is_done(tmp_path):
    def train(arguments):
        folder = Path(arguments[arguments.index("--out") + 1])
        if folder.name == "two-seed0":
            return 130
        fake_run(folder, 0.5)
        return 0

    code, measured = make_table(TABLE, Job(tmp_path), train)
    assert code == 130
    assert list(measured.runs) == ["one"]
    assert (tmp_path / "table.json").is_file()


def test_a_missing_metric_is_left_open(tmp_path):
    fake_run(tmp_path / "r", 0.5)
    measured = Measured(TABLE, True, {"one": [Run.read(tmp_path / "r", 0, ["copying"])]})
    assert measured.cells(TABLE.rows[0]) == ["50.0", DASH]
    assert measured.note() == "Scaled down: less of all. first: a remark."


def test_the_command_trains_once_and_keeps_finished_runs(tmp_path, monkeypatch, capsys):
    from lawful.cli import _reproduce

    monkeypatch.setattr(_reproduce, "get_reproduction", lambda name: TABLE)
    out = tmp_path / "toy"
    command = ["reproduce", "toy", "--quick", "--threads", "1", "--no-progress", "--out", str(out)]
    assert cli.main(command) == 0
    first = (out / "one-seed5" / "result.json").stat().st_mtime_ns
    assert "A toy table" in capsys.readouterr().out
    assert cli.main(command) == 0
    assert (out / "one-seed5" / "result.json").stat().st_mtime_ns == first
    record = json.loads((out / "table.json").read_text())
    assert record["quick"] is True
    assert record["rows"][0]["runs"][0]["result"]["steps"] == 2
    # A folder whose runs had other settings is refused rather than mixed in.
    other = [*command[:-1], str(out), "--seeds", "5"]
    other.remove("--quick")
    assert cli.main([*other, "--rows", "one"]) == 0  # steps may be raised: the run goes on
    record = json.loads((out / "table.json").read_text())
    assert record["rows"][0]["runs"][0]["result"]["steps"] == 3


def test_an_exhibition_makes_a_record_and_a_page(tmp_path):
    def make(*, quick, seed):
        yield Demonstration(
            "E1", "It holds", f"quick {quick}", [Figure("deviation", 0.5, at_most=1.0)],
            [Text("Words", ["shown"])],
        )  # fmt: skip
        yield Demonstration("E2", "It does not", "t", [Figure("rate", 0.5, at_least=1.0)])

    shown = Exhibition("toy", "Toy", "s", "t", make, 2, "c", quick_text="less.")
    made = list(make_exhibition(shown, Job(tmp_path, quick=True)))
    assert [d.key for d in made] == ["E1", "E2"]
    record = json.loads((tmp_path / "figures.json").read_text())
    first, second = record["demonstrations"]
    assert first["figures"] == [
        {"name": "deviation", "value": 0.5, "at_most": 1.0, "holds": True},
    ]
    assert second["figures"][0]["holds"] is False
    assert record["environment"]["torch"]
    assert record["command"] == "lawful reproduce toy --quick --seeds 0"
    assert str(tmp_path) not in json.dumps(record)
    page = (tmp_path / "report.html").read_text()
    assert "E1 · It holds" in page
    assert "shown" in page
    assert "Scaled down: less." in page


@pytest.mark.parametrize(
    ("figure", "holds"),
    [
        (Figure("x", 1.0), None),
        (Figure("x", 1.0, at_most=1.0), True),
        (Figure("x", 1.0, at_most=0.9), False),
        (Figure("x", 1.0, at_least=0.9, at_most=2.0), True),
        (Figure("x", float("nan"), at_most=1.0), False),
    ],
)
def test_a_figure_holds_within_its_bounds(figure, holds):
    assert figure.holds is holds
