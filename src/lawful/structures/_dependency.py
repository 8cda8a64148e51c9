"""Dependency trees: projective (Eisner's chart) and non-projective (the matrix-tree theorem)."""

from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.distributions import constraints

from lawful.errors import expected
from lawful.kernels import Backend, projective, spanning
from lawful.kernels._trees import heads_of
from lawful.structures._checks import Lengths, check_rank, log_potential
from lawful.structures._distribution import StructuredDistribution
from lawful.structures._heads import PAD, ROOT, all_trees, is_tree, k_best

__all__ = ["ProjectiveTree", "SpanningTree", "TreeParts"]


class TreeParts(NamedTuple):
    """Something for every arc (..., N, N), [head, word], and for every root child (..., N)."""

    arcs: Tensor
    root: Tensor


class _DependencyTree(StructuredDistribution):
    """What both families share; a subclass names its kernel."""

    _event_dims = (2, 1)
    _kernel: ModuleType
    _projective: bool

    def __init__(
        self,
        arcs: Tensor,
        root: Tensor | None = None,
        lengths: Lengths = None,
        single_root: bool = False,
        validate_args: bool | None = None,
        backend: Backend = "auto",
    ) -> None:
        arcs, root = _aligned(arcs, root)
        n = arcs.shape[-1]
        self.single_root = bool(single_root)
        event = torch.Size([n])
        super().__init__((arcs, root), arcs.shape[:-2], event, n, lengths, validate_args, backend)
        self._valid = self._mask()
        if self._validate_args:
            inside = torch.ones((), dtype=torch.bool, device=arcs.device)
            inside = inside.expand(n) if self._valid is None else self._valid
            allowed = inside[..., :, None] & inside[..., None, :]
            allowed = allowed & ~torch.eye(n, dtype=torch.bool, device=arcs.device)
            self._check_potentials(["arcs", "root"], [allowed, inside])

    @property
    def arcs(self) -> Tensor:
        """Scores of arcs as given, (..., N, N), [head, word]."""
        return self._given[0]

    @property
    def root(self) -> Tensor:
        """Scores of being a child of the root as given (zeros if not given), (..., N)."""
        return self._given[1]

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """Scores are finite or -inf (outside padding and the diagonal)."""
        return {"arcs": log_potential, "root": log_potential}

    @property
    def mbr(self) -> Tensor:
        """The tree with the largest sum of arc marginals (minimum Bayes risk), heads (..., N)."""
        mu = self._marginals()
        alike = self._rebuild(tuple(m.detach() for m in mu), self.lengths)
        self._require_feasible("mbr")
        return alike.argmax

    def _pack(self, parts: tuple[Tensor, ...]) -> TreeParts:
        return TreeParts(*parts)

    def _options(self) -> dict[str, Any]:
        return {"single_root": self.single_root}

    def _lengths(self) -> Tensor:
        if self.lengths is not None:
            return self.lengths
        return torch.full(self._batch_shape, self._size, device=self._theta[0].device)

    def _log_partition(self) -> Tensor:
        value: Tensor = self._kernel.log_partition(
            *self._theta, self.lengths, self.single_root, self.backend
        )
        return value

    def _marginals(self) -> tuple[Tensor, ...]:
        pair: tuple[Tensor, Tensor] = self._cached(
            "pair",
            lambda: self._kernel.marginals(
                *self._theta, self.lengths, self.single_root, self.backend
            ),
        )
        return pair

    def _argmax(self) -> Tensor:
        theta = tuple(p.detach() for p in self._theta)
        heads: Tensor = self._kernel.argmax(*theta, self.lengths, self.single_root, self.backend)[0]
        return heads

    def _topk(self, k: int) -> tuple[Tensor, Tensor]:
        n, count = self._size, self._batch_shape.numel()
        arcs, root = (p.detach().double() for p in self._theta)

        def best(a: Tensor, r: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
            pair: tuple[Tensor, Tensor] = self._kernel.argmax(
                a, r, size, self.single_root, self.backend
            )
            return pair

        lengths = self._lengths().reshape(count)
        flat = arcs.reshape(count, n, n), root.reshape(count, n)
        heads, scores = k_best(k, *flat, lengths, best)
        shape = (k, *self._batch_shape)
        return heads.reshape(*shape, n), scores.reshape(shape)

    def _sample(self, count: int, generator: Generator | None) -> Tensor:
        heads: Tensor = self._kernel.sample(
            count, *self._theta, self.lengths, self.single_root, generator, self.backend
        )
        return heads

    def _centred(self) -> tuple[tuple[Tensor, ...], Tensor | float]:
        """Each word has one head: the best score of its heads is common to all trees."""
        if self._size == 0:
            return self._theta, 0.0
        arcs, root = (p.detach() for p in self._theta)
        n = self._size
        arcs = arcs.masked_fill(torch.eye(n, dtype=torch.bool, device=arcs.device), -torch.inf)
        if self._valid is not None:
            arcs = arcs.masked_fill(~self._valid[..., :, None], -torch.inf)
        top = torch.maximum(arcs.amax(-2), root)
        top = top.masked_fill(top == -torch.inf, 0.0)
        if self._valid is not None:
            top = top.masked_fill(~self._valid, 0.0)
        return (self._theta[0] - top[..., None, :], self._theta[1] - top), top.double().sum(-1)

    def _indicator(self, structure: Tensor) -> tuple[Tensor, ...]:
        heads = self._clean(structure)
        words = torch.arange(self._size, device=heads.device)
        dtype = self._theta[0].dtype
        return (heads[..., None, :] == words[:, None]).to(dtype), (heads == ROOT).to(dtype)

    def _clean(self, heads: Tensor) -> Tensor:
        """Junk after the end of a sentence becomes padding."""
        return heads if self._valid is None else torch.where(self._valid, heads, PAD)

    def _structure(self, indicator: tuple[Tensor, ...]) -> Tensor:
        arcs, root = (x.to(torch.float32) for x in indicator)
        return heads_of(arcs, root, self._lengths())

    def _is_valid(self, structure: Tensor) -> Tensor:
        return is_tree(structure, self.lengths, self.single_root, self._projective)

    def _score(self, structure: Tensor, potentials: tuple[Tensor, ...]) -> Tensor:
        heads = self._clean(structure)
        table = torch.cat([potentials[1][..., None, :], potentials[0]], -2)  # (B, 1 + N, N)
        table = table.expand(*heads.shape[:-1], self._size + 1, self._size)
        chosen = table.gather(-2, (heads + 1).clamp(min=0)[..., None, :])[..., 0, :]
        return chosen.masked_fill(heads == PAD, 0.0).double().sum(-1)

    def _all_structures(self, n: int) -> Tensor:
        found = all_trees(n, self.single_root, self._projective)
        return torch.nn.functional.pad(found, (0, self._size - n), value=PAD)


class ProjectiveTree(_DependencyTree):
    r"""Projective dependency trees over N words: no two arcs cross, the root's included.

    p(tree) is proportional to exp of the sum of ``arcs[h, m]`` over its arcs and ``root[m]`` over
    the children of the root, which sits in front of the sentence.

    Args:
        arcs: (..., N, N), ``arcs[..., h, m]`` scores head h of word m; the diagonal is ignored.
        root: (..., N), ``root[..., m]`` scores m as a child of the root; zeros if not given.
        lengths: (...), words from there on do not exist.
        single_root: Whether the root has exactly one child.
        validate_args: As in torch.distributions.
        backend: "auto", "native" or "reference".

    Integer form: heads, LongTensor (..., N), -1 for the root, -2 in padding. `marginals` is a
    named tuple (arcs, root); those of each word sum to 1.

    Cost: O(N^3) time, O(N^2) memory for the log-partition, marginals and their gradients (one more
    pass each), the best tree, and O(N^2) for each further sample; topk O(k N^4).

    Source: Eisner (1996), Three new probabilistic models for dependency parsing.
    """

    _kernel = projective
    _projective = True


class SpanningTree(_DependencyTree):
    r"""Dependency trees over N words, crossing arcs allowed.

    p(tree) is proportional to exp of the sum of ``arcs[h, m]`` over its arcs and ``root[m]`` over
    the children of the root.

    Args:
        arcs: (..., N, N), ``arcs[..., h, m]`` scores head h of word m; the diagonal is ignored.
        root: (..., N), ``root[..., m]`` scores m as a child of the root; zeros if not given.
        lengths: (...), words from there on do not exist.
        single_root: Whether the root has exactly one child.
        validate_args: As in torch.distributions.
        backend: "auto", "native" or "reference".

    Integer form: heads, LongTensor (..., N), -1 for the root, -2 in padding. `marginals` is a
    named tuple (arcs, root); those of each word sum to 1.

    Cost: O(N^3) time, O(N^2) memory for the log-partition, marginals and their gradients; O(N^2)
    for the best tree (Edmonds); samples by loop-erased walks; topk O(k N^3).

    Numerical limits: exact at any scale of scores. The determinant of the matrix-tree theorem is
    found by elimination without subtraction, not from the Laplacian.

    Source: Koo et al. (2007); McDonald and Satta (2007); Smith and Smith (2007). Departures: the
    elimination, after Grassmann, Taksar and Heyman (1985).
    """

    _kernel = spanning
    _projective = False


def _aligned(arcs: Tensor, root: Tensor | None) -> tuple[Tensor, Tensor]:
    """Both with the same batch shape and dtype; root scores of zero if not given."""
    check_rank("arcs", arcs, 2)
    n = arcs.shape[-1]
    if arcs.shape[-2] != n:
        raise expected("arcs", "square last dimensions (N, N)", tuple(arcs.shape))
    if root is None:
        return arcs, arcs.new_zeros(arcs.shape[:-1])
    check_rank("root", root, 1)
    if root.shape[-1] != n:
        raise expected("root", f"last dimension {n}, like arcs", tuple(root.shape))
    if root.dtype != arcs.dtype:
        raise expected("root", f"dtype {arcs.dtype}, like arcs", root.dtype)
    try:
        shapes = arcs.shape[:-2], root.shape[:-1]
        batch: torch.Size = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    except RuntimeError:
        want = f"a batch shape that broadcasts with {tuple(arcs.shape[:-2])}"
        raise expected("root", want, tuple(root.shape[:-1])) from None
    return arcs.expand(*batch, n, n), root.expand(*batch, n)
