"""Settings of the training loop, the same for every task."""

import math
from dataclasses import dataclass
from typing import Literal

from lawful.errors import expected

Precision = Literal["32-true", "64-true", "bf16-mixed", "16-mixed"]


@dataclass(frozen=True)
class TrainConfig:
    """Optimisation, evaluation and bookkeeping."""

    steps: int = 1000
    """Optimiser updates in all."""
    epochs: float | None = None
    """Passes over the training set; if given, it takes the place of --steps."""
    batch_size: int = 64
    """Examples per update, over all processes and accumulated parts together."""
    accumulate: int = 1
    """Parts that each update's examples are split into, to save memory."""
    optimizer: Literal["adamw", "adam", "sgd", "adagrad"] = "adamw"
    """Update rule."""
    lr: float = 1e-3
    """Peak learning rate."""
    weight_decay: float = 0.0
    """Weight decay (decoupled in adamw, an l2 gradient elsewhere)."""
    momentum: float = 0.0
    """Momentum of sgd."""
    schedule: Literal["constant", "cosine", "linear", "plateau", "halving", "staircase"] = (
        "constant"
    )
    """Course of the learning rate after warm-up; plateau halves it whenever validation stalls,
    halving at every evaluation from the first one that stalls, staircase every --halve-every
    updates."""
    halve_every: int = 0
    """Updates between halvings of the staircase schedule; no effect on any other."""
    halve_from: int = 0
    """With the halving schedule, the evaluation (counted from 1) from which on the rate is halved
    even if validation still improves; 0 means only once it stalls."""
    warmup: int = 0
    """Updates over which the learning rate rises from zero."""
    min_lr: float = 0.0
    """Learning rate at the end of cosine and linear, and the floor of all halving."""
    clip: float = 1.0
    """Largest global norm of the gradient; 0 turns clipping off."""
    ema: float = 0.0
    """Decay of a running average of the weights (0.999, say), which is what is evaluated and kept;
    0 for none."""
    eval_every: int = 200
    """Updates between evaluations on the validation split."""
    checkpoint_every: int = 200
    """Updates between checkpoints from which a run can be resumed."""
    patience: int = 0
    """Evaluations without improvement after which training stops; 0 means never."""
    check_every: int = 0
    """Updates between measurements of the layers' laws, logged as curves; 0 means never."""
    log_every: int = 20
    """Updates between lines of the training log."""
    eval_batch_size: int = 256
    """Examples per batch of evaluation."""
    precision: Precision = "32-true"
    """Arithmetic of the model."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""
    workers: int = 0
    """Processes that prepare data."""
    threads: int = 0
    """Threads of the CPU kernels; 0 leaves torch's choice."""

    def __post_init__(self) -> None:
        """Refuses impossible values, naming the field."""
        for name in ("batch_size", "accumulate", "eval_every", "checkpoint_every", "log_every"):
            _at_least(self, name, 1)
        for name in ("steps", "eval_batch_size"):
            _at_least(self, name, 1)
        counts = ("warmup", "patience", "workers", "threads", "check_every", "halve_from")
        for name in (*counts, "halve_every"):
            _at_least(self, name, 0)
        for name in ("lr", "weight_decay", "momentum", "min_lr", "clip"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise expected(name, "a finite number >= 0", value)
        if not 0 <= self.ema < 1:
            raise expected("ema", "a number in [0, 1)", self.ema)
        if self.lr == 0:
            raise expected("lr", "a number > 0", self.lr)
        if self.epochs is not None and not (math.isfinite(self.epochs) and self.epochs > 0):
            raise expected("epochs", "a finite number > 0", self.epochs)
        if self.batch_size % self.accumulate:
            raise expected(
                "batch_size", f"a multiple of accumulate={self.accumulate}", self.batch_size
            )
        if self.momentum and self.optimizer != "sgd":
            raise expected("momentum", "0 unless the optimizer is sgd", self.momentum)
        if self.warmup and self.schedule in ("plateau", "halving"):
            raise expected("warmup", f"0 with the {self.schedule} schedule", self.warmup)
        if self.halve_from and self.schedule != "halving":
            raise expected("halve_from", "0 unless the schedule is halving", self.halve_from)
        if self.schedule == "staircase" and not self.halve_every:
            raise expected("halve_every", "at least 1 with the staircase schedule", 0)


# Settings that may change when a run is resumed: they move the end or the bookkeeping, not what
# the updates so far have computed.
RESUMABLE = ("steps", "epochs", "patience", "checkpoint_every", "workers", "threads", "device")


def _at_least(config: TrainConfig, name: str, least: int) -> None:
    value = getattr(config, name)
    if value < least:
        raise expected(name, f"a whole number >= {least}", value)
