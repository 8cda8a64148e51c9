import doctest
from pathlib import Path

import lawful.attention._items
import lawful.attention._syntactic
import lawful.tasks.transduction._grammar

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "attention.md"


def test_snippets_of_the_guide():
    result = doctest.testfile(str(GUIDE), module_relative=False)
    assert result.attempted > 25
    assert result.failed == 0


def test_examples_in_docstrings():
    import torch

    modules = (
        lawful.attention._items,
        lawful.attention._syntactic,
        lawful.tasks.transduction._grammar,
    )
    for module in modules:
        result = doctest.testmod(module, extraglobs={"torch": torch})
        assert result.attempted > 0
        assert result.failed == 0
