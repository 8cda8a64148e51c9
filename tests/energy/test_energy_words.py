"""The guide's snippets and the example do what they say."""

import doctest
import runpy
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]


def test_guide():
    torch.manual_seed(0)
    result = doctest.testfile(str(ROOT / "docs/guide/energy.md"), module_relative=False)
    assert result.attempted > 15
    assert result.failed == 0


def test_example(capsys):
    runpy.run_path(str(ROOT / "examples/energy_descent.py"), run_name="__main__")
    parts = capsys.readouterr().out.split(" steps\n")
    assert "rises" in parts[1]
    assert "rises" not in parts[2] + parts[3]
