"""What the guide and the docstrings show is what happens; the example runs."""

import doctest
import importlib.util
from pathlib import Path

import lawful.memory._sab

ROOT = Path(__file__).parents[2]


def test_guide():
    failed, tried = doctest.testfile(
        str(ROOT / "docs/guide/memory.md"),
        module_relative=False,
        optionflags=doctest.NORMALIZE_WHITESPACE,
    )
    assert tried
    assert not failed


def test_docstrings():
    result = doctest.testmod(lawful.memory._sab, extraglobs={"torch": lawful.memory._sab.torch})
    assert result.attempted
    assert not result.failed


def test_example_learns_to_recall():
    path = ROOT / "examples/copy_recall.py"
    spec = importlib.util.spec_from_file_location("copy_recall", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert example.train(recall=True, gap=4, updates=150) > 0.4
    assert example.train(recall=False, gap=4, updates=20) < 0.4
