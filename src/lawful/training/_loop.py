"""The training loop, one for every task, on Lightning Fabric."""

import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lawful.errors import InputError, TrainingDivergedError
from lawful.laws import Certificate, check
from lawful.tasks import Batch, Source, Task, batches, to_device
from lawful.training._average import WeightAverage
from lawful.training._checkpoint import (
    load_state,
    load_weights,
    random_state,
    save_checkpoint,
    set_random_state,
)
from lawful.training._config import TrainConfig
from lawful.training._log import MetricLog, NoLog
from lawful.training._optim import Schedule, make_optimizer
from lawful.training._order import Share, training_batches
from lawful.training._progress import Progress, show_progress
from lawful.training._run import RunFolder, write_json

Status = Literal["finished", "stopped early", "interrupted", "diverged"]


@dataclass
class Progression:
    """What changes from update to update, besides weights, optimiser and generators."""

    step: int = 0
    best_step: int = 0
    best: float = math.nan
    best_valid: dict[str, float] | None = None
    bad_evaluations: int = 0
    seconds: float = 0.0


def make_fabric(config: TrainConfig) -> Any:
    """Fabric for the devices at hand: one process, or one of several under ``torchrun``."""
    from lightning_fabric import Fabric

    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
    fabric = Fabric(
        accelerator=config.device,
        devices=local,
        num_nodes=max(world // local, 1),
        strategy="ddp" if world > 1 else "auto",
        precision=config.precision,
    )
    fabric.launch()
    return fabric


def evaluate(task: Task[Any], model: nn.Module, source: Source, size: int) -> dict[str, float]:
    """The task's metrics over a whole split.

    The model is put into evaluation mode and back; the global generators are left as they were.
    """
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    evaluation = task.evaluation()
    was_training = model.training
    model.eval()
    with torch.random.fork_rng(enabled=True), torch.no_grad():
        torch.manual_seed(task.seed)
        for batch in batches(source, size, by_length=True):
            evaluation.update(model, to_device(batch, device))
    model.train(was_training)
    return evaluation.compute()


def certify(task: Task[Any], model: nn.Module, source: Source, examples: int = 16) -> Certificate:
    """Measures every law of the model's layers on the first examples of a source."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    batch = to_device(source.batch(range(min(examples, len(source)))), device)
    return check(model, run=lambda: task.evaluation().update(model, batch))


class Trainer:
    """Trains one model on one task into one run folder.

    Args:
        task: Loaded task.
        model: Fresh model of that task, initialised the same in every process.
        config: Settings of the loop.
        run: Run folder; checkpoints and metrics go there.
        fabric: From `make_fabric`; made here if absent.
        silent: No progress display.
    """

    def __init__(
        self,
        task: Task[Any],
        model: nn.Module,
        config: TrainConfig,
        run: RunFolder,
        *,
        fabric: Any = None,
        silent: bool = False,
    ) -> None:
        self.task, self.config, self.run = task, config, run
        self.fabric = fabric or make_fabric(config)
        self.train_source = task.source("train")
        self.valid_source = task.source("valid")
        self.total = self._total_steps()
        self.share = self._share()
        self.model = model
        rates: Any = getattr(model, "learning_rates", dict)()
        optimizer = make_optimizer(model.parameters(), config, rates)
        self.schedule = Schedule(optimizer, self.total, config)
        self.wrapped, self.optimizer = self.fabric.setup(model, optimizer)
        self.average = WeightAverage(model, config.ema) if config.ema else None
        self.at = Progression()
        self.silent = silent or not self.fabric.is_global_zero
        self._stop = False

    @property
    def judged(self) -> nn.Module:
        """The model that is evaluated and kept: the averaged one, if there is an average."""
        return self.model if self.average is None else self.average.model

    def _total_steps(self) -> int:
        if self.config.epochs is None:
            return self.config.steps
        whole = getattr(self.train_source, "whole", False)
        updates = 1.0 if whole else len(self.train_source) / self.config.batch_size
        return max(round(self.config.epochs * updates), 1)

    def _share(self) -> Share:
        world = int(self.fabric.world_size)
        if self.config.batch_size % (self.config.accumulate * world):
            raise InputError(
                f"batch_size: expected a multiple of accumulate x processes = "
                f"{self.config.accumulate} x {world}, got {self.config.batch_size}"
            )
        return Share(self.config.accumulate, int(self.fabric.global_rank), world)

    def resume(self) -> None:
        """Goes back to the last checkpoint, or to the start where there is none."""
        checkpoint = self.run.checkpoint("last")
        if checkpoint is not None:
            load_weights(self.judged, checkpoint)
            state = load_state(checkpoint)
            if self.average is not None:
                self.model.load_state_dict(state["trained"])
                self.average.count = state["averaged"]
            self.optimizer.load_state_dict(state["optimizer"])
            self.schedule.load_state_dict(state["schedule"])
            set_random_state(state["random"])
            self.at = Progression(**state["progression"])
            self.task.load_progress(state.get("task", {}))
        if self.fabric.is_global_zero:
            self.run.keep_metrics_until(self.at.step)
            (self.run.path / "result.json").unlink(missing_ok=True)
        self.fabric.barrier()

    def fit(self) -> Status:
        """Trains until the end, early stopping, or Ctrl-C; the state is saved in every case.

        Raises:
            TrainingDivergedError: The loss or gradient is not finite.
        """
        self.model.train()
        log = MetricLog(self.run, self.at.step) if self.fabric.is_global_zero else NoLog()
        show = show_progress(self.total, self.at.step, self.task.metric, silent=self.silent)
        with log, show as progress, self._catch_interrupts():
            return self._updates(log, progress)

    def _updates(self, log: MetricLog, progress: Progress) -> Status:
        began, before, start = time.perf_counter(), self.at.seconds, self.at.step
        stream = training_batches(
            self.train_source,
            seed=self.task.seed,
            start=start,
            stop=self.total,
            size=self.config.batch_size,
            share=self.share,
            workers=self.config.workers,
        )
        if self._exhausted():
            return "stopped early"
        while self.at.step < self.total:
            loss, logged = self._update(stream)
            self.at.step += 1
            step = self.at.step
            self.at.seconds = before + time.perf_counter() - began
            progress.step(step, loss)
            if step % self.config.log_every == 0 or step in (1, self.total):
                log.write("train", step, self.at.seconds, loss=loss, **logged)
            if self.config.check_every and step % self.config.check_every == 0:
                self._check_laws(log)
            stop = self._should_stop()
            if step % self.config.eval_every == 0 or step == self.total:
                self._evaluate(log, progress)
                if self._exhausted():
                    return "stopped early"
            elif step % self.config.checkpoint_every == 0 or stop:
                self._save(best=False)
            if stop:
                return "interrupted"
        return "finished"

    def _update(self, stream: Iterator[Batch]) -> tuple[float, dict[str, float]]:
        total, logged = torch.zeros((), device=self.fabric.device), {}
        for part in range(self.share.parts):
            batch = to_device(next(stream), self.fabric.device)
            last = part == self.share.parts - 1
            sync = nullcontext() if last else self.fabric.no_backward_sync(self.wrapped)
            with sync:
                loss, extra = self.task.loss(self.wrapped, batch)
                self.fabric.backward(loss / self.share.parts)
            total += loss.detach().float() / self.share.parts
            logged = {k: float(v) for k, v in extra.items()}
        if self.share.world > 1:
            total = self.fabric.all_reduce(total, reduce_op="mean")
        norm = self._clip()
        value = float(total)
        if not (math.isfinite(value) and math.isfinite(norm)):
            self._diverged(value, norm)
        logged["grad_norm"] = norm
        logged["lr"] = float(self.optimizer.param_groups[0]["lr"])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update(self.model)
        self.schedule.after_step()
        return value, logged

    def _clip(self) -> float:
        limit = self.config.clip or math.inf
        norm: Tensor = self.fabric.clip_gradients(
            self.wrapped, self.optimizer, max_norm=limit, error_if_nonfinite=False
        )
        return float(norm)

    def _diverged(self, loss: float, norm: float) -> None:
        what = (
            f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient's norm is {norm}"
        )
        last = self.run.checkpoint("last")
        kept = f"the last good state is {last}" if last else "no checkpoint had been written"
        if self.fabric.is_global_zero:
            write_json(self.run.path / "result.json", self._result("diverged"))
        raise TrainingDivergedError(
            f"step {self.at.step + 1}: {what}; stopped, {kept}. "
            f"A lower --lr (now {self.config.lr:g}) or a smaller --clip may help"
        )

    def _evaluate(self, log: MetricLog, progress: Progress) -> None:
        values = evaluate(self.task, self.judged, self.valid_source, self.config.eval_batch_size)
        log.write("valid", self.at.step, self.at.seconds, **values)
        value = values[self.task.metric]
        sign = 1 if self.task.higher_is_better else -1
        best = math.isnan(self.at.best) or sign * value > sign * self.at.best
        if best:
            self.at.best, self.at.best_step, self.at.best_valid = value, self.at.step, values
        self.at.bad_evaluations = 0 if best else self.at.bad_evaluations + 1
        self.schedule.after_evaluation(values["loss"])
        self._save(best=best)
        progress.evaluated(self.at.step, values, best)

    def _check_laws(self, log: MetricLog) -> None:
        rows = certify(self.task, self.judged, self.valid_source)
        found = {f"{r.layer}: {r.law}": r.deviation for r in rows if r.holds is not None}
        log.write("laws", self.at.step, self.at.seconds, **found)

    def _exhausted(self) -> bool:
        return 0 < self.config.patience <= self.at.bad_evaluations

    def _save(self, *, best: bool) -> None:
        if self.fabric.is_global_zero:
            state = {
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(),
                "random": random_state(),
                "progression": vars(self.at),
                "task": self.task.progress(),
            }
            if self.average is not None:
                state["trained"] = self.model.state_dict()
                state["averaged"] = self.average.count
            save_checkpoint(self.run, self.at.step, self.judged, state, best=best)

    def _should_stop(self) -> bool:
        if self.share.world == 1:
            return self._stop
        flag = torch.tensor(float(self._stop), device=self.fabric.device)
        return float(self.fabric.all_reduce(flag, reduce_op="sum")) > 0

    @contextmanager
    def _catch_interrupts(self) -> Iterator[None]:
        """The first Ctrl-C (or SIGTERM) ends the run after the update; a second one at once."""

        def handle(number: int, frame: FrameType | None) -> None:
            if self._stop:
                raise KeyboardInterrupt
            self._stop = True

        try:
            old = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not in the main thread: the caller handles signals
            yield
            return
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    def _result(self, status: Status) -> dict[str, Any]:
        return {
            "status": status,
            "steps": self.at.step,
            "best_step": self.at.best_step,
            "metric": self.task.metric,
            "higher_is_better": self.task.higher_is_better,
            "best_valid": self.at.best_valid,
            "baselines": self.task.baselines(),
            "parameters": sum(p.numel() for p in self.model.parameters() if p.requires_grad),
            "seconds": round(self.at.seconds, 3),
        }

    def conclude(self, status: Status) -> dict[str, Any]:
        """Measures the best checkpoint on the test split and writes ``result.json``.

        The model is left with the best weights. An interrupted run is not measured.
        """
        result = self._result(status)
        best = self.run.checkpoint("best")
        if status != "interrupted" and best is not None:
            load_weights(self.model, best)
            size = self.config.eval_batch_size
            result["test"] = evaluate(self.task, self.model, self.task.source("test"), size)
        if self.fabric.is_global_zero:
            write_json(self.run.path / "result.json", result)
        return result
