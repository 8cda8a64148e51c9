"""Log-space arithmetic with clean zeros: minus infinity in, no NaN in any derivative."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

__all__ = ["Reduce", "drawer", "logsumexp", "maximum"]

Reduce = Callable[[Tensor], Tensor]  # over the last dimension


def logsumexp(x: Tensor) -> Tensor:
    """Over the last dimension; -inf with zero gradient where every term is -inf."""
    top = x.detach().amax(-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0.0)
    total = (x - top).exp().sum(-1)
    none = total == 0
    return (total + none).log().masked_fill(none, -torch.inf) + top[..., 0]


def maximum(x: Tensor) -> Tensor:
    """Over the last dimension; the gradient goes to one largest term."""
    return x.max(-1).values


def drawer(generator: Generator | None) -> Reduce:
    """A `logsumexp` whose gradient is the indicator of one term, drawn in proportion.

    A program of sums and products over derivations, run with it, has the gradient of a random
    derivation: each sum draws its term whether or not it turns out to be used.
    """

    def draw(x: Tensor) -> Tensor:
        total = logsumexp(x.detach())
        none = total == -torch.inf
        steps = (x.detach() - total.masked_fill(none, 0.0)[..., None]).exp().cumsum(-1)
        at = torch.rand(total.shape, generator=generator, dtype=x.dtype, device=x.device)
        index = (steps <= at[..., None] * steps[..., -1:]).sum(-1, keepdim=True)
        term = x.gather(-1, index.clamp(max=x.shape[-1] - 1))[..., 0]
        return torch.where(none, total, total + (term - term.detach()))

    return draw
