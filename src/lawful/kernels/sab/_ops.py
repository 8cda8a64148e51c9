"""The two operators of the compiled path: what they allocate, and the products after the way back.

They are opaque to `torch.compile`; their shapes depend on shapes only.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["Arguments", "Result", "Rules", "forward"]

_SLACK = 3  # places beyond k_top + 1 for what is tied with the threshold


class Arguments(NamedTuple):
    """Differentiable inputs. Widths n are padded to whole vectors, see `pad`."""

    input: Tensor  # (4n, d)
    hidden: Tensor  # (4n, n)
    bias: Tensor  # (4n,)
    key: Tensor  # (n, n)
    query: Tensor  # (n, n)
    score: Tensor  # (n,)
    x: Tensor  # (B, T, d)
    h0: Tensor  # (B, n)
    c0: Tensor  # (B, n)
    memory: Tensor  # (B, R, n)
    keys: Tensor  # (B, R, n)


class Result(NamedTuple):
    """Outputs; the memories are a log of which row b has begin[b] .. end[b]."""

    h: Tensor  # (B, T, n)
    s: Tensor  # (B, T, n)
    hn: Tensor  # (B, n)
    cn: Tensor  # (B, n)
    memory: Tensor  # (B, S, n)
    keys: Tensor  # (B, S, n)
    stamps: Tensor  # (B, S)
    begin: Tensor  # (B,)
    end: Tensor  # (B,)


class _Saved(NamedTuple):
    exp: Tensor
    gates: Tensor
    cells: Tensor
    asked: Tensor
    sums: Tensor
    weights: Tensor
    slots: Tensor
    span: Tensor
    modes: Tensor


class Rules(NamedTuple):
    k_top: int
    k_att: int
    flags: int
    bound: int
    heads: int
    margin: float
    scale: float


def _shapes(x: Tensor, memory: Tensor, rules: Rules) -> tuple[int, int]:
    """Slots S of the log, and places K for selected memories."""
    slots = memory.shape[1] + (x.shape[1] + rules.k_att - 1) // rules.k_att
    return slots, min(rules.k_top + 1, slots) + _SLACK


def _allocate(
    x: Tensor, h0: Tensor, memory: Tensor, rules: Rules, save: bool
) -> tuple[Result, _Saved]:
    (batch, steps, _), n, heads = x.shape, h0.shape[1], rules.heads
    slots, places = _shapes(x, memory, rules)
    kept = (batch, steps) if save else (0, 0)
    whole = torch.int64
    result = Result(
        h=x.new_empty(batch, steps, n),
        s=x.new_empty(batch, steps, n),
        hn=x.new_empty(batch, n),
        cn=x.new_empty(batch, n),
        memory=x.new_empty(batch, slots, n),
        keys=x.new_empty(batch, slots, n),
        stamps=x.new_full((batch, slots), -1, dtype=whole),
        begin=x.new_zeros(batch, dtype=whole),
        end=x.new_zeros(batch, dtype=whole),
    )
    saved = _Saved(
        exp=x.new_empty(batch, slots, n),
        gates=x.new_empty(*kept, 4 * n),
        cells=x.new_empty(*kept, n),
        asked=x.new_empty(*kept, n),
        sums=x.new_empty(*kept, heads),
        weights=x.new_empty(*kept, heads, places),
        slots=x.new_empty(*kept, heads, places, dtype=torch.int32),
        span=x.new_zeros(*kept, 2, dtype=torch.int32),
        modes=x.new_empty(*kept, heads, dtype=torch.int8),
    )
    return result, saved


_Many = tuple[
    Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
    Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
]  # fmt: skip


def _forward_cpu(
    input: Tensor,  # noqa: A002
    hidden: Tensor,
    bias: Tensor,
    key: Tensor,
    query: Tensor,
    score: Tensor,
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    memory: Tensor,
    keys: Tensor,
    counts: Tensor,
    stamps: Tensor,
    marks: Tensor,
    steps: Tensor,
    k_top: int,
    k_att: int,
    flags: int,
    bound: int,
    heads: int,
    margin: float,
    scale: float,
    save: bool,
) -> _Many:
    rules = Rules(k_top, k_att, flags, bound, heads, margin, scale)
    out, saved = _allocate(x, h0, memory, rules, save)
    carried = memory.shape[1]
    out.memory[:, :carried] = memory
    out.keys[:, :carried] = keys
    out.stamps[:, :carried] = stamps
    out.begin.copy_(carried - counts)
    out.end.fill_(carried)
    weights = [t.contiguous() for t in (input, hidden, bias, key, query, score, x, h0, c0, marks)]
    torch.ops.lawful.sab_forward_(
        *weights, steps.contiguous(), *out[:6], saved.exp, *out[6:], *saved[1:],
        k_top, flags, bound, carried, heads, saved.slots.shape[-1], margin, scale,
    )  # fmt: skip
    return (*out, *saved)


def _forward_fake(*args: Any) -> _Many:
    x, h0, memory, save = args[6], args[7], args[9], args[-1]
    out, saved = _allocate(x, h0, memory, Rules(*args[15:22]), save)
    return (*out, *saved)


_Eleven = tuple[
    Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor
]


def _backward_cpu(
    grads: list[Tensor],
    inputs: list[Tensor],
    marks: Tensor,
    steps: Tensor,
    out: list[Tensor],
    k_top: int,
    k_att: int,
    flags: int,
    bound: int,
    heads: int,
    margin: float,
    scale: float,
) -> _Eleven:
    a, result = Arguments(*inputs), Result(*out[:9])
    saved = _Saved(*out[9:])
    n, carried = a.h0.shape[1], a.memory.shape[1]
    gh, gs, ghn, gcn, gmemory, gkeys = (g.contiguous() for g in grads)
    dgates, dquery = torch.empty_like(saved.gates), torch.empty_like(saved.cells)
    dmemory = gmemory.clone() if gmemory.numel() else torch.zeros_like(result.memory)
    dkeys = gkeys.clone() if gkeys.numel() else torch.zeros_like(result.keys)
    dh0, dc0 = torch.empty_like(a.h0), torch.empty_like(a.c0)
    blocks = torch.ops.lawful.sab_blocks_(a.x, result.h, result.memory)
    dscore = a.x.new_zeros(blocks, n)
    live = torch.zeros(a.x.shape[:2], dtype=torch.uint8)
    torch.ops.lawful.sab_backward_(
        *(t.contiguous() for t in a[:9]), marks.contiguous(), steps.contiguous(), result.h,
        result.s, result.memory, saved.exp, result.end, *saved[1:], gh, gs, ghn, gcn, dgates,
        dquery, dmemory, dkeys, dh0, dc0, dscore, live, k_top, flags, bound, carried, heads,
        saved.slots.shape[-1], margin, scale,
    )  # fmt: skip
    dx, dinput, dhidden, dbias, dq = _large_products(
        a, result, marks, dgates, dquery, live.flatten().nonzero()[:, 0], scale
    )
    new, made = dkeys[:, carried:].flatten(0, 1), result.memory[:, carried:].flatten(0, 1)
    return (
        dinput, dhidden, dbias, new.T @ made, dq, dscore.sum(0), dx, dh0, dc0,
        dmemory[:, :carried].clone(), dkeys[:, :carried].clone(),
    )  # fmt: skip


def _large_products(
    a: Arguments,
    out: Result,
    marks: Tensor,
    dgates: Tensor,
    dquery: Tensor,
    live: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Derivatives by x and the weights, from those steps (``live``) that carry any credit."""
    (batch, steps, d), n = a.x.shape, a.h0.shape[1]
    # [x, h before, 1], so that one pass over dgates gives all weights of the cell.
    joint = a.x.new_empty(batch, steps, d + n + 1)
    joint[..., :d] = a.x
    joint[:, 0, d:-1] = a.h0
    joint[:, 1:, d:-1] = out.h[:, :-1]
    joint[..., d:-1].masked_fill_(marks[1].bool()[..., None], 0)
    joint[..., -1] = 1
    raw = torch.sub(out.h, out.s, alpha=scale)
    dg, dq, joint, raw = (t.flatten(0, 1) for t in (dgates, dquery, joint, raw))
    few = len(live) < batch * steps
    if few:
        dg, dq, joint, raw = (t.index_select(0, live) for t in (dg, dq, joint, raw))
    dx = dg @ a.input
    if few:
        dx = torch.zeros_like(a.x).flatten(0, 1).index_copy_(0, live, dx)
    dweights = dg.T @ joint
    return (
        dx.view_as(a.x),
        dweights[:, :d].contiguous(),
        dweights[:, d:-1].contiguous(),
        dweights[:, -1].contiguous(),
        dq.T @ raw,
    )


def _backward_fake(grads: list[Tensor], inputs: list[Tensor], *rest: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(t) for t in inputs)


# No autograd is registered with the operators: `torch.library.custom_op` would, and `torch.func`
# cannot go through it.
_LIBRARY = torch.library.Library("lawful", "FRAGMENT")  # type: ignore[no-untyped-call]
for _name, _cpu, _fake in (
    ("sab_lstm", _forward_cpu, _forward_fake),
    ("sab_lstm_backward", _backward_cpu, _backward_fake),
):
    _LIBRARY.define(_name + torch.library.infer_schema(_cpu, mutates_args=()))  # type: ignore[no-untyped-call]
    _LIBRARY.impl(_name, _cpu, "CPU")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"lawful::{_name}", _fake, lib=_LIBRARY)


def forward(*args: Any) -> tuple[Tensor, ...]:
    return tuple(torch.ops.lawful.sab_lstm(*args))
