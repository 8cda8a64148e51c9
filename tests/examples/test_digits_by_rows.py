"""The example runs as a user would run it, and learns."""

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits_by_rows.py"


def test_it_learns_in_five_epochs(capsys):
    accuracy = runpy.run_path(str(EXAMPLE))["main"](epochs=5)
    assert accuracy > 0.5  # guessing gives 0.1
    assert "epoch 5: validation accuracy" in capsys.readouterr().out
