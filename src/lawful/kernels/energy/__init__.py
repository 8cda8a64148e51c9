"""Descent of an energy made of attention and memories, with its hand-written derivative."""

from lawful.kernels.energy._descent import Backtracking as Backtracking
from lawful.kernels.energy._descent import Certified as Certified
from lawful.kernels.energy._descent import Course as Course
from lawful.kernels.energy._descent import Field as Field
from lawful.kernels.energy._descent import Fixed as Fixed
from lawful.kernels.energy._descent import Reading as Reading
from lawful.kernels.energy._descent import Rule as Rule
from lawful.kernels.energy._descent import descend as descend
from lawful.kernels.energy._function import Run as Run
from lawful.kernels.energy._function import settle as settle
from lawful.kernels.energy._function import settle_with_grad as settle_with_grad
from lawful.kernels.energy._plan import Params as Params
from lawful.kernels.energy._plan import Plan as Plan

__all__ = [
    "Backtracking",
    "Certified",
    "Course",
    "Field",
    "Fixed",
    "Params",
    "Plan",
    "Reading",
    "Rule",
    "Run",
    "descend",
    "settle",
    "settle_with_grad",
]
