"""The truth of z/sqrt(1+|z|^2), in plain torch on interleaved parts."""

from torch import Tensor

__all__ = ["softnorm", "softnorm_backward"]


def softnorm(v: Tensor) -> Tensor:
    """Computes v / sqrt(1 + |v|^2) for v (..., 2)."""
    return v * (1 + v.square().sum(-1, keepdim=True)).rsqrt()


def softnorm_backward(v: Tensor, g: Tensor) -> Tensor:
    """Computes f (g - y <y, g>) with f = 1/sqrt(1 + |v|^2) and y = f v."""
    factor = (1 + v.square().sum(-1, keepdim=True)).rsqrt()
    y = v * factor
    return factor * (g - y * (g * y).sum(-1, keepdim=True))
