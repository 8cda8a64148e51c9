"""Isometric transforms that diagonalise convolutions, one for each boundary.

All are orthonormal, so adjoint and inverse are the same, and the energy of a field can be read in
either space. `RealFourier` keeps half of the frequencies; its bins then count twice.
"""

import functools
import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lawful.unitary._lattice import embed, sites, space_axes

__all__ = ["Boundary", "Fourier", "PackedFourier", "RealFourier", "Transform", "Trigonometric"]

Boundary = Literal["circular", "neumann", "dirichlet", "zeros"]

REFUSED = {
    "reflect": "reflection makes the lifted operator of a general kernel non-anti-Hermitian",
    "replicate": "edge padding makes the lifted operator non-anti-Hermitian",
    "edge": "edge padding makes the lifted operator non-anti-Hermitian",
    "symmetric": "mirroring is exact only for even kernels: that is boundary 'neumann', even=True",
    "crop": "convolving on a larger lattice and cropping loses what crossed the edge",
    "linear": "convolving on a larger lattice and cropping loses what crossed the edge",
    "valid": "the output would be smaller than the input",
    "same": "name the boundary: circular, neumann, dirichlet or zeros",
}


def _direct_symbol(kernel: Tensor, size: tuple[int, ...], half: bool = False) -> Tensor:
    """sum_a K[a] exp(-i k a) axis by axis: cheaper than FFTs of many mostly empty lattices."""
    out = kernel.to(torch.complex128)
    for axis, n in zip(space_axes(len(size)), size, strict=True):
        taps = kernel.shape[axis]
        k = torch.arange(n // 2 + 1 if half and axis == -1 else n, device=kernel.device)
        reach = torch.arange(taps, device=kernel.device) - taps // 2
        angle = (k[:, None] * reach % n).double() * (
            -2 * math.pi / n
        )  # reduced exactly, in integers
        table = torch.polar(torch.ones_like(angle), angle)
        out = (out.movedim(axis, -1) @ table.mT).movedim(-1, axis)
    return out


@dataclass(frozen=True)
class Fourier:
    """Complex fields on a periodic lattice."""

    size: tuple[int, ...]

    @property
    def modes(self) -> tuple[int, ...]:
        """Shape of the transform."""
        return self.size

    def forward(self, x: Tensor) -> Tensor:
        """To frequencies."""
        out: Tensor = torch.fft.fftn(x, dim=space_axes(len(self.size)), norm="ortho")
        return out

    def backward(self, x: Tensor) -> Tensor:
        """Back to sites."""
        out: Tensor = torch.fft.ifftn(x, dim=space_axes(len(self.size)), norm="ortho")
        return out

    def symbol(self, kernel: Tensor) -> Tensor:
        """Eigenvalues of a centred kernel (..., *taps) -> (..., *modes), double precision."""
        if kernel.ndim >= len(self.size) + 2:
            return _direct_symbol(kernel, self.size)
        out: Tensor = torch.fft.fftn(embed(kernel, self.size), dim=space_axes(len(self.size)))
        return out

    def weights(self, device: torch.device) -> Tensor | None:
        """How many frequencies each stored one stands for; None when all are stored."""
        return None


@dataclass(frozen=True)
class RealFourier:
    """Real fields on a periodic lattice; the last axis keeps frequencies 0 .. n/2."""

    size: tuple[int, ...]

    @property
    def modes(self) -> tuple[int, ...]:
        """Shape of the transform."""
        return (*self.size[:-1], self.size[-1] // 2 + 1)

    def forward(self, x: Tensor) -> Tensor:
        """To frequencies."""
        out: Tensor = torch.fft.rfftn(x, dim=space_axes(len(self.size)), norm="ortho")
        return out

    def backward(self, x: Tensor) -> Tensor:
        """Back to sites; the lattice is named, for an odd side cannot be told from the modes."""
        out: Tensor = torch.fft.irfftn(x, s=self.size, dim=space_axes(len(self.size)), norm="ortho")
        return out

    def symbol(self, kernel: Tensor) -> Tensor:
        """Eigenvalues of a centred real kernel (..., *taps) -> (..., *modes)."""
        if kernel.ndim >= len(self.size) + 2:
            return _direct_symbol(kernel, self.size, half=True)
        out: Tensor = torch.fft.rfftn(embed(kernel, self.size), dim=space_axes(len(self.size)))
        return out

    def weights(self, device: torch.device) -> Tensor:
        """2 for bins whose mirror image is not stored, 1 at frequency 0 and Nyquist."""
        last = self.size[-1]
        weight = torch.full((last // 2 + 1,), 2.0, device=device)
        weight[0] = 1.0
        if last % 2 == 0:
            weight[-1] = 1.0
        return weight


@functools.lru_cache(maxsize=64)
def _mirror_pairs_cached(size: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Flat indices of one frequency of each pair k, -k, and of its mirror image."""
    index = torch.arange(sites(size), device=device).view(size)
    axes = space_axes(len(size))
    mirror = index.flip(axes).roll([1] * len(size), axes)
    chosen = (index <= mirror).flatten().nonzero().squeeze(1)
    return chosen, mirror.flatten()[chosen]


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _mirror_pairs(size: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    return _mirror_pairs_cached(size, device)


@dataclass(frozen=True)
class PackedFourier:
    """Pairs of real layers as complex fields P + iX: one complex FFT serves both.

    The modes are the spectra of the layers, X first, at one frequency of each pair k, -k.
    """

    size: tuple[int, ...]

    def pairs(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Flat indices of k and -k, (F,) each."""
        plus, minus = _mirror_pairs(self.size, device)
        return plus, minus

    @property
    def whole(self) -> Fourier:
        """The transform of the packed fields."""
        return Fourier(self.size)

    def forward(self, z: Tensor) -> Tensor:
        """Packed (..., G, *size) -> (..., 2G, F)."""
        plus, minus = self.pairs(z.device)
        flat = self.whole.forward(z).flatten(-len(self.size))
        here, there = flat[..., plus], flat[..., minus].conj()
        return torch.cat([(here - there) * -0.5j, (here + there) / 2], dim=-2)

    def backward(self, modes: Tensor) -> Tensor:
        """Inverse of `forward`."""
        plus, minus = self.pairs(modes.device)
        x, p = modes.chunk(2, dim=-2)
        flat = modes.new_zeros(*p.shape[:-1], sites(self.size))
        flat = flat.index_copy(-1, minus, p.conj() + 1j * x.conj())
        flat = flat.index_copy(-1, plus, p + 1j * x)
        return self.whole.backward(flat.view(*flat.shape[:-1], *self.size))

    def symbol(self, kernel: Tensor) -> Tensor:
        """Eigenvalues of a centred real kernel (..., *taps) -> (..., F)."""
        plus, _ = self.pairs(kernel.device)
        return self.whole.symbol(kernel).flatten(-len(self.size))[..., plus]

    def weights(self, device: torch.device) -> Tensor:
        """2 for pairs, 1 for a frequency that is its own mirror image."""
        plus, minus = self.pairs(device)
        return torch.where(plus == minus, 1.0, 2.0)


@functools.lru_cache(maxsize=64)
def _dct_turn_cached(n: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    k = torch.arange(n // 2 + 1, dtype=torch.float64, device=device)
    scale = torch.full_like(k, math.sqrt(2 / n))
    scale[0] = math.sqrt(1 / n)
    return torch.polar(scale, -math.pi * k / (2 * n)).to(dtype)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _dct_turn(n: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    return _dct_turn_cached(n, device, dtype)


def _complex_of(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype == torch.float64 else torch.complex64


def dct(x: Tensor, axis: int) -> Tensor:
    """Orthonormal DCT-II of a real tensor along an axis, by one real FFT of the same length."""
    n = x.shape[axis]
    x = x.movedim(axis, -1)
    order = torch.cat([x[..., ::2], x[..., 1::2].flip(-1)], dim=-1)
    half = torch.fft.rfft(order) * _dct_turn(n, x.device, _complex_of(x.dtype))
    # X[n - k] = -Im of the same product: the second half comes for free.
    tail = -half.imag[..., 1 : (n + 1) // 2].flip(-1)
    return torch.cat([half.real, tail], dim=-1).movedim(-1, axis)


def idct(x: Tensor, axis: int) -> Tensor:
    """Inverse (and transpose) of `dct`."""
    n = x.shape[axis]
    x = x.movedim(axis, -1)
    head = x[..., : n // 2 + 1]
    tail = torch.cat([torch.zeros_like(x[..., :1]), x[..., (n + 1) // 2 :].flip(-1)], dim=-1)
    turn = _dct_turn(n, x.device, _complex_of(x.dtype))
    half = torch.complex(head, -tail) / turn
    order = torch.fft.irfft(half, n=n)
    site = torch.arange(n, device=x.device)
    place = torch.where(site % 2 == 0, site // 2, n - 1 - site // 2)
    out: Tensor = order.index_select(-1, place).movedim(-1, axis)
    return out


def dst(x: Tensor, axis: int) -> Tensor:
    """Orthonormal DST-I of a real tensor along an axis; its own inverse."""
    n = x.shape[axis]
    x = x.movedim(axis, -1)
    edge = torch.zeros_like(x[..., :1])
    odd = torch.cat([edge, x, edge, -x.flip(-1)], dim=-1)
    out: Tensor = torch.fft.rfft(odd).imag[..., 1 : n + 1] * (-math.sqrt(1 / (2 * (n + 1))))
    return out.movedim(-1, axis)


def _cosine_table(taps: int, angle: Tensor) -> Tensor:
    """cos(a k) for a = -taps//2 .. taps//2 at angles k: (modes, taps)."""
    reach = torch.arange(taps, dtype=torch.float64, device=angle.device) - taps // 2
    return torch.cos(angle[:, None] * reach)


@dataclass(frozen=True)
class Trigonometric:
    """Fields on a box, mirrored at its faces: even ("neumann", DCT-II) or odd ("dirichlet")."""

    size: tuple[int, ...]
    odd: bool

    @property
    def modes(self) -> tuple[int, ...]:
        """Shape of the transform."""
        return self.size

    def _run(self, x: Tensor, inverse: bool) -> Tensor:
        if x.is_complex():
            return torch.complex(self._run(x.real, inverse), self._run(x.imag, inverse))
        step = dst if self.odd else (idct if inverse else dct)
        for axis in space_axes(len(self.size)):
            x = step(x, axis)
        return x

    def forward(self, x: Tensor) -> Tensor:
        """To modes."""
        return self._run(x, False)

    def backward(self, x: Tensor) -> Tensor:
        """Back to sites."""
        return self._run(x, True)

    def symbol(self, kernel: Tensor) -> Tensor:
        """Eigenvalues of a kernel that is even along each axis (..., *taps) -> (..., *modes)."""
        for axis, n in zip(space_axes(len(self.size)), self.size, strict=True):
            k = torch.arange(n, dtype=torch.float64, device=kernel.device)
            angle = math.pi * (k + 1) / (n + 1) if self.odd else math.pi * k / n
            table = _cosine_table(kernel.shape[axis], angle).to(kernel.dtype)
            kernel = (kernel.movedim(axis, -1) @ table.mT).movedim(-1, axis)
        return kernel

    def weights(self, device: torch.device) -> Tensor | None:
        """All modes are stored."""
        return None


Transform = Fourier | RealFourier | PackedFourier | Trigonometric


def transform_for(
    boundary: Boundary, size: tuple[int, ...], *, real: bool, packed: bool = False
) -> Transform:
    """The transform of a boundary other than "zeros"."""
    if boundary == "circular":
        if packed:
            return PackedFourier(size)
        return RealFourier(size) if real else Fourier(size)
    return Trigonometric(size, odd=boundary == "dirichlet")
