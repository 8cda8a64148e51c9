"""From a layer's state and weights to the compiled kernels, and back to a state."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lawful.kernels.sab.config import SABConfig
from lawful.kernels.sab.native import Arguments, Result, pad, sab_lstm, unpad
from lawful.kernels.sab.schedule import Schedule
from lawful.kernels.sab.state import SABState

__all__ = ["run_native"]

CHUNK = 1024  # steps at a time when memory is bounded and no gradient is wanted


def run_native(
    x: Tensor,
    state: SABState,
    plan: Schedule,
    cell: nn.Module,
    weights: Mapping[str, Tensor],
    config: SABConfig,
) -> tuple[Tensor, Tensor, SABState]:
    """Same meaning as the reference's ``run``: h (B, T, n), s (B, T, n) and the state.

    Memory: about 16 n floats for each row and step in training; h, s and 3 n for each memory kept
    or made in inference (with a bound: at most `CHUNK` steps' new memories at a time).
    """
    steps = x.shape[1]
    if torch.is_grad_enabled() or config.max_memories is None or steps <= CHUNK:
        return _run(x, state, plan, cell, weights, config)
    hidden, recalled = [], []
    for start in range(0, steps, CHUNK):
        part = slice(start, start + CHUNK)
        h, s, state = _run(x[:, part], state, plan.part(part), cell, weights, config)
        hidden.append(h)
        recalled.append(s)
    return torch.cat(hidden, 1), torch.cat(recalled, 1), state


def _run(
    x: Tensor,
    state: SABState,
    plan: Schedule,
    cell: nn.Module,
    weights: Mapping[str, Tensor],
    config: SABConfig,
) -> tuple[Tensor, Tensor, SABState]:
    heads, n = config.heads, state.h.shape[1]
    inputs = _arguments(x, state, cell, weights, heads)
    out = sab_lstm(inputs, state.counts, state.stamps, plan, config)
    h, s, hn, cn, memory, keys = (unpad(t, heads, n) for t in out[:6])
    if config.mental_updates == 0:
        memory = memory.detach()
    after = _state(out, (hn, cn), memory, keys, plan, config)
    return h, s, after


def _arguments(
    x: Tensor, state: SABState, cell: nn.Module, weights: Mapping[str, Tensor], heads: int
) -> Arguments:
    if not isinstance(cell, nn.LSTMCell):
        raise TypeError("the compiled path is for nn.LSTMCell")
    bias = x.new_zeros(cell.weight_hh.shape[0], dtype=cell.weight_hh.dtype)
    if cell.bias:
        bias = cell.bias_ih + cell.bias_hh
    gates = (4, cell.hidden_size)

    def rows(w: Tensor) -> Tensor:
        split: Tensor = w.unflatten(0, gates)  # type: ignore[no-untyped-call]
        return pad(split, heads, [1]).flatten(0, 1)

    return Arguments(
        input=rows(cell.weight_ih),
        hidden=pad(rows(cell.weight_hh), heads, [1]),
        bias=rows(bias),
        key=pad(weights["key"], heads, [0, 1]),
        query=pad(weights["query"], heads, [0, 1]),
        score=pad(weights["score"], heads, [0]),
        x=x.to(cell.weight_hh.dtype),
        h0=pad(state.h, heads, [1]),
        c0=pad(state.c, heads, [1]),
        memory=pad(state.memory, heads, [2]),
        keys=pad(state.keys, heads, [2]),
    )


def _state(
    out: Result,
    recurrent: tuple[Tensor, ...],
    memory: Tensor,
    keys: Tensor,
    plan: Schedule,
    config: SABConfig,
) -> SABState:
    """Takes each row's live part of the log."""
    counts = out.end - out.begin
    slots = memory.shape[1]
    width = min(slots, config.max_memories or slots)
    at_start = False
    if not torch.compiler.is_compiling() and len(counts):
        width = int(counts.max())
        at_start = not bool(out.begin.any())
    if at_start:
        kept = [t[:, :width] for t in (memory, keys, out.stamps)]
    else:
        index = out.begin[:, None] + torch.arange(width, device=counts.device)
        index = index.clamp(max=max(slots - 1, 0))
        kept = [_rows(t, index) for t in (memory, keys, out.stamps)]
    return SABState(
        recurrent=recurrent,
        memory=kept[0],
        keys=kept[1],
        counts=counts,
        stamps=kept[2],
        saliency=torch.zeros_like(kept[2], dtype=memory.dtype),
        steps=plan.final,
    )


def _rows(log: Tensor, index: Tensor) -> Tensor:
    return log.gather(
        1, index.view(*index.shape, *[1] * (log.dim() - 2)).expand(*index.shape, *log.shape[2:])
    )
