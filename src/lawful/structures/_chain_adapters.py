"""Chains in the layouts of other libraries, as ours; and lengths from masks."""

import torch
from torch import Tensor

from lawful.errors import InputError, expected
from lawful.structures._chain import LinearChain
from lawful.structures._checks import Lengths, check_rank

__all__ = ["chain_from_pytorch_crf", "chain_from_torch_struct", "lengths_from_mask"]


def lengths_from_mask(mask: Tensor, *, name: str = "mask") -> Tensor:
    """Lengths (...) of a mask (..., N) that is true on a prefix of each row.

    Args:
        mask: bool, or any number type holding only 0 and 1; a row of zeros has length 0.
        name: What to call it in errors.

    Raises:
        InputError: Other values than 0 and 1; a hole; padding on the left.
    """
    if not isinstance(mask, Tensor) or mask.is_complex() or mask.dim() == 0:
        raise expected(name, "a bool or 0/1 tensor (..., N)", type(mask).__name__)
    on = mask != 0
    if mask.dtype != torch.bool and bool((mask != on.to(mask.dtype)).any()):
        raise expected(name, "only 0 and 1", "other values")
    late = on[..., 1:] & ~on[..., :-1]
    if bool(late.any()):
        *row, step = late.nonzero()[0].tolist()
        raise InputError(
            f"{name}: row {row} is true at step {step + 1} after being false: holes and padding on "
            "the left change what follows what; move each row's steps to the front"
        )
    return on.sum(-1)


def chain_from_pytorch_crf(
    emissions: Tensor,
    transitions: Tensor,
    start_transitions: Tensor,
    end_transitions: Tensor,
    mask: Tensor | None = None,
    *,
    batch_first: bool = False,
) -> LinearChain:
    """The distribution of pytorch-crf's ``CRF`` module.

    ``-chain.log_prob(tags)`` is its negative log-likelihood, ``chain.argmax`` its ``decode``.

    Args:
        emissions: (N, B, C), or (B, N, C) with ``batch_first``.
        transitions: (C, C), ``transitions[i, j]`` from tag i to tag j.
        start_transitions: (C).
        end_transitions: (C).
        mask: Like emissions without the last dimension, true on a prefix of each sequence.
        batch_first: As in the module.

    Raises:
        InputError: A mask of another shape than the emissions, or with holes.
    """
    check_rank("emissions", emissions, 3)
    if mask is not None and mask.shape != emissions.shape[:-1]:
        raise expected("mask", f"shape {tuple(emissions.shape[:-1])}", tuple(mask.shape))
    if not batch_first:
        emissions = emissions.movedim(0, 1)
        mask = None if mask is None else mask.movedim(0, 1)
    lengths = None if mask is None else lengths_from_mask(mask)
    return LinearChain(
        emissions, transitions, lengths, start=start_transitions, end=end_transitions
    )


def chain_from_torch_struct(log_potentials: Tensor, lengths: Lengths = None) -> LinearChain:
    """The distribution of torch-struct's ``LinearChainCRF``.

    Its marginals are ``chain.edge_marginals.mT``, or ``chain.marginals.transition.mT``.

    Args:
        log_potentials: (..., N-1, C, C), ``[n, j, i]`` scores state i at n -> state j at n+1.
        lengths: (...), numbers of states (not of edges), as there. Lengths 0 and 1, which it
            cannot express, and lengths that are all below N are fine here.
    """
    check_rank("log_potentials", log_potentials, 3)
    steps, C = log_potentials.shape[-3], log_potentials.shape[-1]
    unary = log_potentials.new_zeros(*log_potentials.shape[:-3], steps + 1, C)
    return LinearChain(unary, log_potentials.mT, lengths)
