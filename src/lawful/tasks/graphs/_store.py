"""All graphs of a set as tensors, from which batches are put together."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lawful.models import Graphs
from lawful.tasks._base import Batch
from lawful.tasks.graphdata._graphs import GraphSet, Ints, spans
from lawful.tasks.graphdata.positions import laplacian_positions, return_probabilities
from lawful.tasks.graphs._features import Facts


@dataclass(frozen=True)
class Encoding:
    """What a model wants beside features."""

    eigenvectors: int = 0
    walks: int = 0
    colours: bool = False


class Store:
    """Tensors of all graphs.

    Args:
        graphs: The graphs.
        facts: How they become numbers.
        encoding: Positions are computed here, once.
        classes: The number of each graph's class (G,); -1 where unknown.
    """

    def __init__(
        self, graphs: GraphSet, facts: Facts, encoding: Encoding, classes: Ints | None = None
    ) -> None:
        self.graphs = graphs
        self.sizes, self.edge_counts = graphs.sizes, graphs.edge_counts
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.edge_starts = np.cumsum(self.edge_counts) - self.edge_counts
        self.classes = np.full(graphs.count, -1) if classes is None else classes
        self.nodes = {"x": torch.from_numpy(facts.node_features(graphs))}
        self.links = {"edge_attr": torch.from_numpy(facts.edge_features(graphs))}
        places = [
            laplacian_positions(graphs, encoding.eigenvectors),
            return_probabilities(graphs, encoding.walks),
        ]
        self.nodes["positions"] = torch.from_numpy(np.concatenate(places, 1)).float()
        if encoding.colours:
            self.nodes["colours"] = _colours(graphs.node_labels, graphs.nodes)
            self.links["edge_colours"] = _colours(graphs.edge_labels, graphs.edges.shape[1])
        self.edges = torch.from_numpy(graphs.edges)

    def batch(self, members: Ints) -> Batch:
        """These graphs one after another: see `Graphs`; "y" (B,) and "graph" (B,) which."""
        sizes, counts = self.sizes[members], self.edge_counts[members]
        nodes = torch.from_numpy(spans(self.starts[members], sizes))
        links = torch.from_numpy(spans(self.edge_starts[members], counts))
        shift = np.repeat(np.cumsum(sizes) - sizes - self.starts[members], counts)
        found = {name: values[nodes] for name, values in self.nodes.items()}
        found |= {name: values[links] for name, values in self.links.items()}
        found["edge_index"] = self.edges[:, links] + torch.from_numpy(shift)
        found["batch"] = torch.from_numpy(np.repeat(np.arange(len(members)), sizes))
        found["y"] = torch.from_numpy(self.classes[members])
        found["graph"] = torch.from_numpy(members)
        return found


class Members:
    """Some graphs of a store, as a task's source."""

    endless = False

    def __init__(self, store: Store, members: Ints) -> None:
        self.store, self.members = store, members

    def __len__(self) -> int:
        """Number of graphs."""
        return len(self.members)

    def batch(self, indices: Sequence[int]) -> Batch:
        """See `Store.batch`."""
        return self.store.batch(self.members[np.asarray(indices, np.int64)])


def graphs_of(batch: Batch) -> Graphs:
    """What the networks read of a batch."""
    return Graphs(
        batch["x"],
        batch["edge_index"],
        batch["edge_attr"],
        batch["batch"],
        batch["positions"],
        len(batch["y"]),
    )


def _colours(labels: Ints | None, rows: int) -> Tensor:
    """A number for each row of labels; 0 where there are none."""
    found = torch.zeros(rows, dtype=torch.int64)
    if labels is not None:
        for column in torch.from_numpy(labels).T:
            found = found * 1_000_003 + column
    return found
