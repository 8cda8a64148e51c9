"""The guide's snippets and the example do what they say."""

import doctest
import runpy
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("page", "snippets"), [("energy", 15), ("graph-energy", 25)])
def test_guide(page, snippets):
    torch.manual_seed(0)
    result = doctest.testfile(str(ROOT / f"docs/guide/{page}.md"), module_relative=False)
    assert result.attempted > snippets
    assert result.failed == 0


def test_example(capsys):
    runpy.run_path(str(ROOT / "examples/energy_descent.py"), run_name="__main__")
    parts = capsys.readouterr().out.split(" steps\n")
    assert "rises" in parts[1]
    assert "rises" not in parts[2] + parts[3]
