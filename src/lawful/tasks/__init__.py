"""The experiments that can be trained: data, loss, metric and defaults of each."""

from lawful.tasks._base import Batch as Batch
from lawful.tasks._base import Evaluation as Evaluation
from lawful.tasks._base import MeanEvaluation as MeanEvaluation
from lawful.tasks._base import Source as Source
from lawful.tasks._base import Split as Split
from lawful.tasks._base import Task as Task
from lawful.tasks._base import batches as batches
from lawful.tasks._base import to_device as to_device
from lawful.tasks._registry import TASKS as TASKS
from lawful.tasks._registry import get_task as get_task

__all__ = [
    "TASKS",
    "Batch",
    "Evaluation",
    "MeanEvaluation",
    "Source",
    "Split",
    "Task",
    "batches",
    "get_task",
    "to_device",
]
