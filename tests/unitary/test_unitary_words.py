"""The guide's snippets, the example and the list of public names."""

import doctest
import importlib.util
from pathlib import Path

import pytest

import lawful.unitary
from lawful.unitary import _functions, _layers

ROOT = Path(__file__).resolve().parents[2]


def test_guide_snippets_give_what_they_show():
    found = doctest.testfile(str(ROOT / "docs/guide/unitary.md"), module_relative=False)
    assert found.attempted >= 10
    assert found.failed == 0


@pytest.mark.parametrize("module", [_functions, _layers])
def test_docstring_examples(module):
    import torch

    found = doctest.testmod(module, extraglobs={"torch": torch})
    assert found.attempted
    assert found.failed == 0


def test_wave_example_is_exact_and_writes_only_what_it_is_asked_for(tmp_path, monkeypatch, capsys):
    path = ROOT / "examples/wave_equation.py"
    spec = importlib.util.spec_from_file_location("wave_equation", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.chdir(tmp_path)
    found = module.main(["--sites", "64", "--steps", "200"])
    assert all(abs(v) < 1e-10 for v in found.values())
    assert "energy drift" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    module.main(["--sites", "16", "--steps", "5", "--plot", str(tmp_path / "wave.png")])
    assert (tmp_path / "wave.png").stat().st_size > 1000


def test_public_names():
    assert len(set(lawful.unitary.__all__)) == len(lawful.unitary.__all__)
    assert {
        "conv_exp",
        "conv_cos",
        "conv_sin",
        "antihermitian",
        "UnitaryConv",
        "OrthogonalConv",
        "ConvUnitaryRNN",
        "ConvOrthogonalRNN",
    } <= set(lawful.unitary.__all__)
    assert all(hasattr(lawful.unitary, name) for name in lawful.unitary.__all__)
    assert not any(name.lower() == "cornn" for name in dir(lawful.unitary))
