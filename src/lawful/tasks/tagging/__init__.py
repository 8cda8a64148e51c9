"""Tagging of words in sentences by a linear-chain conditional random field."""

from lawful.tasks.tagging._task import TaggingConfig as TaggingConfig
from lawful.tasks.tagging._task import TaggingTask as TaggingTask

__all__ = ["TaggingConfig", "TaggingTask"]
