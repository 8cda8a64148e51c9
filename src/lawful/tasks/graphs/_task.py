"""The task: graphs, folds, loss and scores."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lawful.errors import expected
from lawful.models import (
    EnergyGraphConfig,
    GCNConfig,
    GINConfig,
    GraphSpec,
    WLConfig,
    WLModel,
    build_graph_model,
)
from lawful.tasks._base import Batch, Evaluation, Split, Task, batches
from lawful.tasks.exhibits import Exhibit
from lawful.tasks.graphdata._graphs import GraphSet, Ints
from lawful.tasks.graphdata.motifs import CLASSES, motif_graphs
from lawful.tasks.graphdata.pyg import read_pyg
from lawful.tasks.graphdata.tu import read_tu
from lawful.tasks.graphs._features import Facts, facts_of
from lawful.tasks.graphs._folds import divided
from lawful.tasks.graphs._store import Encoding, Members, Store, graphs_of
from lawful.tasks.graphs._weisfeiler import fitted, logits_of


@dataclass(frozen=True)
class GraphsConfig:
    """Which graphs, how they are divided, and what counts of their nodes and edges."""

    dataset: str = ""
    """Which set, where --data holds several: MUTAG, say."""
    folds: int = 10
    """Folds of the cross-validation, stratified by class; a run tests on one of them."""
    fold: int | None = None
    """The fold that is tested on, from 0; by default the seed modulo the number of folds."""
    split_seed: int | None = None
    """Seed of the division into folds; by default the seed divided by the number of folds, so that
    seeds 0 to 9 are the ten folds of one division, 10 to 19 those of the next."""
    valid_share: float = 0.1
    """Share of the other folds, of each class, that models are selected on."""
    node_attributes: bool = True
    """Use the numbers of nodes and edges, where there are any, beside their labels."""
    edge_features: bool = True
    """Use labels and numbers of edges, where there are any."""
    degrees: Literal["auto", "always", "never"] = "always"
    """Number of neighbours as a feature of nodes; auto: where nothing else is known of them."""
    degree_cap: int = 63
    """Largest number of neighbours that is told from larger ones."""
    label_smoothing: float = 0.0
    """Share of each target that is spread over all classes, in training."""
    generated: int = 600
    """Graphs to generate, where no data are given."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        if self.folds < 2:
            raise expected("folds", "a whole number of at least 2", self.folds)
        if self.fold is not None and not 0 <= self.fold < self.folds:
            raise expected("fold", f"a whole number in 0..{self.folds - 1}", self.fold)
        if self.split_seed is not None and self.split_seed < 0:
            raise expected("split_seed", "a whole number of at least 0", self.split_seed)
        if not 0 < self.valid_share < 1:
            raise expected("valid_share", "a share above 0 and below 1", self.valid_share)
        if not 0 <= self.label_smoothing < 1:
            raise expected("label_smoothing", "a number in [0, 1)", self.label_smoothing)
        for name in ("degree_cap", "generated"):
            if getattr(self, name) < 1:
                raise expected(name, "a whole number of at least 1", getattr(self, name))


class GraphsTask(Task[GraphsConfig]):
    """Name the class of a graph."""

    name = "graphs"
    summary = "classify graphs (molecules, proteins, your own) by honest cross-validation"
    data_help = (
        "a folder or zip of TU files (DS_A.txt, DS_graph_indicator.txt, DS_graph_labels.txt, ...), "
        "a folder of several such (see --dataset), or torch_geometric's .pt; without: generated "
        "graphs with motifs"
    )
    Config = GraphsConfig
    models: ClassVar[Mapping[str, type[Any]]] = {
        "energy": EnergyGraphConfig,
        "gin": GINConfig,
        "gcn": GCNConfig,
        "wl": WLConfig,
    }
    default_model = "energy"
    metric = "accuracy"
    higher_is_better = True
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "epochs": 50.0,
        "batch_size": 32,
        "lr": 4e-3,
        "weight_decay": 0.05,
        "schedule": "cosine",
        "warmup": 20,
        "eval_every": 20,
        "eval_batch_size": 64,
    }

    graphs: GraphSet
    facts: Facts
    parts: Mapping[str, Ints]

    def load(self) -> None:
        """Reads or makes the graphs and divides them.

        After `load_state` they are read by the restored classes and features.
        """
        names: tuple[str, ...] = ()
        if self.data is None:
            self.graphs, names = motif_graphs(count=self.config.generated), CLASSES
        else:
            self.graphs = read_graphs(self.data, self.config.dataset)
        labels = self.graphs.labels
        assert labels is not None  # `read_tu` refuses graphs without
        known = np.unique(labels)
        if len(known) < 2:
            raise expected("data", "graphs of at least two classes", f"{len(known)}")
        restored = getattr(self, "facts", None)
        if restored is not None:
            strange = sorted(set(known.tolist()) - set(restored.classes))
            if strange:
                want = f"only classes of the training data ({', '.join(restored.titles)})"
                raise expected("data", want, strange[0])
            known = np.array(restored.classes)
        c = self.config
        self.classes = np.searchsorted(known, labels)
        self.parts = divided(self.classes, c.folds, self.fold, self.split_seed, c.valid_share)
        self.facts = restored or facts_of(
            self.graphs,
            self.parts["train"],
            attributes=c.node_attributes,
            edge_features=c.edge_features,
            degrees=c.degrees,
            degree_cap=c.degree_cap,
            names=names,
        )
        self._stores: dict[Encoding, Store] = {}

    @property
    def fold(self) -> int:
        """The fold that is tested on."""
        fold = self.config.fold
        return self.seed % self.config.folds if fold is None else fold

    @property
    def split_seed(self) -> int:
        """Seed of the division."""
        seed = self.config.split_seed
        return self.seed // self.config.folds if seed is None else seed

    def store(self) -> Store:
        """All graphs as tensors, with the positions that the model last built wants."""
        wanted = getattr(self, "encoding", Encoding())
        if wanted not in self._stores:
            self._stores = {wanted: Store(self.graphs, self.facts, wanted, self.classes)}
        return self._stores[wanted]

    def source(self, split: Split) -> Members:
        """The graphs of a part."""
        return Members(self.store(), self.parts[split])

    def build(self, model: Any) -> nn.Module:
        """A fresh network; of the kernel, the machine fitted to the training part."""
        if isinstance(model, WLConfig):
            self.encoding = Encoding(colours=True)
            if hasattr(self, "parts"):
                machine = fitted(model, self)
                self.vocabulary = len(machine.vocabulary)
                return machine
            return WLModel(self.vocabulary, len(self.facts.classes))
        self.encoding = Encoding(model.eigenvectors, model.walks)
        f = self.facts
        spec = GraphSpec(f.features, f.edges.size, len(f.classes))
        return build_graph_model(model, spec)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross-entropy of the class in nats."""
        logits = run(model, batch)
        hits = (logits.detach().argmax(-1) == batch["y"]).float()
        smooth = self.config.label_smoothing
        loss = cross_entropy(logits, batch["y"], label_smoothing=smooth)
        return loss, {"accuracy": hits.mean()}

    def evaluation(self) -> "GraphsEvaluation":
        """Mean cross-entropy, accuracy, and F1 averaged over classes."""
        return GraphsEvaluation(len(self.facts.classes))

    def baselines(self) -> dict[str, float]:
        """Test accuracy of always naming the class that is commonest in training."""
        usual = np.bincount(self.classes[self.parts["train"]]).argmax()
        return {"commonest class": float((self.classes[self.parts["test"]] == usual).mean())}

    def exhibits(self, model: nn.Module, split: Split = "test") -> list[Exhibit]:
        """Scores by class, confusion, the data, and graphs drawn."""
        from lawful.tasks.graphs._exhibits import graph_exhibits

        return graph_exhibits(self, model, split)

    def predict(self, model: nn.Module, path: Path) -> Iterator[dict[str, Any]]:
        """One row {"id", "label", "probability_..."} for each graph."""
        model.eval()
        graphs = read_graphs(path, labelled=False)
        store = Store(graphs, self.facts, self.encoding)
        titles = self.facts.titles
        members = Members(store, np.arange(graphs.count))
        device = next(model.parameters()).device
        for batch in batches(members, 64):
            with torch.no_grad():
                chances = run(model, {k: v.to(device) for k, v in batch.items()}).softmax(-1)
            for index, row in zip(batch["graph"].tolist(), chances.tolist(), strict=True):
                found = {"id": graphs.ids[index], "label": titles[int(np.argmax(row))]}
                yield found | {f"probability_{t}": p for t, p in zip(titles, row, strict=True)}

    def state(self) -> dict[str, Any]:
        """Classes and features of the training graphs."""
        return self.facts.as_json() | {"vocabulary": getattr(self, "vocabulary", 0)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned."""
        self.facts = Facts.from_json(state)
        self.vocabulary = int(state.get("vocabulary", 0))


def read_graphs(path: Path, name: str = "", *, labelled: bool = True) -> GraphSet:
    """Graphs from what a person names: see `read_tu`, and `read_pyg` for ``.pt``."""
    if path.suffix == ".pt" and path.is_file():
        return read_pyg(path, labelled=labelled)
    return read_tu(path, name, labelled=labelled)


def run(model: nn.Module, batch: Batch) -> Tensor:
    """Logits (G, classes) of a batch."""
    if "colours" in batch:
        return logits_of(model, batch)
    logits: Tensor = model(graphs_of(batch))
    return logits


class GraphsEvaluation(Evaluation):
    """Counts of true and predicted classes, and the loss."""

    def __init__(self, classes: int) -> None:
        self.counts = torch.zeros(classes, classes, dtype=torch.int64)
        self.loss = 0.0

    def update(self, model: nn.Module, batch: Batch) -> None:
        """Adds a batch."""
        logits, y = run(model, batch), batch["y"]
        self.loss += float(cross_entropy(logits, y, reduction="sum"))
        pairs = y * len(self.counts) + logits.argmax(-1)
        found = torch.bincount(pairs.cpu(), minlength=self.counts.numel())
        self.counts += found.reshape(self.counts.shape)

    def compute(self) -> dict[str, float]:
        """A class that neither occurs nor is named is left out of the mean F1."""
        total = max(int(self.counts.sum()), 1)
        right = self.counts.diagonal().double()
        sums = (self.counts.sum(0) + self.counts.sum(1)).double()
        f1 = (2 * right / sums.clamp(min=1))[sums > 0]
        return {
            "loss": self.loss / total,
            "accuracy": float(right.sum()) / total,
            "macro_f1": float(f1.mean()) if len(f1) else 0.0,
        }
