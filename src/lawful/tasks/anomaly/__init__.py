"""Finding anomalous nodes of a graph from a few labels."""

from lawful.tasks.anomaly._config import AnomalyConfig as AnomalyConfig
from lawful.tasks.anomaly._config import AnomalyPredictOptions as AnomalyPredictOptions
from lawful.tasks.anomaly._task import AnomalyTask as AnomalyTask

__all__ = ["AnomalyConfig", "AnomalyPredictOptions", "AnomalyTask"]
