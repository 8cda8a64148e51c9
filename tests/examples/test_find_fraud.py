"""The example finds a ring and points at it."""

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "find_fraud.py"


def test_the_example(capsys):
    found = runpy.run_path(str(EXAMPLE))["main"]()
    out = capsys.readouterr().out
    assert found > 0.77  # the features alone: trees 0.74, a network 0.765
    rows = [line.split() for line in out.split("it attends to\n")[1].splitlines()]
    assert 1 <= len(rows) <= 5
    weights = [float(weight.rstrip("%")) for _, weight, _ in rows]
    assert weights == sorted(weights, reverse=True)
    assert rows[0][2] == "fraudulent"
