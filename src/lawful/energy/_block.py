"""One energy and the descent in it."""

import math
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lawful.energy._attention import EnergyAttention
from lawful.energy._heads import Heads
from lawful.energy._hopfield import HopfieldNetwork
from lawful.energy._norm import EnergyLayerNorm
from lawful.energy._scene import Scene
from lawful.energy._terms import EnergyTerm
from lawful.errors import InputError, expected
from lawful.kernels import Backend
from lawful.kernels import energy as kernel
from lawful.kernels.energy import reference as ref
from lawful.kernels.energy._plan import EdgeForm

StepRule = Literal["fixed", "learned", "certified", "backtracking"]


class Block(nn.Module):
    """The parts of one energy, and how long the steps in it are."""

    attention: Heads

    def __init__(
        self,
        norm: EnergyLayerNorm,
        attention: Heads,
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

    def stacked(self) -> tuple[Tensor, Tensor | None]:
        """Queries over keys over memories (R, D), and offsets (R,).

        Memories are left out when they have no place in the stacked operator.
        """
        weight, bias = self.attention._rows()
        if not self.hopfield.fused:
            return weight, bias
        above, memories = len(weight), self.hopfield.memories
        weight = torch.cat([weight, memories])
        if bias is None and self.hopfield.bias is None:
            return weight, None
        parts = ((bias, above), (self.hopfield.bias, len(memories)))
        return weight, torch.cat([weight.new_zeros(n) if b is None else b for b, n in parts])

    def _plan(self, form: EdgeForm) -> kernel.Plan:
        attention, kind = self.attention, self.hopfield.activation
        return kernel.Plan(
            attention.heads,
            attention.head_dim,
            len(self.hopfield.memories) if self.hopfield.fused else 0,
            self.norm.eps,
            attention.self_attention,
            attention.causal,
            form,
            kind if isinstance(kind, str) else "none",
        )

    def _unbounded(self, step_size: float | None) -> kernel.Fixed | kernel.Backtracking:
        """The rules that need no bound on the curvature; ``step_size`` replaces the block's own."""
        if self.step_rule == "learned" and step_size is None:
            return kernel.Fixed(self.log_step_size.exp())
        alpha = self.step_size if step_size is None else step_size
        if self.step_rule == "backtracking":
            return kernel.Backtracking(alpha)
        return kernel.Fixed(alpha)


class EnergyBlock(Block):
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

    attention: EnergyAttention

    @property
    def fused(self) -> bool:
        """Whether the whole block is served by the stacked operator."""
        return self.hopfield.fused and not len(self.terms)

    def plan(self) -> kernel.Plan:
        """Constants of the stacked operator."""
        return self._plan(self.attention.adjacency_form)

    def params(self, at: Scene) -> kernel.Params:
        """Tensors of the stacked operator."""
        weight, bias = self.stacked()
        memory_beta = self.hopfield.beta if self.hopfield.fused else None
        rest = (at.edge, at.mask, at.allowed)
        return kernel.Params(
            weight, bias, self.norm.gamma, self.norm.delta, self.attention.beta, memory_beta, *rest
        )

    def rule(self, at: Scene, step_size: float | None) -> kernel.Rule:
        """How the steps' lengths are chosen; ``step_size`` replaces the block's own."""
        if self.step_rule != "certified":
            return self._unbounded(step_size)
        alpha = self.step_size if step_size is None else step_size
        gamma = self.norm.gamma.detach()
        return kernel.Certified(alpha, self.curvature(at), gamma, self.norm.eps)

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
        jolt = Noise(noise, at.mask, generator) if noise else None
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

    def spread(self, value: Tensor) -> Tensor:
        """A value of each sample (B,) to its tokens."""
        return value[:, None, None]

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


class Noise:
    """``sqrt(α) σ η`` for the real tokens, η standard normal."""

    def __init__(self, std: float, mask: Tensor | None, generator: torch.Generator | None) -> None:
        self.std, self.mask, self.generator = std, mask, generator

    def __call__(self, x: Tensor, alpha: Tensor | float) -> Tensor:
        eta = torch.empty_like(x).normal_(generator=self.generator) * self.std
        if self.mask is not None:
            eta = eta * self.mask[..., None]
        if not isinstance(alpha, Tensor):
            return eta * math.sqrt(alpha)
        return eta * (alpha.sqrt().reshape(-1, 1, 1) if alpha.dim() else alpha.sqrt())


class Blocks(nn.Module):
    """Blocks run one after another, their parts by name, and what all of them share."""

    blocks: nn.ModuleList
    steps: int
    step_size: float

    def reset_parameters(self) -> None:
        """Starts over."""
        for block in self._blocks():
            block.reset_parameters()

    def _blocks(self) -> list[Any]:
        return list(self.blocks)

    @property
    def norm(self) -> EnergyLayerNorm:
        """Layer norm of the first block."""
        return self._blocks()[0].norm  # type: ignore[no-any-return]

    @property
    def attention(self) -> Heads:
        """Attention of the first block."""
        return self._blocks()[0].attention  # type: ignore[no-any-return]

    @property
    def hopfield(self) -> HopfieldNetwork:
        """Memories of the first block."""
        return self._blocks()[0].hopfield  # type: ignore[no-any-return]

    def _cast(self, x: Any) -> Any:
        """Floating tokens in the parameters' type, where autocast brings them in another."""
        kind = self.norm.gamma.dtype
        if isinstance(x, Tensor) and x.is_floating_point() and x.dtype != kind:
            if not torch.is_autocast_enabled(x.device.type):
                raise expected("tokens", f"{kind}, the parameters' type", x.dtype)
            return x.to(kind)
        return x

    def extra_repr(self) -> str:
        """Shown by print."""
        first = self._blocks()[0]
        return f"steps={self.steps}, step_size={self.step_size}, step_rule={first.step_rule!r}"
