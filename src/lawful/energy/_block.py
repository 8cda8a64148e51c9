"""One energy and the descent in it."""

import math
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lawful.energy._attention import EnergyAttention
from lawful.energy._hopfield import HopfieldNetwork
from lawful.energy._norm import EnergyLayerNorm
from lawful.energy._scene import Scene
from lawful.energy._terms import EnergyTerm
from lawful.errors import InputError, expected
from lawful.kernels import Backend
from lawful.kernels import energy as kernel
from lawful.kernels.energy import reference as ref

StepRule = Literal["fixed", "learned", "certified", "backtracking"]


class EnergyBlock(nn.Module):
    """Layer norm, attention, memories and any further terms: one energy, and descents in it.

    `EnergyTransformer` is made of these; use a block itself to put parts together by hand.

    Args:
        norm: Activation function of the tokens.
        attention: Energy that couples tokens.
        hopfield: Energy of each token alone.
        terms: Further energies, added to the two.
        step_rule: "fixed", "learned", "certified" or "backtracking"; see `EnergyTransformer`.
        step_size: α > 0; where a learned one starts; the longest step of a guaranteed rule.
    """

    def __init__(
        self,
        norm: EnergyLayerNorm,
        attention: EnergyAttention,
        hopfield: HopfieldNetwork,
        terms: Iterable[EnergyTerm] = (),
        *,
        step_rule: StepRule = "fixed",
        step_size: float = 0.1,
    ) -> None:
        super().__init__()
        self.norm, self.attention, self.hopfield = norm, attention, hopfield
        self.terms = nn.ModuleList(terms)
        for term in self.terms:
            if not isinstance(term, EnergyTerm):
                raise expected("terms", "EnergyTerm modules", type(term).__name__)
        self.step_rule, self.step_size = step_rule, step_size
        if step_rule == "learned":
            like: dict[str, Any] = {"device": norm.gamma.device, "dtype": norm.gamma.dtype}
            self.log_step_size = nn.Parameter(torch.tensor(math.log(step_size), **like))
        if step_rule in ("certified", "backtracking") and attention.causal:
            why = "each token descends its own energy, which is not one that can be guaranteed"
            raise expected("step_rule", '"fixed" or "learned" with causal', repr(step_rule), why)

    def reset_parameters(self) -> None:
        """Starts over."""
        for part in (self.norm, self.attention, self.hopfield, *self.terms):
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()
        if self.step_rule == "learned":
            nn.init.constant_(self.log_step_size, math.log(self.step_size))

    @property
    def fused(self) -> bool:
        """Whether the whole block is served by the stacked operator."""
        return self.hopfield.fused and not len(self.terms)

    def plan(self) -> kernel.Plan:
        """Constants of the stacked operator."""
        attention, kind = self.attention, self.hopfield.activation
        return kernel.Plan(
            attention.heads,
            attention.head_dim,
            len(self.hopfield.memories) if self.hopfield.fused else 0,
            self.norm.eps,
            attention.self_attention,
            attention.causal,
            attention.adjacency_form,
            kind if isinstance(kind, str) else "none",
        )

    def params(self, at: Scene) -> kernel.Params:
        """Tensors of the stacked operator; memories are left out when they have no place there."""
        weight, bias = self.attention._rows()
        if self.hopfield.fused:
            weight = torch.cat([weight, self.hopfield.memories])
            if bias is not None or self.hopfield.bias is not None:
                parts = (
                    (bias, weight.shape[0] - len(self.hopfield.memories)),
                    (
                        self.hopfield.bias,
                        len(self.hopfield.memories),
                    ),
                )
                bias = torch.cat([weight.new_zeros(n) if b is None else b for b, n in parts])
        memory_beta = self.hopfield.beta if self.hopfield.fused else None
        rest = (at.edge, at.mask, at.allowed)
        return kernel.Params(
            weight, bias, self.norm.gamma, self.norm.delta, self.attention.beta, memory_beta, *rest
        )

    def rule(self, at: Scene, step_size: float | None) -> kernel.Rule:
        """How the steps' lengths are chosen; ``step_size`` replaces the block's own."""
        if self.step_rule == "learned" and step_size is None:
            return kernel.Fixed(self.log_step_size.exp())
        alpha = self.step_size if step_size is None else step_size
        if self.step_rule == "certified":
            return kernel.Certified(
                alpha, self.curvature(at), self.norm.gamma.detach(), self.norm.eps
            )
        if self.step_rule == "backtracking":
            return kernel.Backtracking(alpha)
        return kernel.Fixed(alpha)

    @torch.no_grad()
    def curvature(self, at: Scene) -> Tensor:
        """Bound on the positive curvature of the whole energy, for each sample (B,)."""
        total = self.attention._curvature(at).reshape(-1)
        for term in self.terms:
            bound = term.curvature(at.x, at.mask)  # type: ignore[operator]
            if bound is None:
                raise InputError(
                    f"step_rule: {type(term).__name__} states no bound on its curvature, so no "
                    'step can be certified; use step_rule="backtracking", or define curvature()'
                )
            total = total + bound.clamp(min=0)
        return total

    def descend(
        self,
        at: Scene,
        steps: int,
        *,
        step_size: float | None = None,
        last: bool = False,
        record: bool = False,
        tolerance: float | None = None,
        noise: float = 0.0,
        generator: torch.Generator | None = None,
        recompute: bool = False,
        backend: Backend = "auto",
    ) -> kernel.Course:
        """Runs a descent from ``at``; see `EnergyTransformer.settle` for the options."""
        rule = self.rule(at, step_size)
        jolt = _Noise(noise, at.mask, generator) if noise else None
        p = self.params(at)
        run = kernel.Run(rule, steps, last, record, tolerance, jolt, recompute, backend)
        alpha = rule.alpha if isinstance(rule, kernel.Fixed) else None
        noisy_learned = jolt is not None and isinstance(alpha, Tensor)
        if not self.fused or torch.compiler.is_compiling() or noisy_learned:
            field = SummedField(self, self.plan(), p, at, recompute)
            return kernel.descend(
                field, at.x, rule, steps, last=last, tolerance=tolerance, noise=jolt, record=record
            )
        inputs = (at.x, alpha, *p)
        tracked = any(isinstance(t, Tensor) and t.requires_grad for t in inputs)
        transformed = torch._C._are_functorch_transforms_active()
        if transformed or (tracked and torch.is_grad_enabled()):
            return kernel.settle_with_grad(run, self.plan(), p, at.x)
        return kernel.settle(run, self.plan(), p, at.x)


class SummedField:
    """Readings as the sum of the terms' own energies and updates, under plain autograd."""

    def __init__(
        self, block: EnergyBlock, plan: kernel.Plan, p: kernel.Params, at: Scene, recompute: bool
    ) -> None:
        """``recompute``: readings keep nothing for the derivative but the state."""
        self.block, self.plan, self.p, self.at, self.recompute = block, plan, p, at, recompute

    def read(self, x: Tensor) -> kernel.Reading:
        """Energy and update at ``LN(x)``."""
        if self.recompute and torch.is_grad_enabled():
            parts = checkpoint(self._read, x, use_reentrant=False)
        else:
            parts = self._read(x)
        return kernel.Reading(*parts)

    def _read(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        g = self.block.norm(x)
        energy, update = ref.energy_and_update(g, self.plan, self.p)
        mask = self.at.mask
        if not self.block.hopfield.fused:
            more, pull = self.block.hopfield.read(g, mask)
            energy, update = energy + more, update + pull
        for term in self.block.terms:
            energy = energy + term.energy(g, mask)  # type: ignore[operator]
            pull = term.update(g, mask)  # type: ignore[operator]
            update = update + (pull if mask is None else pull.masked_fill(~mask[..., None], 0.0))
        return g, energy, update

    def update(self, reading: kernel.Reading) -> Tensor:
        """``-∂E/∂g`` (B, N, D)."""
        return reading.push

    def move(self, x: Tensor, reading: kernel.Reading, alpha: Tensor | float) -> Tensor:
        """``x + α · update``."""
        length = alpha.reshape(-1, 1, 1) if isinstance(alpha, Tensor) else alpha
        return x + length * reading.push

    def take(self, reading: kernel.Reading, other: kernel.Reading, which: Tensor) -> kernel.Reading:
        """``other`` where ``which`` (B,) holds, else ``reading``."""
        one, three = which, which[:, None, None]
        return kernel.Reading(
            torch.where(three, other.g, reading.g),
            torch.where(one, other.energy, reading.energy),
            torch.where(three, other.push, reading.push),
        )


class _Noise:
    """``sqrt(α) σ η`` for the real tokens, η standard normal."""

    def __init__(self, std: float, mask: Tensor | None, generator: torch.Generator | None) -> None:
        self.std, self.mask, self.generator = std, mask, generator

    def __call__(self, x: Tensor, alpha: Tensor | float) -> Tensor:
        eta = torch.empty_like(x).normal_(generator=self.generator) * self.std
        if self.mask is not None:
            eta = eta * self.mask[..., None]
        if isinstance(alpha, Tensor):
            return eta * alpha.sqrt().reshape(-1, 1, 1)
        return eta * math.sqrt(alpha)
