"""What an energy must offer to be part of a block."""

import torch
from torch import Tensor, nn


class EnergyTerm(nn.Module):
    """A scalar of the normalised tokens that a block descends.

    A subclass defines `energy`; `update` and `hvp` follow by automatic differentiation, and may be
    replaced by closed forms, which must agree. Any differentiable scalar will do, such as minus
    the log-partition of a structure whose potentials are computed from the tokens: its update then
    carries the structure's marginals in place of softmax weights.
    """

    def energy(self, g: Tensor, mask: Tensor | None = None) -> Tensor:
        """Energy of each sample.

        Args:
            g: Normalised tokens (B, N, D).
            mask: (B, N) bool, True for a real token; None when all are. Padding must not count.

        Returns:
            (B,).
        """
        raise NotImplementedError

    def update(self, g: Tensor, mask: Tensor | None = None) -> Tensor:
        """``-∂E/∂g`` (B, N, D), differentiable when gradients are recorded."""
        recording = torch.is_grad_enabled()
        with torch.enable_grad():
            point = g if recording and g.requires_grad else g.detach().requires_grad_()
            total = self.energy(point, mask).sum()
            (slope,) = torch.autograd.grad(total, point, create_graph=recording)
        return -slope

    def hvp(self, g: Tensor, v: Tensor, *context: Tensor | None) -> Tensor:
        """Second derivative of the energy times a direction: ``∂²E/∂g² v`` (B, N, D).

        ``context`` is what `energy` takes after ``g``.
        """
        with torch.enable_grad():
            point = g.detach().requires_grad_()
            total = self.energy(point, *context).sum()
            (slope,) = torch.autograd.grad(total, point, create_graph=True)
            if not slope.requires_grad:
                return torch.zeros_like(g)
            (bend,) = torch.autograd.grad(slope, point, v)
        return bend

    def curvature(self, g: Tensor, mask: Tensor | None = None) -> Tensor | None:
        """A bound on the largest eigenvalue of ``∂²E/∂g²``, over all g, for each sample (B,).

        Zero or less for a concave energy. None (the default): no bound is known, and a block with
        this term cannot have certified steps.
        """
        return None
