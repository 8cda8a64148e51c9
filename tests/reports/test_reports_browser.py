"""Opens the pages in a real browser, where there is one."""

import json

import pytest
import report_browser
from report_browser import Browser
from report_synthetic import write_run

from lawful.reports import compare_report, write_report

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(report_browser.find() is None, reason="no Chromium is installed"),
]

SIZES = [(375, False), (1400, False), (375, True)]
BROKEN = "[...document.images].filter(i => !i.complete || i.naturalWidth === 0).length"
OUTSIDE = """[...document.querySelectorAll('body *')]
    .filter(e => !e.closest('.scroll, pre, .skip'))
    .filter(e => e.getBoundingClientRect().right > WIDTH + 1)
    .map(e => e.tagName)"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
DRAWN = "[...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().height < 40)"


@pytest.fixture(scope="module")
def browser():
    with Browser() as started:
        yield started


@pytest.fixture(scope="module", params=["report", "compare", "long names"])
def page(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    if request.param == "report":
        return write_report(write_run(folder / "run"))
    if request.param == "compare":
        runs = [write_run(folder / f"{m}{s}", s, m) for m in ("sab", "lstm") for s in (0, 1)]
        return compare_report(runs, folder)
    long = "a_name_without_any_place_to_break_the_line_" * 6
    run = write_run(folder / "long", model=long, task=long, full=False)
    config = json.loads((run / "config.json").read_text())
    config["model_config"][long] = long
    (run / "config.json").write_text(json.dumps(config))
    return write_report(run)


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_a_page_in_the_browser(browser, page, width, dark):
    browser.open(page, width, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == [page.resolve().as_uri()]
    assert browser.value(f"{DRAWN}.length") == 0
    assert browser.value("document.querySelectorAll('svg').length") > 2
    assert browser.value(BROKEN) == 0
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(OUTSIDE.replace("WIDTH", str(width))) == []
    shades = [int(c) for c in browser.value(BACKGROUND).strip("rgba() ").split(",")[:3]]
    assert (max(shades) < 60) == dark


def test_the_driver_sees_what_it_should_catch(browser, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<body style='width:900px'><img src='missing.png'><p style='width:900px'>x</p>"
        "<script>console.error('no')</script>"
    )
    browser.open(bad, 375)
    assert browser.complaints() != []
    assert len(browser.requests()) == 2
    assert browser.value(BROKEN) == 1
    assert browser.value(OUTSIDE.replace("WIDTH", "375")) != []
