"""From real parameters to built exponentials: one function per kind of layer.

All angles are computed in double precision and only the finished phases or matrices are rounded,
so that long flows (large ``t``) keep their phase.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lawful.kernels import Backend
from lawful.kernels.spectral import pack_blocks
from lawful.unitary._boundaries import Boundary, Transform, transform_for
from lawful.unitary._chebyshev import norm_bound, real_blocks, terms
from lawful.unitary._exponential import unitary_exp
from lawful.unitary._lattice import adjoint, antihermitian, mirrored
from lawful.unitary._operators import (
    BlockOperator,
    Operator,
    PairOperator,
    PhaseOperator,
    SeriesOperator,
)
from lawful.unitary._xp import su2

__all__ = ["Time", "orthogonal_operator", "pair_operator", "unitary_operator"]

Time = float | Tensor


def _polar(angle: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.polar(torch.ones_like(angle), angle).to(dtype)


def _blocks_last(symbol: Tensor) -> Tensor:
    """(C, C', *modes) -> (F, C, C')."""
    return symbol.flatten(2).movedim(2, 0)


def phases(weight: Tensor, transform: Transform) -> Tensor:
    """Theta of a single-channel anti-Hermitian kernel: the Hartley transform of its real array."""
    symbol = transform.symbol(weight)
    return symbol.real + symbol.imag if symbol.is_complex() else symbol


def hermitian_blocks(weight: Tensor, transform: Transform) -> Tensor:
    """H = -i A^ of the kernel that ``weight`` (C, C, *taps) stands for: (F, C, C)."""
    symbol = _blocks_last(transform.symbol(weight))
    mirror = symbol.mH
    return (symbol + mirror) / 2 - 0.5j * (symbol - mirror)


def unitary_operator(
    weight: Tensor,
    size: tuple[int, ...],
    t: Time,
    dtype: torch.dtype,
    *,
    boundary: Boundary,
    even: bool,
    backend: Backend = "auto",
) -> Operator:
    r"""Builds e^{tA} on complex fields.

    Args:
        weight: Real (C, \*taps) for channels that do not mix, or (C, C, \*taps).
        size: The lattice.
        t: Time.
        dtype: Complex dtype of the fields.
        boundary: Which lattice edge.
        even: Use the part of the kernel that is even along each axis.
        backend: Which path applies matrices.
    """
    dims = len(size)
    weight = weight.double()
    if even:
        weight = mirrored(weight, dims)
    mixing = weight.ndim == dims + 2
    if boundary == "zeros":
        full = weight if mixing else _diagonal(weight)
        return _series(antihermitian(full, dims) * t, dims, dtype)
    transform = transform_for(boundary, size, real=False)
    if not mixing:
        angle = phases(weight, transform) * t
        return PhaseOperator(transform, _polar(angle, dtype), angle)
    blocks = unitary_exp(hermitian_blocks(weight, transform) * t, dtype)
    return BlockOperator(transform, pack_blocks(blocks, backend=backend))


def _diagonal(weight: Tensor) -> Tensor:
    """(C, *taps) -> (C, C, *taps), zero between different channels."""
    return torch.diag_embed(weight.movedim(0, -1)).movedim((-2, -1), (0, 1))


def _series(generator: Tensor, dims: int, dtype: torch.dtype) -> SeriesOperator:
    # The floor keeps the terms that carry the gradient when the kernel is zero.
    bound = max(norm_bound(generator, dims), 0.5)
    tol = 1e-17 if dtype in (torch.float64, torch.complex128) else 1e-9
    is_complex = generator.is_complex()
    real = real_blocks(generator) if is_complex else generator
    scaled = (real / bound).to(torch.empty((), dtype=dtype).real.dtype)
    return SeriesOperator(scaled, tuple(terms(bound, tol)), is_complex)


def coupling_generator(
    weights: Sequence[Tensor], form: str, split: tuple[int, int], dims: int
) -> Tensor:
    r"""The real antisymmetric kernel (M, M, \*taps) of an orthogonal layer that mixes channels.

    ``weights`` is (W,) for form "full" and (K,) for "pair" and "symmetric".
    """
    weight = weights[0]
    if form == "full":
        return (weight - adjoint(weight, dims)) / 2
    if form == "symmetric":
        weight = (weight + adjoint(weight, dims)) / 2
    top = torch.cat([weight.new_zeros(split[0], split[0], *weight.shape[2:]), weight], dim=1)
    corner = weight.new_zeros(split[1], split[1], *weight.shape[2:])
    return torch.cat([top, torch.cat([-adjoint(weight, dims), corner], dim=1)], dim=0)


def pair_generator(weights: Sequence[Tensor], form: str, dims: int) -> Tensor:
    """The same for G pairs that do not mix: K, and for "full" the intralayer arrays of X and P."""
    coupling = weights[0]
    back = coupling.flip(tuple(range(-dims, 0)))
    if form == "symmetric":
        coupling = back = (coupling + back) / 2
    inner = [torch.zeros_like(coupling)] * 2
    if len(weights) == 3:
        inner = [(w - w.flip(tuple(range(-dims, 0)))) / 2 for w in weights[1:]]
    rows = [[inner[0], coupling], [-back, inner[1]]]
    return torch.cat([torch.cat([_diagonal(b) for b in row], dim=1) for row in rows], dim=0)


def orthogonal_operator(
    generator: Tensor,
    size: tuple[int, ...],
    t: Time,
    dtype: torch.dtype,
    *,
    boundary: Boundary,
    even: bool,
    backend: Backend = "auto",
) -> Operator:
    r"""Builds e^{tB} on real fields for a real antisymmetric kernel B (M, M, \*taps)."""
    dims = len(size)
    generator = generator.double()
    if even:
        generator = mirrored(generator, dims)
    if boundary == "zeros":
        return _series(generator * t, dims, dtype)
    packed = generator.shape[0] % 2 == 0
    transform = transform_for(boundary, size, real=True, packed=packed)
    symbol = transform.symbol(generator)
    complex_dtype = torch.complex128 if dtype == torch.float64 else torch.complex64
    if generator.shape[0] == 1:
        if not symbol.is_complex():  # even and antisymmetric at once: zero
            return PhaseOperator(transform, torch.exp(symbol[0] * t).to(dtype))
        angle = symbol[0].imag * t
        return PhaseOperator(transform, _polar(angle, complex_dtype), angle)
    blocks = unitary_exp(-1j * _blocks_last(symbol) * t, complex_dtype)
    return BlockOperator(transform, pack_blocks(blocks, backend=backend))


def pair_operator(
    weights: Sequence[Tensor],
    form: str,
    size: tuple[int, ...],
    t: Time,
    dtype: torch.dtype,
    *,
    boundary: Boundary,
    even: bool,
) -> PairOperator:
    """Builds the X/P exponential of G pairs of real layers, in packed complex form."""
    dims = len(size)
    arrays = [mirrored(w.double(), dims) if even else w.double() for w in weights]
    transform = transform_for(boundary, size, real=False)
    complex_dtype = torch.complex128 if dtype == torch.float64 else torch.complex64
    k = transform.symbol(arrays[0]) * t
    if form == "symmetric" or not k.is_complex():
        angle = k.real if k.is_complex() else k
        return PairOperator(transform, _polar(angle, complex_dtype), None, angle)
    inner = [transform.symbol(w).imag * t for w in arrays[1:]]
    xx, xp, px, pp = su2(k, *(inner or (None, None)))
    alpha = (pp + xx) / 2 + 0.5j * (xp - px)
    beta = (pp - xx) / 2 + 0.5j * (xp + px)
    return PairOperator(transform, alpha.to(complex_dtype), beta.to(complex_dtype))
