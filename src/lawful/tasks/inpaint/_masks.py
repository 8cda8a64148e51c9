"""Which patches are hidden, and which count in the loss."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lawful.errors import expected

Kind = Literal["scatter", "random", "block"]


class Mask(NamedTuple):
    """Two sets of patches for each picture."""

    hidden: Tensor  # (B, N) bool: shown to the network as MASK
    scored: Tensor  # (B, N) bool: in the loss


def draw_masks(
    noise: Tensor, kind: Kind, rows: int, columns: int, share: float, intact: float
) -> Mask:
    """Masks from uniform noise; the same noise gives the same masks.

    Of N = rows x columns patches, with n = round(share N) but at least 1 and at most N - 1:

    - "scatter": n random patches are scored; round(intact n) of them (at most n - 1) stay visible,
      the rest are hidden. This is the paper's masking (there n = 100 of 196, 10 of them visible).
    - "random": n random patches are scored and hidden.
    - "block": one rectangle of round(sqrt(share) rows) x round(sqrt(share) columns) patches (each
      side at least 1, and the shorter of the two shortened if nothing else were left) at a random
      place is scored and hidden.

    Args:
        noise: (B, N) uniform on [0, 1).
        kind: See above.
        rows: Patches down.
        columns: Patches across.
        share: Between 0 and 1.
        intact: Share of the scored patches that "scatter" leaves visible.
    """
    if noise.dim() != 2 or noise.shape[1] != rows * columns:
        raise expected("noise", f"shape (batch, {rows * columns})", tuple(noise.shape))
    if kind == "block":
        inside = _block(noise, rows, columns, share)
        return Mask(inside, inside)
    count = scored_count(rows * columns, share)
    rank = noise.argsort(dim=1).argsort(dim=1)
    scored = rank < count
    if kind == "random":
        return Mask(scored, scored)
    return Mask(rank < count - intact_count(count, intact), scored)


def scored_count(patches: int, share: float) -> int:
    """Patches in the loss of "scatter" and "random"."""
    return min(max(round(share * patches), 1), patches - 1)


def intact_count(scored: int, intact: float) -> int:
    """How many of the scored patches "scatter" leaves visible."""
    return min(round(intact * scored), scored - 1)


def _block(noise: Tensor, rows: int, columns: int, share: float) -> Tensor:
    height, width = (min(max(round(share**0.5 * n), 1), n) for n in (rows, columns))
    if (height, width) == (rows, columns):
        height, width = (height - 1, width) if rows >= columns else (height, width - 1)
    top = (noise[:, 0] * (rows - height + 1)).long()[:, None]
    left = (noise[:, 1] * (columns - width + 1)).long()[:, None]
    y, x = (torch.arange(n, device=noise.device) for n in (rows, columns))
    down = (y >= top) & (y < top + height)  # (B, rows)
    across = (x >= left) & (x < left + width)  # (B, columns)
    inside: Tensor = (down[:, :, None] & across[:, None, :]).flatten(1)
    return inside
