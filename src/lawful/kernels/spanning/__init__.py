"""Non-projective dependency trees: log-partition, marginals, best tree, samples. See README.md.

All functions take arcs (..., N, N), ``arcs[..., h, m]`` scoring head h of word m (the diagonal is
ignored), root (..., N), lengths (...) or None, and whether the root may have one child only.
"""

import numpy as np
import torch
from torch import Generator, Tensor

from lawful.kernels import _trees
from lawful.kernels._native import Backend
from lawful.kernels._tree_native import call_native, takes_native
from lawful.kernels._tree_truth import Pair, register
from lawful.kernels.projective.reference import masked
from lawful.kernels.spanning import dense, reference
from lawful.kernels.spanning._edmonds import best_heads

__all__ = ["argmax", "log_partition", "marginals", "sample"]

register("spanning", reference.log_partition, dense.partition, dense.run)


def log_partition(
    arcs: Tensor,
    root: Tensor,
    lengths: Tensor | None = None,
    single_root: bool = False,
    backend: Backend = "auto",
) -> Tensor:
    """Log of the sum over all trees of exp(score), (...), float64, differentiable."""
    return _trees.log_partition("spanning", arcs, root, lengths, single_root, backend)


def marginals(
    arcs: Tensor,
    root: Tensor,
    lengths: Tensor | None = None,
    single_root: bool = False,
    backend: Backend = "auto",
) -> Pair:
    """Probabilities of arcs (..., N, N) and root children (..., N), differentiable."""
    return _trees.marginals("spanning", arcs, root, lengths, single_root, backend)


def argmax(
    arcs: Tensor,
    root: Tensor,
    lengths: Tensor | None = None,
    single_root: bool = False,
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor]:
    """Heads (..., N) of a best tree and its score (...); all -2 and -inf where there is none.

    O(N^2), deterministic on ties (every choice goes to the lower head).
    """
    batch, flat = _trees.flatten(arcs, root, lengths)
    if takes_native("spanning", backend, arcs, root):
        heads, score = call_native("spanning", "argmax", *flat, single_root)
    else:
        heads, score = _plain_argmax(*flat, single_root)
    return heads.reshape(*batch, heads.shape[-1]), score.reshape(batch)


def _plain_argmax(arcs: Tensor, root: Tensor, lengths: Tensor, single: bool) -> Pair:
    a, r = (x.detach().cpu() for x in masked(arcs, root, lengths))
    n = a.shape[-1]
    heads = torch.full((len(a), n), _trees.PAD)
    score = torch.full((len(a),), -torch.inf, dtype=torch.float64)
    for b, length in enumerate(lengths.tolist()):
        table = torch.cat([a[b, :length, :length].mT, r[b, :length, None]], -1).numpy()
        found = _best_tree(table, single)
        if found is not None:
            heads[b, :length], score[b] = torch.from_numpy(found[0]), found[1]
    return heads.to(arcs.device), score.to(arcs.device, arcs.dtype)


def _best_tree(table: np.ndarray, single: bool) -> tuple[np.ndarray, float] | None:
    """Heads and score from a table [word, head] with the root last; None if there is no tree."""
    n = len(table)
    if n == 0:
        return np.zeros(0, np.int64), 0.0
    possible = table > -np.inf
    cost = np.where(possible, 0, n + 2)
    cost[:, n] += single
    top = table.max(1, keepdims=True)
    top[top == -np.inf] = 0.0
    heads = np.array(best_heads(np.where(possible, table - top, 0.0), cost))
    score = float(table[np.arange(n), heads].sum())
    if score == -np.inf or (single and (heads == n).sum() > 1):
        return None
    return np.where(heads == n, _trees.ROOT, heads), score


def sample(
    count: int,
    arcs: Tensor,
    root: Tensor,
    lengths: Tensor | None = None,
    single_root: bool = False,
    generator: Generator | None = None,
    backend: Backend = "auto",
) -> Tensor:
    """Heads (count, ..., N) of exact independent samples; all -2 where there is no tree.

    Loop-erased random walks; when a walk is trapped for long (scores that make a cycle hard to
    leave), that tree is drawn word by word from conditional marginals instead. The number of steps
    of a walk is independent of its tree, so the mixture is exact.
    """
    batch, flat = _trees.flatten(arcs, root, lengths)
    if takes_native("spanning", backend, arcs, root):
        heads = _walk(count, *flat, single_root, generator)
    else:
        heads = _trees.sample_by_conditioning("spanning", count, *flat, single_root, generator)
    return heads.reshape(count, *batch, heads.shape[-1])


def _walk(
    count: int,
    arcs: Tensor,
    root: Tensor,
    lengths: Tensor,
    single: bool,
    generator: Generator | None,
) -> Tensor:
    tensors = arcs.contiguous(), root.contiguous(), lengths.contiguous()
    top = call_native("spanning", "marginals", *tensors, single)[1].double()
    seeds = torch.randint(2**62, (count, len(arcs)), generator=generator)
    walks = torch.ops.lawful.spanning_walks
    heads: Tensor
    heads, finished = walks(*tensors, top.contiguous(), seeds, single)
    if not bool(finished.all()):
        which, element = (~finished).nonzero(as_tuple=True)
        rest = tensors[0][element], tensors[1][element], tensors[2][element]
        heads[which, element] = _trees.sample_by_conditioning(
            "spanning", 1, *rest, single, generator
        )[0]
    return heads
