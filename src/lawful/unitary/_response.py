"""A linear recurrence with profiles is a filter: its response, and the outputs by one convolution.

What feature d of step m does to output o of step n depends on n - m only, so that the whole
sequence costs two FFTs over time instead of a state of N sites at every step.
"""

import math

import torch
from torch import Tensor

__all__ = ["filtered", "response"]


def response(angle: Tensor, profiles: Tensor, readers: Tensor, steps: int) -> Tensor:
    r"""``h[l, o, d] = Re sum_k conj(readers[o, k]) e^{i l angle[k]} profiles[d, k]``, l = 0 .. T-1.

    Args:
        angle: (\*modes), float64; reduced before it is rounded, so that no lag drifts.
        profiles: (D, \*modes), complex, transformed.
        readers: (O, \*modes), complex, transformed.
        steps: T.

    Returns:
        (T, O, D), real.

    Cost: O(T N O D), as two real matrix products.
    """
    lags = torch.arange(steps, dtype=torch.float64, device=angle.device)
    grid = torch.outer(lags, angle.flatten())  # (T, N)
    grid = grid - (2 * math.pi) * torch.round(grid.detach() / (2 * math.pi))
    pairs = readers.flatten(1).conj()[:, None] * profiles.flatten(1)[None]  # (O, D, N)
    real = pairs.real.dtype
    flat = pairs.flatten(0, 1).T
    taps = torch.cos(grid).to(real) @ flat.real - torch.sin(grid).to(real) @ flat.imag
    return taps.view(steps, len(readers), len(profiles))


def filtered(x: Tensor, taps: Tensor, bias: Tensor) -> Tensor:
    """Causal convolution over time, ``y_n = bias + sum_m taps[n - m] x_m``.

    Args:
        x: (T, B, D), real.
        taps: (T, O, D).
        bias: (O,).

    Returns:
        (T, B, O).

    Cost: O((B + O) D T log T) for the FFTs and O(T B D O) for the products.
    """
    steps = len(x)
    length = _fast_length(2 * steps - 1)
    signal = torch.fft.rfft(x, length, dim=0)
    gains = torch.fft.rfft(taps.to(x.dtype), length, dim=0)
    y = torch.fft.irfft(signal @ gains.transpose(1, 2), length, dim=0)
    out: Tensor = y[:steps] + bias
    return out


def _fast_length(least: int) -> int:
    """The smallest number of the form 2^a 3^b 5^c from ``least`` on."""
    while True:
        rest = least
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return least
        least += 1
