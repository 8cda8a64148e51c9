import doctest
import importlib.util
from pathlib import Path

import torch

import lawful.structures._labels

ROOT = Path(__file__).parents[2]


def test_guide_runs():
    torch.manual_seed(0)
    page = ROOT / "docs/guide/structures-trees.md"
    failed, tried = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert tried > 15
    assert failed == 0


def test_docstrings_run():
    names = {"torch": torch, **vars(lawful.structures)}
    failed, tried = doctest.testmod(lawful.structures._labels, extraglobs=names)
    assert tried
    assert failed == 0


def test_example_learns_to_parse():
    spec = importlib.util.spec_from_file_location("parser", ROOT / "examples/projective_parser.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.main(steps=120) > 0.9
