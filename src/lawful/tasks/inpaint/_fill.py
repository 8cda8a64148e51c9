"""Completion without learning: hidden pixels from their visible neighbours."""

import torch
from torch import Tensor

_BLOCK = 512  # pictures solved together


def harmonic_fill(
    pictures: Tensor, hidden: Tensor, tolerance: float = 1e-6, limit: int = 2000
) -> Tensor:
    """Every hidden pixel becomes the mean of its neighbours up, down, left and right.

    That is Laplace's equation on the hidden pixels, with the visible ones given and no flow over
    the border of the picture; solved by conjugate gradients, all pictures at once. A picture
    without visible pixels becomes 0.

    Args:
        pictures: (B, C, H, W); what hidden pixels hold is not read.
        hidden: (B, H, W) bool.
        tolerance: Root mean square of the residual at which to stop.
        limit: Most iterations.

    Returns:
        (B, C, H, W), visible pixels unchanged.

    Cost: O(C H W) for each iteration and picture; iterations grow with the width of the holes.
    """
    parts = zip(torch.split(pictures, _BLOCK), torch.split(hidden, _BLOCK), strict=True)
    done = [_solve(p, h[:, None], tolerance, limit) for p, h in parts]
    return torch.cat(done) if done else pictures.clone()


def _solve(pictures: Tensor, hidden: Tensor, tolerance: float, limit: int) -> Tensor:
    # With nothing visible the equation is singular, and 0 solves it.
    known = pictures.masked_fill(hidden, 0.0)
    x = torch.zeros_like(known)
    residual = -_laplacian(known).masked_fill(~hidden, 0.0)
    direction, size = residual, _dot(residual, residual)
    scale = residual[0].numel() if len(residual) else 1
    for _ in range(limit):
        if not bool((size > scale * tolerance**2).any()):
            break
        image = _laplacian(direction).masked_fill(~hidden, 0.0)
        curvature = _dot(direction, image)
        # A picture that is solved has direction 0.
        step = torch.where(curvature > 0, size / curvature.clamp_min(1e-30), 0.0)
        x = x + step * direction
        residual = residual - step * image
        before, size = size, _dot(residual, residual)
        direction = residual + size / before.clamp_min(1e-30) * direction
    return torch.where(hidden, x, pictures)


def _laplacian(x: Tensor) -> Tensor:
    """Sum over the neighbours inside the picture of (own value - neighbour's)."""
    out = torch.zeros_like(x)
    down, right = x[..., 1:, :] - x[..., :-1, :], x[..., 1:] - x[..., :-1]
    out[..., 1:, :] += down
    out[..., :-1, :] -= down
    out[..., 1:] += right
    out[..., :-1] -= right
    return out


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum((1, 2, 3), keepdim=True)
