"""Tree scores in the layouts of other libraries, as ours and back.

Ours: arcs (..., N, N) with ``arcs[h, m]`` for head h of word m, root (..., N), words 0..N-1.
"""

from torch import Tensor

from lawful.errors import expected
from lawful.structures._checks import check_rank
from lawful.structures._dependency import TreeParts

__all__ = [
    "tree_from_supar",
    "tree_from_torch_struct",
    "tree_to_supar",
    "tree_to_torch_struct",
]


def tree_from_torch_struct(scores: Tensor) -> TreeParts:
    """torch-struct's ``DependencyCRF`` layout: (..., N, N), [head, word], the diagonal is the root.

    Args:
        scores: (..., N, N); ``scores[h, m]`` for head h of word m, ``scores[m, m]`` for the root.

    Returns:
        A named tuple (arcs, root) of views, for ``ProjectiveTree(*parts)``. torch-struct's default
        is several children of the root, as ours; its ``multiroot=False`` is ``single_root=True``.
        Its ``NonProjectiveDependencyCRF`` takes the same layout but defaults to a single root.

    Raises:
        InputError: ``scores`` is not square.
    """
    _check_square(scores)
    return TreeParts(scores, scores.diagonal(0, -2, -1))


def tree_to_torch_struct(arcs: Tensor, root: Tensor) -> Tensor:
    """The inverse of `tree_from_torch_struct`, for scores, marginals or indicators; (..., N, N)."""
    return arcs.diagonal_scatter(root, 0, -2, -1)


def tree_from_supar(scores: Tensor) -> TreeParts:
    """Supar's layout: (..., N + 1, N + 1), [dependent, head], index 0 is the root.

    Args:
        scores: (..., N + 1, N + 1); ``scores[m + 1, h + 1]`` for head h of word m and
            ``scores[m + 1, 0]`` for the root. Row 0 is not used. supar's ``lens`` count words
            without the root, as ours.

    Returns:
        A named tuple (arcs, root) of views, for ``ProjectiveTree(*parts)`` or ``SpanningTree``.
        supar's ``multiroot=False`` (its default) is ``single_root=True``.

    Raises:
        InputError: ``scores`` is not square, or has no root index.
    """
    _check_square(scores)
    if scores.shape[-1] == 0:
        raise expected("scores", "(..., N + 1, N + 1)", tuple(scores.shape))
    return TreeParts(scores[..., 1:, 1:].mT, scores[..., 1:, 0])


def tree_to_supar(arcs: Tensor, root: Tensor) -> Tensor:
    """The inverse of `tree_from_supar`, row 0 and the diagonal as given or 0; (..., N+1, N+1)."""
    n = arcs.shape[-1]
    out = arcs.new_zeros(*arcs.shape[:-2], n + 1, n + 1)
    out[..., 1:, 1:] = arcs.mT
    out[..., 1:, 0] = root
    return out


def _check_square(scores: Tensor) -> None:
    check_rank("scores", scores, 2)
    if scores.shape[-1] != scores.shape[-2]:
        raise expected("scores", "square last dimensions", tuple(scores.shape))
