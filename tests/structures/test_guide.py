import doctest
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guide"


@pytest.mark.parametrize("page", ["structures.md"])
def test_snippets_of_the_guide(page):
    result = doctest.testfile(str(GUIDE / page), module_relative=False)
    assert result.attempted > 5
    assert result.failed == 0
