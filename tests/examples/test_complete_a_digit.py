"""The example learns something and shows it."""

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "complete_a_digit.py"


def test_the_example(capsys):
    error = runpy.run_path(str(EXAMPLE))["main"]()
    out = capsys.readouterr().out
    assert error < 0.516  # the mean picture
    energies = [float(x) for x in out.split("\nenergy ")[1].splitlines()[0].split()]
    assert energies == sorted(energies, reverse=True)
    assert "@@" in out
