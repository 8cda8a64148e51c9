"""The nodes of a part as batches: of the whole graph, or of sampled neighbourhoods."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lawful.tasks._base import Batch, Split
from lawful.tasks.graphdata import Network, sample_neighbourhood

PARTS = {"train": 0, "valid": 1, "test": 2, "predict": 3}


class Field(Protocol):
    """What sources read: features, edges and labels of one graph."""

    x: npt.NDArray[np.float32]
    network: Network
    labels: npt.NDArray[np.int8]


class WholeGraph:
    """A part whose every batch is all of its nodes; the model gets the graph from the task."""

    endless = False
    whole = True

    def __init__(self, field: Field, rows: npt.NDArray[np.int64], part: Split) -> None:
        self.rows = rows
        self._batch: Batch = {
            "node": torch.from_numpy(rows),
            "y": torch.from_numpy(field.labels[rows].astype(np.float32)),
            "part": torch.tensor(PARTS[part]),
        }

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self.rows)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Nodes "node" (n), labels "y" (n): all of them, whatever is asked for."""
        return self._batch


class Sampled:
    """A part whose batches are some of its nodes with neighbours drawn for them.

    The draw is a function of the seed, the part and the batch's own nodes, so that runs can be
    resumed and repeated.
    """

    endless = False

    def __init__(
        self,
        field: Field,
        rows: npt.NDArray[np.int64],
        part: str,
        fanouts: Sequence[int],
        seed: int,
    ) -> None:
        self.field, self.rows, self.part = field, rows, part
        self.fanouts, self.seed = tuple(fanouts), seed

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self.rows)

    def batch(self, indices: Sequence[int]) -> Batch:
        """The drawn graph "x", "edge_index", maybe "member"; its first nodes "node", "y".

        "nodes" are the numbers of all its nodes in the whole graph.
        """
        f, seeds = self.field, self.rows[np.asarray(indices, np.int64)]
        distinct, where = np.unique(seeds, return_inverse=True)
        random = np.random.default_rng([self.seed, PARTS[self.part], *seeds[:64].tolist()])
        found = sample_neighbourhood(f.network, distinct, self.fanouts, random)
        batch: Batch = {
            "x": torch.from_numpy(f.x[found.nodes]),
            "edge_index": torch.from_numpy(found.edge_index),
            "nodes": torch.from_numpy(found.nodes),
            "at": torch.from_numpy(where),
            "node": torch.from_numpy(seeds),
            "y": torch.from_numpy(f.labels[seeds].astype(np.float32)),
            "part": torch.tensor(PARTS[self.part]),
        }
        if f.network.member is not None:
            batch["member"] = torch.from_numpy(f.network.member[found.edges].astype(np.float32))
        return batch


def whole_tensors(field: Field, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
    """Features, edges and membership of a whole graph on a device."""
    network = field.network
    member = None
    if network.member is not None:
        member = torch.from_numpy(network.member.astype(np.float32)).to(device)
    edges = torch.from_numpy(network.edge_index).to(device)
    return torch.from_numpy(field.x).to(device), edges, member
