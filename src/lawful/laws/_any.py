"""Laws that every layer of the library keeps, whatever it computes."""

import copy
from typing import Any

import torch
from torch import Tensor

from lawful.laws._law import Call, Law, Measurement, tensors_in


def _outputs(value: Any) -> list[Tensor]:
    """The floating-point tensors of an output; objects such as states give theirs."""
    if hasattr(value, "__dataclass_fields__"):
        value = list(vars(value).values())
    return [t for t in tensors_in(value) if t.is_floating_point()]


def _run_seeded(call: Call) -> list[Tensor]:
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return _outputs(call.run())


def _flat(tensors: list[Tensor]) -> Tensor:
    return (
        torch.cat([t.detach().double().reshape(-1) for t in tensors]) if tensors else torch.empty(0)
    )


def _determinism(call: Call) -> Measurement:
    first, second = _flat(_run_seeded(call)), _flat(_run_seeded(call))
    return Measurement.worst((first - second).abs())


def _finiteness(call: Call) -> Measurement:
    given = [t for t in tensors_in((call.args, dict(call.kwargs))) if t.is_floating_point()]
    if not all(t.isfinite().all() for t in given):
        return Measurement(0.0, 0)
    return Measurement.worst((~_flat(_run_seeded(call)).isfinite()).double())


def _to_double(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {k: _to_double(v) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_to_double(v) for v in value))
    if isinstance(value, list | tuple):
        return type(value)(_to_double(v) for v in value)
    if hasattr(value, "to"):
        return value.to(dtype=torch.float64)
    return value


def _precision(call: Call) -> Measurement:
    exact = copy.deepcopy(call.layer).double()
    precise = Call(exact, _to_double(call.args), _to_double(call.kwargs))
    want, got = _run_seeded(precise), _run_seeded(call)
    gaps = []
    for a, b in zip(got, want, strict=True):
        scale = b.double().abs().amax().clamp_min(1.0) if b.numel() else 1.0
        gaps.append(((a.double() - b.double()).abs() / scale).reshape(-1))
    return Measurement.worst(torch.cat(gaps) if gaps else torch.empty(0))


DETERMINISTIC = Law(
    "deterministic",
    "the same input and seed give the same output",
    "design",
    _determinism,
    0.0,
)
FINITE = Law("finite", "finite input gives finite output", "design", _finiteness, 0.0)
PRECISE = Law(
    "float64",
    "the output differs little from that of float64, relative to its largest entry",
    "design",
    _precision,
    {torch.float64: 0.0, torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.02},
    applies=lambda call: call.dtype != torch.float64,
)
ANY_LAWS = (DETERMINISTIC, FINITE, PRECISE)
