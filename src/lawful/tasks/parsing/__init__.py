"""Dependency parsing by distributions over trees."""

from lawful.tasks.parsing._task import ParsingConfig as ParsingConfig
from lawful.tasks.parsing._task import ParsingTask as ParsingTask

__all__ = ["ParsingConfig", "ParsingTask"]
