"""What was recalled, for inspection."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lawful.kernels.sab import Read

__all__ = ["Recall"]


@dataclass(frozen=True)
class Recall:
    """The memories that each step recalled, strongest first.

    Attributes:
        steps: (B, T, H, K) int64, the step (counted from the sequence's start) at which the
            recalled state was stored; -1 for the initial zero memory and for unused places.
        weights: (B, T, H, K), 0 in unused places. No gradient.
        threshold: (B, T, H) int64, the step whose stored state set the threshold: it has no weight,
            but the derivative of the weights reaches its score. -1: none, or the zero memory.
    """

    steps: Tensor
    weights: Tensor
    threshold: Tensor

    def dense(self, past: int) -> Tensor:
        """Attention map (B, T, past): weight of stored step j at each step, mean over heads."""
        batch, steps, heads, _ = self.steps.shape
        known = (self.steps >= 0) & (self.steps < past)
        index = torch.where(known, self.steps, past)
        full = self.weights.new_zeros(batch, steps, heads, past + 1)
        return full.scatter_add(-1, index, self.weights)[..., :past].mean(2)


def make_recall(reads: list[Read], hidden: Tensor, heads: int) -> Recall:
    """Packs the dense weights of each step of ``hidden`` (B, T, n); steps without memory lack."""
    batch, steps = hidden.shape[:2]
    most = max((int((r.weights != 0).sum(-1).max()) for r in reads if r.weights.numel()), default=0)
    place = hidden.new_full((batch, steps, heads, most), -1, dtype=torch.int64)
    weight = hidden.new_zeros(batch, steps, heads, most)
    threshold = hidden.new_full((batch, steps, heads), -1, dtype=torch.int64)
    for t, r in enumerate(reads, start=steps - len(reads)):
        k = min(most, r.weights.shape[-1])
        top = r.weights.abs().topk(k).indices
        weight[:, t, :, :k] = r.weights.gather(-1, top).to(weight.dtype)
        stamps = r.stamps[:, None].expand(-1, heads, -1).gather(-1, top)
        place[:, t, :, :k] = torch.where(weight[:, t, :, :k] != 0, stamps, -1)
        threshold[:, t] = r.threshold
    return Recall(place, weight, threshold)
