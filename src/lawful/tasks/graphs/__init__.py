"""Graph classification: sets in the TU format, or the user's own graphs, by cross-validation."""

from lawful.tasks.graphs._task import GraphsConfig as GraphsConfig
from lawful.tasks.graphs._task import GraphsTask as GraphsTask

__all__ = ["GraphsConfig", "GraphsTask"]
