"""The two trivial families: pick one item (softmax), pick any subset (sigmoids)."""

from itertools import product

import torch
from torch import Generator, Tensor
from torch.distributions import constraints
from torch.nn.functional import softplus

from lawful.kernels import Backend
from lawful.structures._checks import Lengths, check_rank, log_potential
from lawful.structures._distribution import StructuredDistribution

__all__ = ["Bernoulli", "Categorical"]


class _Independent(StructuredDistribution):
    """Shared by families whose only potential is one score per item."""

    _event_dims = (1,)

    def __init__(
        self,
        unary: Tensor,
        lengths: Lengths = None,
        validate_args: bool | None = None,
        backend: Backend = "auto",
    ) -> None:
        check_rank("unary", unary, 1)
        size = unary.shape[-1]
        event = self._event(size)
        super().__init__((unary,), unary.shape[:-1], event, size, lengths, validate_args, backend)
        self._valid = self._mask()
        self._check_potentials(["unary"], [self._valid])
        if self._valid is not None:
            self._theta = (self._theta[0].masked_fill(~self._valid, -torch.inf),)

    def _event(self, size: int) -> torch.Size:
        return torch.Size([size])

    @property
    def unary(self) -> Tensor:
        """The scores as given, (..., N)."""
        return self._given[0]

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """Scores are finite or -inf (outside padding)."""
        return {"unary": log_potential}

    def _empty(self) -> Tensor | bool:
        return self._size == 0 if self.lengths is None else self.lengths == 0


class Categorical(_Independent):
    r"""Picks one of N items: p(i) = softmax(unary)_i, ordinary attention.

    Args:
        unary: Scores, (..., N), finite or -inf.
        lengths: (...), items from there on do not exist. Length 0 has log-partition 0 and no item.
        validate_args: As in torch.distributions.
        backend: Accepted for uniformity; there is one path.

    Integer form: the item's index, a LongTensor (...), -1 for length 0. Cost O(N).
    """

    def _event(self, size: int) -> torch.Size:
        return torch.Size()

    def _shifted(self) -> tuple[Tensor, Tensor]:
        """exp(unary - max) and the max (0 where that is -inf or there are no items)."""
        x = self._theta[0]
        if self._size == 0:
            return x, x.new_zeros(self._batch_shape)
        top = x.detach().amax(-1)
        top = top.masked_fill(top == -torch.inf, 0.0)
        return (x - top[..., None]).exp(), top

    def _log_partition(self) -> Tensor:
        weights, top = self._shifted()
        total = weights.sum(-1, dtype=torch.float64)
        value = total.masked_fill(total == 0, 1.0).log() + top
        return value.masked_fill((total == 0), -torch.inf).masked_fill(self._none(), 0.0)

    def _none(self) -> Tensor:
        return torch.as_tensor(self._empty(), device=self._theta[0].device)

    def _marginals(self) -> tuple[Tensor, ...]:
        weights, _ = self._shifted()
        total = weights.sum(-1, keepdim=True)
        return (weights / total.masked_fill(total == 0, 1.0),)

    def _centred(self) -> tuple[tuple[Tensor, ...], Tensor | float]:
        _, top = self._shifted()
        return (self._theta[0] - top[..., None],), top.double()

    def _argmax(self) -> Tensor:
        return self._topk(1)[0][0]

    def _topk(self, k: int) -> tuple[Tensor, Tensor]:
        found = min(k, self._size)
        scores, items = (x.movedim(-1, 0) for x in self._theta[0].topk(found))
        shape = (k, *self._batch_shape)
        all_scores, all_items = scores.new_full(shape, -torch.inf), items.new_full(shape, -1)
        all_scores[:found], all_items[:found] = scores, items.masked_fill(scores == -torch.inf, -1)
        all_scores[0].masked_fill_(self._none(), 0.0)
        return all_items, all_scores

    def _sample(self, count: int, generator: Generator | None) -> Tensor:
        shape = (count, *self._batch_shape)
        if self._size == 0:
            return torch.full(shape, -1, device=self._theta[0].device)
        weights = self._marginals()[0].double().expand(*shape, self._size)
        drawn = torch.rand(shape, generator=generator, dtype=torch.float64, device=weights.device)
        steps = weights.cumsum(-1)
        item = (steps <= drawn[..., None] * steps[..., -1:]).sum(-1)
        return item.masked_fill(self._none(), -1)

    def _indicator(self, structure: Tensor) -> tuple[Tensor, ...]:
        items = torch.arange(self._size, device=structure.device)
        return ((structure[..., None] == items).to(self._theta[0].dtype),)

    def _structure(self, indicator: tuple[Tensor, ...]) -> Tensor:
        x = indicator[0] if self._valid is None else indicator[0].masked_fill(~self._valid, 0)
        if self._size == 0:
            return torch.full(x.shape[:-1], -1, device=x.device)
        return x.to(torch.float32).argmax(-1).masked_fill(self._none(), -1)

    def _is_valid(self, structure: Tensor) -> Tensor:
        end = self._size if self.lengths is None else self.lengths
        return ((structure >= 0) & (structure < end)) | self._none()

    def _score(self, structure: Tensor, potentials: tuple[Tensor, ...]) -> Tensor:
        if self._size == 0:
            return potentials[0].new_zeros(structure.shape, dtype=torch.float64)
        x = potentials[0].expand(*structure.shape, self._size)
        score = x.gather(-1, structure.clamp(0, self._size - 1)[..., None])[..., 0].double()
        return score.masked_fill(structure < 0, -torch.inf).masked_fill(self._none(), 0.0)

    def _all_structures(self, n: int) -> Tensor:
        return torch.arange(n) if n else torch.full((1,), -1)


class Bernoulli(_Independent):
    r"""Picks any subset of N items: item i with probability sigmoid(unary_i), independently.

    Args:
        unary: Scores, (..., N), finite or -inf.
        lengths: (...), items from there on are never picked.
        validate_args: As in torch.distributions.
        backend: Accepted for uniformity; there is one path.

    Integer form: a bool mask (..., N), False in padding. Cost O(N).
    """

    def _log_partition(self) -> Tensor:
        return softplus(self._theta[0].double()).sum(-1)

    def _marginals(self) -> tuple[Tensor, ...]:
        return (self._theta[0].sigmoid(),)

    def _argmax(self) -> Tensor:
        return self._theta[0] > 0

    def _topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Grows the k best sets item by item: each either keeps or flips the better choice."""
        x = self._theta[0].double()
        best = x > 0
        scores = x.new_zeros((1, *self._batch_shape))
        flips = torch.zeros((1, *x.shape), dtype=torch.bool, device=x.device)
        for i in range(self._size):
            both = torch.cat([scores, scores - x[..., i].abs()])
            turned = torch.cat([flips, flips])
            turned[len(flips) :, ..., i] = True
            scores, order = both.topk(min(k, len(both)), 0)
            flips = turned.gather(0, order[..., None].expand(*order.shape, self._size))
        missing = k - len(scores)
        pad = scores.new_full((missing, *self._batch_shape), -torch.inf)
        scores = torch.cat([scores, pad]) + x.clamp(min=0).sum(-1)
        sets = torch.cat([flips ^ best, flips.new_zeros((missing, *x.shape))])
        return sets & (scores > -torch.inf)[..., None], scores

    def _sample(self, count: int, generator: Generator | None) -> Tensor:
        p = self._marginals()[0]
        drawn = torch.rand((count, *p.shape), generator=generator, dtype=p.dtype, device=p.device)
        return drawn < p

    def _indicator(self, structure: Tensor) -> tuple[Tensor, ...]:
        x = structure.to(self._theta[0].dtype)
        return (x if self._valid is None else x * self._valid,)

    def _structure(self, indicator: tuple[Tensor, ...]) -> Tensor:
        x = indicator[0] > 0
        return x if self._valid is None else x & self._valid

    def _is_valid(self, structure: Tensor) -> Tensor:
        good = (structure == 0) | (structure == 1)
        return (good if self._valid is None else good | ~self._valid).all(-1)

    def _all_structures(self, n: int) -> Tensor:
        sets = torch.tensor(list(product([False, True], repeat=n)), dtype=torch.bool)
        sets = sets.reshape(2**n, n)
        return torch.cat([sets, sets.new_zeros(2**n, self._size - n)], 1)
