"""What the guide shows is what happens."""

import doctest
from pathlib import Path


def test_the_guide_of_tasks():
    guide = Path(__file__).parents[2] / "docs" / "guide" / "tasks.md"
    outcome = doctest.testfile(str(guide), module_relative=False)
    assert outcome.attempted > 8
    assert outcome.failed == 0


def test_the_guide_of_fields():
    guide = Path(__file__).parents[2] / "docs" / "guide" / "forecasting-fields.md"
    outcome = doctest.testfile(str(guide), module_relative=False)
    assert outcome.attempted > 8
    assert outcome.failed == 0


def test_the_guide_of_questions():
    guide = Path(__file__).parents[2] / "docs" / "guide" / "question-answering.md"
    outcome = doctest.testfile(str(guide), module_relative=False)
    assert outcome.attempted > 3
    assert outcome.failed == 0


def test_the_guide_of_inference():
    guide = Path(__file__).parents[2] / "docs" / "guide" / "inference.md"
    outcome = doctest.testfile(str(guide), module_relative=False)
    assert outcome.attempted > 2
    assert outcome.failed == 0


def test_the_guide_of_translation():
    guide = Path(__file__).parents[2] / "docs" / "guide" / "translation.md"
    outcome = doctest.testfile(str(guide), module_relative=False)
    assert outcome.attempted == 2
    assert outcome.failed == 0
