"""Where to draw the nodes of a small graph."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_ROUNDS = 60


def layout(count: int, edges: Ints) -> Floats:
    """Places (n, 2) in the unit square, near what the numbers of edges between nodes ask for.

    Stress majorisation from a start by the two main coordinates of the distances: nodes that
    cannot reach each other are put a little farther than the farthest that can.

    Source: Gansner, Koren, North 2004, "Graph drawing by stress majorization".
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    if count == 1:
        return np.full((1, 2), 0.5)
    matrix = csr_array((np.ones(edges.shape[1]), (edges[0], edges[1])), (count, count))
    distance = shortest_path(matrix, directed=False, unweighted=True)
    reached = distance[np.isfinite(distance)].max(initial=1.0)
    distance = np.where(np.isfinite(distance), distance, reached + 1.5)
    place = _main_coordinates(distance)
    weight = 1 / np.maximum(distance, 1e-9) ** 2
    np.fill_diagonal(weight, 0)
    laplacian = np.diag(weight.sum(1)) - weight
    inverse = np.linalg.pinv(laplacian)
    for _ in range(_ROUNDS):
        apart = np.linalg.norm(place[:, None] - place[None], axis=-1)
        pull = -weight * distance / np.maximum(apart, 1e-6)
        np.fill_diagonal(pull, 0)
        np.fill_diagonal(pull, -pull.sum(1))
        place = inverse @ (pull @ place)
    place = place - place.min(0)
    scaled: Floats = 0.5 + (place - place.max(0) / 2) / max(place.max(), 1e-9)
    return scaled


def _main_coordinates(distance: Floats) -> Floats:
    squares = distance**2
    centred = squares - squares.mean(0) - squares.mean(1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    place = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0))
    # Nodes that are alike to all others would stay on one spot for ever.
    found: Floats = place + 0.01 * np.random.default_rng(0).standard_normal(place.shape)
    return found
