import doctest
import json
import runpy
from pathlib import Path

from test_reports_page import read

EXAMPLE = Path(__file__).parents[2] / "examples" / "report_page.py"


def test_the_example_trains_and_makes_its_page(tmp_path):
    page = read(runpy.run_path(str(EXAMPLE))["main"](tmp_path / "run"))
    test = json.loads((tmp_path / "run" / "result.json").read_text())["test"]
    assert test["accuracy"] > 0.85
    assert f"{100 * test['accuracy']:.1f} %" in page.words
    assert len(page.all("svg")) == 2 + 1 + 10


def test_the_guide_is_true():
    guide = Path(__file__).parents[2] / "docs" / "guide" / "reports.md"
    result = doctest.testfile(str(guide), module_relative=False)
    assert result.attempted > 4
    assert result.failed == 0
