"""The truth of the spectral products, in plain torch: one matrix per frequency."""

import torch
from torch import Tensor

__all__ = ["apply_blocks", "outer_blocks", "tile_blocks", "untile_blocks"]

TILE = 16  # frequencies per tile of the compiled layout; csrc/spectral.h has the same number


def apply_blocks(blocks: Tensor, x: Tensor, adjoint: bool = False) -> Tensor:
    """y[b, :, f] = U[f] x[b, :, f], or U[f]^H x[b, :, f].

    Args:
        blocks: U, (F, C_out, C_in).
        x: (B, C_in, F), or (B, C_out, F) when ``adjoint``.
        adjoint: Use the conjugate transposes.
    """
    rows = x.permute(2, 0, 1).contiguous()  # (F, B, C): a plain bmm is fast only on dense operands
    matrix = blocks.conj() if adjoint else blocks.mT
    return torch.bmm(rows, matrix).permute(1, 2, 0).contiguous()


def outer_blocks(g: Tensor, x: Tensor) -> Tensor:
    """sum_b g[b, :, f] x[b, :, f]^H, the gradient of `apply_blocks` with respect to U.

    Args:
        g: (B, C_out, F).
        x: (B, C_in, F).

    Returns:
        (F, C_out, C_in).
    """
    return torch.bmm(g.permute(2, 1, 0).contiguous(), x.conj().permute(2, 0, 1).contiguous())


def tile_blocks(blocks: Tensor) -> Tensor:
    """Complex (F, C_out, C_in) -> real (tiles, C_out, C_in, 2, 16), zero-padded in F."""
    count, c_out, c_in = blocks.shape
    tiles = -(-count // TILE)
    parts = torch.view_as_real(blocks.resolve_conj())
    if tiles * TILE != count:
        parts = torch.cat([parts, parts.new_zeros(tiles * TILE - count, c_out, c_in, 2)])
    return parts.view(tiles, TILE, c_out, c_in, 2).permute(0, 2, 3, 4, 1).contiguous()


def untile_blocks(tiles: Tensor, count: int) -> Tensor:
    """Inverse of `tile_blocks`."""
    parts = tiles.permute(0, 4, 1, 2, 3).flatten(0, 1)[:count].contiguous()
    return torch.view_as_complex(parts)
