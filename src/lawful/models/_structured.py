"""Laws of networks that end in a distribution: its own, measured on the network's scores."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from lawful.laws import Call, Law, Measurement
from lawful.structures import STRUCTURE_LAWS, StructuredDistribution

Make = Callable[[Any, tuple[Any, ...]], StructuredDistribution]


def laws_of_distribution(make: Make) -> tuple[Law, ...]:
    """The laws of every structure, measured on what a network makes of its inputs.

    Args:
        make: From the network and the arguments it was called with to the distribution.
    """

    def found(call: Call) -> Call:
        with torch.no_grad():
            distribution = make(call.layer, (*call.args, *call.kwargs.values()))
        given = distribution.potentials
        return Call(distribution, tuple(given), generator=call.generator)

    def moved(law: Law) -> Law:
        def measure(call: Call) -> Measurement:
            return law.measure(found(call))

        def tolerance(call: Call) -> float:
            return law.tolerance_for(found(call))

        return replace(law, measure=measure, tolerance=tolerance)

    return tuple(moved(law) for law in STRUCTURE_LAWS)
