"""What a memory layer promises."""

import copy
from typing import Any

import torch
from torch import Tensor

from lawful.kernels.sab import SABConfig, SABState
from lawful.laws import Call, Law, Measurement, declare
from lawful.memory._recall import Recall
from lawful.memory._sab import SAB

_CREDIT_STEPS = 16  # a backward pass each
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


def _input(call: Call) -> Tensor | None:
    """The sequences (B, T, d) of a call, cut to the shortest; None for what the laws leave out.

    That is a packed sequence, a state that is carried on, and resets.
    """
    given = dict(zip(("x", "state", "lengths"), call.args, strict=False)) | dict(call.kwargs)
    x, lengths = given.pop("x", None), given.pop("lengths", None)
    given.pop("return_recall", None)
    if not isinstance(x, Tensor) or any(v is not None for v in given.values()):
        return None
    x = x if call.layer.batch_first else x.transpose(0, 1)
    if lengths is not None and len(lengths):
        x = x[:, : int(torch.as_tensor(lengths).min())]
    return x


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


def _recalls(call: Call) -> list[Recall]:
    x = _input(call)
    if x is None or _random(call.layer):
        return []
    with torch.no_grad():
        given = x if call.layer.batch_first else x.transpose(0, 1)
        found: list[Recall] = call.layer(given, return_recall=True)[2]
    return found


def _sparsity(call: Call) -> Measurement:
    counts = [(r.weights != 0).sum(-1).flatten() for r in _recalls(call)]
    if not counts:
        return Measurement(0.0, 0)
    return Measurement.worst((torch.cat(counts) - call.layer.config.k_top).clamp_min(0))


def _weights(call: Call) -> Measurement:
    gaps = []
    for recall in _recalls(call):
        total = recall.weights.double().sum(-1)
        used = (recall.weights != 0).any(-1)
        gaps.append(torch.where(used, (total - 1).abs(), 0.0).flatten())
        gaps.append((-recall.weights.double()).clamp_min(0).flatten())
    return Measurement.worst(torch.cat(gaps)) if gaps else Measurement(0.0, 0)


def _bound(call: Call) -> Measurement:
    """How many memories are held at the end, against what k_att and max_memories allow."""
    x = _input(call)
    config = call.layer.config
    if x is None or callable(config.k_att):
        return Measurement(0.0, 0)
    _, state = _run(call.layer, x)
    allowed = x.shape[1] // config.k_att + (config.init_memory == "zero")
    if config.max_memories is not None:
        allowed = min(allowed, config.max_memories)
    parts = [state] if isinstance(state, SABState) else list(state)
    held = torch.cat([s.counts for s in parts])
    return Measurement.worst((held - allowed).clamp_min(0))


def reachable(recalled: list[list[int]], config: SABConfig) -> Tensor:
    """Which (t, tau) credit may connect by definition: a walk over the graph of allowed paths.

    Args:
        recalled: For each step, the steps whose stored states it weighs with a weight that is not
            0, or that set the threshold (negative numbers: the zero memory).
        config: Truncation, phase, hops, and depth of mental updates.

    Returns:
        (T, T) bool.
    """
    steps = len(recalled)
    window = config.truncation == "window"
    endless = steps + 1
    top = config.k_trunc if window and config.k_trunc is not None else endless
    depth = top if config.mental_updates is None else min(config.mental_updates, top)
    hops = endless if config.hops is None else config.hops
    late = 1 if config.phase == "end" else 0

    def starts_block(t: int) -> bool:
        return not window and config.k_trunc is not None and (t + late) % config.k_trunc == 0

    table = torch.zeros(steps, steps, dtype=torch.bool)
    for t in range(steps):
        todo, seen = [(t, top, hops)], set()
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            step, budget, left = at
            table[t, step] = True
            if step and budget > 1 and not starts_block(step):
                todo.append((step - 1, budget - 1, left))
            if left and depth:
                todo += [(m, depth, left - 1) for m in recalled[step] if m >= 0]
    return table


def _credit(call: Call) -> Measurement:
    """Measured credit of one sequence in float64 against the definition, entry by entry."""
    x = _input(call)
    layer = call.layer
    if x is None or len(layer.layers) > 1 or layer.config.heads > 1 or _random(layer):
        return Measurement(0.0, 0)
    steps = min(x.shape[1], _CREDIT_STEPS)
    exact = copy.deepcopy(layer).double()
    row = x[:1, :steps].double()
    if steps == 0:
        return Measurement(0.0, 0)
    with torch.no_grad():
        given = row if layer.batch_first else row.transpose(0, 1)
        recall = exact(given, return_recall=True)[2][0]
    places, weights = recall.steps[0, :, 0], recall.weights[0, :, 0]
    recalled = [p[w != 0].tolist() for p, w in zip(places, weights, strict=True)]
    if layer.config.score_grad == "full" and layer.config.normaliser == "relu":
        for step, threshold in enumerate(recall.threshold[0, :, 0].tolist()):
            recalled[step].append(threshold)
    measured = exact.credit_map(steps, row, call.generator) > 0
    allowed = reachable(recalled, layer.config)
    if layer.config.init_memory == "zero":  # recalling the zero vector passes nothing on
        return Measurement.worst((measured & ~allowed).double())
    return Measurement.worst((measured != allowed).double())


def _normalised(call: Call) -> bool:
    return bool(call.layer.config.small_memory != "raw")


declare(
    SAB,
    Law(
        name="few are recalled",
        statement="at most k_top memories have a weight at any step",
        source="Ke et al. 2018, equation 3",
        measure=_sparsity,
        tolerance=0.0,
    ),
    Law(
        name="weights are normalised",
        statement="weights of recalled memories are not negative and sum to 1",
        source="Ke et al. 2018, equations 3 and 4",
        measure=_weights,
        tolerance={torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2},
        applies=_normalised,
    ),
    Law(
        name="memory is bounded",
        statement="no more memories are held than k_att and max_memories allow",
        source="Ke et al. 2018, algorithm 1; design",
        measure=_bound,
        tolerance=0.0,
    ),
    Law(
        name="credit goes only there",
        statement="credit reaches exactly the steps that recalls and truncation connect",
        source="Ke et al. 2018, section 3",
        measure=_credit,
        tolerance=0.0,
    ),
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
