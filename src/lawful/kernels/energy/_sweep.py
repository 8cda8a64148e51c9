"""The backward pass of a descent: one Hessian-vector product a step."""

import torch
from torch import Tensor

from lawful.kernels._native import Backend
from lawful.kernels.energy._field import StackedField
from lawful.kernels.energy._ops import pull
from lawful.kernels.energy._plan import Params, Plan, part


class Sweep:
    """Goes back through the steps of a descent and sums up the derivatives of its constants."""

    def __init__(
        self,
        plan: Plan,
        p: Params,
        alpha: Tensor | None,
        need: tuple[bool, ...],
        backend: Backend,
    ) -> None:
        """``need``: which of the fields of `Params` want a derivative."""
        self.plan, self.whole, self.backend = plan, p, backend
        wanted = zip(p._asdict().items(), need, strict=True)
        self.sum = {name: torch.zeros_like(t) for (name, t), w in wanted if w and t is not None}
        self.dalpha = torch.zeros_like(alpha) if alpha is not None else None
        self.pair: Tensor | None = None

    def run_back(
        self,
        rows: slice,
        states: list[Tensor],
        alphas: Tensor,
        kept: list[Tensor],
        bars: list[Tensor | None],
        ebars: Tensor | None,
    ) -> Tensor | None:
        """Derivative of the start of the samples ``rows``.

        Args:
            rows: Which samples; all else is about these alone.
            states: x_0 to x_S.
            alphas: Step lengths (S,) or (S, rows).
            kept: Pre-activations at each reading, or nothing.
            bars: Cotangents of the states.
            ebars: Cotangents of the energies (S+1, rows).
        """
        self.p, self.rows = part(self.whole, rows), rows
        self.field = StackedField(self.plan, self.p, self.backend)
        steps = len(states) - 1
        bar = bars[steps]
        for t in range(steps, -1, -1):
            e = None if ebars is None else ebars[t]
            a = None if t == steps or bar is None else alphas[t]
            parts = [bar, bars[t] if t < steps else None]
            if a is not None or e is not None:
                saved = kept[t] if kept else None
                parts.append(self._step(states[t], a, bar, e, saved))
            found = [part for part in parts if part is not None]
            bar = sum(found[1:], found[0]) if found else None
        return bar

    def _step(
        self,
        x: Tensor,
        a: Tensor | None,
        bar: Tensor | None,
        e: Tensor | None,
        saved: Tensor | None,
    ) -> Tensor:
        """Adds one reading's part to the sums; returns its derivative with respect to x."""
        p, plan = self.p, self.plan
        g, mean, rstd = self.field.norm(x)
        if self.pair is None or self.pair.shape[1:3] != x.shape[:2]:
            self.pair = x.new_empty(2, *x.shape[:2], len(p.weight))
        dz, act = self.pair[0], self.pair[1]
        z = self.field.project(g) if saved is None else saved
        v = torch.zeros_like(x) if a is None or bar is None else a.reshape(-1, 1, 1) * bar
        c = (v.flatten(0, 1) @ p.weight.t()).view(z.shape)
        found = pull(plan, p, z, c, e, (dz, act), "edge" in self.sum, self.backend)
        if self.dalpha is not None and a is not None:
            self.dalpha += ((c * act).sum() / a).to(self.dalpha.dtype)
        self._add(beta=found.beta, memory_beta=found.memory_beta)
        if found.edge is not None:
            total = self.sum["edge"]
            total[self.rows if len(total) > 1 else slice(None)] += found.edge
        if "bias" in self.sum:
            self._add(bias=dz.sum((0, 1)))
        if "weight" in self.sum:
            both = torch.stack((g, v)).flatten(0, 2)
            self.sum["weight"].addmm_(self.pair.flatten(0, 2).t(), both)
        dg = (dz.flatten(0, 1) @ p.weight).view(x.shape)
        dx, dgain, ddelta = torch.ops.aten.native_layer_norm_backward(
            dg, x, p.delta.shape, mean, rstd, self.field.gain, p.delta, [True, True, True]
        )
        self._add(gamma=dgain.sum(), delta=ddelta)
        return dx  # type: ignore[no-any-return]

    def _add(self, **parts: Tensor | None) -> None:
        for name, value in parts.items():
            if name in self.sum and value is not None:
                self.sum[name] += value.to(self.sum[name].dtype)
