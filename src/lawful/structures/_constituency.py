"""Constituency trees: binary, over spans, with or without labels."""

from typing import Any

import torch
from torch import Generator, Tensor
from torch.distributions import constraints

from lawful.errors import expected
from lawful.kernels import Backend, constituency
from lawful.structures._checks import Lengths, check_rank, log_potential
from lawful.structures._distribution import StructuredDistribution
from lawful.structures._labels import marginalise_labels

__all__ = ["ConstituencyTree"]


class ConstituencyTree(StructuredDistribution):
    r"""Binary trees over N words whose nodes are spans (i..j), each with one of L labels.

    p(tree) is proportional to exp of the sum of ``spans[i, j, label]`` over its 2 N - 1 nodes, the
    single words (i, i) included.

    Args:
        spans: (..., N, N), ``spans[..., i, j]`` scores the words i..j, both included; or, if
            ``labelled``, (..., N, N, L). Entries with i > j are ignored.
        lengths: (...), words from there on do not exist.
        labelled: Whether the last dimension of ``spans`` holds labels.
        validate_args: As in torch.distributions.
        backend: "auto", "native" or "reference".

    Integer form: LongTensor (..., N, N), the label of each node (0 without labels), -1 elsewhere.
    Marginals have the layout of ``spans``.

    Cost: O(N^3 + N^2 L) time, O(N^2 L) memory; topk O(k^2 N^3).

    Source: the inside-outside algorithm of Baker (1979), with scores on spans.
    """

    def __init__(
        self,
        spans: Tensor,
        lengths: Lengths = None,
        labelled: bool = False,
        validate_args: bool | None = None,
        backend: Backend = "auto",
    ) -> None:
        rank = 3 if labelled else 2
        check_rank("spans", spans, rank)
        n, m = spans.shape[spans.dim() - rank : spans.dim() - rank + 2]
        if n != m:
            want = "(..., N, N, L)" if labelled else "(..., N, N)"
            raise expected("spans", want, tuple(spans.shape))
        self.labelled = bool(labelled)
        self._event_dims = (rank,)
        batch, event = spans.shape[: spans.dim() - rank], torch.Size([n, n])
        super().__init__((spans,), batch, event, n, lengths, validate_args, backend)
        words = torch.arange(n, device=spans.device)
        self._nodes = words[:, None] <= words  # (N, N) or (..., N, N): where nodes can be
        if self.lengths is not None:
            self._nodes = self._nodes & (words < self.lengths[..., None])[..., None, :]
        self._check_potentials(["spans"], [self._spread(self._nodes)])

    @property
    def spans(self) -> Tensor:
        """The scores as given."""
        return self._given[0]

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """Scores are finite or -inf (outside padding)."""
        return {"spans": log_potential}

    def _options(self) -> dict[str, Any]:
        return {"labelled": self.labelled}

    def _spread(self, mask: Tensor) -> Tensor:
        return mask[..., None] if self.labelled else mask

    def _ends(self) -> Tensor:
        if self.lengths is not None:
            return self.lengths
        return torch.full(self._batch_shape, self._size, device=self._theta[0].device)

    def _unlabelled(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Scores of spans and of words, and the posteriors of their labels."""
        theta, posterior = self._theta[0], None
        if self.labelled:
            theta = torch.where(self._spread(self._nodes), theta.double(), -torch.inf)
            if theta.shape[-1] == 0:
                return theta.sum(-1) - torch.inf, theta.sum((-1, -2)) - torch.inf, theta
            theta, posterior = marginalise_labels(theta)
        return theta, theta.diagonal(0, -2, -1), posterior

    def _log_partition(self) -> Tensor:
        spans, words, _ = self._unlabelled()
        return constituency.log_partition(spans, words, self.lengths, self.backend)

    def _marginals(self) -> tuple[Tensor, ...]:
        spans, words, posterior = self._unlabelled()
        mu, mu_words = constituency.marginals(spans, words, self.lengths, self.backend)
        mu = mu + torch.diag_embed(mu_words)
        if posterior is not None:
            mu = (mu[..., None] * posterior).to(self._theta[0].dtype)
        return (mu,)

    def _argmax(self) -> Tensor:
        theta = self._theta[0].detach()
        labels = torch.zeros_like(self._nodes, dtype=torch.int64)
        if self.labelled:
            if theta.shape[-1] == 0:
                return labels.expand(self._batch_shape + self._event_shape) - 1
            theta, labels = theta.max(-1)
        words = theta.diagonal(0, -2, -1)
        nodes = constituency.argmax(theta, words, self.lengths, self.backend)
        return torch.where(nodes, labels, -1)

    def _sample(self, count: int, generator: Generator | None) -> Tensor:
        spans, words, posterior = self._unlabelled()
        lengths = self.lengths
        nodes = constituency.sample(count, spans, words, lengths, generator, self.backend)
        drawn = nodes.to(torch.int64) - 1
        if posterior is None or not bool(nodes.any()):
            return drawn
        steps = posterior.expand(*nodes.shape, posterior.shape[-1])[nodes].cumsum(-1)
        at = torch.rand(len(steps), 1, generator=generator, dtype=steps.dtype, device=steps.device)
        drawn[nodes] = (steps <= at * steps[:, -1:]).sum(-1)
        return drawn

    def _topk(self, k: int) -> tuple[Tensor, Tensor]:
        count, n = self._batch_shape.numel(), self._size
        theta = self._theta[0].detach().double()
        theta = torch.where(self._spread(self._nodes), theta, -torch.inf)
        names = theta.shape[-1] if self.labelled else 1
        flat = theta.reshape(count, n, n, names)
        ends = self._ends().reshape(count)
        pulled: Any = torch.func.vjp(lambda x: _k_best(x, ends, k), flat)
        scores, pull = pulled
        trees = []
        for rank in range(k):
            one = torch.zeros_like(scores)
            one[..., rank] = 1
            marks = pull(one)[0] > 0.5
            exists = (scores[..., rank] > -torch.inf)[:, None, None]
            tree = marks.to(torch.uint8).argmax(-1) if flat.shape[-1] else marks.any(-1).long()
            trees.append(torch.where(marks.any(-1) & exists, tree, -1))
        shape = (k, *self._batch_shape)
        structures = torch.stack(trees).reshape(*shape, n, n)
        return structures, scores.movedim(-1, 0).reshape(shape)

    def _centred(self) -> tuple[tuple[Tensor, ...], Tensor | float]:
        """All trees have N words and N - 1 longer spans: the best score of each is common."""
        theta = self._theta[0].detach()
        if theta.numel() == 0:
            return self._theta, 0.0
        best = theta.amax(-1) if self.labelled else theta
        best = best.masked_fill(~self._nodes, -torch.inf)
        eye = torch.eye(self._size, dtype=torch.bool, device=theta.device)
        word = _finite(best.masked_fill(~eye, -torch.inf).amax((-2, -1)))
        span = _finite(best.masked_fill(eye, -torch.inf).amax((-2, -1)))
        shift = torch.where(eye, word[..., None, None], span[..., None, None])
        ends = self._ends()
        total = ends * word.double() + (ends - 1).clamp(min=0) * span.double()
        return (self._theta[0] - self._spread(shift),), total

    def _clean(self, structure: Tensor) -> Tensor:
        """Junk outside the triangle and after the end of a sentence is removed."""
        return torch.where(self._nodes, structure, -1)

    def _indicator(self, structure: Tensor) -> tuple[Tensor, ...]:
        labels, dtype = self._clean(structure), self._theta[0].dtype
        if not self.labelled:
            return ((labels >= 0).to(dtype),)
        names = torch.arange(self._theta[0].shape[-1], device=labels.device)
        return ((labels[..., None] == names).to(dtype),)

    def _structure(self, indicator: tuple[Tensor, ...]) -> Tensor:
        x = indicator[0]
        if not self.labelled:
            return self._clean((x > 0).to(torch.int64) - 1)
        if x.shape[-1] == 0:
            return torch.full(x.shape[:-1], -1, device=x.device)
        labels = x.to(torch.float32).argmax(-1)
        return self._clean(torch.where((x > 0).any(-1), labels, -1))

    def _is_valid(self, structure: Tensor) -> Tensor:
        """A root, every longer node split by two others, and 2 N - 1 nodes: a binary tree."""
        labels = self._clean(structure)
        count = self._theta[0].shape[-1] if self.labelled else 1
        legal = ((labels >= -1) & (labels < count)).flatten(-2).all(-1)
        ends = self._ends()
        if self._size == 0:
            return legal
        nodes = (labels >= 0).double()
        following = torch.nn.functional.pad(nodes[..., 1:, :], (0, 0, 0, 1))
        splits = nodes @ following
        eye = torch.eye(self._size, dtype=torch.bool, device=nodes.device)
        split = ((nodes == 0) | (splits > 0.5) | eye).flatten(-2).all(-1)
        last = (ends - 1).clamp(min=0)
        top = nodes[..., 0, :].gather(-1, last.expand(nodes.shape[:-2])[..., None])[..., 0] > 0
        whole = nodes.sum((-2, -1)) == 2 * ends - 1
        return legal & ((split & top & whole) | (ends == 0))

    def _all_structures(self, n: int) -> Tensor:
        size = self._size
        trees = _bracketings(0, n - 1) if n else [[]]
        out = torch.full((len(trees), size, size), -1)
        for t, nodes in enumerate(trees):
            for i, j in nodes:
                out[t, i, j] = 0
        if not self.labelled:
            return out
        names = self._theta[0].shape[-1]
        choices = torch.cartesian_prod(*[torch.arange(names)] * (2 * n - 1)) if n else out
        choices = choices.reshape(-1, max(2 * n - 1, 0)) if n else torch.zeros(1, 0).long()
        labelled = out.repeat_interleave(len(choices), 0)
        labelled[labelled >= 0] = choices.repeat(len(out), 1).reshape(-1)
        return labelled


def _finite(x: Tensor) -> Tensor:
    return x.masked_fill(x == -torch.inf, 0.0)


def _bracketings(i: int, j: int) -> list[list[tuple[int, int]]]:
    """All binary trees over the words i..j, as lists of spans."""
    if i == j:
        return [[(i, i)]]
    return [
        [(i, j), *left, *right]
        for u in range(i, j)
        for left in _bracketings(i, u)
        for right in _bracketings(u + 1, j)
    ]


def _k_best(spans: Tensor, lengths: Tensor, k: int) -> Tensor:
    """Scores (B, k) of the k best labelled trees; their gradients mark the nodes."""
    batch, n = spans.shape[:2]
    if n == 0 or spans.shape[-1] == 0:
        scores = spans.new_full((batch, k), -torch.inf) + spans.sum((1, 2, 3))[:, None]
        return scores.masked_fill((lengths == 0)[:, None] & (torch.arange(k) == 0), 0.0)
    starts = ends = _top(spans.diagonal(0, 1, 2).mT, k)[:, :, None]  # (B, N, width - 1, k)
    for width in range(1, n):
        pairs = starts[:, : n - width, :, :, None] + ends[:, width:].flip(2)[:, :, :, None, :]
        inner = _top(pairs.flatten(2), k)
        labels = spans.diagonal(width, 1, 2).mT  # (B, N - width, L)
        nodes = _top((inner[..., None] + labels[:, :, None]).flatten(2), k)
        starts = torch.cat([starts, _pad(nodes, (0, width))], 2)
        ends = torch.cat([ends, _pad(nodes, (width, 0))], 2)
    last = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, k)
    scores = starts[:, 0].gather(1, last)[:, 0]
    empty = torch.full_like(scores, -torch.inf)
    empty[:, 0] = 0
    return torch.where((lengths == 0)[:, None], empty, scores)


def _top(x: Tensor, k: int) -> Tensor:
    found = x.topk(min(k, x.shape[-1]), -1).values
    missing = k - found.shape[-1]
    return torch.nn.functional.pad(found, (0, missing), value=-torch.inf) if missing else found


def _pad(nodes: Tensor, pad: tuple[int, int]) -> Tensor:
    return torch.nn.functional.pad(nodes, (0, 0, *pad), value=-torch.inf)[:, :, None]
