"""The laws of attention layers: weights are marginals, the gradient of a log-partition.

A layer with these laws has three private methods: ``_law_parts(query, keys, values, lengths)``
gives its scores in the layout of the weights and a function from scores to the distribution;
``_sums(weights, ...)`` how far sums of the weights are from what they should be; and the class
attribute ``_reads_itself`` says whether the queries are the keys' own tokens.
"""

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lawful.laws import Call, Law, Measurement

__all__ = ["GRADIENT", "NORMALISED", "PADDING", "RANGE", "SUM"]

_STEP = 1e-4  # of the finite difference, along a direction of norm 1
_EXTRA = 3  # rows of padding that are appended
_SOURCE = "Kim et al. (2017), section 3.1"
_ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 0.05, torch.float16: 0.01}


def _arguments(call: Call, change: Callable[[Tensor], Tensor] | None = None) -> dict[str, Any]:
    """The call's arguments by name, floating-point tensors changed by a function."""
    bound = inspect.signature(call.layer.forward).bind(*call.args, **call.kwargs)
    found = {"keys": None, "values": None, "lengths": None, **bound.arguments}
    return found if change is None else {k: _map(v, change) for k, v in found.items()}


def _map(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value) if value.is_floating_point() else value
    if isinstance(value, list | tuple):
        return type(value)(_map(v, change) for v in value)
    return value


def _run(layer: Any, arguments: dict[str, Any]) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        context, weights = layer(**arguments)
    return context, weights


def _range(call: Call) -> Measurement:
    _, weights = _run(call.layer, _arguments(call))
    top = getattr(call.layer, "total", None) or 1.0
    outside = torch.maximum(-weights, weights - top).clamp(min=0).abs()
    return Measurement.worst(torch.where(weights.isnan(), weights, outside))


def _sum(call: Call) -> Measurement:
    arguments = _arguments(call)
    _, weights = _run(call.layer, arguments)
    with torch.no_grad():
        return Measurement.worst(call.layer._sums(weights, **arguments))


def _slopes(call: Call, directions: int) -> tuple[list[Tensor], list[Tensor]]:
    """Slopes of the log-partition along directions, and the same by the weights, in float64.

    The first direction is random, a second one is uniform. Both have norm 1.
    """
    layer = copy.deepcopy(call.layer).double()
    arguments = _arguments(call, Tensor.double)
    _, weights = _run(layer, arguments)
    with torch.no_grad():
        scores, build = layer._law_parts(**arguments)
        base = build(scores).log_partition
        dims = tuple(range(base.dim() - weights.dim(), 0))
        slopes, by_weights = [], []
        for i in range(directions):
            v = torch.ones_like(weights)
            if i == 0:
                v = torch.randn(weights.shape, generator=call.generator, dtype=torch.float64)
                v = v.to(weights.device)
            v = v / v.square().sum(dims, keepdim=True).sqrt().clamp(min=1e-300)
            up, down = (build(scores + s * v).log_partition for s in (_STEP, -_STEP))
            slopes.append(((up - down) / (2 * _STEP)).nan_to_num(0.0))  # -inf - -inf: no structure
            by_weights.append((weights * v).sum(dims))
    return slopes, by_weights


def _gradient(call: Call) -> Measurement:
    slopes, by_weights = _slopes(call, 1)
    return Measurement.worst((slopes[0] - by_weights[0]).abs())


def _normalised_gradient(call: Call) -> Measurement:
    slopes, by_weights = _slopes(call, 2)
    # weights = total mu / sum(mu), and the slope along the uniform direction is sum(mu) / sqrt(N).
    total = by_weights[1] / slopes[1].clamp(min=1e-12)
    close = (slopes[0] * total - by_weights[0]).abs()
    return Measurement.worst(close.masked_fill(slopes[1] < 1e-6, 0.0))


def _with_padding(arguments: dict[str, Any], reads_itself: bool) -> dict[str, Any]:
    """The same call with rows of NaN behind the last key, and lengths that exclude them."""
    keys = arguments["query"] if arguments["keys"] is None else arguments["keys"]
    first = keys if isinstance(keys, Tensor) else keys[0]
    lengths = arguments["lengths"]
    if lengths is None:
        lengths = torch.full(first.shape[:-2], first.shape[-2], device=first.device)

    def longer(x: Tensor) -> Tensor:
        junk = x.new_full((*x.shape[:-2], _EXTRA, x.shape[-1]), torch.nan)
        return torch.cat([x, junk], -2)

    names = ["keys", "values", *(["query"] if reads_itself else [])]
    return {**arguments, **{k: _map(arguments[k], longer) for k in names}, "lengths": lengths}


def _padding(call: Call) -> Measurement:
    layer, arguments = call.layer, _arguments(call)
    context, weights = _run(layer, arguments)
    padded = _with_padding(arguments, layer._reads_itself)
    other_context, other_weights = _run(layer, padded)
    n = weights.shape[-1]
    extra = [other_weights[..., n:]]
    other_weights = other_weights[..., :n]
    if layer._reads_itself:
        extra += [other_weights[..., n:, :], other_context[..., n:, :]]
        other_weights, other_context = other_weights[..., :n, :], other_context[..., :n, :]
    gaps = [(a - b).abs() for a, b in ((context, other_context), (weights, other_weights))]
    return Measurement.worst(torch.cat([x.flatten().double() for x in (*gaps, *map(abs, extra))]))


def _expects(call: Call) -> bool:
    """Whether the weights are an expectation, not the best structure."""
    return not call.layer.hard


RANGE = Law("range", "no weight is negative or above its bound", _SOURCE, _range, _ROUNDING)
SUM = Law(
    "sum",
    "weights that share a unit of attention sum to it",
    _SOURCE,
    _sum,
    _ROUNDING,
    applies=lambda call: getattr(call.layer, "total", 1.0) is not None and _expects(call),
)
GRADIENT = Law(
    "gradient",
    "the weights are the gradient of the structure's log-partition (along a random direction)",
    _SOURCE,
    _gradient,
    1e-6,
    applies=lambda call: getattr(call.layer, "total", None) is None and _expects(call),
)
NORMALISED = Law(
    "normalised gradient",
    "the weights are proportional to the gradient of the structure's log-partition",
    "Kim et al. (2017), section 4.2",
    _normalised_gradient,
    1e-5,
    applies=lambda call: getattr(call.layer, "total", None) is not None and _expects(call),
)
PADDING = Law(
    "padding",
    "keys beyond the length have no effect, not even NaN",
    "design",
    _padding,
    {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.05},
)
