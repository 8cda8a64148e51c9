"""Optimisers and learning-rate schedules from the config; the algorithms are torch's own."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from lawful.training._config import TrainConfig


def make_optimizer(
    parameters: Iterable[torch.nn.Parameter],
    config: TrainConfig,
    rates: Mapping[torch.nn.Parameter, float] | None = None,
) -> torch.optim.Optimizer:
    """The optimiser the config names.

    Args:
        parameters: What to train; those that need no gradient are left out.
        config: Rule and rates.
        rates: Learning rates of some parameters, relative to that of the others.
    """
    by_rate: dict[float, list[torch.nn.Parameter]] = {}
    for p in parameters:
        if p.requires_grad:
            by_rate.setdefault((rates or {}).get(p, 1.0), []).append(p)
    lr, decay = config.lr, config.weight_decay
    # Full rate first: its group is the one whose rate is logged.
    chosen = [{"params": by_rate[r], "lr": r * lr} for r in sorted(by_rate, reverse=True)]
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
    if config.schedule == "staircase":
        return max(0.5 ** ((step - config.warmup) // config.halve_every), floor)
    return 1.0


class Halving:
    """Halves the rate at every evaluation, from the first without improvement, or a given one."""

    def __init__(self, optimizer: torch.optim.Optimizer, config: TrainConfig) -> None:
        self._optimizer, self._from, self._floor = optimizer, config.halve_from, config.min_lr
        self._best, self._count, self._started = math.inf, 0, False

    def step(self, loss: float) -> None:
        """Tells the validation loss."""
        self._count += 1
        due = 0 < self._from <= self._count
        self._started = self._started or due or not loss < self._best
        self._best = min(self._best, loss)
        for group in self._optimizer.param_groups if self._started else ():
            group["lr"] = max(group["lr"] / 2, self._floor)

    def state_dict(self) -> dict[str, object]:
        """For exact resume; the rate itself is in the optimiser's state."""
        return {"best": self._best, "count": self._count, "started": self._started}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` gave."""
        self._best, self._count = float(state["best"]), int(state["count"])
        self._started = bool(state["started"])


class Schedule:
    """Warm-up and schedule by step, and halving by validation for ``plateau`` and ``halving``."""

    def __init__(self, optimizer: torch.optim.Optimizer, total: int, config: TrainConfig) -> None:
        self._by_step: LambdaLR | None = None
        self._by_metric: ReduceLROnPlateau | Halving | None = None
        if config.schedule == "plateau":
            self._by_metric = ReduceLROnPlateau(
                optimizer, factor=0.5, patience=0, threshold=0.0, min_lr=config.min_lr
            )
        elif config.schedule == "halving":
            self._by_metric = Halving(optimizer, config)
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
