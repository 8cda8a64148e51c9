"""Readings of a block by two matmuls with one stacked matrix; see README.md."""

import torch
from torch import Tensor

from lawful.kernels._native import Backend
from lawful.kernels.energy._descent import Backtracking, Reading, Rule
from lawful.kernels.energy._ops import push
from lawful.kernels.energy._plan import Params, Plan


class StackedField:
    """Takes readings of an energy and moves states along its negative gradient."""

    def __init__(
        self, plan: Plan, p: Params, backend: Backend, rule: Rule | None = None, keep: bool = False
    ) -> None:
        """``keep``: readings keep their pre-activations for the derivative."""
        self.plan, self.p, self.backend, self.keep = plan, p, backend, keep
        self.gain = p.gamma.expand(p.delta.shape).contiguous()
        # A rule that compares readings needs each to own its memory; else one buffer serves all.
        self.share = not isinstance(rule, Backtracking)
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
        energy = push(self.plan, self.p, z, out, self.backend)
        return Reading(g, energy, out, (z,) if self.keep else ())

    def update(self, reading: Reading) -> Tensor:
        """``-∂E/∂g`` (B, N, D)."""
        return reading.push @ self.p.weight

    def spread(self, value: Tensor) -> Tensor:
        """A value of each sample (B,) to its tokens."""
        return value[:, None, None]

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
