"""What the README shows is what happens."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.S)


@pytest.mark.parametrize("code", BLOCKS, ids=lambda c: c.split("\n")[1][:40])
def test_code_runs(code):
    space = {}
    exec(compile(code, "README.md", "exec"), space)
    if "crf" in space:
        assert space["best"].shape == (4, 9)
        assert space["loss"].item() > 0


def test_the_certificate_shown_is_the_one_printed(capsys):
    (code,) = (c for c in BLOCKS if "lawful.check" in c)
    exec(compile(code, "README.md", "exec"), {})
    printed = {tuple(x.split()[:3]) for x in capsys.readouterr().out.splitlines()}
    shown = README.read_text().split("prints (abridged)")[1].split("```")[1].strip().splitlines()
    rows = [tuple(x.split()[:3]) for x in shown if x.startswith(("ok", "-  "))]
    assert len(rows) > 10
    assert set(rows) <= printed


def test_linked_files_exist():
    for link in re.findall(r"\]\(([\w./-]+)\)", README.read_text()):
        assert (README.parent / link).exists(), link
