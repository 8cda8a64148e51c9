"""Networks that solve a problem by construction: their weights are written down, not trained."""

import math

import torch
from torch import Tensor

from lawful.errors import expected
from lawful.reproduce.unitary._fields import LAPLACIAN, plane
from lawful.unitary import (
    Activation,
    ConvOrthogonalRNN,
    ConvUnitaryRNN,
    OrthogonalConv,
    UnitaryConv,
    from_antihermitian,
)

__all__ = [
    "Staircase",
    "Unimodal",
    "copying_network",
    "gated_lattice",
    "schroedinger_network",
    "set_generator",
    "translation_generator",
    "wave_layer",
    "wave_network",
]


def set_generator(conv: UnitaryConv, kernel: Tensor) -> None:
    r"""Gives a one-channel unitary layer the anti-Hermitian kernel ``kernel``, (\*taps)."""
    with torch.no_grad():
        conv.weight.copy_(from_antihermitian(kernel).expand_as(conv.weight))


def translation_generator(sites: int) -> Tensor:
    """The anti-Hermitian kernel of a whole ring whose exponential moves fields by one site.

    Args:
        sites: N, odd: on an even ring the Nyquist mode has no phase that halves consistently.

    Returns:
        Complex (N,), origin at the centre tap.

    Raises:
        InputError: An even ring.
    """
    if sites % 2 == 0:
        raise expected("sites", "an odd number", sites)
    k = torch.arange(sites)
    signed = torch.where(k <= sites // 2, k, k - sites).double()
    values = torch.complex(torch.zeros_like(signed), -2 * math.pi * signed / sites)
    kernel: Tensor = torch.fft.ifft(values).roll(sites // 2, 0)
    return kernel


def copying_network(delay: int, symbols: int = 8, length: int = 10) -> ConvUnitaryRNN:
    """A linear ring that solves the copying problem: it writes at one site and reads where it is.

    Input is one-hot, ``symbols`` + blank + cue; step t of the output names the symbol that was
    shown ``delay + length`` steps before.
    """
    sites = (delay + 2 * length + 54) | 1
    rnn = ConvUnitaryRNN(
        symbols + 2,
        sites,
        symbols,
        sites,
        output_size=symbols,
        mixing=False,
        dtype=torch.float64,
    ).requires_grad_(False)
    set_generator(rnn.conv, translation_generator(sites))  # type: ignore[arg-type]
    for weight in (rnn.input_weight, rnn.output_weight, rnn.output_bias):
        weight.zero_()
    for s in range(symbols):
        rnn.input_weight[s, 0, s, 0] = 1
        rnn.output_weight[s, 0, s, delay + length] = 30.0  # sharpens the answer's softmax
    return rnn.float()


def wave_network(sites: int, speed: float) -> ConvOrthogonalRNN:
    """X'' = c^2 Laplacian X on a ring: X' = D P, P' = -D' X with c times the forward difference."""
    rnn = ConvOrthogonalRNN(1, sites, 2, form="pair", dtype=torch.float64).requires_grad_(False)
    rnn.conv.weight.copy_(torch.tensor([[speed, -speed, 0.0]], dtype=torch.float64))
    rnn.input_weight.zero_()
    return rnn


def wave_layer(speed: float) -> OrthogonalConv:
    """The wave equation in the plane: one field X, and its gradient as two channels P."""
    layer = OrthogonalConv(3, 3, 2, form="pair", split=(1, 2), dtype=torch.float64)
    layer.requires_grad_(False)
    layer.weight.zero_()
    layer.weight[0, :, 1, 1] = -speed
    layer.weight[0, 0, 0, 1] = speed  # tap -1 of the first axis
    layer.weight[0, 1, 1, 0] = speed
    return layer


def schroedinger_network(
    sites: int, dt: float, kernel: Tensor, dtype: torch.dtype | None = None
) -> ConvUnitaryRNN:
    """I psi' = -(1/2) psi'' on a ring, dt per step, with a kernel for the second derivative."""
    rnn = ConvUnitaryRNN(1, sites, 1, len(kernel), dtype=dtype).requires_grad_(False)
    rnn.input_weight.zero_()
    set_generator(rnn.conv, 0.5j * dt * kernel)  # type: ignore[arg-type]
    return rnn


def gated_lattice(size: tuple[int, int], rest: float, coupling: float) -> ConvUnitaryRNN:
    """Z <- phi(e^A Z + I), phi(z) = z/sqrt(1+|z|^2), on a torus of complex sites.

    A has the phases ``theta(k) = rest + 2 c (2 - cos k_1 - cos k_2)``. None of them is 0 while
    ``0 < rest`` and ``rest + 8 c < 2 pi``, so a steady input does not spread, but waves do.
    """
    rnn = ConvUnitaryRNN(1, size, 1, activation="softnorm", input_map="direct", dtype=torch.float64)
    phases = -coupling * plane(LAPLACIAN)
    phases[1, 1] += rest
    set_generator(rnn.conv, 1j * phases)  # type: ignore[arg-type]
    return rnn.requires_grad_(False)


class Staircase(Activation):
    """The values of Rule 110 at the sums 0..7 of the code {4, 2, 1}, with plateaus around them."""

    table = (0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0)

    def __init__(self, sharpness: float = 60.0) -> None:
        super().__init__()
        self.sharpness = sharpness

    def of(self, u: Tensor) -> Tensor:
        """Psi(u) for real u: a sum of logistic steps at the half integers."""
        out = torch.full_like(u, self.table[0])
        for j, (here, there) in enumerate(zip(self.table, self.table[1:], strict=False)):
            if there != here:
                out = out + (there - here) * torch.sigmoid(self.sharpness * (u - j - 0.5))
        return out

    def run(self, z: Tensor, tensors: tuple[Tensor, ...], branch: Tensor | None = None) -> Tensor:
        """Psi of the real part."""
        out = self.of(z.real)
        return torch.complex(out, torch.zeros_like(out)) if z.is_complex() else out


class Unimodal(Activation):
    """One bump for the code (2, 2, 1): sums 0..5 become 0,0,1,1,1,0."""

    def __init__(self, sharpness: float = 30.0) -> None:
        super().__init__()
        self.sharpness = sharpness

    def of(self, u: Tensor) -> Tensor:
        """s(sigma (u - 3/2)) - s(sigma (u - 9/2)), s the logistic function."""
        return torch.sigmoid(self.sharpness * (u - 1.5)) - torch.sigmoid(self.sharpness * (u - 4.5))

    def run(self, z: Tensor, tensors: tuple[Tensor, ...], branch: Tensor | None = None) -> Tensor:
        """Psi of the real part."""
        out = self.of(z.real)
        return torch.complex(out, torch.zeros_like(out)) if z.is_complex() else out
