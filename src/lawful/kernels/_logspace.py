"""Log-space arithmetic with clean zeros: minus infinity in, no NaN in any derivative."""

import torch
from torch import Tensor

__all__ = ["logsumexp"]


def logsumexp(x: Tensor) -> Tensor:
    """Over the last dimension; -inf with zero gradient where every term is -inf."""
    top = x.detach().amax(-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0.0)
    total = (x - top).exp().sum(-1)
    none = total == 0
    return (total + none).log().masked_fill(none, -torch.inf) + top[..., 0]
