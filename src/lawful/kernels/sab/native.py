"""The compiled path: an LSTM with "mlp" scores over a whole sequence, and its derivative.

Two operators, opaque to `torch.compile`, allocate and call the C++ kernels; a `Function` joins
them. What the kernels do not serve goes to the reference, see `reasons`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from lawful.kernels.sab.config import SABConfig
from lawful.kernels.sab.schedule import Schedule

__all__ = ["Arguments", "Result", "reasons", "sab_lstm"]

LANES = 16  # the kernels want each head's width to be a multiple of it
_SMALL = {"shift": 0, "softmax": 1, "raw": 2}
_SLACK = 3  # places beyond k_top + 1 for what is tied with the threshold


def reasons(config: SABConfig) -> list[str]:
    """The options for which there is no compiled path; empty if there is one."""
    unsupported = {
        'score="dot" or "additive_release"': config.score != "mlp",
        'truncation="window"': config.truncation != "blocked",
        "hops": config.hops is not None,
        "mental_updates above 0": bool(config.mental_updates),
        "straight_through": config.straight_through,
        "storing by content": callable(config.k_att),
        'policy="uniform" or "saliency"': config.max_memories is not None
        and config.policy != "last",
    }
    return [name for name, is_so in unsupported.items() if is_so]


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


def pad(x: Tensor, heads: int, dims: Sequence[int]) -> Tensor:
    """Zeros after each head's slice of these dimensions, up to a multiple of `LANES`.

    A padded unit has zero weights all round, stays at zero, and changes nothing.
    """
    for dim in dims:
        width = x.shape[dim] // heads
        extra = -width % LANES
        if extra:
            split = x.unflatten(dim, (heads, width)).movedim(dim + 1, -1)  # type: ignore[no-untyped-call]
            x = F.pad(split, (0, extra)).movedim(-1, dim + 1).flatten(dim, dim + 1)
    return x


def unpad(x: Tensor, heads: int, width: int) -> Tensor:
    """Undoes `pad` on the last dimension; ``width`` is the true one."""
    if x.shape[-1] == width:
        return x
    split: Tensor = x.unflatten(-1, (heads, -1))  # type: ignore[no-untyped-call]
    return split[..., : width // heads].flatten(-2)


def sab_lstm(
    inputs: Arguments, counts: Tensor, stamps: Tensor, plan: Schedule, config: SABConfig
) -> Result:
    """Runs T steps with the compiled kernels; same meaning as the reference.

    Args:
        inputs: See `Arguments`.
        counts: (B,) memories that each row carries in.
        stamps: (B, R) when those were stored.
        plan: The schedule.
        config: Options for which `reasons` is empty.
    """
    memory, keys, stamps = (_align_end(t, counts) for t in (inputs.memory, inputs.keys, stamps))
    inputs = inputs._replace(memory=memory, keys=keys)
    marks = torch.stack([plan.active, plan.reset, plan.cut, plan.store]).to(torch.uint8)
    rules = _rules(config)
    wants = torch.is_grad_enabled() and any(t.requires_grad for t in inputs)
    if wants:
        out = _SABLSTM.apply(*inputs, counts, stamps, marks, plan.steps, rules)  # type: ignore[no-untyped-call]
    else:
        out = _forward(*inputs, counts, stamps, marks, plan.steps, *rules, False)
    return Result(*out[: len(Result._fields)])


def _align_end(carried: Tensor, counts: Tensor) -> Tensor:
    """Moves each row's first ``counts[b]`` of (B, R, ...) to the end, where the log goes on."""
    size = carried.shape[1]
    if size == 0 or (not torch.compiler.is_compiling() and bool((counts == size).all())):
        return carried
    index = (torch.arange(size, device=counts.device) + counts[:, None]) % size
    return carried.gather(
        1, index.view(*index.shape, *[1] * (carried.dim() - 2)).expand_as(carried)
    )


class _Rules(NamedTuple):
    k_top: int
    k_att: int
    flags: int
    bound: int
    heads: int
    margin: float
    scale: float


def _rules(config: SABConfig) -> _Rules:
    flags = (
        (config.threshold == "k+1")
        | (config.normaliser == "softmax") << 1
        | _SMALL[config.small_memory] << 2
        | (config.score_grad == "full") << 4
        | (config.mental_updates != 0) << 5
    )
    period = config.k_att if isinstance(config.k_att, int) else 1
    bound = config.max_memories or 0
    scale = config.recall_scale
    return _Rules(config.k_top, period, flags, bound, config.heads, config.margin, scale)


def _shapes(x: Tensor, memory: Tensor, rules: _Rules) -> tuple[int, int]:
    """Slots S of the log, and places K for selected memories."""
    slots = memory.shape[1] + (x.shape[1] + rules.k_att - 1) // rules.k_att
    return slots, rules.k_top + 1 + _SLACK


def _allocate(
    x: Tensor, h0: Tensor, memory: Tensor, rules: _Rules, save: bool
) -> tuple[Result, _Saved]:
    (batch, steps, _), n, heads = x.shape, h0.shape[1], rules.heads
    slots, places = _shapes(x, memory, rules)
    kept = (batch, steps) if save else (0, 0)
    whole = {"dtype": torch.int64}
    result = Result(
        h=x.new_empty(batch, steps, n),
        s=x.new_empty(batch, steps, n),
        hn=x.new_empty(batch, n),
        cn=x.new_empty(batch, n),
        memory=x.new_zeros(batch, slots, n),
        keys=x.new_zeros(batch, slots, n),
        stamps=x.new_full((batch, slots), -1, **whole),  # type: ignore[arg-type]
        begin=x.new_zeros(batch, **whole),  # type: ignore[arg-type]
        end=x.new_zeros(batch, **whole),  # type: ignore[arg-type]
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


@torch.library.custom_op("lawful::sab_lstm", mutates_args=(), device_types="cpu")
def _forward(
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
    rules = _Rules(k_top, k_att, flags, bound, heads, margin, scale)
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


@_forward.register_fake
def _(
    input, hidden, bias, key, query, score, x, h0, c0, memory, keys, counts, stamps, marks, steps,  # noqa: A002
    k_top, k_att, flags, bound, heads, margin, scale, save,
):  # type: ignore[no-untyped-def]  # fmt: skip
    rules = _Rules(k_top, k_att, flags, bound, heads, margin, scale)
    out, saved = _allocate(x, h0, memory, rules, save)
    return (*out, *saved)


_Eleven = tuple[
    Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor
]


@torch.library.custom_op("lawful::sab_lstm_backward", mutates_args=(), device_types="cpu")
def _backward(
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
    dgates, dquery = torch.zeros_like(saved.gates), torch.zeros_like(saved.cells)
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
    dinput, dhidden, dbias, dq = _weight_gradients(a, result, marks, dgates, dquery, live, scale)
    new, made = dkeys[:, carried:].flatten(0, 1), result.memory[:, carried:].flatten(0, 1)
    return (
        dinput, dhidden, dbias, new.T @ made, dq, dscore.sum(0), dgates @ a.input, dh0, dc0,
        dmemory[:, :carried].clone(), dkeys[:, :carried].clone(),
    )  # fmt: skip


def _weight_gradients(
    a: Arguments,
    out: Result,
    marks: Tensor,
    dgates: Tensor,
    dquery: Tensor,
    live: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sums over all steps in large products; over the live ones only, if those are few."""
    before = torch.cat([a.h0[:, None], out.h[:, :-1]], 1)
    before.masked_fill_(marks[1].bool()[..., None], 0)
    raw = torch.sub(out.h, out.s, alpha=scale)
    many = [t.flatten(0, 1) for t in (dgates, dquery, a.x, before, raw)]
    chosen = live.flatten().nonzero()[:, 0]
    if len(chosen) < live.numel() // 2:
        many = [t.index_select(0, chosen) for t in many]
    dg, dq, x, before, raw = many
    return dg.T @ x, dg.T @ before, dg.sum(0), dq.T @ raw


@_backward.register_fake
def _(grads, inputs, marks, steps, out, *rules):  # type: ignore[no-untyped-def]
    return tuple(torch.empty_like(t) for t in inputs)


class _SABLSTM(torch.autograd.Function):
    @staticmethod
    def forward(*args: Any) -> Any:  # type: ignore[override]
        return _forward(*args[:-1], *args[-1], True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *_, marks, steps, rules = inputs
        ctx.rules = rules
        ctx.mark_non_differentiable(*output[6:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:11], marks, steps, *output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        saved = ctx.saved_tensors
        inputs, (marks, steps), output = saved[:11], saved[11:13], saved[13:]
        none = inputs[0].new_empty(0)
        given = [none if g is None else g for g in grads[:6]]
        back = _backward(given, list(inputs), marks, steps, list(output), *ctx.rules)
        return (*back, None, None, None, None, None)
