"""Binary constituency trees: log-partition, marginals, best tree, samples. See README.md.

All functions take spans (..., N, N), ``spans[..., i, j]`` scoring the words i..j for i < j (the
rest is ignored), leaves (..., N) scoring the single words, and lengths (...) or None.
"""

import torch
from torch import Generator, Tensor

from lawful.kernels import _trees
from lawful.kernels._logspace import Reduce, drawer, maximum
from lawful.kernels._native import Backend
from lawful.kernels._tree_native import call_native, takes_native
from lawful.kernels._tree_truth import Pair, register
from lawful.kernels.constituency import reference

__all__ = ["argmax", "log_partition", "marginals", "sample"]

register("constituency", reference.log_partition)


def log_partition(
    spans: Tensor, leaves: Tensor, lengths: Tensor | None = None, backend: Backend = "auto"
) -> Tensor:
    """Log of the sum over binary trees of exp(score), (...), float64, differentiable."""
    return _trees.log_partition("constituency", spans, leaves, lengths, False, backend)


def marginals(
    spans: Tensor, leaves: Tensor, lengths: Tensor | None = None, backend: Backend = "auto"
) -> Pair:
    """Probabilities of spans (..., N, N) and leaves (..., N; 1 in a possible tree)."""
    return _trees.marginals("constituency", spans, leaves, lengths, False, backend)


def argmax(
    spans: Tensor, leaves: Tensor, lengths: Tensor | None = None, backend: Backend = "auto"
) -> Tensor:
    """Spans (..., N, N) bool of a best tree, the words on the diagonal; False where none exists."""
    batch, flat = _trees.flatten(spans, leaves, lengths)
    if takes_native("constituency", backend, spans, leaves):
        tree = call_native("constituency", "argmax", *flat, False)[0]
    else:
        tree = _derivation(*flat, maximum)
    result: Tensor = tree.reshape(*batch, *tree.shape[1:])
    return result


def _derivation(spans: Tensor, leaves: Tensor, lengths: Tensor, reduce: Reduce) -> Tensor:
    """Spans of the derivation that a reduction with one-hot gradients picks."""

    def value(s: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        score = reference.inside(s, x, lengths, reduce)
        return score.sum(), score

    (ds, dx), score = torch.func.grad(value, (0, 1), has_aux=True)(spans, leaves)
    there = (ds + torch.diag_embed(dx)) > 0.5
    result: Tensor = there & (score > -torch.inf)[:, None, None]
    return result


def sample(
    count: int,
    spans: Tensor,
    leaves: Tensor,
    lengths: Tensor | None = None,
    generator: Generator | None = None,
    backend: Backend = "auto",
) -> Tensor:
    """Spans (count, ..., N, N) bool of exact independent samples; False where no tree exists."""
    batch, flat = _trees.flatten(spans, leaves, lengths)
    n = spans.shape[-1]
    if takes_native("constituency", backend, spans, leaves):
        shape = (count, len(flat[0]), n)
        uniforms = torch.rand(shape, generator=generator, dtype=torch.float64, device=spans.device)
        op = torch.ops.lawful.constituency_sample
        trees = op(*(x.contiguous() for x in flat), uniforms, False)
    else:
        many = (flat[0].repeat(count, 1, 1), flat[1].repeat(count, 1), flat[2].repeat(count))
        trees = _derivation(*many, drawer(generator))
    result: Tensor = trees.reshape(count, *batch, n, n)
    return result
