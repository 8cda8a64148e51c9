"""Settings of the task."""

from dataclasses import dataclass
from typing import Literal

from lawful.errors import expected
from lawful.tasks.graphdata import ReadOptions


@dataclass(frozen=True)
class AnomalyConfig:
    """How the graph is read, split, sampled and measured."""

    split: Literal["random", "given"] = "random"
    """Split the labelled nodes at random, each class by itself; or take the file's own masks."""
    split_index: int = 0
    """Which of the file's own splits."""
    train_share: float = 0.4
    """Share of the labelled nodes for training; a third of the others is for validation."""
    class_weight: Literal["balanced", "root", "none"] = "balanced"
    """Weight of anomalous nodes in the loss: the number of normal nodes for each anomalous one of
    training, its square root, or 1."""
    scaling: Literal["standard", "quantile", "none"] = "standard"
    """Numeric columns to mean 0 and deviation 1, or to a normal distribution by their quantiles, by
    the training nodes alone; or as they are."""
    categories: int = 32
    """Values of a categorical column that get a feature of their own, the most frequent ones."""
    degrees: bool = True
    """Take the logarithm of the degree in each relation as a feature."""
    dataset: str = ""
    """Which graph of a folder that holds several files: tolokers for tolokers.npz."""
    label_column: str = ""
    """Column of the node table with the labels; by default the first that has a usual name."""
    anomalous: tuple[str, ...] = ()
    """Words of the label column that mean anomalous; by default 1, true, fraud and the like."""
    sample_neighbours: tuple[int, ...] = ()
    """Neighbours drawn for each node at each hop, as in 10 10, so that a batch needs only a part of
    the graph; by default every update takes the whole graph and all training nodes."""
    max_valid: int = 0
    """Use only this many validation nodes, drawn at random; 0 for all."""
    transaction_links: int = 2
    """Later transactions that each one is joined to, for a table of transactions."""
    bootstrap: int = 500
    """Resamples behind the 95 % intervals of the test metrics; 0 for no intervals."""
    trees: bool = True
    """Train gradient-boosted trees as a baseline."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        if not 0 < self.train_share < 1:
            raise expected("train_share", "a number between 0 and 1", self.train_share)
        least = {"split_index": 0, "max_valid": 0, "bootstrap": 0, "categories": 1}
        for name, low in {**least, "transaction_links": 1}.items():
            if getattr(self, name) < low:
                raise expected(name, f"a whole number of at least {low}", getattr(self, name))
        if any(f < 0 for f in self.sample_neighbours):
            want = "whole numbers of at least 0 (0: all neighbours)"
            raise expected("sample_neighbours", want, self.sample_neighbours)

    def read_options(self, kinds: dict[str, str] | None = None) -> ReadOptions:
        """What the readers of files need of this."""
        return ReadOptions(self.label_column, self.anomalous, kinds or {}, self.transaction_links)


@dataclass(frozen=True)
class AnomalyPredictOptions:
    """What else to tell about each node."""

    explain: bool = False
    """Add the neighbours that the node attends to most, and its energy."""
    neighbours: int = 5
    """How many neighbours."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        if self.neighbours < 1:
            raise expected("neighbours", "a whole number of at least 1", self.neighbours)
