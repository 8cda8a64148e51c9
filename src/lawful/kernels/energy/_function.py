"""A whole descent as one differentiable operation: stacked matmuls forward, their mirror back."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lawful.kernels._native import Backend
from lawful.kernels.energy import reference
from lawful.kernels.energy._descent import Course, Fixed, Noise, Reading, Rule, descend
from lawful.kernels.energy._ops import pull, push
from lawful.kernels.energy._plan import Params, Plan


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


class StackedField:
    """Readings by two matmuls with one stacked matrix; see README.md."""

    def __init__(self, plan: Plan, p: Params, run: Run, keep: bool) -> None:
        """``keep``: readings keep their pre-activations for the derivative."""
        self.plan, self.p, self.backend, self.keep = plan, p, run.backend, keep
        self.gain = p.gamma.expand(p.delta.shape).contiguous()
        # A rule that compares readings needs each to own its memory; else one buffer serves all.
        self.share = isinstance(run.rule, Fixed) or not hasattr(run.rule, "_start")
        self.scratch: Tensor | None = None

    def norm(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """g, and the mean and reciprocal deviation of each token."""
        shape = self.p.delta.shape
        return torch.native_layer_norm(x, shape, self.gain, self.p.delta, self.plan.eps)

    def project(self, g: Tensor, out: Tensor | None = None) -> Tensor:
        """Pre-activations ``g Wᵀ + b`` (B, N, R)."""
        w, flat = self.p.weight, g.flatten(0, 1)
        z = flat.new_empty(len(flat), len(w)) if out is None else out.view(len(flat), len(w))
        if self.p.bias is None:
            torch.mm(flat, w.t(), out=z)
        else:
            torch.addmm(self.p.bias, flat, w.t(), out=z)
        return z.view(*g.shape[:2], len(w))

    def _buffer(self, x: Tensor) -> Tensor:
        if self.scratch is None or not self.share:
            self.scratch = x.new_empty(*x.shape[:2], len(self.p.weight))
        return self.scratch

    def read(self, x: Tensor) -> Reading:
        """Energy and activations at ``LN(x)``."""
        g = self.norm(x)[0]
        z = self.project(g, None if self.keep else self._buffer(x))
        out = self._buffer(x) if self.keep else z
        energy, lse = push(self.plan, self.p, z, out, self.backend)
        return Reading(g, energy, out, (z, lse) if self.keep else ())

    def update(self, reading: Reading) -> Tensor:
        """``-∂E/∂g`` (B, N, D)."""
        return reading.push @ self.p.weight

    def move(self, x: Tensor, reading: Reading, alpha: Tensor | float) -> Tensor:
        """``x + α · update``."""
        if isinstance(alpha, Tensor):
            return x + alpha.reshape(-1, 1, 1) * self.update(reading)
        flat = torch.addmm(x.flatten(0, 1), reading.push.flatten(0, 1), self.p.weight, alpha=alpha)
        return flat.view(x.shape)

    def take(self, reading: Reading, other: Reading, which: Tensor) -> Reading:
        """``other`` where ``which`` (B,) holds, else ``reading``."""
        if bool(which.all()):
            return other
        pick = [
            torch.where(which.view(-1, *[1] * (a.dim() - 1)), b, a)
            for a, b in zip((*reading[:3], *reading.kept), (*other[:3], *other.kept), strict=True)
        ]
        return Reading(pick[0], pick[1], pick[2], tuple(pick[3:]))


def settle(run: Run, plan: Plan, p: Params, x: Tensor) -> Course:
    """One descent without a derivative."""
    with torch.no_grad():
        return descend(
            StackedField(plan, p, run, keep=False),
            x,
            run.rule,
            run.steps,
            last=run.last,
            tolerance=run.tolerance,
            noise=run.noise,
            record=run.record,
        )


def settle_with_grad(run: Run, plan: Plan, p: Params, x: Tensor) -> Course:
    """One descent that autograd can go back through.

    Step lengths other than a learned one are constants of the derivative.
    """
    alpha = run.rule.alpha if isinstance(run.rule, Fixed) else None
    learned = alpha if isinstance(alpha, Tensor) else None
    out = Descent.apply(run, plan, x, learned, *p)  # type: ignore[no-untyped-call]
    x_last, energies, alphas, change, taken = out[:5]
    states = [*out[5 : 5 + max(0, len(alphas) - 1)]] + ([x_last] if len(alphas) else [])
    course = Course(x_last, states, list(energies), list(alphas))
    course.change, course.taken = (change, taken) if run.tolerance is not None else (None, None)
    return course


class Descent(torch.autograd.Function):
    """The descent and its derivative.

    Inputs: run, plan, x (B, N, D), learned α or None, then the fields of `Params`.
    Outputs: final state, energies (T+1, B) or (0, B), α of each step, change, steps taken, the
    states between, and (not differentiable) what the readings kept.
    """

    @staticmethod
    def forward(run: Run, plan: Plan, x: Tensor, alpha: Tensor | None, *params: Any) -> Any:
        p = Params(*params)
        with torch.autocast(x.device.type, enabled=False):
            course = descend(
                StackedField(plan, p, run, keep=not run.recompute),
                x,
                run.rule if alpha is None else Fixed(alpha),
                run.steps,
                last=run.last,
                tolerance=run.tolerance,
                noise=run.noise,
                record=True,
            )
        rows = [torch.as_tensor(a, dtype=x.dtype, device=x.device) for a in course.alphas]
        empty = x.new_empty(0, len(x))
        energies = torch.stack(course.energies) if run.last else empty
        alphas = torch.stack(rows) if rows else empty
        change = empty[:0] if course.change is None else course.change
        taken = empty[:0] if course.taken is None else course.taken
        # A descent of no steps must not return its input itself.
        final = course.x if course.states else x.clone()
        kept = [t for k in course.kept for t in k]
        return (final, energies, alphas, change, taken, *course.states[:-1], *kept)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.run, ctx.plan, *tensors = inputs
        ctx.set_materialize_grads(False)
        final, _, alphas, change, taken, *rest = output
        ctx.steps = len(alphas)
        between = max(0, ctx.steps - 1)
        ctx.mark_non_differentiable(alphas, change, taken, *rest[between:])
        ctx.save_for_backward(*tensors, alphas, final, *rest)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, alpha, *rest = ctx.saved_tensors
        count = len(Params._fields)
        p, alphas, final, tail = (
            Params(*rest[:count]),
            rest[count],
            rest[count + 1],
            rest[count + 2 :],
        )
        between = max(0, ctx.steps - 1)
        states = [x, *tail[:between], *([final] if ctx.steps else [])]
        bars = [None, *grads[5 : 5 + between], grads[0]] if ctx.steps else [grads[0]]
        if torch.is_grad_enabled():
            found = _twice(ctx, p, x, alpha, alphas, bars, grads[1])
        else:
            with torch.autocast(x.device.type, enabled=False):
                need = (ctx.needs_input_grad[2], *ctx.needs_input_grad[3:])
                sweep = Sweep(ctx.run, ctx.plan, p, alpha, need)
                found = sweep.run_back(states, alphas, tail[between:], bars, grads[1])
        return (None, None, *found)

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
        pairs.append(
            (torch.cat([energies, energies[-1:].expand(len(ebars) - len(energies), -1)]), ebars)
        )
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


class Sweep:
    """The backward pass: from the last state to the first, one Hessian-vector product a step."""

    def __init__(
        self, run: Run, plan: Plan, p: Params, alpha: Tensor | None, need: tuple[bool, ...]
    ) -> None:
        """``need``: which of x, α and the fields of `Params` want a derivative."""
        self.run, self.plan, self.p, self.alpha = run, plan, p, alpha
        self.field = StackedField(plan, p, run, keep=False)
        wanted = zip(p._asdict().items(), need[2:], strict=True)
        self.sum = {name: torch.zeros_like(t) for (name, t), w in wanted if w and t is not None}
        self.dalpha = torch.zeros_like(alpha) if alpha is not None else None
        self.pair: Tensor | None = None

    def run_back(
        self,
        states: list[Tensor],
        alphas: Tensor,
        kept: list[Tensor],
        bars: list[Tensor | None],
        ebars: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        """Derivatives of x, α and the fields of `Params`."""
        steps = len(states) - 1
        bar = bars[steps]
        if ebars is not None and len(ebars) > steps + 1:
            ebars = torch.cat([ebars[:steps], ebars[steps:].sum(0, keepdim=True)])
        for t in range(steps, -1, -1):
            e = None if ebars is None else ebars[t]
            a = None if t == steps or bar is None else alphas[t]
            parts = [bar, bars[t] if t < steps else None]
            if a is not None or e is not None:
                saved = kept[2 * t : 2 * t + 2] if kept else []
                parts.append(self._step(states[t], a, bar, e, saved))
            found = [part for part in parts if part is not None]
            bar = sum(found[1:], found[0]) if found else None
        summed = [self.sum.get(name) for name in Params._fields]
        return (bar, self.dalpha, *summed)

    def _step(
        self, x: Tensor, a: Tensor | None, bar: Tensor | None, e: Tensor | None, saved: list[Tensor]
    ) -> Tensor:
        """Adds one reading's part to the sums; returns its derivative with respect to x."""
        p, plan = self.p, self.plan
        g, mean, rstd = self.field.norm(x)
        if self.pair is None:
            self.pair = x.new_empty(2, *x.shape[:2], len(p.weight))
        if saved:
            z, lse = saved
        else:
            z = self.field.project(g)
            lse = push(plan, p, z, self.pair[1], self.run.backend)[1]
        v = torch.zeros_like(x) if a is None or bar is None else a.reshape(-1, 1, 1) * bar
        c = (v.flatten(0, 1) @ p.weight.t()).view(z.shape)
        dz, act = self.pair[0], self.pair[1]
        found = pull(plan, p, z, c, lse, e, (dz, act), "edge" in self.sum, self.run.backend)
        if self.dalpha is not None and a is not None:
            self.dalpha += ((c * act).sum() / a).to(self.dalpha.dtype)
        self._add(beta=found.beta, memory_beta=found.memory_beta, edge=found.edge)
        if "bias" in self.sum and p.bias is not None:
            self._add(bias=dz.sum((0, 1)))
        weight = self.sum.get("weight")
        if weight is not None:
            both = torch.stack((g, v)).flatten(0, 2)
            weight.addmm_(self.pair.flatten(0, 2).t(), both)
        dg = (dz.flatten(0, 1) @ p.weight).view(x.shape)
        dx, dgain, ddelta = torch.ops.aten.native_layer_norm_backward(
            dg, x, p.delta.shape, mean, rstd, self.field.gain, p.delta, [True, True, True]
        )
        self._add(gamma=dgain.sum(), delta=ddelta)
        return dx  # type: ignore[no-any-return]

    def _add(self, **parts: Tensor | None) -> None:
        for name, part in parts.items():
            total = self.sum.get(name)
            if total is not None and part is not None:
                total += part.to(total.dtype)
