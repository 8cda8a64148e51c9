import json
import os
from html.parser import HTMLParser

import numpy as np
import pytest
from report_synthetic import CERTIFICATE, metrics, write_run

from lawful.errors import InputError
from lawful.reports import _blocks, write_report
from lawful.tasks.exhibits import Arcs, Curves, Heatmap, Images, Table, Text, save

NASTY = "<script>alert('x')</script> & \"q\" 中文 \x00"
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """Collects a page's tags, its visible text, and whether its tags close in order."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.open, self.text = [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


def read(path):
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = write_run(tmp_path_factory.mktemp("runs") / "full")
    write_report(folder)
    return folder


@pytest.fixture(scope="module")
def page(run):
    return read(run / "report.html")


def test_the_page_says_what_happened(page):
    for part in (
        "sab on pixels",
        "66,890 parameters",
        "94.1 %",
        "Chance 10.0 %",
        "at step 1,800",
        "optimiser.weight_decay",
        "lawful train pixels --model sab --seed 0",
        "1 of 3 laws are broken.",
        "worst case: [3, 17]",
        "Ke et al. 2018, eq. 4",
        "8 of 10 heads agree",
    ):
        assert part in page.words


def test_every_part_is_on_the_page(page):
    headings = page.words
    for title in ("Loss", "Accuracy", "Learning rate", "Gradient norm", "ROC curve", "Samples"):
        assert title in headings
    figures = [a for a in page.all("svg") if a.get("role") == "img"]
    assert len(figures) == 4 + 4 + 4 + 1 + 4  # learning, heat maps, heads, arcs, curves
    assert len(page.all("img")) == 24 + 18
    broken = [a for a in page.all("tr") if a.get("class") == "broken"]
    assert len(broken) == 1


def test_the_page_needs_nothing_from_outside(run, page):
    assert page.all("script") == []
    assert all(a["href"] == "data:," for a in page.all("link"))
    for _, attrs in page.tags:
        for name in ("src", "href", "xlink:href", "srcset", "action"):
            value = attrs.get(name) or "#"
            assert ":" not in value or value.startswith("data:")
    html = (run / "report.html").read_text(encoding="utf-8")
    assert "url(http" not in html
    assert "@import" not in html
    assert len(html) < 1_000_000


def test_links_lead_somewhere(run, page):
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    targets = [a["href"] for a in page.all("a")]
    assert len(targets) > 40
    for target in targets:
        if target.startswith("#"):
            assert target[1:] in ids
        else:
            assert (run / target).is_file()


def test_the_page_is_accessible(page):
    assert page.all("html")[0]["lang"] == "en"
    assert all(a.get("alt") for a in page.all("img"))
    assert all(a.get("aria-label") for a in page.all("svg"))
    assert len(page.all("h1")) == 1
    assert all(a.get("scope") for a in page.all("th"))
    scrolling = [a for a in page.all("div") if a.get("class") == "scroll"]
    assert all(a.get("tabindex") == "0" and a.get("aria-label") for a in scrolling)


def test_plots_and_the_numbers_behind_them(run):
    index = json.loads((run / "plots" / "index.json").read_text())
    listed = {f for entry in index.values() for f in entry["files"]}
    assert listed | {"index.json"} == {p.name for p in (run / "plots").iterdir()}
    lines = (run / "plots" / "learning-accuracy.csv").read_text().splitlines()
    logged = [m["accuracy"] for m in metrics() if m["split"] == "valid"]
    assert lines[0] == "series,step,y"
    assert [float(line.split(",")[2]) for line in lines[1:]] == logged
    assert [line.split(",")[1] for line in lines[1:3]] == ["100", "200"]


def test_made_again_it_is_the_same_and_old_plots_go(tmp_path):
    folder = write_run(tmp_path / "r", full=False)
    save([Text("First", ["a"]), Text("First", ["b"])], folder / "exhibits")
    write_report(folder)
    before = (folder / "report.html").read_bytes()
    write_report(folder)
    assert (folder / "report.html").read_bytes() == before
    assert (folder / "plots" / "first-2.txt").read_text() == "b\n"
    (folder / "plots" / "mine.txt").write_text("keep")
    save([Text("Second", ["a"])], folder / "exhibits")
    write_report(folder)
    names = {p.name for p in (folder / "plots").iterdir() if p.suffix == ".txt"}
    assert names == {"second.txt", "mine.txt"}
    assert [p for p in folder.rglob("*") if p.name.startswith(".")] == []


def test_an_index_that_names_other_places_deletes_nothing_there(tmp_path):
    folder = write_run(tmp_path / "r", full=False)
    (folder / "plots").mkdir()
    listing = {"x": {"files": ["../config.json", "../../outside.txt"]}}
    (folder / "plots" / "index.json").write_text(json.dumps(listing))
    (tmp_path / "outside.txt").write_text("keep")
    write_report(folder)
    assert (folder / "config.json").is_file()
    assert (tmp_path / "outside.txt").is_file()


def test_nasty_names_are_escaped_everywhere(tmp_path):
    folder = write_run(tmp_path / "r", model=NASTY, task=NASTY, full=False)
    rows = [{"step": i, "split": NASTY, "loss": 1.0, NASTY: 2.0 + i} for i in range(3)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    certificate = {"holds": False, "rows": [dict.fromkeys(CERTIFICATE["rows"][0], NASTY)]}
    (folder / "certificate.json").write_text(json.dumps(certificate))
    two = np.eye(2)
    save(
        [
            Table(NASTY, [NASTY], [[NASTY]], NASTY),
            Heatmap(NASTY, two, NASTY, NASTY, [NASTY, "b"], [NASTY, "b"], note=NASTY),
            Images(NASTY, two[None], [NASTY], note=NASTY),
            Curves(NASTY, {NASTY: ([0, 1], [0, 1])}, NASTY, NASTY, note=NASTY),
            Arcs(NASTY, [NASTY, "b"], [-1, 0], [NASTY, NASTY], [1, -1], note=NASTY),
            Text(NASTY, [NASTY], NASTY),
        ],
        folder / "exhibits",
    )
    page = read(write_report(folder))
    assert page.all("script") == []
    assert page.words.count("<script>alert('x')</script> & \"q\" 中文 \ufffd") > 10
    assert "could not be drawn" not in page.words


def test_a_run_in_progress_gets_a_page_that_says_so(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"task": "t", "model": "m", "seed": 1}))
    words = read(write_report(tmp_path)).words
    for part in ("no result yet", "result.json is missing", "No metrics", "not recorded"):
        assert part in words


def test_a_killed_run_keeps_what_it_logged(tmp_path):
    folder = write_run(tmp_path / "r", full=False)
    (folder / "result.json").unlink()
    whole = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(whole[: len(whole) // 2])
    page = read(write_report(folder))
    assert "The last line of metrics.jsonl is cut off" in page.words
    assert len(page.all("svg")) == 4


@pytest.mark.parametrize(
    ("status", "words"),
    [("diverged", "stopped being finite"), ("interrupted", "interrupted"), ("odd <b>", "odd <b>")],
)
def test_how_a_run_ended_is_said(tmp_path, status, words):
    folder = write_run(tmp_path / "r", full=False)
    result = {"status": status, "steps": 70, "metric": "accuracy", "best_valid": None, "test": None}
    (folder / "result.json").write_text(json.dumps(result))
    assert words in read(write_report(folder)).words


def test_values_that_are_not_finite_are_drawn_around_and_said(tmp_path):
    folder = write_run(tmp_path / "r", full=False)
    losses = [2.0, 1.0, float("nan"), float("inf"), 1e308, None]
    rows = [{"step": i, "split": "train", "loss": v, "lr": 0.0} for i, v in enumerate(losses)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    result = {"status": "diverged", "test": {"accuracy": float("nan")}, "seconds": float("nan")}
    result |= {"best_step": float("nan"), "steps": None, "parameters": None, "baselines": [1]}
    (folder / "result.json").write_text(json.dumps(result))
    assert "train: 3 values are not finite, first at step 2." in read(write_report(folder)).words


def test_a_long_log_is_thinned(tmp_path):
    folder = write_run(tmp_path / "r", full=False)
    y = np.random.default_rng(0).random(100_000)
    y[77_777] = 50.0
    lines = (f'{{"step": {i}, "split": "train", "loss": {v}}}\n' for i, v in enumerate(y))
    (folder / "metrics.jsonl").write_text("".join(lines))
    page = write_report(folder)
    assert page.stat().st_size < 300_000
    assert len((folder / "plots" / "learning-loss.csv").read_text().splitlines()) == 100_001


def test_a_page_does_not_grow_without_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(_blocks, "BUDGET", 60_000)
    folder = write_run(tmp_path / "r", full=False)
    rng = np.random.default_rng(0)
    exhibits = [Heatmap(f"h{i}", rng.random((150, 150))) for i in range(3)]
    exhibits += [Images("i", rng.random((40, 64, 64)), []), Table("t", ["n"], [[1]] * 1000)]
    exhibits += [Text("x", ["y" * 100] * 5000)]
    save(exhibits, folder / "exhibits")
    path = write_report(folder)
    page = read(path)
    assert path.stat().st_size < 300_000
    assert "Left out to keep the page small: plots/h2.png" in page.words
    assert "of 40 pictures" in page.words
    assert "The first 200 of 1,000 rows." in page.words
    assert (folder / "plots" / "h2.png").is_file()
    assert len((folder / "plots" / "t.csv").read_text().splitlines()) == 1001


def test_empty_exhibits_and_odd_ones(tmp_path):
    folder = write_run(tmp_path / "r", full=False)
    save(
        [
            Table("no columns", [], []),
            Table("ragged", ["a", "b"], [[1], [1, 2, 3]]),
            Heatmap("no cells", np.zeros((0, 3))),
            Heatmap("one row", np.arange(3.0)),
            Images("none", np.zeros((0, 2, 2)), []),
            Images("too few captions", np.zeros((2, 2, 2)), ["a"], [True]),
            Curves("no lines", {}),
            Arcs("no words", [], []),
            Text("no text", []),
            Table("the last", ["a"], [[1]]),
        ],
        folder / "exhibits",
    )
    words = read(write_report(folder)).words
    for part in ("There are no values", "There are no pictures", "There are no words", "the last"):
        assert part in words


def test_an_exhibit_that_cannot_be_drawn_does_not_take_the_page_along(tmp_path):
    folder = write_run(tmp_path / "r", full=False)
    save([Curves("bad", {"a": (["x"], [1])}), Text("good", ["still here"])], folder / "exhibits")
    words = read(write_report(folder)).words
    assert "Curves “bad” could not be drawn" in words
    assert "still here" in words


def test_damaged_exhibits_and_certificates_are_said(tmp_path):
    folder = write_run(tmp_path / "r")
    (folder / "exhibits" / "exhibits.json").write_text("{")
    (folder / "certificate.json").write_text('{"holds": true, "rows": "all"}')
    words = read(write_report(folder)).words
    assert "The exhibits could not be read" in words
    assert "No law was measured." in words
    assert "laws hold" not in words


def test_laws_without_a_case_are_not_broken(tmp_path):
    folder = write_run(tmp_path, full=True)
    good = [{**CERTIFICATE["rows"][0], "holds": True} for _ in range(2)]
    idle = {**good[0], "holds": None, "cases": 0, "deviation": None}
    (folder / "certificate.json").write_text(json.dumps({"holds": True, "rows": [*good, idle]}))
    words = read(write_report(folder)).words
    assert "All 2 laws hold. 1 had no case to be measured on." in words
    assert "no case" in words
    assert "broken" not in words
    (folder / "certificate.json").write_text(json.dumps({"holds": False, "rows": [idle]}))
    assert "No law was measured." in read(write_report(folder)).words


def test_a_certificate_is_only_whole_when_every_row_holds(tmp_path):
    folder = write_run(tmp_path / "r", full=False)
    good = [r | {"holds": True} for r in CERTIFICATE["rows"]]
    (folder / "certificate.json").write_text(json.dumps({"holds": True, "rows": good}))
    assert "All 3 laws hold." in read(write_report(folder)).words
    claimed = {"holds": True, "rows": CERTIFICATE["rows"]}
    (folder / "certificate.json").write_text(json.dumps(claimed))
    page = read(write_report(folder))
    assert "1 of 3 laws are broken." in page.words
    order = [a.get("class") for a in page.all("tr")].index("broken")
    assert page.words.index("chunked run") < page.words.index("weights sum to one")
    assert order > 0


def test_no_run_folder(tmp_path):
    with pytest.raises(InputError, match="expected a run folder"):
        write_report(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path):
    folder = write_run(tmp_path / "r", full=False)
    folder.chmod(0o500)
    with pytest.raises(InputError, match="a place that can be written"):
        write_report(folder)
    folder.chmod(0o700)


def test_a_page_that_cannot_be_replaced_is_left_whole(tmp_path):
    folder = write_run(tmp_path / "r", full=False)
    (folder / "report.html").mkdir()  # nothing can be renamed over a folder
    (folder / "report.html" / "x").write_text("")
    with pytest.raises(InputError, match="a place that can be written"):
        write_report(folder)
    assert not list(folder.glob(".*"))
