"""Tasks by name; each is imported when it is asked for."""

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from lawful.errors import unknown
from lawful.tasks._base import Task

_PLACES = {
    "pixels": "lawful.tasks.pixels:PixelsTask",
    "copying": "lawful.tasks._copying:CopyingTask",
    "adding": "lawful.tasks._adding:AddingTask",
    "fields": "lawful.tasks.fields:FieldsTask",
    "charlm": "lawful.tasks.charlm:CharLMTask",
    "tagging": "lawful.tasks.tagging:TaggingTask",
    "parsing": "lawful.tasks.parsing:ParsingTask",
    "transduction": "lawful.tasks.transduction:TransductionTask",
    "translation": "lawful.tasks.translation:TranslationTask",
    "qa": "lawful.tasks.qa:QATask",
    "nli": "lawful.tasks.nli:NLITask",
    "inpaint": "lawful.tasks.inpaint:InpaintTask",
    "anomaly": "lawful.tasks.anomaly:AnomalyTask",
    "graphs": "lawful.tasks.graphs:GraphsTask",
}


class TaskRegistry(Mapping[str, type[Task[Any]]]):
    """Task classes by name, imported at first use."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = dict(places)

    def __getitem__(self, name: str) -> type[Task[Any]]:
        """The class of a task; KeyError for an unknown name."""
        module, attribute = self._places[name].split(":")
        task: type[Task[Any]] = getattr(importlib.import_module(module), attribute)
        return task

    def __iter__(self) -> Iterator[str]:
        """Names in the order they are shown."""
        return iter(self._places)

    def __len__(self) -> int:
        """Number of tasks."""
        return len(self._places)


#: All tasks that can be trained.
TASKS = TaskRegistry(_PLACES)


def get_task(name: str) -> type[Task[Any]]:
    """The class of a task by its name.

    Raises:
        InputError: For an unknown name; it lists the known ones and the nearest.
    """
    if name not in TASKS:
        raise unknown("task", list(TASKS), name, "see `lawful tasks`")
    return TASKS[name]
