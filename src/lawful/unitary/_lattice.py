"""Kernels on a lattice: where their origin is, how they flip, and how they wrap around.

A kernel is an array with an odd number of taps on each axis and its origin at the centre tap;
``(K * z)[x] = sum_a K[a] z[x - a]`` is true convolution (torch's ``conv`` is correlation). A
multi-channel kernel has two more axes in front, ``(C_out, C_in, *taps)``.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from lawful.errors import expected

__all__ = ["Origin", "Size", "antihermitian", "antisymmetric", "from_antihermitian"]

Size = int | Sequence[int]
Origin = Literal["centre", "zero"]


def as_size(size: Size) -> tuple[int, ...]:
    """Normalises a lattice size: an int means one axis."""
    sides = (size,) if isinstance(size, int) else tuple(int(n) for n in size)
    if not sides or min(sides) < 1:
        raise expected("size", "one or more axes of at least 1 site", size)
    return sides


def check_kernel(kernel: Tensor, dims: int, origin: Origin, name: str = "kernel") -> bool:
    """Checks rank and taps; returns whether the kernel has channel axes.

    Raises:
        InputError: Wrong rank, an integer dtype, or an even number of taps with the origin at the
            centre.
    """
    if origin not in ("centre", "zero"):
        raise expected("origin", '"centre" or "zero"', repr(origin))
    if not (kernel.is_floating_point() or kernel.is_complex()):
        raise expected(name, "a floating or complex tensor", kernel.dtype)
    if kernel.ndim not in (dims, dims + 2):
        want = f"{dims} axes (*taps), or {dims + 2} axes (C_out, C_in, *taps)"
        hint = "give `size` one entry for each axis of space"
        raise expected(name, want, f"shape {tuple(kernel.shape)}", hint)
    taps = kernel.shape[kernel.ndim - dims :]
    if origin == "centre" and any(k % 2 == 0 for k in taps):
        hint = 'a centre tap needs odd sizes; full-lattice kernels take origin="zero"'
        raise expected(name, "an odd number of taps on each axis", f"taps {tuple(taps)}", hint)
    return kernel.ndim == dims + 2


def space_axes(dims: int) -> tuple[int, ...]:
    """The last ``dims`` axes, as negative numbers."""
    return tuple(range(-dims, 0))


def embed(kernel: Tensor, size: tuple[int, ...], origin: Origin = "centre") -> Tensor:
    """Places a kernel on the periodic lattice: origin at index 0, overlapping taps summed.

    Args:
        kernel: (..., *taps).
        size: Sites on each axis; may be smaller than the taps.
        origin: "centre", or "zero" if the kernel's origin is at index 0 already.

    Returns:
        (..., *size).
    """
    for axis, n in zip(space_axes(len(size)), size, strict=True):
        taps = kernel.shape[axis]
        laps = -(-taps // n)
        if laps * n != taps:
            pad = [0, 0] * (-axis - 1) + [0, laps * n - taps]
            kernel = torch.nn.functional.pad(kernel, pad)
        if laps > 1:
            before, after = kernel.shape[:axis], kernel.shape[axis:][1:]
            kernel = kernel.reshape(*before, laps, n, *after).sum(axis - 1)
        if origin == "centre" and taps > 1:
            kernel = kernel.roll(-(taps // 2), axis)
    return kernel


def flipped(kernel: Tensor, dims: int, origin: Origin = "centre") -> Tensor:
    """K[-a]: the kernel of the transposed operator (for one channel)."""
    axes = space_axes(dims)
    kernel = kernel.flip(axes)
    return kernel if origin == "centre" else kernel.roll([1] * dims, axes)


def adjoint(kernel: Tensor, dims: int, origin: Origin = "centre") -> Tensor:
    """Conj K[-a], channels transposed: the kernel of the adjoint operator."""
    if kernel.ndim == dims + 2:
        kernel = kernel.transpose(0, 1)
    return flipped(kernel, dims, origin).conj()


def mirrored(kernel: Tensor, dims: int) -> Tensor:
    """The part of a centred kernel that is even along each axis separately."""
    for axis in space_axes(dims):
        kernel = (kernel + kernel.flip(axis)) / 2
    return kernel


def _dims(weight: Tensor, dims: int | None, origin: Origin) -> int:
    dims = weight.ndim if dims is None else dims
    if check_kernel(weight, dims, origin, "weight") and weight.shape[0] != weight.shape[1]:
        raise expected("weight", "as many output as input channels", tuple(weight.shape))
    return dims


def antihermitian(weight: Tensor, dims: int | None = None, *, origin: Origin = "centre") -> Tensor:
    r"""The anti-Hermitian kernel that a real array stands for; a bijection.

    ``A = (U - U')/2 + i (U + U')/2`` with ``U'[o, i, a] = U[i, o, -a]``. The operator of ``A`` is
    anti-Hermitian, so its exponential is unitary; ``U = 0`` gives the identity. For one channel
    the symbol is ``i theta`` with ``theta(k) = sum_a U[a] (cos ka - sin ka)``, a Hartley transform.

    Args:
        weight: Real U, (\*taps), or (C, C, \*taps) with ``dims`` given.
        dims: Number of space axes; by default all axes are space.
        origin: "centre" for small kernels (odd taps), "zero" for kernels of a whole lattice.

    Returns:
        Complex kernel of the same shape.

    Raises:
        InputError: ``weight`` is complex, has an even number of taps, or unequal channels.

    Source: Magnasco 2023 (arXiv 2302.07396), section 4; several channels are our extension.
    """
    if weight.is_complex():
        raise expected("weight", "a real tensor", weight.dtype, "it holds both parts already")
    mirror = adjoint(weight, _dims(weight, dims, origin), origin)
    return torch.complex((weight - mirror) / 2, (weight + mirror) / 2)


def from_antihermitian(
    kernel: Tensor, dims: int | None = None, *, origin: Origin = "centre"
) -> Tensor:
    """The real array U with ``antihermitian(U) == kernel``: ``U = Re A + Im A``.

    Raises:
        InputError: ``kernel`` is not anti-Hermitian (to 1e-5, or 1e-10 in double precision, of
            its largest entry).
    """
    kernel = kernel if kernel.is_complex() else torch.complex(kernel, torch.zeros_like(kernel))
    residue = kernel + adjoint(kernel, _dims(kernel, dims, origin), origin)
    tolerance = 1e-10 if kernel.dtype == torch.complex128 else 1e-5
    scale = float(kernel.detach().abs().max()) if kernel.numel() else 0.0
    worst = float(residue.detach().abs().max()) if kernel.numel() else 0.0
    if not worst <= tolerance * scale:
        hint = "conj K[i, o, -a] = -K[o, i, a] must hold"
        raise expected("kernel", "an anti-Hermitian kernel", f"a deviation of {worst:.3g}", hint)
    return kernel.real + kernel.imag


def antisymmetric(weight: Tensor, dims: int | None = None, *, origin: Origin = "centre") -> Tensor:
    """The antisymmetric part ``(W - W')/2`` of a real kernel; its exponential is orthogonal."""
    return (weight - adjoint(weight, _dims(weight, dims, origin), origin)) / 2


def sites(size: tuple[int, ...]) -> int:
    """Number of sites of the lattice."""
    return math.prod(size)
