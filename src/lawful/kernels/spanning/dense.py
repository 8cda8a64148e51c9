"""Non-projective trees in plain torch, fast: determinant and inverse of the Laplacian in float64.

With G = d log det L / dL = inverse(L) transposed, marginals are weights times the adjoint of the
linear map (weights) -> L applied to G, and their derivative follows from dG = -(L^-1 dL L^-1)^T.
Sound where L is well conditioned; elsewhere the elimination of reference.py is needed.
"""

import torch
from torch import Tensor

from lawful.kernels.projective.reference import masked

__all__ = ["partition", "run"]

Pair = tuple[Tensor, Tensor]
_WORST = 1e5  # condition up to which float64 leaves an error below 1e-10


def partition(
    arcs: Tensor, root: Tensor, lengths: Tensor, single_root: bool
) -> tuple[Tensor, Tensor]:
    """Log-partition (B), and whether each element is sound."""
    w, r, top, real = _weights(arcs, root, lengths)
    laplacian = _laplacian(w, r, single_root) + torch.diag_embed((~real).double())
    return _solve(laplacian, top)[:2]


def run(
    arcs: Tensor, root: Tensor, lengths: Tensor, single_root: bool, direction: Pair | None
) -> tuple[Tensor, Tensor, Pair]:
    """Log-partition, soundness, and the marginals or (given a direction) their derivative."""
    w, r, top, real = _weights(arcs, root, lengths)
    laplacian = _laplacian(w, r, single_root) + torch.diag_embed((~real).double())
    value, sound, inverse = _solve(laplacian, top)
    gw, gr = _adjoint(inverse.mT, single_root)
    if direction is None:
        return value, sound, ((w * gw).clamp(min=0), (r * gr).clamp(min=0))
    dw = w * torch.where(w > 0, direction[0].double(), 0.0)
    dr = r * torch.where(r > 0, direction[1].double(), 0.0)
    change = -(inverse @ _laplacian(dw, dr, single_root) @ inverse)
    hw, hr = _adjoint(change.mT, single_root)
    return value, sound, (dw * gw + w * hw, dr * gr + r * hr)


def _weights(arcs: Tensor, root: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    a, r = masked(arcs, root, lengths)
    top = torch.maximum(a.amax(1), r)
    top = top.masked_fill(top == -torch.inf, 0.0)
    real = torch.arange(a.shape[-1], device=a.device) < lengths[:, None]
    return (a - top[:, None]).exp(), (r - top).exp(), top.sum(1), real


def _laplacian(w: Tensor, r: Tensor, single: bool) -> Tensor:
    """Column m: minus the weights of m's heads, their sum on the diagonal, and the root's.

    With a single root the first row is the root's weights instead.
    """
    out = torch.diag_embed(w.sum(1) if single else w.sum(1) + r) - w
    return torch.cat([r[:, None], out[:, 1:]], 1) if single else out


def _adjoint(g: Tensor, single: bool) -> Pair:
    if single:
        first = g[:, 0]
        g = torch.cat([torch.zeros_like(g[:, :1]), g[:, 1:]], 1)
    diagonal = g.diagonal(0, 1, 2)
    return diagonal[:, None] - g, first if single else diagonal


def _solve(laplacian: Tensor, top: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    inverse = torch.linalg.inv_ex(laplacian)[0]
    sign, value = torch.linalg.slogdet(laplacian)
    norms = laplacian.abs().sum(1).amax(1) * inverse.abs().sum(1).amax(1)
    return value + top, (norms < _WORST) & (sign > 0), inverse
