"""What an activation does to gradients when the kernel is exactly unitary, measured."""

from statistics import median

import torch

from lawful.unitary._activations import Activation
from lawful.unitary._layers import UnitaryConv

__all__ = ["gradient_gain"]


def gradient_gain(activation: Activation, steps: int, *, sites: int = 64, draws: int = 9) -> float:
    """Norm of dL/dz_0 over that of dL/dz_T for a random unitary recurrence of that length.

    ``z_n = phi(e^A z_{n-1})`` on a ring, three taps, standard normal z_0 and dL/dz_T, double
    precision; the median over ``draws`` seeds. 1 for an isometric activation at any length.

    Args:
        activation: phi.
        steps: T.
        sites: Size of the ring.
        draws: Number of random networks.
    """
    return median(_one_gain(activation, steps, sites, seed) for seed in range(draws))


def _one_gain(activation: Activation, steps: int, sites: int, seed: int) -> float:
    source = torch.Generator().manual_seed(seed)
    conv = UnitaryConv(1, 3, dtype=torch.float64)
    conv.reset_parameters(source)
    with torch.no_grad():
        operator = conv.operator((sites,))
    start, g = (
        torch.randn(1, 1, sites, dtype=torch.complex128, generator=source) for _ in range(2)
    )
    start.requires_grad_()
    z = start
    for _ in range(steps):
        z = activation(operator(z))
    (back,) = torch.autograd.grad(z, start, g)
    return float(back.norm() / g.norm())
