"""The papers' tables and demonstrations, measured again: ours beside theirs."""

from lawful.reproduce._figures import Demonstration as Demonstration
from lawful.reproduce._figures import Figure as Figure
from lawful.reproduce._make import Job as Job
from lawful.reproduce._make import make_exhibition as make_exhibition
from lawful.reproduce._make import make_table as make_table
from lawful.reproduce._measured import Measured as Measured
from lawful.reproduce._registry import REPRODUCTIONS as REPRODUCTIONS
from lawful.reproduce._registry import get_reproduction as get_reproduction
from lawful.reproduce._show import Exhibition as Exhibition
from lawful.reproduce._show import figure_cells as figure_cells
from lawful.reproduce._tables import Measure as Measure
from lawful.reproduce._tables import Row as Row
from lawful.reproduce._tables import Table as Table

__all__ = [
    "REPRODUCTIONS",
    "Demonstration",
    "Exhibition",
    "Figure",
    "Job",
    "Measure",
    "Measured",
    "Row",
    "Table",
    "figure_cells",
    "get_reproduction",
    "make_exhibition",
    "make_table",
]
