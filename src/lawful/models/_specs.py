"""What goes into a sequence model and what must come out: all that a model knows of a task."""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from torch import Tensor

Carried = tuple[Tensor, ...]  # what a model keeps of the steps it has read


@dataclass(frozen=True)
class InputSpec:
    """The sequence a model reads.

    ``kind="values"``: float tensors (B, T, size). ``kind="tokens"``: integer tensors (B, T) with
    values in [0, size). ``length``: the number of steps where it is fixed, else None.
    """

    kind: Literal["values", "tokens"]
    size: int
    length: int | None = None


@dataclass(frozen=True)
class OutputSpec:
    """What a model produces: ``size`` numbers (logits or values) per sequence or per step."""

    size: int
    per_step: bool


@runtime_checkable
class Streaming(Protocol):
    """A sequence model that reads a long sequence in pieces."""

    def stream(self, x: Tensor, state: Carried = ()) -> tuple[Tensor, Carried]:
        """Reads the next steps.

        Args:
            x: The next T' steps of B sequences; see `InputSpec`. No padding.
            state: What the call before returned; empty at the start. Credit flows through it
                unless its tensors are detached.

        Returns:
            Outputs (B, T', size) and what the next call needs, as plain tensors.
        """
        ...
