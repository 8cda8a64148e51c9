"""Optimisers and learning-rate schedules from the config; the algorithms are torch's own."""

import math
from collections.abc import Iterable

import torch
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from lawful.training._config import TrainConfig


def make_optimizer(
    parameters: Iterable[torch.nn.Parameter], config: TrainConfig
) -> torch.optim.Optimizer:
    """The optimiser the config names."""
    chosen = [p for p in parameters if p.requires_grad]
    lr, decay = config.lr, config.weight_decay
    match config.optimizer:
        case "adamw":
            return torch.optim.AdamW(chosen, lr=lr, weight_decay=decay)
        case "adam":
            return torch.optim.Adam(chosen, lr=lr, weight_decay=decay)
        case "sgd":
            return torch.optim.SGD(chosen, lr=lr, momentum=config.momentum, weight_decay=decay)
        case "adagrad":
            return torch.optim.Adagrad(chosen, lr=lr, weight_decay=decay)


def lr_factor(step: int, total: int, config: TrainConfig) -> float:
    """The learning rate of update ``step`` (from 0) over the peak rate."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    floor = config.min_lr / config.lr
    done = min((step - config.warmup) / max(total - config.warmup, 1), 1.0)
    if config.schedule == "cosine":
        return floor + (1 - floor) * (1 + math.cos(math.pi * done)) / 2
    if config.schedule == "linear":
        return floor + (1 - floor) * (1 - done)
    return 1.0


class Schedule:
    """Warm-up and schedule by step, and halving by validation for ``plateau``."""

    def __init__(self, optimizer: torch.optim.Optimizer, total: int, config: TrainConfig) -> None:
        self._by_step: LambdaLR | None = None
        self._by_metric: ReduceLROnPlateau | None = None
        if config.schedule == "plateau":
            self._by_metric = ReduceLROnPlateau(
                optimizer, factor=0.5, patience=0, threshold=0.0, min_lr=config.min_lr
            )
        else:
            self._by_step = LambdaLR(optimizer, lambda step: lr_factor(step, total, config))

    def after_step(self) -> None:
        """Moves on by one update."""
        if self._by_step is not None:
            self._by_step.step()

    def after_evaluation(self, loss: float) -> None:
        """Tells the validation loss."""
        if self._by_metric is not None:
            self._by_metric.step(loss)

    def state_dict(self) -> dict[str, object]:
        """For exact resume."""
        active = self._by_step or self._by_metric
        assert active is not None
        return active.state_dict()

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Restores what `state_dict` gave."""
        active = self._by_step or self._by_metric
        assert active is not None
        active.load_state_dict(state)
