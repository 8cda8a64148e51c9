"""Labels on the parts of a structure: summed out, and found again given the parts."""

import torch
from torch import Tensor

from lawful.structures._checks import check_rank

__all__ = ["marginalise_labels"]


def marginalise_labels(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Sums out the labels of arcs: trees with labelled arcs as trees, and labels given arcs.

    The log-partition of trees whose arcs carry one of L labels is that of trees with scores
    logsumexp over the labels; the probability of a labelled arc is the product of the arc's
    marginal and the label's posterior.

    Args:
        scores: (..., L), e.g. arcs (..., N, N, L) or root (..., N, L).

    Returns:
        Scores without labels (...), -inf where no label is possible, and posteriors (..., L), 0
        there. Both differentiable.

    Example:
        >>> scores = torch.zeros(3, 3, 4)
        >>> arcs, posterior = marginalise_labels(scores)
        >>> labelled = ProjectiveTree(arcs).marginals.arcs[..., None] * posterior
        >>> labelled.shape
        torch.Size([3, 3, 4])
    """
    check_rank("scores", scores, 1)
    top = scores.detach().amax(-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0.0)
    weights = (scores - top).exp()
    total = weights.sum(-1)
    none = total == 0
    total = total + none
    arcs = (total.log() + top[..., 0]).masked_fill(none, -torch.inf)
    return arcs, weights / total[..., None]
