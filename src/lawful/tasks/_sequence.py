"""What the sequence tasks share: their models, and the views of what a model recalled."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from lawful.models import (
    SEQUENCE_MODELS,
    InputSpec,
    OutputSpec,
    Recalling,
    build_sequence_model,
)
from lawful.tasks._base import Batch, Task
from lawful.tasks._lattice_views import lattice_views
from lawful.tasks.exhibits import Array, Exhibit, Heatmap

C = TypeVar("C")
CREDIT_STEPS = 160  # a credit map costs one backward pass per step: none beyond this length


class SequenceTask(Task[C]):
    """A task whose models are the sequence models; a subclass says what goes in and out.

    Batches hold "x" and "y", and "lengths" where sequences differ.
    """

    models: ClassVar[Mapping[str, type[Any]]] = SEQUENCE_MODELS
    default_model: ClassVar[str] = "sab"

    @abstractmethod
    def inputs(self) -> InputSpec:
        """What the models read; only after `load` or `load_state`."""

    @abstractmethod
    def outputs(self) -> OutputSpec:
        """What the models produce; only after `load` or `load_state`."""

    def build(self, model: Any) -> nn.Module:
        """A fresh model from its config, for this task's inputs and outputs."""
        return build_sequence_model(model, self.inputs(), self.outputs())


def run(model: nn.Module, batch: Batch) -> Tensor:
    """The model's outputs for a batch."""
    out: Tensor = model(batch["x"], batch.get("lengths"))
    return out


def place(model: nn.Module) -> torch.device:
    """The device of a model's parameters."""
    return next(model.parameters()).device


def credit_scale(credit: Array, decades: float = 8.0) -> Array:
    """Credit on a readable scale: 0 where it is exactly 0, else 0.05 to 1 by its logarithm.

    1 is the strongest; 0.05 is ``decades`` powers of ten below it, or less.
    """
    top = credit.max(initial=0.0)
    shown = np.zeros(credit.shape)
    some = credit > 0
    shown[some] = np.clip(1 + np.log10(credit[some] / top) / decades, 0.05, 1.0)
    return shown


def recall_views(
    model: nn.Module, x: Tensor, ticks: Sequence[str] | None = None, unit: str = "step"
) -> list[Exhibit]:
    """What a model recalled and where its credit flows; or its spectrum, kernel and norms.

    The first of models with a sparse memory, the second of those on a lattice; else nothing.

    Args:
        model: Any sequence model; most have no such views.
        x: A batch of inputs.
        ticks: Names of the steps.
        unit: What a step is, for the axes.
    """
    if not isinstance(model, Recalling):
        return lattice_views(model)
    weights = model.recalled(x).cpu().numpy()  # (B, T, T)
    note = "Row t shows the weights of the memories that step t read; most steps are never read."
    past, now = f"recalled {unit}", f"at {unit}"
    mean, title = weights.mean(0), f"Recall, mean of {len(weights)} sequences"
    views: list[Exhibit] = [
        Heatmap(title, mean, past, now, note=note),
        Heatmap(
            "Recall, one sequence", weights[0], past, now, ticks, ticks, note="The first of them."
        ),
    ]
    if x.shape[1] <= CREDIT_STEPS:
        credit = credit_scale(model.credit(x[:1]).cpu().numpy())
        note = (
            "The same sequence. Row t shows which inputs a loss at step t reaches: 0 where no "
            "gradient flows at all, else a logarithmic scale up to the strongest. The band along "
            "the diagonal is truncated backpropagation; the rest came through recalled memories."
        )
        views.append(Heatmap("Credit", credit, f"credit to {unit}", f"loss at {unit}", note=note))
    return views
