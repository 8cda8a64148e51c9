"""Tables from .csv and .parquet files, as text cells with their line numbers."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lawful.errors import InputError, expected
from lawful.tasks.graphdata._raw import Floats

SUFFIXES = (".csv", ".tsv", ".parquet")
_EMPTY = frozenset({"", "nan", "na", "n/a", "null", "none"})


@dataclass(frozen=True)
class Cells:
    """The cells of a table by column; ``lines`` are the file's line numbers of the rows."""

    path: Path
    columns: dict[str, list[str]]
    lines: Sequence[int]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.lines)

    def where(self, row: int, column: str) -> str:
        """The place of a cell, for messages."""
        return f"{self.path}:{self.lines[row]}, column {column}"

    def numbers(self, column: str, *, insist: bool = False) -> Floats | None:
        """The column as numbers, NaN where empty; None (or an error) if a cell is none."""
        found = np.empty(len(self), np.float32)
        for row, cell in enumerate(self.columns[column]):
            text = cell.strip()
            try:
                found[row] = np.nan if text.lower() in _EMPTY else float(text)
            except ValueError:
                if insist:
                    want = "a number, as in training"
                    raise expected(self.where(row, column), want, repr(cell)) from None
                return None
            if np.isinf(found[row]):
                raise expected(self.where(row, column), "a finite number", repr(cell))
        return found


def read_table(path: Path) -> Cells:
    """The cells of a .csv, .tsv or .parquet file.

    Raises:
        InputError: Not readable, no header, a column twice, or a row of another length.
    """
    rows = _parquet(path) if path.suffix.lower() == ".parquet" else _separated(path)
    try:
        names = [n.strip() for n in next(rows)[1]]
    except StopIteration:
        raise expected(str(path), "a line with the names of the columns", "an empty file") from None
    twice = [n for i, n in enumerate(names) if n in names[:i]]
    if twice or not all(names):
        got = f"{twice[0]!r} twice" if twice else "a column without a name"
        raise expected(f"{path}:1", "columns with different names", got)
    columns: list[list[str]] = [[] for _ in names]
    lines: list[int] = []
    for line, row in rows:
        if len(row) != len(names):
            raise expected(f"{path}:{line}", f"{len(names)} cells, as in line 1", len(row))
        for cells, cell in zip(columns, row, strict=True):
            cells.append(cell)
        lines.append(line)
    return Cells(path, dict(zip(names, columns, strict=True)), lines)


def _separated(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            first = stream.readline()
            stream.seek(0)
            separator = max(",;\t", key=first.count)
            reader = csv.reader(stream, delimiter=separator, strict=True)
            for row in reader:
                if row:
                    yield reader.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: expected a table as text, got {error}") from error


def _parquet(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        hint = "pip install pyarrow, or save the table as .csv"
        raise InputError(f"{path}: reading .parquet needs pyarrow; {hint}") from error
    try:
        table = parquet.read_table(path)
    except Exception as error:  # pyarrow's own errors share no base class
        raise InputError(f"{path}: expected a Parquet file, got {error}") from error
    yield 1, list(table.column_names)
    columns = [column.to_pylist() for column in table.columns]
    for number, row in enumerate(zip(*columns, strict=True), 2):
        yield number, ["" if cell is None else str(cell) for cell in row]
