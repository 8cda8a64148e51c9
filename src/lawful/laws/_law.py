"""What a law is: a promise of a layer, in words, with a way to measure how far it is from kept."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Tolerance = float | Mapping[torch.dtype, float] | Callable[["Call"], float]


@dataclass(frozen=True)
class Call:
    """One use of a layer: what it was called with, on which a law is measured.

    Attributes:
        layer: The layer (or distribution) under test. Laws must leave it as they found it.
        args: Its positional arguments, detached.
        kwargs: Its keyword arguments, detached.
        generator: Source of randomness for laws that draw cases; fresh for every law.
    """

    layer: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))

    def run(self) -> Any:
        """Calls the layer again."""
        return self.layer(*self.args, **self.kwargs)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the computation: of the first floating-point parameter, else argument."""
        module = isinstance(self.layer, torch.nn.Module)
        found: list[Tensor] = list(self.layer.parameters()) if module else []
        found += tensors_in((self.args, dict(self.kwargs)))
        for tensor in found:
            if tensor.is_floating_point():
                return tensor.dtype
        return torch.get_default_dtype()


@dataclass(frozen=True)
class Measurement:
    """The largest deviation found, in how many cases, and where.

    Attributes:
        deviation: Distance from the law, >= 0; NaN counts as broken.
        cases: How many single comparisons it is the worst of; 0 means there was nothing to try.
        witness: What identifies the worst case, usually indices; shown when the law is broken.
    """

    deviation: float
    cases: int
    witness: Any = None

    @staticmethod
    def worst(deviations: Tensor, **extra: Any) -> "Measurement":
        """The largest entry of a tensor of deviations, its index as the witness; NaN is worst."""
        if deviations.numel() == 0:
            return Measurement(0.0, 0)
        flat = deviations.detach().to(torch.float64).reshape(-1)
        ranked = torch.where(flat.isnan(), torch.inf, flat)
        at = int(ranked.argmax())
        index = [int(i) for i in torch.unravel_index(torch.tensor(at), deviations.shape)]
        witness = {"index": index, **extra} if extra else {"index": index}
        return Measurement(float(flat[at]), flat.numel(), witness)


@dataclass(frozen=True)
class Law:
    """A promise of a layer.

    Attributes:
        name: Short name, unique among the laws of a layer.
        statement: The promise in one line.
        source: Where it comes from: paper and equation, or "design".
        measure: Measures the deviation on one call.
        tolerance: Largest deviation that keeps the law: a number, a number per dtype, or a
            function of the call (for laws whose rounding grows with the size of the input).
        applies: Whether the layer promises it at all in its configuration.
    """

    name: str
    statement: str
    source: str
    measure: Callable[[Call], Measurement]
    tolerance: Tolerance
    applies: Callable[[Call], bool] = lambda call: True

    def tolerance_for(self, call: Call) -> float:
        """The tolerance that holds for this call."""
        if callable(self.tolerance):
            return float(self.tolerance(call))
        if isinstance(self.tolerance, Mapping):
            dtypes = self.tolerance
            return float(dtypes.get(call.dtype, max(dtypes.values())))
        return float(self.tolerance)


@dataclass(frozen=True)
class Row:
    """One law measured on one layer.

    ``holds`` is None where there was nothing to try: the layer was not run, or the law had no
    case in these inputs.
    """

    law: str
    layer: str
    deviation: float
    tolerance: float
    holds: bool | None
    cases: int
    witness: Any
    statement: str
    source: str


def judge(law: Law, layer: str, call: Call) -> Row:
    """Measures a law on a call; a measurement that raises is a broken law, told as its witness."""
    tolerance = law.tolerance_for(call)
    try:
        found = law.measure(call)
    except Exception as error:
        found = Measurement(math.nan, 1, f"{type(error).__name__}: {error}")
    holds = found.deviation <= tolerance if found.cases else None
    return Row(
        law.name,
        layer,
        found.deviation,
        tolerance,
        holds,
        found.cases,
        None if holds else found.witness,
        law.statement,
        law.source,
    )


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors inside nested tuples, lists and dicts, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [t for v in value.values() for t in tensors_in(v)]
    if isinstance(value, list | tuple):
        return [t for v in value for t in tensors_in(v)]
    return []
