"""What a memory layer promises."""

from typing import Any

import torch
from torch import Tensor

from lawful.laws import Call, Law, Measurement, declare
from lawful.memory._sab import SAB

_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


def _input(call: Call) -> Tensor | None:
    """The sequences (B, T, d) of a plain call: no state, lengths or resets."""
    plain = len(call.args) == 1 and not call.kwargs and isinstance(call.args[0], Tensor)
    if not plain or not isinstance(call.layer, SAB):
        return None
    x: Tensor = call.args[0]
    return x if call.layer.batch_first else x.transpose(0, 1)


def _random(layer: Any) -> bool:
    return bool(layer.training and layer.dropout)


def _run(layer: Any, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
    with torch.no_grad():
        output, state = layer(x if layer.batch_first else x.transpose(0, 1), state)
    return (output if layer.batch_first else output.transpose(0, 1)), state


def _pieces(call: Call) -> Measurement:
    x = _input(call)
    if x is None or x.shape[1] < 2 or call.layer.bidirectional or _random(call.layer):
        return Measurement(0.0, 0)
    half = x.shape[1] // 2
    whole, _ = _run(call.layer, x)
    first, state = _run(call.layer, x[:, :half])
    second, _ = _run(call.layer, x[:, half:], state)
    return Measurement.worst((torch.cat([first, second], 1) - whole).abs())


def _rows(call: Call) -> Measurement:
    x = _input(call)
    if x is None or x.shape[0] < 2 or _random(call.layer):
        return Measurement(0.0, 0)
    whole, _ = _run(call.layer, x)
    alone = torch.cat([_run(call.layer, row[None])[0] for row in x])
    return Measurement.worst((alone - whole).abs())


def _truncation(call: Call) -> Measurement:
    """Credit between steps of different blocks that no recall connects, without any memory."""
    x = _input(call)
    config = call.layer.config if isinstance(call.layer, SAB) else None
    if x is None or config is None or config.k_trunc is None or callable(config.k_att):
        return Measurement(0.0, 0)
    steps = min(x.shape[1], config.k_att, 32)
    if steps <= config.k_trunc or call.layer.bidirectional or len(call.layer.layers) > 1:
        return Measurement(0.0, 0)
    reach = call.layer.credit_map(steps, x[:1, :steps], call.generator)
    at = torch.arange(steps)
    far = at[:, None] - at >= config.k_trunc
    return Measurement.worst(reach[far])


declare(
    SAB,
    Law(
        name="pieces equal the whole",
        statement="a sequence read in two calls, the state carried on, gives the outputs of one",
        source="design",
        measure=_pieces,
        tolerance=_TOLERANCE,
    ),
    Law(
        name="rows are independent",
        statement="each row's output is what it is without the other rows",
        source="Ke et al. 2018, algorithm 1 (scores, threshold and selection are per example)",
        measure=_rows,
        tolerance=_TOLERANCE,
    ),
    Law(
        name="truncation holds",
        statement="where nothing can be recalled, no credit goes k_trunc steps back or further",
        source="Ke et al. 2018, section 3",
        measure=_truncation,
        tolerance=0.0,
    ),
)
