"""From scores to sparse attention weights."""

import torch
from torch import Tensor
from torch.nn import functional as F

from lawful.errors import expected
from lawful.kernels.sab.config import SABConfig

__all__ = ["sparse_attention", "sparse_weights", "threshold_index"]


def sparse_attention(
    scores: Tensor,
    k_top: int,
    *,
    mask: Tensor | None = None,
    threshold: str = "k+1",
    normaliser: str = "relu",
    small_memory: str = "shift",
    margin: float = 1e-7,
    straight_through: bool = False,
) -> Tensor:
    """Sparse weights: each score's excess over the (k_top+1)-th largest, normalised.

    ``w_i = relu(a_i - τ + margin) / Σ_j relu(a_j - τ + margin)`` with τ the (k_top+1)-th largest
    score, or the smallest if there are fewer. Never more than ``k_top`` weights differ from 0: τ
    itself has weight 0, except that places left free by ties go to the first of the tied scores
    (in a memory: the oldest), with an excess of ``margin`` each. So equal scores give the first
    ``k_top`` equal weights. All that are tied with τ share its derivative equally.

    Args:
        scores: (..., R); -inf counts as masked.
        k_top: At least 1; may exceed R.
        mask: (..., R) bool, True where a score takes part. Default: all.
        threshold: See `SABConfig`, as for the rest.
        normaliser: "relu" or "softmax".
        small_memory: "shift", "softmax" or "raw".
        margin: Above 0.
        straight_through: Other derivative than the weights' own.

    Returns:
        (..., R) weights: non-negative with sum 1 (a row without a valid score: all 0), except
        that ``threshold="k"`` sums to below 1 and ``small_memory="raw"`` passes scores through.

    Raises:
        InputError: k_top below 1, NaN or +inf scores, a mask of another shape, unknown options.

    Cost: O(R log k_top). Half precision is computed in float32.
    Source: Ke et al. 2018, algorithm 1. Departure: the paper's formula is 0/0 for ties and
    undefined for R <= k_top.
    """
    config = SABConfig().replace(
        k_top=k_top,
        threshold=threshold,
        normaliser=normaliser,
        small_memory=small_memory,
        margin=margin,
        straight_through=straight_through,
    )
    if scores.dim() < 1 or not scores.is_floating_point():
        raise expected(
            "scores", "a floating-point tensor (..., R)", f"{scores.dtype} {scores.shape}"
        )
    if mask is None:
        mask = torch.ones_like(scores, dtype=torch.bool)
    elif mask.shape != scores.shape or mask.dtype != torch.bool:
        want = f"a bool tensor of shape {tuple(scores.shape)}"
        raise expected("mask", want, f"{mask.dtype} {tuple(mask.shape)}")
    if bool((mask & ~(scores < torch.inf)).any()):
        raise expected("scores", "numbers or -inf", "NaN or +inf")
    return sparse_weights(scores, mask, config)


def sparse_weights(scores: Tensor, mask: Tensor, config: SABConfig) -> Tensor:
    """`sparse_attention` without checks; ``mask`` is (..., R) and may broadcast."""
    if scores.shape[-1] == 0:
        return scores
    dtype = scores.dtype
    if dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    mask = (mask & (scores > -torch.inf)).expand_as(scores)
    count = mask.sum(-1, keepdim=True)
    scores = torch.where(mask, scores, 0.0)
    if config.normaliser == "softmax":
        value = _kth(scores, mask, count, config.k_top)
        weights = _softmax(scores, _chosen(scores, mask, value, config.k_top))
    else:
        weights = _excess(scores, mask, count, config)
    if config.straight_through:
        near = mask & (scores >= _kth(scores, mask, count, config.k_top + 1))
        smooth = _softmax(scores, near)
        weights = weights.detach() + (smooth - smooth.detach())
    if config.small_memory == "raw":
        weights = torch.where(count <= config.k_top, scores, weights)
    elif config.small_memory == "softmax":
        weights = torch.where(count <= config.k_top, _softmax(scores, mask), weights)
    return weights.to(dtype)


def _excess(scores: Tensor, mask: Tensor, count: Tensor, config: SABConfig) -> Tensor:
    keep = config.threshold == "k+1"
    value = _kth(scores, mask, count, config.k_top + keep)
    tied = mask & (scores == value)
    # The value of τ is exact; its derivative is shared by all that are tied with it.
    shared = torch.where(tied, scores, 0.0).sum(-1, keepdim=True) / tied.sum(
        -1, keepdim=True
    ).clamp(1)
    tau = value + (shared - shared.detach())
    # Gap first, margin second: near the threshold the difference is exact at any score scale.
    chosen = _chosen(scores, mask, value, config.k_top) if keep else mask
    excess = torch.where(
        chosen, F.relu(scores - tau + (config.margin if keep else -config.margin)), 0.0
    )
    total = excess.sum(-1, keepdim=True)
    if not keep:
        return excess / (total + config.margin)
    return excess / torch.where(count > 0, total, 1.0)


def _chosen(scores: Tensor, mask: Tensor, value: Tensor, k: int) -> Tensor:
    """Bool (..., R): what lies above ``value`` and the first that equal it, at most k in all."""
    above = mask & (scores > value)
    tied = mask & (scores == value)
    free = k - above.sum(-1, keepdim=True)
    return above | (tied & (tied.cumsum(-1) <= free))


def threshold_index(scores: Tensor, mask: Tensor, k_top: int) -> Tensor:
    """Index (...) of the score that sets the threshold; -1 where all scores may have a weight."""
    mask = mask.expand_as(scores)
    count = mask.sum(-1, keepdim=True)
    value = _kth(scores, mask, count, k_top + 1)
    rest = mask & (scores == value) & ~_chosen(scores, mask, value, k_top)
    return torch.where(rest.any(-1), rest.to(torch.int8).argmax(-1), -1)


def _kth(scores: Tensor, mask: Tensor, count: Tensor, k: int) -> Tensor:
    """The k-th largest valid score, or the smallest if there are fewer; no gradient. (..., 1)."""
    with torch.no_grad():
        best = torch.where(mask, scores, -torch.inf).topk(min(k, scores.shape[-1])).values
        rank = (count.clamp(max=k) - 1).clamp(min=0)
        return best.gather(-1, rank)


def _softmax(scores: Tensor, mask: Tensor) -> Tensor:
    top = torch.where(mask, scores, -torch.inf).amax(-1, keepdim=True).detach()
    top = torch.where(top > -torch.inf, top, 0.0)
    power = torch.where(mask, torch.where(mask, scores - top, 0.0).exp(), 0.0)
    total = power.sum(-1, keepdim=True)
    return power / torch.where(total > 0, total, 1.0)
