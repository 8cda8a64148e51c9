"""The other ways to a unitary convolution, and what the races of `unitary.py` share."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from _harness import Row
from lawful.unitary import OrthogonalConv, UnitaryConv
from lawful.unitary._activations import SoftNorm

CONV = {1: F.conv1d, 2: F.conv2d}


def padded(x: Tensor, kernel: Tensor) -> Tensor:
    """Circular convolution with a small kernel, as every explicit method does it."""
    dims = x.ndim - 2
    pad = [k // 2 for k in kernel.shape[2:] for _ in range(2)][::-1]
    return CONV[dims](F.pad(x, pad, mode="circular"), kernel)


def real_generator(layer: UnitaryConv | OrthogonalConv) -> Tensor:
    """The generator as a real correlation kernel, channels doubled for complex fields."""
    kernel = layer.generator()
    if kernel.is_complex():
        rows = [[kernel.real, -kernel.imag], [kernel.imag, kernel.real]]
        kernel = torch.cat([torch.cat(row, 1) for row in rows], 0)
    return kernel.flip(tuple(range(2, kernel.ndim)))


def taylor(x: Tensor, kernel: Tensor, terms: int) -> Tensor:
    """SOC's way: the series of the exponential, term by term, on the field."""
    total = term = x
    for j in range(1, terms + 1):
        term = padded(term, kernel) / j
        total = total + term
    return total


def dense_lift(layer: UnitaryConv, size: tuple[int, ...]) -> Tensor:
    """The generator as a dense matrix (one channel, one axis)."""
    kernel = layer.generator()[0, 0]
    n, reach = size[0], kernel.shape[0] // 2
    site = torch.arange(n)
    rows = torch.zeros(n, n, dtype=kernel.dtype)
    for a in range(kernel.shape[0]):
        hit = torch.zeros(n, n)
        hit[site, (site - (a - reach)) % n] = 1
        rows = rows + kernel[a] * hit
    return rows


def sigma(operator, channels: int, size: tuple[int, ...], dtype: torch.dtype) -> float:
    """Largest |singular value - 1| of what ``operator`` applies on a small lattice."""
    total = channels * math.prod(size)
    basis = torch.eye(total, dtype=dtype).view(total, channels, *size)
    with torch.no_grad():
        matrix = operator(basis).reshape(total, total)
    wide = torch.complex128 if matrix.is_complex() else torch.float64
    return float((torch.linalg.svdvals(matrix.to(wide)) - 1).abs().max())


def annotate(rows: list[Row], errors: dict[str, float]) -> list[Row]:
    """Puts the orthogonality error and the ratio of CPU times beside each time."""
    base = rows[0].cpu_ms
    for row in rows:
        row.extra["cpu_x"] = round(row.cpu_ms / base, 2)
        if row.name in errors:
            row.extra["sigma"] = f"{errors[row.name]:.1e}"
    return rows


def pull(y: Tensor, *leaves: Tensor) -> None:
    torch.autograd.grad(y, leaves, torch.ones_like(y))


class Explicit(nn.Module):
    """100 steps with a given transition on real fields and the same activation."""

    def __init__(self, build, apply) -> None:
        super().__init__()
        self.build, self.apply_step, self.activation = build, apply, SoftNorm()

    def forward(self, z: Tensor, drive: Tensor) -> Tensor:
        """The last state."""
        operator = self.build()
        for now in drive.unbind(1):
            z = self.activation(self.apply_step(z, operator) + now)
        return z


def aoc(channels: int, taps: int):
    """The AOC layer of orthogonium, or None when it is not installed."""
    try:
        from orthogonium.layers import AdaptiveOrthoConv2d
    except ImportError:
        return None
    return AdaptiveOrthoConv2d(
        channels, channels, taps, padding="same", padding_mode="circular", bias=False
    )


class FourierCayley(nn.Module):
    """The Cayley transform per frequency (Trockman and Kolter 2021), built once for all steps.

    Their layer rebuilds at each application; ours of theirs does not, which favours it. Real
    fields, or one complex channel.
    """

    def __init__(self, channels: int, taps: int, dims: int, size: tuple[int, ...]) -> None:
        super().__init__()
        self.size, self.real = size, channels > 1
        dtype = torch.float32 if self.real else torch.complex64
        self.weight = nn.Parameter(0.3 * torch.randn(channels, channels, *[taps] * dims).to(dtype))

    def build(self) -> Tensor:
        """(I + A)^-1 (I - A) per frequency, A the skew part: (modes, C, C)."""
        axes = tuple(range(2, self.weight.ndim))
        transform = torch.fft.rfftn if self.real else torch.fft.fftn
        w = transform(self.weight, s=self.size, dim=axes).flatten(2).permute(2, 0, 1)
        skew, eye = w - w.mH, torch.eye(w.shape[-1], dtype=w.dtype)
        return torch.linalg.solve(eye + skew, eye - skew)

    def turn(self, z: Tensor, u: Tensor) -> Tensor:
        """Applies it."""
        axes = tuple(range(2, z.ndim))
        forth = torch.fft.rfftn if self.real else torch.fft.fftn
        back = torch.fft.irfftn if self.real else torch.fft.ifftn
        modes = forth(z, dim=axes)
        turned = (u @ modes.flatten(2).permute(2, 1, 0)).permute(2, 1, 0)
        return back(turned.reshape(modes.shape), s=z.shape[2:], dim=axes)


def dense_parametrised(total: int, dtype: torch.dtype, kind: str) -> nn.Linear:
    """Torch's own unitary matrix of all sites and channels: no convolution, exact."""
    linear = nn.Linear(total, total, bias=False, dtype=dtype)
    return nn.utils.parametrizations.orthogonal(linear, orthogonal_map=kind)
