"""What goes into a sequence model and what must come out: all that a model knows of a task."""

from dataclasses import dataclass
from typing import Literal


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
