"""How inputs enter a field and how features are read from it.

All arrays here are in the recurrence's inner form: real fields, or complex ones (X/P layers packed
as P + iX). Sequences are time first.
"""

import torch
from torch import Tensor

__all__ = ["drive_channels", "drive_profiles", "read_profiles"]


def drive_profiles(x: Tensor, profiles: Tensor) -> Tensor:
    r"""sum_d x[..., d] profiles[d]: each input feature excites a pattern of its own.

    Args:
        x: (T, B, D), real or complex.
        profiles: (D, C, \*size), real or complex.

    Returns:
        (T, B, C, \*size).
    """
    shape = (*x.shape[:-1], *profiles.shape[1:])
    rows = x.reshape(-1, x.shape[-1])
    if profiles.is_complex() and not x.is_complex():
        flat = torch.view_as_real(profiles).flatten(1)
        return torch.view_as_complex((rows @ flat).view(*shape, 2))
    if x.is_complex() and not profiles.is_complex():
        profiles = profiles.to(x.dtype)
    return (rows @ profiles.flatten(1)).view(shape)


def drive_channels(x: Tensor, weight: Tensor) -> Tensor:
    r"""Mixes the channels of an input field at each site.

    Args:
        x: (T, B, D, \*size).
        weight: (C, D), real or complex.

    Returns:
        (T, B, C, \*size).
    """
    flat = x.flatten(3)
    if weight.is_complex() and not x.is_complex():
        mixed = torch.complex(weight.real @ flat, weight.imag @ flat)
    else:
        mixed = weight.to(torch.promote_types(weight.dtype, x.dtype)) @ flat
    return mixed.view(*mixed.shape[:3], *x.shape[3:])


def read_profiles(z: Tensor, profiles: Tensor, bias: Tensor) -> Tensor:
    r"""Re <profile, z> + bias, a real number per profile.

    Args:
        z: (..., C, \*size).
        profiles: (O, C, \*size), complex if ``z`` is.
        bias: (O,).

    Returns:
        (..., O).
    """
    lead = z.shape[: z.ndim - profiles.ndim + 1]
    if z.is_complex():
        z, profiles = torch.view_as_real(z), torch.view_as_real(profiles.resolve_conj())
    rows = z.reshape(-1, profiles[0].numel())
    return torch.addmm(bias, rows, profiles.flatten(1).T).view(*lead, -1)
