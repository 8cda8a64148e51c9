"""The Weisfeiler-Lehman subtree kernel, with a linear support vector machine on its features."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lawful.models._common import check_positive

#: Odd numbers that multiply colours; arithmetic is modulo 2^64.
_MIX = (-7046029254386353131, -4417276706812531889, 1609587929392839161)
_SHIFTS = (30, 27, 31)
_EDGE = 0x5851F42D4C957F2D  # so that labels of edges and of nodes are never alike


@dataclass(frozen=True)
class WLConfig:
    """Weisfeiler-Lehman kernel: counts of subtrees, judged by a support vector machine."""

    depth: int = 5
    """Deepest subtrees; how many levels of them count is chosen on the validation part."""
    penalties: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
    """Penalties C of the support vector machine, of which one is chosen on the validation part."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        check_positive(depth=self.depth, penalties=len(self.penalties))


def mix(colours: Tensor) -> Tensor:
    """A fixed bijection of 64-bit numbers that leaves nothing of their order."""
    for shift, factor in zip(_SHIFTS, _MIX, strict=True):
        # An arithmetic shift would copy the sign; the mask makes it a logical one.
        high = (colours >> shift) & ((1 << (64 - shift)) - 1)
        colours = (colours ^ high) * factor
    return colours


def refine(colours: Tensor, edge_colours: Tensor, edge_index: Tensor, depth: int) -> list[Tensor]:
    """Colours of nodes after 0, ..., ``depth`` rounds: ``depth + 1`` tensors (N,) int64.

    In each round a node's colour becomes a hash of it and of the multiset of its neighbours'
    colours, with those of the edges between. Equal subtrees have equal colours, and unequal ones
    different ones up to collisions of 64-bit hashes.

    Args:
        colours: (N,) int64, what nodes are to begin with.
        edge_colours: (E,) int64.
        edge_index: (2, E): source, target.
        depth: Rounds.

    Source: Shervashidze et al. 2011, "Weisfeiler-Lehman graph kernels".
    """
    source, target = edge_index
    edge = mix(edge_colours + _EDGE)
    found = [mix(colours + 1)]
    for level in range(depth):
        sent = mix(mix(found[-1])[source] + edge)
        heard = torch.zeros_like(colours).index_add(0, target, sent)
        # Levels have colours of their own: the round enters the hash.
        found.append(mix(mix(found[-1] + level + 1) + heard))
    return found


class WLModel(nn.Module):
    """Classes by a linear function of normalised counts of colours.

    Everything is fitted before training; what training then moves is ``scale`` alone, by which
    margins become logits.

    Args:
        colours: V, the colours that count.
        classes: Number of classes.
    """

    vocabulary: Tensor
    weight: Tensor
    bias: Tensor
    rounds: Tensor

    def __init__(self, colours: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("vocabulary", torch.zeros(colours, dtype=torch.int64))
        self.register_buffer("weight", torch.zeros(colours, classes))
        self.register_buffer("bias", torch.zeros(classes))
        self.register_buffer("rounds", torch.zeros((), dtype=torch.int64))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(
        self, colours: Tensor, edge_colours: Tensor, edge_index: Tensor, batch: Tensor, count: int
    ) -> Tensor:
        """Logits (G, classes)."""
        levels = refine(colours, edge_colours, edge_index, int(self.rounds))
        graph, colour, counts = histogram(levels, batch)
        norms = counts.new_zeros(count).index_add(0, graph, counts**2).sqrt()
        place = torch.searchsorted(self.vocabulary, colour).clamp(max=len(self.vocabulary) - 1)
        known = self.vocabulary[place] == colour
        graph, place, counts = graph[known], place[known], counts[known]
        values = (counts / norms[graph])[:, None] * self.weight[place]
        margins = self.bias + values.new_zeros(count, len(self.bias)).index_add(0, graph, values)
        return self.scale * margins


def histogram(levels: list[Tensor], batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How often each graph has each colour of any level: graphs, colours, counts (float)."""
    pairs = torch.stack([batch.repeat(len(levels)), torch.cat(levels)], 1)
    found, counts = torch.unique(pairs, dim=0, return_counts=True)
    return found[:, 0], found[:, 1].contiguous(), counts.to(torch.get_default_dtype())
