"""One small complex matrix per frequency, applied to a field of channels; see README.md."""

import functools
from typing import Any

import torch
from torch import Tensor

from lawful.errors import expected
from lawful.kernels._native import Backend, use_native
from lawful.kernels.spectral.reference import (
    TILE,
    apply_blocks,
    outer_blocks,
    tile_blocks,
    untile_blocks,
)

__all__ = ["pack_blocks", "packed_apply", "packed_outer", "spectral_apply", "spectral_outer"]


@functools.cache
def _register_fakes() -> None:
    @torch.library.register_fake("lawful::spectral_apply")  # type: ignore[untyped-decorator]
    def _(u: Tensor, x: Tensor, adjoint: bool) -> Tensor:
        return x.new_empty(x.shape[0], u.shape[2 if adjoint else 1], x.shape[2], 2)

    @torch.library.register_fake("lawful::spectral_outer")  # type: ignore[untyped-decorator]
    def _(g: Tensor, x: Tensor) -> Tensor:
        return x.new_empty(-(-x.shape[2] // TILE), g.shape[1], x.shape[1], 2, TILE)

    @torch.library.register_fake("lawful::spectral_packed_apply")  # type: ignore[untyped-decorator]
    def _(u: Tensor, z: Tensor, plus: Tensor, minus: Tensor, adjoint: bool) -> Tensor:
        return torch.empty_like(z)

    @torch.library.register_fake("lawful::spectral_packed_outer")  # type: ignore[untyped-decorator]
    def _(g: Tensor, z: Tensor, plus: Tensor, minus: Tensor) -> Tensor:
        channels = 2 * z.shape[1]
        return z.new_empty(-(-len(plus) // TILE), channels, channels, 2, TILE)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _live(backend: Backend, device: str, dtype: torch.dtype) -> bool:
    """Which path to take; decided when a graph is compiled, not in it."""
    if not use_native(backend, torch.empty(0, dtype=dtype, device=device)):
        return False
    _register_fakes()
    return True


def pack_blocks(blocks: Tensor, *, backend: Backend = "auto") -> Tensor:
    """Brings complex matrices (F, C_out, C_in) into the layout of the path that will apply them.

    Returns:
        Real tiles (F/16, C_out, C_in, 2, 16) for the compiled path, else ``blocks`` itself.
        `spectral_apply` tells the two apart by their rank. Differentiable.
    """
    if blocks.ndim != 3 or not blocks.is_complex():
        raise expected("blocks", "complex (F, C_out, C_in)", f"{blocks.dtype} {blocks.shape}")
    double = blocks.dtype == torch.complex128
    live = _live(backend, blocks.device.type, torch.float64 if double else torch.float32)
    return tile_blocks(blocks) if live else blocks


def _apply(u: Tensor, x: Tensor, adjoint: bool) -> Tensor:
    if u.ndim == 3:
        return apply_blocks(u, x, adjoint)
    parts = torch.view_as_real(x.resolve_conj()).contiguous()
    return torch.view_as_complex(torch.ops.lawful.spectral_apply(u, parts, adjoint))


def spectral_outer(g: Tensor, x: Tensor, like: Tensor) -> Tensor:
    """sum_b g x^H per frequency, in the layout of ``like`` (see `pack_blocks`)."""
    if like.ndim == 3:
        return outer_blocks(g, x)
    parts = [torch.view_as_real(t.resolve_conj()).contiguous() for t in (g, x)]
    tiles: Tensor = torch.ops.lawful.spectral_outer(*parts)
    return tiles


class _SpectralApply(torch.autograd.Function):
    """Linear in both arguments, so its derivatives are the same two products."""

    @staticmethod
    def forward(u: Tensor, x: Tensor, adjoint: bool) -> Tensor:
        return _apply(u, x, adjoint)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, bool], output: Tensor) -> None:
        u, x, ctx.adjoint = inputs
        ctx.save_for_backward(u, x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        u, x = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *_differentiable_backward(u, x, g, ctx.adjoint), None
        g_u = g_x = None
        if ctx.needs_input_grad[1]:
            g_x = _apply(u, g, not ctx.adjoint)
        if ctx.needs_input_grad[0]:
            g_u = spectral_outer(x, g, u) if ctx.adjoint else spectral_outer(g, x, u)
        return g_u, g_x, None


def _differentiable_backward(
    u: Tensor, x: Tensor, g: Tensor, adjoint: bool
) -> tuple[Tensor, Tensor]:
    """The same products by plain torch operations, for derivatives of derivatives."""
    blocks = u if u.ndim == 3 else untile_blocks(u, x.shape[-1])
    g_x = apply_blocks(blocks, g, not adjoint)
    outer = outer_blocks(x, g) if adjoint else outer_blocks(g, x)
    return (outer if u.ndim == 3 else tile_blocks(outer)), g_x


def spectral_apply(u: Tensor, x: Tensor, *, adjoint: bool = False) -> Tensor:
    """y[b, :, f] = U[f] x[b, :, f] for every frequency f.

    Args:
        u: What `pack_blocks` returned.
        x: Complex (B, C_in, F); with ``adjoint`` (B, C_out, F).
        adjoint: Apply U[f]^H instead: for unitary U, the inverse.

    Returns:
        Complex (B, C_out, F), or (B, C_in, F) with ``adjoint``.

    Cost: 8 B C_out C_in F floating-point operations; U is read once.
    """
    channels = u.shape[1] if adjoint else u.shape[2]
    if x.ndim != 3 or x.shape[1] != channels:
        raise expected("x", f"(B, {channels}, F)", tuple(x.shape))
    y: Tensor = _SpectralApply.apply(u, x, adjoint)  # type: ignore[no-untyped-call]
    return y


def packed_apply(u: Tensor, z: Tensor, plus: Tensor, minus: Tensor, adjoint: bool) -> Tensor:
    """`spectral_apply` on pairs of real layers that share a complex field; compiled path only.

    Args:
        u: Tiles for the frequencies ``plus``, as `pack_blocks` made them.
        z: Spectrum of P + iX, complex (B, G, N); its 2 G real layers, X first, are the channels.
        plus: One frequency of each pair k, -k, (F,) int64.
        minus: The other one, which may be the same.
        adjoint: Apply U[f]^H.

    Returns:
        Spectrum of the packed result, (B, G, N).
    """
    parts = torch.view_as_real(z.resolve_conj()).contiguous()
    return torch.view_as_complex(
        torch.ops.lawful.spectral_packed_apply(u, parts, plus, minus, adjoint)
    )


def packed_outer(g: Tensor, z: Tensor, plus: Tensor, minus: Tensor) -> Tensor:
    """The gradient of `packed_apply` for U, pairs of different frequencies counted twice."""
    parts = [torch.view_as_real(t.resolve_conj()).contiguous() for t in (g, z)]
    tiles: Tensor = torch.ops.lawful.spectral_packed_outer(*parts, plus, minus)
    return tiles
