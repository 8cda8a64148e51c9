"""The compiled path: an LSTM with "mlp" scores over a whole sequence, and its derivative.

Two operators, opaque to `torch.compile`, allocate and call the C++ kernels; a `Function` joins
them. What the kernels do not serve goes to the reference, see `reasons`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from lawful.kernels.sab._ops import Arguments, Result, Rules, forward
from lawful.kernels.sab.config import SABConfig
from lawful.kernels.sab.schedule import Schedule

__all__ = ["Arguments", "Result", "reasons", "sab_lstm"]

LANES = 16  # the kernels want each head's width to be a multiple of it
_SMALL = {"shift": 0, "softmax": 1, "raw": 2}


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
        out = forward(*inputs, counts, stamps, marks, plan.steps, *rules, False)
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


def _rules(config: SABConfig) -> Rules:
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
    return Rules(config.k_top, period, flags, bound, config.heads, config.margin, scale)


class _SABLSTM(torch.autograd.Function):
    @staticmethod
    def forward(*args: Any) -> Any:
        return forward(*args[:-1], *args[-1], True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *_, marks, steps, rules = inputs
        ctx.rules = rules
        ctx.mark_non_differentiable(*output[6:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:11], marks, steps, *output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        saved = ctx.saved_tensors
        inputs, (marks, steps), output = saved[:11], saved[11:13], saved[13:]
        none = inputs[0].new_empty(0)
        given = [none if g is None else g for g in grads[:6]]
        back = torch.ops.lawful.sab_lstm_backward(
            given, list(inputs), marks, steps, list(output), *ctx.rules
        )
        return (*back, None, None, None, None, None)
