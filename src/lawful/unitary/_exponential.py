"""The exponential of anti-Hermitian matrices, exact at any norm and differentiable everywhere."""

import math
from typing import Any

import torch
from torch import Tensor

__all__ = ["unitary_exp"]


def divided_phases(values: Tensor) -> Tensor:
    """Divided differences of ``exp`` at ``i l_j``: e^{i(l_i + l_j)/2} sinc((l_i - l_j)/2).

    The sinc form has no quotient, so it is right where eigenvalues meet.

    Args:
        values: Real l, (..., C).

    Returns:
        Complex (..., C, C).
    """
    half = values / 2
    mean = half[..., :, None] + half[..., None, :]
    gap = half[..., :, None] - half[..., None, :]
    out: Tensor = torch.polar(torch.ones_like(mean), mean) * torch.special.sinc(gap / math.pi)
    return out


class _UnitaryExp(torch.autograd.Function):
    @staticmethod
    def forward(hermitian: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, vectors = torch.linalg.eigh(hermitian)
        phases = torch.polar(torch.ones_like(values), values)
        return (vectors * phases[..., None, :]) @ vectors.mH, values, vectors

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, ...]) -> None:
        _, values, vectors = output
        ctx.mark_non_differentiable(values, vectors)
        ctx.save_for_backward(inputs[0], values, vectors)

    @staticmethod
    def backward(ctx: Any, g: Tensor, *unused: Tensor) -> Tensor:
        hermitian, values, vectors = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _frechet(hermitian, g)
        return frechet_adjoint(values, vectors, vectors.mH @ g @ vectors)


def frechet_adjoint(values: Tensor, vectors: Tensor, g_eigen: Tensor) -> Tensor:
    """The gradient for H of e^{iH}, given the gradient for e^{iH} in the eigenbasis.

    Daleckii-Krein: ``-i V [(V^H G V) o conj Phi] V^H``, Hermitian part.

    Args:
        values: (..., C).
        vectors: V, (..., C, C).
        g_eigen: V^H G V, (..., C, C).
    """
    inner = g_eigen * divided_phases(values).conj()
    outer = -1j * (vectors @ inner @ vectors.mH)
    return (outer + outer.mH) / 2


def _frechet(hermitian: Tensor, g: Tensor) -> Tensor:
    """The same gradient through a block-triangular exponential: slower, but differentiable."""
    size = hermitian.shape[-1]
    adjoint = -1j * hermitian
    top = torch.cat([adjoint, g], dim=-1)
    bottom = torch.cat([torch.zeros_like(adjoint), adjoint], dim=-1)
    block = torch.linalg.matrix_exp(torch.cat([top, bottom], dim=-2))
    outer = -1j * block[..., :size, size:]
    out: Tensor = (outer + outer.mH) / 2
    return out


def unitary_exp(hermitian: Tensor) -> Tensor:
    """e^{iH} for Hermitian H, by its eigenvectors: unitary to rounding whatever the norm.

    The gradient is the Daleckii-Krein formula in sinc form, finite (and right) at H = 0 and at
    repeated eigenvalues, where differentiating the eigenvectors would give NaN.

    Args:
        hermitian: H, (..., C, C), complex (complex128 for full accuracy).

    Returns:
        (..., C, C).
    """
    out: Tensor = _UnitaryExp.apply(hermitian)[0]  # type: ignore[no-untyped-call]
    return out
