"""Projective dependency trees: log-partition, marginals, best tree, samples. See README.md.

All functions take arcs (..., N, N), ``arcs[..., h, m]`` scoring head h of word m (the diagonal is
ignored), root (..., N), lengths (...) or None, and whether the root may have one child only.
"""

import torch
from torch import Generator, Tensor

from lawful.kernels import _trees
from lawful.kernels._logspace import Reduce, drawer, maximum
from lawful.kernels._native import Backend
from lawful.kernels._tree_native import call_native, takes_native
from lawful.kernels._tree_truth import Pair, register
from lawful.kernels.projective import reference, scaled

__all__ = ["argmax", "log_partition", "marginals", "sample"]

register("projective", reference.log_partition, scaled.partition, scaled.run)


def log_partition(
    arcs: Tensor,
    root: Tensor,
    lengths: Tensor | None = None,
    single_root: bool = False,
    backend: Backend = "auto",
) -> Tensor:
    """Log of the sum over projective trees of exp(score), (...), float64, differentiable."""
    return _trees.log_partition("projective", arcs, root, lengths, single_root, backend)


def marginals(
    arcs: Tensor,
    root: Tensor,
    lengths: Tensor | None = None,
    single_root: bool = False,
    backend: Backend = "auto",
) -> Pair:
    """Probabilities of arcs (..., N, N) and root children (..., N), differentiable."""
    return _trees.marginals("projective", arcs, root, lengths, single_root, backend)


def argmax(
    arcs: Tensor,
    root: Tensor,
    lengths: Tensor | None = None,
    single_root: bool = False,
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor]:
    """Heads (..., N) of a best tree and its score (...); all -2 and -inf where there is none."""
    batch, flat = _trees.flatten(arcs, root, lengths)
    if takes_native("projective", backend, arcs, root):
        heads, score = call_native("projective", "argmax", *flat, single_root)
    else:
        heads, score = _derivation(*flat, single_root, maximum)
    return heads.reshape(*batch, heads.shape[-1]), score.reshape(batch)


def _derivation(arcs: Tensor, root: Tensor, lengths: Tensor, single: bool, reduce: Reduce) -> Pair:
    """Heads and score of the derivation that a reduction with one-hot gradients picks."""

    def value(a: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        score = reference.chart(a, r, lengths, single, reduce)
        return score.sum(), score

    (da, dr), score = torch.func.grad(value, (0, 1), has_aux=True)(arcs, root)
    heads = _trees.heads_of(da, dr, lengths)
    heads = heads.masked_fill((score == -torch.inf)[:, None], _trees.PAD)
    return heads, score.to(arcs.dtype)


def sample(
    count: int,
    arcs: Tensor,
    root: Tensor,
    lengths: Tensor | None = None,
    single_root: bool = False,
    generator: Generator | None = None,
    backend: Backend = "auto",
) -> Tensor:
    """Heads (count, ..., N) of exact independent samples; all -2 where there is no tree."""
    batch, flat = _trees.flatten(arcs, root, lengths)
    if takes_native("projective", backend, arcs, root):
        shape = (count, len(flat[0]), 2 * flat[0].shape[-1])
        uniforms = torch.rand(shape, generator=generator, dtype=torch.float64, device=arcs.device)
        op = torch.ops.lawful.projective_sample
        heads = op(*(x.contiguous() for x in flat), uniforms, single_root)
    else:
        many = (flat[0].repeat(count, 1, 1), flat[1].repeat(count, 1), flat[2].repeat(count))
        heads = _derivation(*many, single_root, drawer(generator))[0]
    result: Tensor = heads.reshape(count, *batch, heads.shape[-1])
    return result
