"""The rules of the house: who may import whom, and what an import of the package may cost."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import lawful

SOURCE = Path(lawful.__file__).parent
# A package may import the ones listed before it, never those after.
FLOORS = [
    {"errors", "_version"},
    {"kernels"},
    {"laws"},  # what a law is; each layer's own laws sit beside the layer, hence this low floor
    {"structures", "energy", "unitary"},
    {"attention", "memory"},
    {"models"},
    {"tasks"},
    {"training"},
    {"reports"},
    {"reproduce"},
    {"cli"},
]
LEVEL = {name: i for i, floor in enumerate(FLOORS) for name in floor}
# Heavy or optional: imported only inside the function that needs them.
LAZY = {
    "lightning_fabric", "tensorboard", "matplotlib", "sklearn", "scipy", "PIL", "rich", "tyro",
    "yaml", "jinja2", "safetensors", "torch_geometric", "torchmetrics", "pandas", "zarr",
    "pyarrow",
}  # fmt: skip


def modules():
    return sorted(SOURCE.rglob("*.py"))


def imports(path, *, top_level_only=False):
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_run_downwards(path):
    part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if part == "__init__":
        return
    assert part in LEVEL, f"give {part} a floor in FLOORS"
    for name in imports(path):
        pieces = name.split(".")
        if pieces[0] == "lawful" and len(pieces) > 1 and pieces[1] in LEVEL:
            target = pieces[1]
            allowed = LEVEL[target] < LEVEL[part] or target == part
            assert allowed, f"{path.relative_to(SOURCE)} imports upwards or sideways: {name}"


def test_light_parts_import_nothing_heavy():
    code = (
        "import sys, torch; before = set(sys.modules); import lawful;"
        "print(','.join(m for m in set(sys.modules) - before))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    new = {m.split(".")[0] for m in out.strip().split(",")}
    assert not new & LAZY


def test_heavy_packages_are_imported_where_they_are_used():
    """Top-level imports of optional packages are allowed in the command line and reports only."""
    for path in modules():
        part = path.relative_to(SOURCE).parts[0]
        if part in ("cli", "reports"):
            continue
        found = {n.split(".")[0] for n in imports(path, top_level_only=True)} & LAZY
        assert not found, f"{path.relative_to(SOURCE)} imports {found} at its top level"


def public_packages():
    found = [m.name for m in pkgutil.iter_modules([str(SOURCE)]) if not m.name.startswith("_")]
    return [m for m in found if (SOURCE / m).is_dir() and m != "cli"]


@pytest.mark.parametrize("name", public_packages())
def test_public_names_exist_and_are_documented(name):
    module = importlib.import_module(f"lawful.{name}")
    assert module.__doc__
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        value = getattr(module, public)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"lawful.{name}.{public} has no docstring"
