"""Memories that tokens are drawn to."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from lawful.energy._checks import count, positive, tokens
from lawful.energy._terms import EnergyTerm
from lawful.errors import expected
from lawful.kernels.energy import Params, Plan
from lawful.kernels.energy import reference as ref


class ConvexPotential(NamedTuple):
    """A convex scalar function G and its derivative, both applied elementwise to a tensor."""

    potential: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]


class HopfieldNetwork(EnergyTerm):
    """A dense associative memory on each token.

    With the pre-activations ``h = Ξ g + b``:

    - "relu": ``E = -½ Σ_A Σ_μ relu(h_μ)²``, update ``Ξᵀ relu(h)``;
    - "softmax": ``E = -(1/β) Σ_A log Σ_μ exp(β h_μ)``, update ``Ξᵀ softmax(β h)``;
    - a `ConvexPotential` (G, G'): ``E = -Σ_A Σ_μ G(h_μ)``, update ``Ξᵀ G'(h)``.

    All are concave in g, so any step along the update lowers the energy.

    Args:
        dim: Features D.
        memories: How many memories M >= 0. Default 4 D.
        activation: See above.
        beta: β > 0 of "softmax", at the start. The default 0.01 is that of the authors' code.
        learn_beta: Whether log β is a parameter ("softmax" only).
        bias: Whether there is an offset b (M,).
        device: Of the parameters.
        dtype: Of the parameters.

    Attributes:
        memories: Ξ (M, D), one memory a row.

    Cost: 4 N D M floating-point operations for each sample.

    Source: Hoover et al. 2023, section 2, "Hopfield network module".
    """

    def __init__(
        self,
        dim: int,
        memories: int | None = None,
        activation: Literal["relu", "softmax"] | ConvexPotential = "relu",
        *,
        beta: float = 0.01,
        learn_beta: bool = True,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.dim = count("dim", dim)
        total = 4 * dim if memories is None else count("memories", memories, 0)
        if activation not in ("relu", "softmax") and not isinstance(activation, ConvexPotential):
            want = "'relu', 'softmax' or ConvexPotential(potential, derivative)"
            raise expected("activation", want, repr(activation))
        self.activation = activation
        self._beta = positive("beta", beta)
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.memories = nn.Parameter(torch.empty(total, dim, **made))
        self.bias = nn.Parameter(torch.empty(total, **made)) if bias else None
        if activation == "softmax":
            log_beta = torch.empty((), **made)
            if learn_beta:
                self.log_beta = nn.Parameter(log_beta)
            else:
                self.register_buffer("log_beta", log_beta)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Memories from N(0, 1/D), so that pre-activations have unit scale at any D; bias 0."""
        nn.init.normal_(self.memories, std=self.dim**-0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if self.activation == "softmax":
            with torch.no_grad():
                self.log_beta.fill_(self._beta).log_()

    @property
    def beta(self) -> Tensor | None:
        """β of the softmax form (), else None."""
        return self.log_beta.exp() if self.activation == "softmax" else None

    @property
    def fused(self) -> bool:
        """Whether the activation has a place in the stacked operator."""
        return isinstance(self.activation, str)

    def _plan(self) -> Plan:
        kind = self.activation if isinstance(self.activation, str) else "none"
        return Plan(0, 1, len(self.memories), self_attention=True, activation=kind)

    def preactivations(self, g: Tensor) -> Tensor:
        """H = Ξ g + b (..., N, M): how strongly each memory is called."""
        tokens("g", g, self.dim)
        return nn.functional.linear(g, self.memories, self.bias)

    def read(self, g: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Energy (...) of each sample and update (..., N, D), zero at padding."""
        if mask is not None:
            g = g.masked_fill(~mask[..., None], 0.0)
        h = self.preactivations(g)
        if isinstance(self.activation, ConvexPotential):
            token, a = -self.activation.potential(h).sum(-1), self.activation.derivative(h)
            if mask is not None:
                token, a = token.masked_fill(~mask, 0.0), a.masked_fill(~mask[..., None], 0.0)
            return token.sum(-1), a @ self.memories
        nothing = self.memories.new_zeros(())
        p = Params(self.memories, self.bias, nothing, nothing, nothing, self.beta, None, mask, None)
        energy, a = ref.memory(h, self._plan(), p)
        return energy, a @ self.memories

    def energy(self, g: Tensor, mask: Tensor | None = None) -> Tensor:
        """Energy of each sample.

        Args:
            g: Normalised tokens (..., N, D).
            mask: (..., N) bool, True for a real token.

        Returns:
            (...).
        """
        return self.read(g, mask)[0]

    def forward(self, g: Tensor, mask: Tensor | None = None) -> Tensor:
        """The update ``-∂E/∂g`` (..., N, D); arguments as for `energy`."""
        return self.read(g, mask)[1]

    def update(self, g: Tensor, mask: Tensor | None = None) -> Tensor:
        """The same as calling the layer."""
        return self.read(g, mask)[1]

    def curvature(self, g: Tensor, mask: Tensor | None = None) -> Tensor:
        """Zero (...): the energy is concave."""
        return g.new_zeros(g.shape[:-2])

    def example_inputs(self, generator: torch.Generator | None = None) -> tuple[Tensor]:
        """Random tokens (2, 5, D), for checks of a layer that a model calls in a way of its own."""
        return (torch.randn(2, 5, self.dim, generator=generator).to(self.memories),)

    def extra_repr(self) -> str:
        """Shown by print."""
        kind = self.activation if isinstance(self.activation, str) else "convex potential"
        return f"{self.dim}, memories={len(self.memories)}, activation={kind!r}"
