"""Tree transduction: arithmetic expressions from prefix to infix notation."""

from lawful.tasks.transduction._grammar import infix as infix
from lawful.tasks.transduction._grammar import prefix as prefix
from lawful.tasks.transduction._task import TransductionConfig as TransductionConfig
from lawful.tasks.transduction._task import TransductionTask as TransductionTask

__all__ = ["TransductionConfig", "TransductionTask", "infix", "prefix"]
