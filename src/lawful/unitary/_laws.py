"""What unitary and orthogonal layers promise, declared beside them."""

from typing import Any

import torch
from torch import Tensor

from lawful.laws import Call, Law, Measurement, declare
from lawful.unitary._activations import Identity
from lawful.unitary._gain import gradient_gain
from lawful.unitary._layers import OrthogonalConv, UnitaryConv
from lawful.unitary._recurrent import ConvOrthogonalRNN, ConvUnitaryRNN

_PAPER = "Magnasco 2023"
_DRIFT_STEPS = 100
_GAIN_STEPS = 100
_DENSE_LIMIT = 512  # entries of a field up to which the operator is written out as a matrix


def _field(call: Call) -> Tensor:
    """The field a convolution was called with, with a batch axis, in the layer's own dtype."""
    layer, x = call.layer, call.args[0]
    x = x if x.ndim == layer.dims + 2 else x.unsqueeze(0)
    field: Tensor = x.to(layer._field_dtype(x))
    return field


def _norms(x: Tensor) -> Tensor:
    norms: Tensor = x.flatten(1).norm(dim=1)
    return norms.double()


def _ratio(after: Tensor, before: Tensor) -> Tensor:
    """|‖after‖ / ‖before‖ - 1| per sample; a zero field stays zero."""
    return torch.where(before > 0, (after / before.clamp_min(1e-300) - 1).abs(), after)


def _norm(call: Call) -> Measurement:
    x = _field(call)
    with torch.no_grad():
        return Measurement.worst(_ratio(_norms(call.layer(x)), _norms(x)))


def _inverse(call: Call) -> Measurement:
    x = _field(call)
    with torch.no_grad():
        back = call.layer.inverse(call.layer(x))
    scale = x.abs().amax().clamp_min(1e-30) if x.numel() else 1.0
    return Measurement.worst((back - x).abs() / scale)


def _spectrum(call: Call) -> Measurement:
    """Singular values of the dense operator; on a smaller lattice if the field is large."""
    x = _field(call)
    sides: tuple[int, ...] = x.shape[2:]
    most = max(int((_DENSE_LIMIT / call.layer.channels) ** (1 / call.layer.dims)), 1)
    sides = tuple(min(n, most) for n in sides)
    entries = call.layer.channels
    for n in sides:
        entries *= n
    basis = torch.eye(entries, dtype=x.dtype).reshape(entries, call.layer.channels, *sides)
    with torch.no_grad():
        matrix = call.layer(basis).flatten(1)
    wide = torch.complex128 if matrix.is_complex() else torch.float64
    return Measurement.worst((torch.linalg.svdvals(matrix.to(wide)) - 1).abs())


def _drift(call: Call) -> Measurement:
    """Norm after many steps of the layer, one by one."""
    x = _field(call)
    with torch.no_grad():
        operator = call.layer.operator(x.shape[2:], dtype=x.dtype)
        z = x
        for _ in range(_DRIFT_STEPS):
            z = operator(z)
    return Measurement.worst(_ratio(_norms(z), _norms(x)))


def _flow(call: Call) -> Measurement:
    """Two half steps against one whole step."""
    x = _field(call)
    with torch.no_grad():
        halves, whole = call.layer(call.layer(x, t=0.5), t=0.5), call.layer(x)
    scale = whole.abs().amax().clamp_min(1e-30) if x.numel() else 1.0
    return Measurement.worst((halves - whole).abs() / scale)


def _chunks(call: Call) -> Measurement:
    """A sequence read in two pieces, the state carried on, against the whole."""
    layer, x = call.layer, call.args[0]
    time = 1 if layer.batch_first else 0
    steps = x.shape[time]
    rest = [*call.args[1:], *call.kwargs.values()]
    if steps < 2 or any(a is not None for a in rest):
        return Measurement(0.0, 0)
    with torch.no_grad():
        whole, last = layer(x)
        first, state = layer(x.narrow(time, 0, steps // 2))
        second, end = layer(x.narrow(time, steps // 2, steps - steps // 2), state)
    pieces = torch.cat([first, second], time)
    scale = max(float(whole.abs().amax()), float(last.abs().amax()), 1e-30)
    gaps = [(pieces - whole).abs().reshape(-1), (end - last).abs().reshape(-1)]
    return Measurement.worst(torch.cat(gaps) / scale)


def _free_norm(call: Call) -> Measurement:
    """Norm of the state after a free run (no input) of a linear recurrence."""
    layer = call.layer
    with torch.no_grad():
        _, state = layer(*call.args, **call.kwargs)
        later = layer.propagate(state, float(_DRIFT_STEPS))
    return Measurement.worst(_ratio(_norms(later), _norms(state)))


def _gain(call: Call) -> Measurement:
    """Gradient norm over many steps against what the activation declares, in decades."""
    activation = call.layer.activation
    declared: Any = type(activation).gain
    if declared is None:
        return Measurement(0.0, 0)
    measured = gradient_gain(activation, _GAIN_STEPS, sites=32, draws=3)
    gap = torch.tensor(measured).log10() - torch.tensor(declared[1]).log10()
    return Measurement(float(gap.abs()), 3, {"measured": measured, "declared": declared[1]})


def _linear(call: Call) -> bool:
    return isinstance(call.layer.activation, Identity)


CONVOLUTION_LAWS = (
    Law(
        "norm",
        "the output is as long as the input",
        f"{_PAPER}, section 1",
        _norm,
        {torch.float64: 1e-12, torch.float32: 2e-6},
    ),
    Law(
        "inverse",
        "the inverse undoes the layer",
        f"{_PAPER}, section 1",
        _inverse,
        {torch.float64: 1e-12, torch.float32: 1e-5},
    ),
    Law(
        "spectrum",
        "every singular value of the operator is 1",
        f"{_PAPER}, equation 1.2",
        _spectrum,
        {torch.float64: 1e-12, torch.float32: 2e-6},
    ),
    Law(
        "flow",
        "two half steps are one step: the layer is an exponential",
        f"{_PAPER}, section 2",
        _flow,
        {torch.float64: 1e-11, torch.float32: 1e-5},
    ),
    Law(
        "drift",
        f"{_DRIFT_STEPS} steps keep the norm",
        f"{_PAPER}, section 1",
        _drift,
        {torch.float64: 1e-11, torch.float32: 5e-5},
    ),
)
RECURRENCE_LAWS = (
    Law(
        "chunks",
        "a sequence in pieces gives what the whole gives",
        "design",
        _chunks,
        {torch.float64: 1e-10, torch.float32: 1e-4},
    ),
    Law(
        "free run",
        f"{_DRIFT_STEPS} steps without input keep the norm of the state",
        f"{_PAPER}, equation 1.4",
        _free_norm,
        {torch.float64: 1e-12, torch.float32: 2e-6},
        applies=_linear,
    ),
    Law(
        "gradient gain",
        f"over {_GAIN_STEPS} steps gradients grow or shrink as the activation declares (decades)",
        "design; measured for each activation",
        _gain,
        1.0,
    ),
)
declare(UnitaryConv, *CONVOLUTION_LAWS)
declare(OrthogonalConv, *CONVOLUTION_LAWS)
declare(ConvUnitaryRNN, *RECURRENCE_LAWS)
declare(ConvOrthogonalRNN, *RECURRENCE_LAWS)
