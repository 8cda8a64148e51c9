"""Where a node is in its graph: eigenvectors of the Laplacian, and chances of return.

Both are of the graph alone: no padding and no extra node is in it. Each connected component is
taken on its own, so that they are defined where a graph falls apart.
"""

import numpy as np
import numpy.typing as npt

from lawful.errors import expected
from lawful.tasks.graphdata._graphs import Floats, GraphSet, Ints

__all__ = ["laplacian_positions", "return_probabilities"]

_DENSE = 256  # nodes up to which all eigenvectors by a dense solver are quickest


def laplacian_positions(graphs: GraphSet, count: int) -> Floats:
    """Eigenvectors of ``I - D^(-1/2) A D^(-1/2)`` of the smallest eigenvalues above zero.

    Of each connected component the first, which belongs to the eigenvalue 0, is left out. A vector
    of a component of n nodes has the norm sqrt(n), so that its entries are of size 1 whatever n
    is; the entry of the largest modulus is positive (of several, the first). Where a component has
    too few nodes the rest is 0, as it is for isolated nodes.

    Args:
        graphs: The graphs.
        count: Eigenvectors k >= 0.

    Returns:
        (N, k). The sign of a vector, and the basis where eigenvalues coincide, are conventions.

    Cost: O(n³) for a component of at most 256 nodes, else k vectors by Lanczos' method on the
    sparse matrix with shift and inversion.
    """
    _check("eigenvectors", count)
    found = np.zeros((graphs.nodes, count))
    if not count or not graphs.edges.shape[1]:
        return found
    for nodes, source, target in _components(graphs):
        size = len(nodes)
        wanted = min(count, size - 1)
        if size <= _DENSE or wanted >= size // 4:
            vectors = _dense(size, source, target)[:, 1 : wanted + 1]
        else:
            vectors = _sparse(size, source, target, wanted)
        top = vectors[_argmax(np.abs(vectors)), np.arange(wanted)]
        found[nodes, :wanted] = vectors * (np.where(top < 0, -1.0, 1.0) * np.sqrt(size))
    return found


def return_probabilities(graphs: GraphSet, count: int) -> Floats:
    """Chance that a random walk is back where it started after 1, ..., k steps.

    ``(D^-1 A)^t`` on the diagonal. Isolated nodes get 0.

    Args:
        graphs: The graphs.
        count: Steps k >= 0.

    Returns:
        (N, k).

    Cost: k sparse products of each graph's walk matrix; O(n²) memory for its widest graph of n
    nodes at worst, where the walk reaches everything.
    """
    from scipy import sparse

    _check("walks", count)
    found = np.zeros((graphs.nodes, count))
    degree = np.maximum(graphs.degrees, 1)
    ends = np.cumsum(graphs.sizes)
    edge_ends = np.cumsum(graphs.edge_counts)
    groups = _groups(graphs.sizes) if count else []
    for first, last in groups:
        low, high = int(ends[first] - graphs.sizes[first]), int(ends[last - 1])
        e_low = int(edge_ends[first] - graphs.edge_counts[first])
        source, target = graphs.edges[:, e_low : int(edge_ends[last - 1])] - low
        size = high - low
        walk = sparse.csr_array(
            (1.0 / degree[low:high][source], (source, target)), shape=(size, size)
        )
        power = walk
        for step in range(count):
            if step:
                power = power @ walk
            found[low:high, step] = power.diagonal()
    return found


def _check(name: str, count: int) -> None:
    if count < 0:
        raise expected(name, "a whole number of at least 0", count)


def _groups(sizes: Ints, nodes: int = 4096) -> list[tuple[int, int]]:
    """Runs of graphs with about so many nodes together: (first, last + 1)."""
    found, first, total = [], 0, 0
    for i, size in enumerate(sizes.tolist()):
        if i > first and total + size > nodes:
            found.append((first, i))
            first, total = i, 0
        total += size
    return [*found, (first, len(sizes))]


def _components(graphs: GraphSet) -> list[tuple[Ints, Ints, Ints]]:
    """Nodes, and local edge ends, of each connected component that has an edge."""
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    source, target = graphs.edges
    total = graphs.nodes
    matrix = sparse.csr_array((np.ones(len(source), np.int8), (source, target)), (total, total))
    number, member = connected_components(matrix, directed=False)
    order = np.argsort(member, kind="stable")
    local = np.empty(total, np.int64)
    sizes = np.bincount(member, minlength=number)
    starts = np.cumsum(sizes) - sizes
    local[order] = np.arange(total) - np.repeat(starts, sizes)
    edge_order = np.argsort(member[target], kind="stable")
    counts = np.bincount(member[target], minlength=number)
    edge_starts = np.cumsum(counts) - counts
    found = []
    for i in np.flatnonzero(counts):
        nodes = order[starts[i] : starts[i] + sizes[i]]
        own = edge_order[edge_starts[i] : edge_starts[i] + counts[i]]
        found.append((nodes, local[source[own]], local[target[own]]))
    return found


def _weights(size: int, source: Ints, target: Ints) -> Floats:
    scale = 1 / np.sqrt(np.bincount(target, minlength=size))
    weights: Floats = scale[source] * scale[target]
    return weights


def _dense(size: int, source: Ints, target: Ints) -> Floats:
    matrix = np.eye(size)
    matrix[target, source] -= _weights(size, source, target)
    vectors: Floats = np.linalg.eigh(matrix)[1]
    return vectors


def _sparse(size: int, source: Ints, target: Ints, wanted: int) -> Floats:
    from scipy import sparse
    from scipy.sparse.linalg import ArpackError, eigsh

    weights = _weights(size, source, target)
    walk = sparse.csc_array((weights, (target, source)), shape=(size, size))
    matrix = sparse.eye_array(size, format="csc") - walk
    # The start makes the result a function of the graph; the shift lies below every eigenvalue.
    start = np.cos(np.arange(size))
    try:
        values, vectors = eigsh(matrix, wanted + 1, sigma=-1e-2, which="LM", v0=start)
    except (ArpackError, RuntimeError):  # no convergence: slower, but it always works
        return _dense(size, source, target)[:, 1 : wanted + 1]
    order = np.argsort(values, kind="stable")[1:]
    found: Floats = vectors[:, order]
    return found


def _argmax(values: Floats) -> npt.NDArray[np.intp]:
    """The first row, in each column, that comes within rounding of the largest."""
    first: npt.NDArray[np.intp] = (values >= values.max(0) * (1 - 1e-6)).argmax(0)
    return first
