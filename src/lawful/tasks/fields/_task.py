"""Forecasting of fields: observe some frames of a film, roll out the ones that follow."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from lawful.errors import InputError, expected
from lawful.models import FIELD_MODELS, FieldSpec, build_forecaster
from lawful.tasks._base import Batch, Evaluation, Source, Split, Task, batches
from lawful.tasks._generated import NOMINAL_EPOCH, Generated
from lawful.tasks._random import STREAMS
from lawful.tasks.exhibits import Array, Exhibit
from lawful.tasks.fields._arrays import read_recordings, split_recordings
from lawful.tasks.fields._config import FieldsConfig
from lawful.tasks.fields._equations import field_count, solutions
from lawful.tasks.fields._measure import RolloutEvaluation, squares
from lawful.tasks.fields._pictures import digit_pictures, flashes, moving_digits


@dataclass(frozen=True)
class Facts:
    """What prediction must know of the training data."""

    channels: int
    size: tuple[int, ...]
    mean: tuple[float, ...]  # per channel, removed before the model sees a frame
    deviation: tuple[float, ...]
    span: float  # range of the values, for the structural similarity
    from_file: bool = False


@dataclass
class Windows:
    """Every stretch of ``need`` frames in recordings (samples, time, ...), as examples."""

    frames: Array
    task: "FieldsTask"
    horizon: int
    stride: int = 1
    endless: bool = False

    def __post_init__(self) -> None:
        """Counts them."""
        need = self.task.settled.observe + self.horizon
        self._per_sample = (self.frames.shape[1] - need) // self.stride + 1
        self._need = need

    def __len__(self) -> int:
        """Number of windows."""
        return int(len(self.frames) * self._per_sample)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Windows as examples, sample by sample and in order of time."""
        films = []
        for index in indices:
            sample, start = divmod(int(index), self._per_sample)
            start *= self.stride
            films.append(self.frames[sample, start : start + self._need])
        return self.task.example(np.stack(films), self.horizon)


class FieldsTask(Task[FieldsConfig]):
    """Watch a film of fields, and say how it goes on."""

    name = "fields"
    summary = "forecast films of fields: waves, flows, moving pictures, your own arrays"
    data_help = (
        "an .npy, .npz or Zarr file of frames (time x channels x space, or samples x time x "
        "channels x space); without: exact solutions of the wave equation, or see --generate"
    )
    Config = FieldsConfig
    models: ClassVar[Mapping[str, type[Any]]] = FIELD_MODELS
    default_model = "conv-orthogonal"
    metric = "relative_mse"
    higher_is_better = False
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "steps": 1500,
        "batch_size": 16,
        "eval_batch_size": 64,
        "lr": 1e-2,
        "schedule": "cosine",
        "warmup": 20,
    }
    output_suffixes: ClassVar[tuple[str, ...]] = (".npy", ".gif")

    facts: Facts
    recordings: dict[str, Array]
    pictures: dict[str, Array]

    def __init__(self, config: FieldsConfig, seed: int = 0, data: Path | None = None) -> None:
        super().__init__(config, seed, data)
        self.settled = config.filled(from_file=data is not None)
        self.recordings, self.pictures = {}, {}

    def load(self) -> None:
        """Reads the user's frames, or the digits that move."""
        c = self.settled
        if self.data is not None:
            self._load_recordings(self.data)
            return
        if c.generate in ("moving-digits", "recall"):
            self.pictures = {
                s: digit_pictures(s) for s in STREAMS if s in ("train", "valid", "test")
            }
            channels = 1
        else:
            channels = field_count(c.generate, c.space)
        span = 1.0 if self.pictures else 0.0
        zero, one = (0.0,) * channels, (1.0,) * channels
        self.facts = Facts(channels, (c.lattice,) * c.space, zero, one, span)

    def _load_recordings(self, path: Path) -> None:
        c = self.settled
        found = read_recordings(path, c.layout)
        need = c.observe + max(c.horizon, c.train_horizon)
        if "frames" in found:
            found = split_recordings(found["frames"], need, str(path))
        shape = found["train"].shape[2:]
        for split, frames in found.items():
            if frames.shape[2:] != shape:
                raise expected(f"{path}[{split}]", f"frames of shape {shape}", frames.shape[2:])
            if frames.shape[1] < need:
                want = f"at least {need} frames (observed and forecast)"
                raise expected(f"{path}[{split}]", want, frames.shape[1])
        self.recordings = found
        old = getattr(self, "facts", None)
        if old is None:
            self.facts = _facts(found["train"])
        elif (old.channels, old.size) != (shape[0], tuple(shape[1:])):
            want = f"frames of shape {(old.channels, *old.size)}, as trained on"
            raise expected(str(path), want, shape)

    def source(self, split: Split) -> Source:
        """Films of a split: endless to train on if generated, else every window of the file."""
        c = self.settled
        horizon = c.train_horizon if split == "train" else c.horizon
        if self.recordings:
            stride = 1 if split == "train" else c.observe + horizon
            return Windows(self.recordings[split], self, horizon, stride)
        sizes = {"train": NOMINAL_EPOCH, "valid": c.valid_size, "test": c.test_size}

        def make(indices: Sequence[int]) -> Batch:
            return self.example(self.films(split, indices, c.observe + horizon), horizon)

        return Generated(make, sizes[split], endless=split == "train")

    def films(self, split: Split, indices: Sequence[int], steps: int) -> Array:
        r"""Generated films of a split, (n, steps, channels, \*size), float64."""
        c, stream = self.settled, STREAMS[split]
        if c.generate == "moving-digits":
            pictures = self.pictures[split]
            moves = (c.lattice, steps, c.speed, c.digits, c.walls)
            return moving_digits(pictures, *moves, self.seed, stream, indices)
        if c.generate == "recall":
            return flashes(self.pictures[split], c.blanks, self.seed, stream, indices)
        size = (c.lattice,) * c.space
        return solutions(c.generate, size, steps, c.speed, c.modes, self.seed, stream, indices)

    def example(self, films: Array, horizon: int) -> Batch:
        """Observed frames "x" and following frames "y", scaled, from films (n, T, ...)."""
        frames = self.scaled(films)
        return {"x": frames[:, : frames.shape[1] - horizon], "y": frames[:, -horizon:]}

    def scaled(self, films: Array) -> Tensor:
        """Frames as the model sees them."""
        mean, deviation = self._scale()
        return torch.from_numpy(((films - mean) / deviation).astype(np.float32))

    def restored(self, frames: Tensor) -> Array:
        """Frames in the units of the data."""
        mean, deviation = self._scale()
        result: Array = frames.double().cpu().numpy() * deviation + mean
        return result

    def _scale(self) -> tuple[Array, Array]:
        shape = (-1, *[1] * len(self.facts.size))
        mean, deviation = (np.array(v) for v in (self.facts.mean, self.facts.deviation))
        return mean.reshape(shape), deviation.reshape(shape)

    @property
    def conserved(self) -> bool:
        """Whether the true frames keep the sum of their squares."""
        equations = ("wave", "schroedinger", "advection")
        return not self.facts.from_file and self.settled.generate in equations

    def build(self, model: Any) -> nn.Module:
        """A fresh forecaster from its config."""
        signal = 1 if self.settled.generate == "recall" else self.settled.observe
        return build_forecaster(model, FieldSpec(self.facts.channels, self.facts.size, signal))

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Squared error of the roll-out over the mean square of the true frames."""
        truth = batch["y"]
        error = (model(batch["x"], truth.shape[1]) - truth).square().mean()
        return error / truth.square().mean().clamp_min(1e-12), {"mse": error.detach()}

    def evaluation(self) -> Evaluation:
        """Errors, similarity of pictures, drift of energy."""
        recall = not self.facts.from_file and self.settled.generate == "recall"
        return RolloutEvaluation(self.conserved, self.facts.span, recall)

    def baselines(self) -> dict[str, float]:
        """Relative errors of forecasting the last frame, and the mean of the training frames."""
        last = mean = power = 0.0
        source = self.source("test")
        middle = (
            self.source("train").batch(range(min(64, len(self.source("train")))))["y"].mean((0, 1))
        )
        for batch in batches(source, 64):
            truth = batch["y"]
            power += float(squares(truth).sum())
            last += float(squares(truth - batch["x"][:, -1:]).sum())
            mean += float(squares(truth - middle).sum())
        return {"persistence": last / max(power, 1e-300), "mean frame": mean / max(power, 1e-300)}

    def exhibits(self, model: nn.Module, split: Split = "test") -> list[Exhibit]:
        """Films beside the truth, errors by step, energy, spectrum and kernel."""
        from lawful.tasks.fields._exhibits import field_exhibits

        return field_exhibits(self, model, split)

    def predict(self, model: nn.Module, path: Path) -> Iterator[dict[str, Any]]:
        """The forecast frames of each sample in an array file, one row a frame."""
        from lawful.tasks.fields._predict import forecasts

        for sample, frames in enumerate(forecasts(self, model, path)):
            for step, frame in enumerate(frames, 1):
                yield {"sample": sample, "step": step, "frame": frame.tolist()}

    def write_predictions(self, model: nn.Module, path: Path, out: Path) -> None:
        """The forecast as an array like the input's (.npy), or as a film (.gif)."""
        from lawful.tasks.fields._predict import write_forecast

        write_forecast(self, model, path, out)

    def state(self) -> dict[str, Any]:
        """Shape and scale of the training frames."""
        return dict(vars(self.facts))

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned."""
        try:
            lists = {k: tuple(state[k]) for k in ("size", "mean", "deviation")}
            self.facts = Facts(**{**state, **lists})
        except (KeyError, TypeError) as error:
            raise InputError(f"task state: expected the facts of fields, got {error}") from error
        self.settled = self.config.filled(from_file=self.facts.from_file)


def _facts(train: Array) -> Facts:
    axes = (0, 1, *range(3, train.ndim))
    deviation = train.std(axes)
    deviation = np.where(deviation > 0, deviation, 1.0)
    mean = train.mean(axes)
    span = float(np.ptp(train / deviation.reshape(-1, *[1] * (train.ndim - 3))))
    return Facts(
        train.shape[2], train.shape[3:], tuple(mean.tolist()), tuple(deviation.tolist()), span, True
    )
