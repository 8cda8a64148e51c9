"""Where tests find published data sets, which are not part of the project."""

import os
from pathlib import Path

import pytest


def published(name: str) -> Path:
    """A data set's folder; skips the test where it is not there."""
    root = Path(__file__).resolve().parents[1]
    folder = Path(os.environ.get("LAWFUL_TEST_DATA", root.parent / "shared" / "data")) / name
    if not folder.is_dir():
        pytest.skip(f"no {name} in {folder.parent} (set LAWFUL_TEST_DATA)")
    return folder
