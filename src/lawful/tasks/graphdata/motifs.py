"""Generated graphs of four classes: random trees, some with a small motif grown into them."""

import numpy as np

from lawful.tasks.graphdata._graphs import GraphSet, tidy

__all__ = ["CLASSES", "motif_graphs"]

#: Edges of what is grown into a tree, by class.
_MOTIFS = (
    (),
    ((0, 1), (1, 2), (2, 0)),
    ((0, 1), (1, 2), (2, 3), (3, 0)),
    ((0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (1, 4)),
)
#: The tree alone, or what is in it.
CLASSES = ("tree", "triangle", "square", "house")


def motif_graphs(seed: int = 0, count: int = 600) -> GraphSet:
    """``count`` connected graphs of 14 to 24 nodes, as many of each class.

    A random recursive tree; its class tells which motif hangs on one of its nodes by an edge. Trees
    without one have as many more nodes, so that size tells nothing.

    Args:
        seed: The same seed gives the same graphs.
        count: How many.

    Returns:
        The graphs, labels 0..3 after `CLASSES`. Nodes have no labels: all is in the edges.
    """
    random = np.random.default_rng([20230214, seed])
    parts, graph, first = [], [], 0
    labels = np.arange(count) % len(_MOTIFS)
    for i, label in enumerate(labels.tolist()):
        size = int(random.integers(14, 25))
        edges = list(_MOTIFS[label])
        grown = max((max(e) + 1 for e in edges), default=1)
        # The motif takes the place of the first node of a tree; the rest grows from all of them.
        edges += [(int(random.integers(0, node)), node) for node in range(grown, size)]
        order = random.permutation(size)
        parts.append(order[np.array(edges, np.int64)].T + first)
        graph += [i] * size
        first += size
    ids = [str(i + 1) for i in range(count)]
    one_way = np.concatenate(parts, 1)
    both = np.concatenate([one_way, one_way[::-1]], 1)
    found = GraphSet("motifs", both, np.array(graph, np.int64), count, labels, ids=ids)
    return tidy(found)
