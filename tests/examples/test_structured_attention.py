"""The example runs as a user would run it, and trees learn to match brackets sooner."""

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "structured_attention.py"


def test_trees_are_ahead(capsys):
    results = runpy.run_path(str(EXAMPLE))["main"](updates=20)
    assert results["projective"] > results["softmax"] + 0.1
    assert "best tree" in capsys.readouterr().out
