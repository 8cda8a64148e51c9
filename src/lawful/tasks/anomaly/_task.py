"""The task: a graph with some labels, one loss, metrics with a threshold of the validation part."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from lawful.errors import InputError, expected
from lawful.models import NODE_MODELS, NodeScorer, NodeSpec, build_node_scorer
from lawful.tasks._base import Batch, Evaluation, Source, Split, Task
from lawful.tasks.anomaly._config import AnomalyConfig, AnomalyPredictOptions
from lawful.tasks.anomaly._measure import best_threshold, flat, intervals, measure
from lawful.tasks.anomaly._scoring import probabilities, threshold_of
from lawful.tasks.anomaly._sources import PARTS, Field, Sampled, WholeGraph, whole_tensors
from lawful.tasks.anomaly._splits import split_nodes
from lawful.tasks.anomaly._trees import HOPS, Trees, boosted_trees, neighbour_means
from lawful.tasks.exhibits import Array, Exhibit
from lawful.tasks.graphdata import (
    Features,
    Network,
    RawGraph,
    camouflaged_rings,
    connect,
    load_graph,
)


@dataclass
class Prepared:
    """A graph ready for a model."""

    raw: RawGraph
    network: Network
    x: Array  # (N, F) float32
    labels: Array  # (N) int8
    remarks: list[str]


class AnomalyTask(Task[AnomalyConfig]):
    """Score the nodes of a graph by how anomalous they are."""

    name = "anomaly"
    summary = "find anomalous nodes of a graph from a few labels (fraud, abuse)"
    data_help = (
        "a folder with nodes.csv and edges.csv, a graph as .npz, .mat or .pt (PyTorch Geometric), "
        "or S-FFSD's transactions; without: a generated payment network"
    )
    Config = AnomalyConfig
    PredictOptions = AnomalyPredictOptions
    models: ClassVar[Mapping[str, type[Any]]] = NODE_MODELS
    default_model = "energy"
    metric = "average_precision"
    higher_is_better = True
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "steps": 200,
        "batch_size": 1024,
        "eval_batch_size": 4096,
        "lr": 3e-3,
        "weight_decay": 1e-4,
        "schedule": "cosine",
        "warmup": 10,
        "eval_every": 10,
        "checkpoint_every": 100,
    }

    graph: Prepared
    parts: dict[str, Array]
    features: Features

    def load(self) -> None:
        """Reads the graph, splits its labelled nodes and makes features of its columns."""
        raw = self._read()
        known = hasattr(self, "features")  # a finished run is measured on other data
        network, said = connect(raw, self.features.relations if known else ())
        self.parts = split_nodes(raw, self.config, self.seed)
        if not known:
            self.features = Features.fit(
                raw,
                network,
                self.parts["train"],
                scaling=self.config.scaling,
                categories=self.config.categories,
                degrees=self.config.degrees,
            )
        self.graph = self.prepared(raw, network, said)
        self._trees: dict[str, Trees] | None = None
        train = self.graph.labels[self.parts["train"]]
        ratio = float((train == 0).sum() / (train == 1).sum())
        self.weight = {"balanced": ratio, "root": ratio**0.5, "none": 1.0}[self.config.class_weight]

    def _read(self) -> RawGraph:
        if self.data is None:
            return camouflaged_rings(seed=self.seed)
        kinds = self.features.kinds() if hasattr(self, "features") else {}
        return load_graph(self._place(self.data), self.config.read_options(kinds))

    def _place(self, data: Path) -> Path:
        """The file of a folder that ``dataset`` names."""
        wanted = self.config.dataset
        if not wanted or not data.is_dir():
            return data
        found = sorted(p for p in data.iterdir() if wanted in (p.name, p.stem))
        if len(found) != 1:
            names = ", ".join(sorted(p.stem for p in data.iterdir())[:12])
            raise expected(f"dataset: {data}", f"one of its files ({names})", wanted)
        return found[0]

    def prepared(self, raw: RawGraph, network: Network, said: list[str]) -> Prepared:
        """A graph with its features; ``said`` is what was noticed about it so far."""
        x, noticed = self.features.apply(raw, network)
        labels = raw.labels if raw.labels is not None else np.full(raw.count, -1, np.int8)
        return Prepared(raw, network, x, labels, [*raw.remarks, *said, *noticed])

    def source(self, split: Split) -> Source:
        """The nodes of a part."""
        rows, fanouts = self.parts[split], self.config.sample_neighbours
        if fanouts:
            return Sampled(self.graph, rows, split, fanouts, self.seed)
        return WholeGraph(self.graph, rows, split)

    def build(self, model: Any) -> nn.Module:
        """A fresh scorer."""
        spec = NodeSpec(self.features.size, len(self.features.relations))
        return build_node_scorer(model, spec)

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Logits of the nodes of a batch, (n)."""
        if "edge_index" in batch:
            out = model(batch["x"], batch["edge_index"], batch.get("member"))
            return cast(Tensor, out[batch["at"]])
        whole = self.whole(self.graph, batch["node"].device)
        return cast(Tensor, model(*whole)[batch["node"]])

    def whole(self, graph: Field, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
        """A whole graph's tensors, kept for the next call."""
        kept = getattr(self, "_whole", None)
        if kept is None or kept[0] is not graph or kept[1] != device:
            kept = self._whole = (graph, device, whole_tensors(graph, device))
        return cast(tuple[Tensor, Tensor, Tensor | None], kept[2])

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross-entropy in which anomalous nodes weigh more; see ``class_weight``."""
        return self._cross_entropy(self.logits(model, batch), batch["y"]), {}

    def _cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        weight = torch.where(y > 0, self.weight, 1.0)
        each = binary_cross_entropy_with_logits(logits, y.to(logits.dtype), reduction="none")
        return (weight * each).sum() / weight.sum()

    def evaluation(self) -> Evaluation:
        """Metrics over all nodes of a part; the validation part sets the model's threshold."""
        return _Scores(self)

    def baselines(self) -> dict[str, float]:
        """Average precision on the test nodes of chance and of boosted trees."""
        y = self.graph.labels[self.parts["test"]]
        trees = {name: found.test["average_precision"] for name, found in self.trees().items()}
        return {"chance": float((y == 1).mean()), **trees}

    def trees(self) -> dict[str, Trees]:
        """Boosted trees on growing surroundings, by name."""
        if self._trees is None:
            self._trees = {}
            x, labels = self.graph.x, self.graph.labels
            means = neighbour_means(x, self.graph.network, HOPS) if self.config.trees else x
            for hops in range(HOPS + 1 if self.config.trees else 0):
                name = f"trees, {hops} hop{'s'[: hops != 1]}" if hops else "trees"
                part = np.ascontiguousarray(means[:, : (hops + 1) * x.shape[1]])
                self._trees[name] = boosted_trees(part, labels, self.parts, self.seed)
        return self._trees

    def exhibits(self, model: nn.Module, split: Split = "test") -> list[Exhibit]:
        """Metrics, distributions, curves, confusion, and the highest scores with neighbours."""
        from lawful.tasks.anomaly._exhibits import anomaly_exhibits

        return anomaly_exhibits(self, cast(NodeScorer, model), split)

    def predict(self, model: nn.Module, path: Path) -> Iterator[dict[str, Any]]:
        """Id, score and flag of every node of another graph."""
        from lawful.tasks.anomaly._predict import predictions

        return predictions(self, cast(NodeScorer, model), path)

    def state(self) -> dict[str, Any]:
        """How columns become features."""
        return {"features": self.features.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned."""
        if "features" not in state:
            raise InputError("task state: expected the features of anomaly")
        self.features = Features.from_state(state["features"])


class _Scores(Evaluation):
    """Probabilities and labels of all nodes of a part."""

    def __init__(self, task: AnomalyTask) -> None:
        self.task = task
        self.found: list[tuple[Tensor, Tensor]] = []
        self.model: Any = None
        self.part = -1

    def update(self, model: nn.Module, batch: Batch) -> None:
        self.model, self.part = model, int(batch["part"])
        logits = self.task.logits(model, batch)
        self.found.append((logits.float().cpu(), batch["y"].cpu()))

    def compute(self) -> dict[str, float]:
        logits, y = (torch.cat(parts) for parts in zip(*self.found, strict=True))
        labels, scores = y.numpy().astype(int), probabilities(logits)
        if self.part == PARTS["valid"]:
            self.model.cut.fill_(best_threshold(labels, logits.numpy()))
        threshold = threshold_of(self.model)
        loss = float(self.task._cross_entropy(logits, y))
        values = {"loss": loss, **measure(labels, scores, threshold), "threshold": threshold}
        resamples = self.task.config.bootstrap
        if self.part == PARTS["test"] and resamples:
            found = intervals(labels, scores, threshold, resamples, self.task.seed)
            values |= flat(found)
        return values
