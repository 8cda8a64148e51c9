"""What a task is: data, a loss, a metric, and something to look at, behind one small interface.

The training engine knows only this interface. A task owns its data (from the user's path or an
embedded default), builds the models that fit it, and describes its results as `Exhibit` data that
the reports draw.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn

from lawful.errors import InputError
from lawful.tasks.exhibits import Exhibit

Split = Literal["train", "valid", "test"]
Batch = dict[str, Tensor]
C = TypeVar("C")


class Source(Protocol):
    """The examples of one split, fetched a batch at a time.

    ``endless`` sources (generated data) have no natural epoch: index i always gives the same
    example, for any i >= 0, and ``len`` is a nominal epoch used only for progress.

    A finite source whose examples differ in size may also have ``lengths``, a NumPy array of one
    number for each example. Batches are then put together from examples of similar length.

    A source with a true ``whole`` cannot be divided (the nodes of one graph): its every batch is
    all of its examples, whatever is asked for, and one update is one epoch.
    """

    endless: bool

    def __len__(self) -> int:
        """Number of examples (nominal, if endless)."""
        ...

    def batch(self, indices: Sequence[int]) -> Batch:
        """The examples at these indices as tensors with a leading batch dimension."""
        ...


class Evaluation(ABC):
    """Accumulates a metric over the batches of a split."""

    @abstractmethod
    def update(self, model: nn.Module, batch: Batch) -> None:
        """Adds one batch; called under no_grad with the model in evaluation mode."""

    @abstractmethod
    def compute(self) -> dict[str, float]:
        """The metrics by name; always holds "loss" and the task's own metric."""


@dataclass
class MeanEvaluation(Evaluation):
    """Weighted means of per-batch sums; the common case.

    ``measure(model, batch)`` returns {name: (sum, weight)}.
    """

    measure: Any
    totals: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)

    def update(self, model: nn.Module, batch: Batch) -> None:
        self.add(self.measure(model, batch))

    def add(self, sums: Mapping[str, tuple[Any, Any]]) -> None:
        """Adds {name: (sum, weight)}."""
        for name, (total, weight) in sums.items():
            self.totals[name] = self.totals.get(name, 0.0) + float(total)
            self.weights[name] = self.weights.get(name, 0.0) + float(weight)

    def compute(self) -> dict[str, float]:
        return {k: v / max(self.weights[k], 1e-12) for k, v in self.totals.items()}


class Task(ABC, Generic[C]):
    """One experiment: subclass, fill in the class variables, and register it in `lawful.tasks`.

    Args:
        config: The task's own settings, an instance of ``Config``.
        seed: Seed for splits and generated data; the same seed gives the same data.
        data: The user's file or folder; None for what is embedded or generated.
    """

    name: ClassVar[str]
    summary: ClassVar[str]  # one line for `lawful tasks`
    data_help: ClassVar[str]  # one line: what --data wants, and what is embedded
    Config: ClassVar[type[Any]]  # a frozen dataclass with a docstring for every field
    models: ClassVar[Mapping[str, type[Any]]]  # model name -> its config dataclass
    default_model: ClassVar[str]
    metric: ClassVar[str]  # the validation metric that early stopping and "best" use
    higher_is_better: ClassVar[bool]
    train_defaults: ClassVar[Mapping[str, Any]] = {}  # overrides of TrainConfig's defaults
    output_suffixes: ClassVar[tuple[str, ...]] = ()  # formats that `write_predictions` writes
    PredictOptions: ClassVar[type[Any] | None] = None  # dataclass of further options of `predict`
    model_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # the same for each model

    def __init__(self, config: C, seed: int = 0, data: Path | None = None) -> None:
        self.config = config
        self.seed = seed
        self.data = data
        #: What `predict` and `write_predictions` go by: an instance of ``PredictOptions``.
        self.predict_options: Any = None if self.PredictOptions is None else self.PredictOptions()

    @abstractmethod
    def load(self) -> None:
        """Reads or makes the data; raises `InputError` for anything wrong with it."""

    @abstractmethod
    def source(self, split: Split) -> Source:
        """The examples of a split; only after `load`."""

    @abstractmethod
    def build(self, model: Any) -> nn.Module:
        """A fresh model for this task from its config; initialised from the global generator."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The scalar training loss, and scalars to log beside it (detached)."""

    @abstractmethod
    def evaluation(self) -> Evaluation:
        """A fresh accumulator for one pass over a split."""

    def exhibits(self, model: nn.Module, split: Split = "test") -> list[Exhibit]:
        """What a person wants to see of a trained model: tables, heat maps, examples, ..."""
        return []

    def baselines(self) -> dict[str, float]:
        """What the metric is without learning (chance, a constant answer), by name."""
        return {}

    def predict(self, model: nn.Module, path: Path) -> Iterator[dict[str, Any]]:
        """Predictions for the user's own input, one plain dict per item (JSON-ready)."""
        raise InputError(f"task {self.name} does not predict from files")

    def write_predictions(self, model: nn.Module, path: Path, out: Path) -> None:
        """Writes predictions for the user's own input in a file format of the task's own.

        Only called for names that end in one of ``output_suffixes``, which tells the format.
        """
        raise InputError(f"task {self.name} has no file format of its own")

    def state(self) -> dict[str, Any]:
        """JSON-ready facts that prediction needs without the training data (a vocabulary, ...)."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned.

        Called instead of `load` before `predict`, and ahead of `load` where a finished run is
        measured on other data: `load` must then read the data by what was restored.
        """

    def progress(self) -> dict[str, Any]:
        """What training carries from update to update beside the model: plain values and tensors.

        It is part of every checkpoint.
        """
        return {}

    def load_progress(self, state: dict[str, Any]) -> None:  # nothing to restore
        """Restores what `progress` returned, when a run is resumed."""


def batches(source: Source, size: int, *, by_length: bool = False) -> Iterable[Batch]:
    """All examples of a source, ``size`` at a time, the last batch smaller.

    In order, or, with ``by_length`` and a source that has ``lengths``, the shortest first; a source
    that cannot be divided all at once.
    """
    if getattr(source, "whole", False):
        size = len(source)
    lengths = getattr(source, "lengths", None) if by_length else None
    order = range(len(source)) if lengths is None else lengths.argsort(kind="stable").tolist()
    for start in range(0, len(order), size):
        yield source.batch(order[start : start + size])


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch with every tensor on the device."""
    return {k: v.to(device) for k, v in batch.items()}
