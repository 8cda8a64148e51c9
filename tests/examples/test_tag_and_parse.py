"""The example runs as a user would run it, and learns."""

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "tag_and_parse.py"


def test_it_tags_and_parses_a_new_sentence(capsys):
    tags, heads = runpy.run_path(str(EXAMPLE))["main"](updates=120)
    right = ["DET", "ADJ", "NOUN", "VERB", "DET", "NOUN", "PUNCT"]
    assert sum(a == b for a, b in zip(tags, right, strict=True)) >= 6
    assert sum(a == b for a, b in zip(heads, [3, 3, 4, 0, 6, 4, 4], strict=True)) >= 6
    assert "parsing: loss" in capsys.readouterr().out
