"""What the guide shows is what happens."""

import doctest
from pathlib import Path


def test_the_guide_of_tagging_and_parsing():
    guide = Path(__file__).parents[3] / "docs" / "guide" / "tagging-and-parsing.md"
    outcome = doctest.testfile(str(guide), module_relative=False)
    assert outcome.attempted > 15
    assert outcome.failed == 0
