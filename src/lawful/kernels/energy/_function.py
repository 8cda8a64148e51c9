"""A whole descent as one differentiable operation: stacked matmuls forward, their mirror back."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lawful.kernels._native import Backend
from lawful.kernels.energy import reference
from lawful.kernels.energy._descent import Course, Fixed, Noise, Rule, descend
from lawful.kernels.energy._field import StackedField
from lawful.kernels.energy._plan import Params, Plan, part
from lawful.kernels.energy._sweep import Sweep

# Where the weights fit a core's cache beside them, samples are taken so many at a time that their
# pre-activations do too.
WEIGHT_BYTES = 1 << 20
CHUNK_BYTES = 3 << 19
CHUNK_ROWS = 128  # at least: a matmul of a few rows is slow


@dataclass(frozen=True)
class Run:
    """How one descent is to be run."""

    rule: Rule
    steps: int
    last: bool = False
    record: bool = False
    tolerance: float | None = None
    noise: Noise | None = None
    recompute: bool = False
    backend: Backend = "auto"


def settle(run: Run, plan: Plan, p: Params, x: Tensor) -> Course:
    """One descent without a derivative."""
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
        chunks = _chunks(run, p, x)
        parts = [_descend(run, plan, p, x, s, run.record, False) for s in chunks]
        return _join(parts, run.record)


def _descend(
    run: Run, plan: Plan, p: Params, x: Tensor, rows: slice, record: bool, keep: bool
) -> Course:
    p, rule = part(p, rows), run.rule.part(rows)
    field = StackedField(plan, p, run.backend, rule, keep)
    return descend(
        field,
        x[rows],
        rule,
        run.steps,
        last=run.last,
        tolerance=run.tolerance,
        noise=run.noise,
        record=record,
    )


def _chunks(run: Run, p: Params, x: Tensor) -> list[slice]:
    """Samples to take at a time; all at once when they could not be told apart afterwards."""
    whole = [slice(0, len(x))]
    row = x.shape[1] * len(p.weight) * x.element_size()
    small = p.weight.numel() * x.element_size() <= WEIGHT_BYTES
    if run.tolerance is not None or run.noise is not None or not small or row == 0:
        return whole
    size = max(1, CHUNK_BYTES // row)
    size = max(size, -(-CHUNK_ROWS // x.shape[1]))
    return [slice(i, min(i + size, len(x))) for i in range(0, len(x), size)] or whole


def _join(parts: list[Course], states: bool) -> Course:
    """The courses of chunks as one; their ``states`` only where they are wanted."""
    if len(parts) == 1:
        return parts[0]
    course = Course(torch.cat([c.x for c in parts]))
    if states:
        course.states = [torch.cat(s) for s in zip(*(c.states for c in parts), strict=True)]
    course.energies = [torch.cat(e) for e in zip(*(c.energies for c in parts), strict=True)]
    return course


def settle_with_grad(run: Run, plan: Plan, p: Params, x: Tensor) -> Course:
    """One descent that autograd can go back through.

    Step lengths other than a learned one are constants of the derivative.
    """
    alpha = run.rule.alpha if isinstance(run.rule, Fixed) else None
    learned = alpha if isinstance(alpha, Tensor) else None
    out = Descent.apply(run, plan, x, learned, *p)  # type: ignore[no-untyped-call]
    final, energies, path, _, change, taken = out[:6]
    course = Course(final, list(path), list(energies))
    course.change, course.taken = (change, taken) if run.tolerance is not None else (None, None)
    return course


class Descent(torch.autograd.Function):
    """The descent and its derivative.

    Inputs: run, plan, x (B, N, D), learned α or None, then the fields of `Params`.
    Outputs: final state, energies (T+1, B) or (0, B), the states after each step (S, B, N, D) when
    asked for; and, not differentiable, α of each step (S,) or (S, B), last change of g, steps
    taken, and for each chunk of samples the states between and what the readings kept.
    """

    @staticmethod
    def forward(run: Run, plan: Plan, x: Tensor, alpha: Tensor | None, *params: Any) -> Any:
        p, keep = Params(*params), not run.recompute
        run = run if alpha is None else replace(run, rule=Fixed(alpha))
        with torch.autocast(x.device.type, enabled=False):
            parts = [_descend(run, plan, p, x, s, True, keep) for s in _chunks(run, p, x)]
        one, whole = parts[0], _join(parts, run.record)
        empty = x.new_empty(0, len(x))
        energies = torch.stack(whole.energies) if run.last else empty
        path = torch.stack(whole.states) if run.record and whole.states else empty
        change = empty[:0] if one.change is None else one.change
        taken = empty[:0] if one.taken is None else one.taken
        # A descent of no steps must not return its input itself.
        final = whole.x if one.states else x.clone()
        saved = [t for c in parts for t in (*c.states[:-1], *(k for ks in c.kept for k in ks))]
        return (final, energies, path, _lengths(parts, x), change, taken, *saved)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.run, ctx.plan, *tensors = inputs
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[3:])
        alphas, saved = output[3], output[6:]
        ctx.save_for_backward(*tensors, output[0], alphas, *saved)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, alpha, *rest = ctx.saved_tensors
        count = len(Params._fields)
        p, (final, alphas, *saved) = Params(*rest[:count]), rest[count:]
        bars: list[Tensor | None] = [None] * (len(alphas) + 1)
        if grads[2] is not None:
            bars[1:] = list(grads[2])
        parts = [t for t in (bars[-1], grads[0]) if t is not None]
        bars[-1] = sum(parts[1:], parts[0]) if parts else None
        ebars = grads[1]
        if ebars is not None and len(ebars) > len(bars):  # it stopped early
            ebars = torch.cat([ebars[: len(alphas)], ebars[len(alphas) :].sum(0, keepdim=True)])
        if torch.is_grad_enabled():
            return (None, None, *_twice(ctx, p, x, alpha, alphas, bars, ebars))
        with torch.autocast(x.device.type, enabled=False):
            return (None, None, *_once(ctx, p, (x, alpha, final, alphas), saved, bars, ebars))

    @staticmethod
    def vmap(info: Any, in_dims: Any, run: Run, plan: Plan, *tensors: Any) -> Any:
        """Slice by slice: the batch axes of the operator itself are the fast way."""
        results = []
        for i in range(info.batch_size):
            picked = [
                t if d is None else t.select(d, i)
                for t, d in zip(tensors, in_dims[2:], strict=True)
            ]
            results.append(Descent.apply(run, plan, *picked))  # type: ignore[no-untyped-call]
        outputs = tuple(torch.stack(parts) for parts in zip(*results, strict=True))
        return outputs, tuple(0 for _ in outputs)


def _lengths(parts: list[Course], x: Tensor) -> Tensor:
    """Step lengths (S,), or (S, B) when each sample has its own."""
    rows = []
    for step in zip(*(c.alphas for c in parts), strict=True):
        each = [torch.as_tensor(a, dtype=x.dtype, device=x.device).detach() for a in step]
        rows.append(torch.cat(each) if each[0].dim() else each[0])
    return torch.stack(rows) if rows else x.new_empty(0)


def _once(
    ctx: Any,
    p: Params,
    about: tuple[Tensor, Tensor | None, Tensor, Tensor],
    saved: list[Tensor],
    bars: list[Tensor | None],
    ebars: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """The derivative by hand, chunk by chunk."""
    x, alpha, final, alphas = about
    sweep = Sweep(ctx.plan, p, alpha, ctx.needs_input_grad[4:], ctx.run.backend)
    chunks, starts = _chunks(ctx.run, p, x), []
    between = max(0, len(alphas) - 1)
    each = len(saved) // len(chunks)
    for i, rows in enumerate(chunks):
        mine = saved[i * each : (i + 1) * each]
        states = [x[rows], *mine[:between], *([final[rows]] if len(alphas) else [])]
        starts.append(
            sweep.run_back(
                rows,
                states,
                alphas if alphas.dim() < 2 else alphas[:, rows],
                mine[between:],
                [None if b is None else b[rows] for b in bars],
                None if ebars is None else ebars[:, rows],
            )
        )
    start = None if starts[0] is None else torch.cat([s for s in starts if s is not None])
    return (start, sweep.dalpha, *(sweep.sum.get(name) for name in Params._fields))


def _twice(
    ctx: Any,
    p: Params,
    x: Tensor,
    alpha: Tensor | None,
    alphas: Tensor,
    bars: list[Tensor | None],
    ebars: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """The derivative as a differentiable function, through the reference."""
    if ctx.run.noise is not None:
        raise RuntimeError("the second derivative of a noisy descent is not available")
    lengths = [alpha if alpha is not None else a.reshape(-1, 1, 1) for a in alphas]
    out = reference.descend(x, lengths, ctx.plan, p)
    states, energies = out[: len(lengths)], torch.stack(out[len(lengths) :])
    pairs = list(zip([x, *states], bars, strict=True))
    if ebars is not None:
        pairs.append((energies, ebars))
    kept = [(value, bar) for value, bar in pairs if bar is not None]
    inputs = (x, alpha, *p)
    need = ctx.needs_input_grad[2:]
    wanted = [t for t, w in zip(inputs, need, strict=True) if w and t is not None]
    found = iter(
        torch.autograd.grad(
            [v for v, _ in kept], wanted, [b for _, b in kept], create_graph=True, allow_unused=True
        )
    )
    return tuple(next(found) if w else None for w in need)
