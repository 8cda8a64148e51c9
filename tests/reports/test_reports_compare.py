import json
import statistics

import pytest
from report_synthetic import write_run
from test_reports_page import NASTY, read

from lawful.errors import InputError
from lawful.reports import compare_report, write_report
from lawful.reports._compare import differing, flat, group, spread
from lawful.reports._run import read_run


def change(folder, **values):
    path = folder / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.fixture
def runs(tmp_path):
    made = []
    for model, k_top, score in [("sab", 5, 0.93), ("sab", 2, 0.91), ("lstm", 5, 0.84)]:
        for seed in range(3):
            folder = tmp_path / f"{model}-{k_top}-{seed}"
            made.append(write_run(folder, seed, model, "pixels", k_top, score + seed / 100, False))
    return made


def test_seeds_are_taken_together(runs):
    groups = group([read_run(r) for r in runs])
    assert [g.name for g in groups] == ["sab, k_top=5", "sab, k_top=2", "lstm, k_top=5"]
    assert [len(g.runs) for g in groups] == [3, 3, 3]
    assert groups[1].values("test", "accuracy") == pytest.approx([0.91, 0.92, 0.93])


def test_the_page_holds_means_spreads_curves_and_differences(runs, tmp_path):
    out = compare_report(runs, tmp_path / "out")
    assert out == tmp_path / "out" / "compare.html"
    page = read(out)
    spread_ = statistics.stdev([0.93, 0.94, 0.95])
    assert f"94.0 ± {100 * spread_:.1f} %" in page.words
    assert page.words.count(" best ") == 1
    assert page.words.index("k_top=5 best") < page.words.index("k_top=2")
    assert len(page.all("svg")) == 3
    assert page.all("script") == []
    assert "Settings that differ" in page.words
    assert "hidden_size" not in page.words
    csv = (tmp_path / "out" / "compare_plots" / "pixels-valid-accuracy.csv").read_text()
    assert len(csv.splitlines()) == 1 + 9 * 20


def test_the_lower_metric_is_best_where_lower_is_better(runs, tmp_path):
    for r, value in zip(runs, [3.0] * 6 + [1.0] * 3, strict=True):
        change(r, metric="loss", higher_is_better=False, test={"loss": value})
    words = read(compare_report(runs, tmp_path / "out")).words
    assert "lstm, k_top=5 best" in words


def test_one_run_links_to_its_page_and_names_are_told_apart(tmp_path):
    a = write_run(tmp_path / "a" / "run", full=False)
    b = write_run(tmp_path / "b" / "run", model="lstm", full=False)
    write_report(a)
    out = compare_report([a, b, a], tmp_path / "pages" / "two.html")
    page = read(out)
    assert "2 runs of one task" in page.words
    assert "../a/run/report.html" in [x["href"] for x in page.all("a")]
    assert "a/run" in page.words
    assert "b/run" in page.words
    assert (tmp_path / "pages" / "two_plots" / "index.json").is_file()
    assert "One run of one task" in read(compare_report([a], tmp_path / "one.html")).words


def test_tasks_are_held_apart(tmp_path):
    a = write_run(tmp_path / "a", full=False)
    b = write_run(tmp_path / "b", task=NASTY, model=NASTY, full=False)
    page = read(compare_report([a, b], tmp_path / "out"))
    assert "2 runs of 2 tasks" in page.words
    assert page.all("script") == []


def test_unfinished_and_empty_runs_are_compared_too(tmp_path):
    a = write_run(tmp_path / "a", full=False)
    b = tmp_path / "b"
    b.mkdir()
    (b / "config.json").write_text(json.dumps({"task": "pixels", "model": "gru"}))
    c = write_run(tmp_path / "c", seed=1, full=False)
    change(c, test=None, best_valid={"accuracy": float("nan")}, seconds=None)
    page = read(compare_report([a, b, c], tmp_path / "out"))
    assert "no result yet" in page.words
    assert "No metrics have been logged yet." in page.words


def test_more_runs_than_colours(tmp_path):
    runs = [write_run(tmp_path / str(k), k_top=k + 1, full=False) for k in range(18)]
    page = read(compare_report(runs, tmp_path / "out"))
    assert "k_top=18" in page.words


def test_no_runs_and_no_run_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match="at least one run folder"):
        compare_report([], tmp_path)
    with pytest.raises(InputError, match="expected a run folder"):
        compare_report([tmp_path / "none"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_spread():
    assert spread("loss", []) == "\N{EN DASH}"
    assert spread("loss", [0.5]) == "0.5"
    assert spread("loss", [1.0, 2.0, 3.0]) == "2 ± 1"
    assert spread("accuracy", [0.5, 0.6]) == "55.0 ± 7.1 %"
    assert spread("loss", [1.0, float("nan")]) == "1, nan"


def test_the_seed_is_no_difference(tmp_path):
    a, b = (read_run(write_run(tmp_path / str(s), seed=s, full=False)) for s in (0, 1))
    a.config["train_config"]["seed"], b.config["train_config"]["seed"] = 0, 1
    assert differing([flat(a), flat(b)]) == []
    b.config["train_config"]["clip"] = 2.0
    assert differing([flat(a), flat(b)]) == ["clip"]
