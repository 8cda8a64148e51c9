import doctest
from pathlib import Path


def test_the_snippets_of_the_guide_run():
    path = Path(__file__).parents[2] / "docs" / "guide" / "laws.md"
    results = doctest.testfile(str(path), module_relative=False)
    assert results.attempted > 10
    assert results.failed == 0
