"""Arguments of attention layers: one query or several, any leading shape, lengths."""

from typing import NamedTuple

import torch
from torch import Tensor

from lawful.errors import expected
from lawful.structures._checks import Lengths, as_lengths

__all__ = ["Inputs", "Lengths", "arrange", "check_size", "hide_padding", "padding_of"]


class Inputs(NamedTuple):
    """Checked arguments: several queries, and zeros in the padding of keys and values."""

    query: Tensor  # (..., Q, D)
    keys: Tensor  # (..., N, K)
    values: Tensor  # (..., N, V)
    lengths: Tensor | None  # (...)
    single: bool  # a query without its own dimension was given


def arrange(query: Tensor, keys: Tensor, values: Tensor | None, lengths: Lengths) -> Inputs:
    """Checks shapes, gives a single query its dimension, and clears the padding.

    Args:
        query: (..., D), or (..., Q, D) with as many dimensions as ``keys``.
        keys: (..., N, K).
        values: (..., N, V); the keys if None.
        lengths: (...), keys from there on do not exist.

    Raises:
        InputError: Shapes that do not fit together.
    """
    for name, value in (("query", query), ("keys", keys), ("values", values)):
        check_float(name, value)
    if keys.dim() < 2:
        raise expected("keys", "at least 2 dimensions (..., N, K)", tuple(keys.shape))
    single = query.dim() == keys.dim() - 1
    if not (single or query.dim() == keys.dim()):
        want = f"(..., D) or (..., Q, D) to go with keys {tuple(keys.shape)}"
        raise expected("query", want, tuple(query.shape))
    lead = query.shape[:-1] if single else query.shape[:-2]
    if not _fits(lead, keys.shape[:-2]):
        want = f"leading dimensions {tuple(keys.shape[:-2])}, like keys"
        raise expected("query", want, tuple(query.shape))
    size = as_lengths(lengths, keys.shape[:-2], keys.shape[-2], keys.device, check=True)
    padding = padding_of(size, keys.shape[-2])
    clean = hide_padding(keys, padding)
    if values is None or values is keys:
        values = clean
    else:
        if values.dim() != keys.dim() or values.shape[-2] != keys.shape[-2]:
            want = f"(..., {keys.shape[-2]}, V), one for each key"
            raise expected("values", want, tuple(values.shape))
        values = hide_padding(values, padding)
    return Inputs(query[..., None, :] if single else query, clean, values, size, single)


def check_float(name: str, value: Tensor | None) -> None:
    """Refuses what is not a floating-point tensor."""
    if value is not None and not (isinstance(value, Tensor) and value.is_floating_point()):
        got = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise expected(name, "a floating-point tensor", got)


def check_size(name: str, value: Tensor, size: int) -> None:
    """Refuses a last dimension other than ``size``."""
    if value.shape[-1] != size:
        raise expected(name, f"last dimension {size}", tuple(value.shape))


def _fits(one: torch.Size, other: torch.Size) -> bool:
    return len(one) == len(other) and all(
        a == b or 1 in (a, b) for a, b in zip(one, other, strict=True)
    )


def padding_of(lengths: Tensor | None, size: int) -> Tensor | None:
    """(..., size) bool, True from each length on; None if nothing is padding."""
    if lengths is None:
        return None
    return torch.arange(size, device=lengths.device) >= lengths[..., None]


def hide_padding(x: Tensor, padding: Tensor | None) -> Tensor:
    """Rows (..., N, D) with zeros in the padding, so that junk there reaches no gradient."""
    return x if padding is None else x.masked_fill(padding[..., None], 0.0)
