"""Layer normalisation as the gradient of a scalar function."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lawful.energy._checks import count, positive, tokens


class EnergyLayerNorm(nn.Module):
    """Layer normalisation with one gain, so that it has a Lagrangian.

    ``g = γ (x - mean x) / s + δ`` with ``s = sqrt(var x + ε)``, which is the gradient of
    ``L(x) = D γ s + δ·x``. Its Jacobian is symmetric, and positive semi-definite for γ >= 0; that
    is what makes the energy of a block fall. A gain for each feature, as in `torch.nn.LayerNorm`,
    would have no Lagrangian.

    Args:
        dim: Features D.
        eps: ε > 0, added to the (biased) variance.
        device: Of the parameters.
        dtype: Of the parameters.

    Attributes:
        gamma: Gain γ, a scalar; starts at 1.
        delta: Offset δ (D,); starts at 0.

    Source: Hoover et al. 2023, equations 1 and 2.
    """

    gamma: Tensor
    delta: Tensor

    def __init__(
        self,
        dim: int,
        eps: float = 1e-5,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.eps = count("dim", dim), positive("eps", eps)
        self.gamma = nn.Parameter(torch.empty((), device=device, dtype=dtype))
        self.delta = nn.Parameter(torch.empty(dim, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """γ = 1, δ = 0."""
        nn.init.ones_(self.gamma)
        nn.init.zeros_(self.delta)

    def forward(self, x: Tensor) -> Tensor:
        """Activations g (..., D) of ``x`` (..., N, D)."""
        tokens("x", x, self.dim)
        return F.layer_norm(x, (self.dim,), eps=self.eps) * self.gamma + self.delta

    def lagrangian(self, x: Tensor) -> Tensor:
        """``L(x) = D γ s + δ·x`` of each token (..., N); its gradient is `forward`."""
        tokens("x", x, self.dim)
        deviation = (x.var(-1, correction=0) + self.eps).sqrt()
        return self.dim * self.gamma * deviation + x @ self.delta

    def neuron_energy(self, x: Tensor) -> Tensor:
        """Legendre transform ``g·x - L(x)`` of each token (..., N); equals ``-γ D ε / s``.

        It vanishes with ε, so the energy of a block leaves it out.
        """
        tokens("x", x, self.dim)
        deviation = (x.var(-1, correction=0) + self.eps).sqrt()
        return -self.gamma * self.dim * self.eps / deviation

    def example_inputs(self, generator: torch.Generator | None = None) -> tuple[Tensor]:
        """Random tokens (2, 5, D), for checks of a layer that a model calls in a way of its own."""
        return (torch.randn(2, 5, self.dim, generator=generator).to(self.gamma),)

    def extra_repr(self) -> str:
        """Shown by print."""
        return f"{self.dim}, eps={self.eps}"
