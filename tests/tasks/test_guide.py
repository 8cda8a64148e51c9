"""What the guide shows is what happens."""

import doctest
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("tasks", 8),
        ("language-modelling", 7),
        ("forecasting-fields", 8),
        ("question-answering", 3),
        ("inference", 2),
        ("anomaly-detection", 6),
        ("graph-classification", 12),
    ],
)
def test_the_guide(name, least):
    guide = Path(__file__).parents[2] / "docs" / "guide" / f"{name}.md"
    outcome = doctest.testfile(str(guide), module_relative=False)
    assert outcome.attempted > least
    assert outcome.failed == 0


def test_the_guide_of_translation():
    guide = Path(__file__).parents[2] / "docs" / "guide" / "translation.md"
    outcome = doctest.testfile(str(guide), module_relative=False)
    assert outcome.attempted == 2
    assert outcome.failed == 0
