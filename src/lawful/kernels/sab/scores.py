"""How a step scores its memories."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lawful.kernels.sab.config import SABConfig
from lawful.kernels.sab.weights import sparse_weights

__all__ = ["Scorer", "read"]


@dataclass(frozen=True)
class Scorer:
    """A score function with its weights.

    "mlp": ``key`` (n, n), ``query`` (n, n), ``score`` (n,): score·tanh(key m + query h).
    "dot": ``key`` (n, n), ``query`` (n, n): (key m)·(query h) / sqrt(n / heads).
    "additive_release": ``score`` (2n,): score·tanh([h; m]).
    With several heads, the features of key m, query h and score fall into one slice for each head.
    """

    kind: str
    heads: int
    weights: Mapping[str, Tensor]

    def key(self, memory: Tensor) -> Tensor:
        """What to keep of memories (..., n): (..., A), with A = n, or A = heads if additive."""
        if self.kind != "additive_release":
            return F.linear(memory, self.weights["key"])
        with torch.autocast(memory.device.type, enabled=False):
            score = self.weights["score"][memory.shape[-1] :].to(memory.dtype)
            return _heads(score * memory.tanh(), self.heads).sum(-1)

    def scores(self, hidden: Tensor, keys: Tensor) -> Tensor:
        """Scores (B, H, R) of keys (B, R, A) for states (B, n), at least in float32."""
        wide = torch.promote_types(hidden.dtype, torch.float32)
        if self.kind == "additive_release":
            score = self.weights["score"][: hidden.shape[-1]].to(wide)
            query = _heads(score * hidden.to(wide).tanh(), self.heads).sum(-1)
            return (query[:, None] + keys.to(wide)).transpose(1, 2)
        query = _heads(F.linear(hidden, self.weights["query"]).to(wide), self.heads)
        split = _heads(keys.to(wide), self.heads)
        with torch.autocast(hidden.device.type, enabled=False):
            if self.kind == "dot":
                return (split * query[:, None]).sum(-1).transpose(1, 2) / math.sqrt(query.shape[-1])
            score = self.weights["score"].to(wide).view(self.heads, -1)
            return ((split + query[:, None]).tanh() * score).sum(-1).transpose(1, 2)


def _heads(x: Tensor, heads: int) -> Tensor:
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)


def read(
    scorer: Scorer, hidden: Tensor, memory: Tensor, keys: Tensor, valid: Tensor, config: SABConfig
) -> tuple[Tensor, Tensor]:
    """What a state recalls.

    Args:
        scorer: The score function.
        hidden: (B, n), the state that asks.
        memory: (B, R, n), what may be recalled.
        keys: (B, R, A), made by ``scorer.key``.
        valid: (B, R) bool.
        config: How scores become weights.

    Returns:
        The recalled sum (B, n) and the weights (B, H, R).
    """
    weights = sparse_weights(scorer.scores(hidden, keys), valid[:, None], config)
    with torch.autocast(hidden.device.type, enabled=False):
        # Elementwise, not a matmul: the sum over memories then has one order for every batch size.
        split = _heads(memory, scorer.heads)
        recalled = (weights.to(memory.dtype).transpose(1, 2)[..., None] * split).sum(1).flatten(1)
    return recalled, weights
