"""A task small enough to train in a test: regression with dropout, on data made from a seed."""

from dataclasses import dataclass

import torch
from torch import nn

from lawful.tasks import MeanEvaluation, Task


@dataclass(frozen=True)
class ToyConfig:
    """Settings of the toy task."""

    examples: int = 50
    """Size of the training set."""
    poison: int = -1
    """Index of a training example whose target is NaN."""


@dataclass(frozen=True)
class ToyModel:
    """Settings of the toy model."""

    width: int = 8
    """Hidden units."""
    dropout: float = 0.3
    """Share of units dropped."""


class ToySource:
    endless = False

    def __init__(self, n, seed, poison=-1):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 4, generator=g)
        self.y = self.x.sin().sum(-1, keepdim=True)
        if poison >= 0:
            self.y[poison] = float("nan")

    def __len__(self):
        return len(self.x)

    def batch(self, indices):
        i = torch.as_tensor(list(indices))
        return {"x": self.x[i], "y": self.y[i], "index": i}


class ToyTask(Task):
    name = "toy"
    summary = "regression on generated points"
    data_help = "generated"
    Config = ToyConfig
    models = {"mlp": ToyModel}
    default_model = "mlp"
    metric = "mse"
    higher_is_better = False

    def load(self):
        c = self.config
        self.sources = {
            "train": ToySource(c.examples, self.seed, c.poison),
            "valid": ToySource(20, self.seed + 1),
            "test": ToySource(20, self.seed + 2),
        }
        self.seen = []

    def source(self, split):
        return self.sources[split]

    def build(self, model):
        return nn.Sequential(
            nn.Linear(4, model.width),
            nn.ReLU(),
            nn.Dropout(model.dropout),
            nn.Linear(model.width, 1),
        )

    def loss(self, model, batch):
        self.seen.extend(batch["index"].tolist())
        loss = (model(batch["x"]) - batch["y"]).square().mean()
        return loss, {"rmse": loss.detach().sqrt()}

    def evaluation(self):
        def measure(model, batch):
            error = (model(batch["x"]) - batch["y"]).square().sum()
            return {"loss": (error, len(batch["y"])), "mse": (error, len(batch["y"]))}

        return MeanEvaluation(measure)
