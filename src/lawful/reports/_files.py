"""Writes the files of a report: whole or not at all, and none left over from an earlier one."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lawful.errors import expected
from lawful.reports._format import clean


def write(path: Path, content: str | bytes) -> None:
    """Writes to a scratch file beside the target, then renames it over the target.

    Raises:
        InputError: the folder cannot be written to.
    """
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    scratch = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_bytes(data)
        scratch.replace(path)
    except OSError as error:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise expected(str(path), "a place that can be written", f"{error.strerror}") from error


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A CSV text with a header."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([clean(c) for c in columns])
    writer.writerows(rows)
    return out.getvalue()


class Folder:
    """The plots folder of a page: gives each plot a name of its own, and clears old ones away."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index: dict[str, dict[str, Any]] = {}  # name -> title, files

    def claim(self, name: str, title: str) -> str:
        """A file stem that no other plot of this page has."""
        stem, n = name, 2
        while stem in self.index:
            stem, n = f"{name}-{n}", n + 1
        self.index[stem] = {"title": clean(title), "files": []}
        return stem

    def put(self, stem: str, suffix: str, content: str | bytes) -> str:
        """Writes one file of a plot; returns its link from the page."""
        name = f"{stem}.{suffix}"
        write(self.path / name, content)
        self.index[stem]["files"].append(name)
        return f"{self.path.name}/{name}"

    def finish(self) -> None:
        """Removes plots that an earlier report made and this one did not; writes the index."""
        old = self.path / "index.json"
        kept = {f for entry in self.index.values() for f in entry["files"]}
        with suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
            before = json.loads(old.read_text(encoding="utf-8"))
            listed = {Path(f).name for entry in before.values() for f in entry["files"]}
            for name in listed - kept:
                (self.path / name).unlink(missing_ok=True)
        write(old, json.dumps(self.index, indent=1, ensure_ascii=False) + "\n")
