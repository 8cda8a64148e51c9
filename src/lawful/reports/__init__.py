"""Pages that show what a run did: one self-contained HTML file each, and the plots in it."""

from lawful.reports._compare import compare_report as compare_report
from lawful.reports._exhibition import Section as Section
from lawful.reports._exhibition import write_exhibition as write_exhibition
from lawful.reports._report import write_report as write_report

__all__ = ["Section", "compare_report", "write_exhibition", "write_report"]
