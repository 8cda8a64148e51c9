"""Pages that show what a run did: one self-contained HTML file each, and the plots in it."""

from lawful.reports._compare import compare_report as compare_report
from lawful.reports._report import write_report as write_report

__all__ = ["compare_report", "write_report"]
