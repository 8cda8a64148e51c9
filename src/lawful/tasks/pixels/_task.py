"""Picture classification, one pixel (or a few) at a time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lawful.errors import InputError, expected
from lawful.models import (
    SEQUENCE_MODELS,
    ActivationName,
    ConvOrthogonalConfig,
    ConvUnitaryConfig,
    Form,
    InputSpec,
    OutputSpec,
    RasterModel,
    SABModelConfig,
)
from lawful.tasks._base import Batch, Evaluation, MeanEvaluation, Split
from lawful.tasks._random import permutation
from lawful.tasks._sequence import SequenceTask, run
from lawful.tasks.data import ImageData, ImageSet, fetch_dataset, load_images
from lawful.tasks.exhibits import Array, Exhibit
from lawful.tasks.pixels._predict import predictions


@dataclass(frozen=True)
class PixelsConfig:
    """How pictures become sequences."""

    order: Literal["plain", "permuted"] = "plain"
    """Read pixels row by row, or in one fixed random order."""
    permutation_seed: int = 0
    """Which random order; independent of the run's seed, so that runs can be compared."""
    chunk: int = 1
    """Pixels per step, a divisor of the number of pixels; 0 for one row of the picture."""
    scaling: Literal["unit", "standard"] = "unit"
    """Pixels as 0..1, or with the mean and deviation of the training pictures (per colour)
    removed."""
    valid_share: float = 0.1
    """Share of each class for validation, where the data has no such part."""
    test_share: float = 0.2
    """Share of each class for testing, where the data has no such part."""
    max_train: int = 0
    """Use only this many training pictures, equally many of each class; 0 for all."""
    download: Literal["none", "mnist", "cifar10"] = "none"
    """Fetch a published data set into the cache folder (checked by SHA-256) and use it."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        for name in ("chunk", "max_train"):
            if getattr(self, name) < 0:
                raise expected(name, "a whole number of at least 0", getattr(self, name))
        shares = (self.valid_share, self.test_share)
        if min(shares) <= 0 or sum(shares) >= 1:
            raise expected(
                "valid_share and test_share", "shares above 0 with a sum below 1", shares
            )


@dataclass(frozen=True)
class PixelsSABConfig(SABModelConfig):
    """Recurrent network with sparse attentive backtracking, sized for the embedded digits."""

    hidden: int = 128
    """Width of the state."""
    dropout: float = 0.2
    """Share of entries dropped between layers and before the output layer, in training."""
    k_att: int = 8
    """Store the state after every so many steps."""
    k_trunc: int = 8
    """Steps between cuts of the gradient along the recurrence."""


@dataclass(frozen=True)
class PixelsUnitaryConfig(ConvUnitaryConfig):
    """Unitary convolution of a complex lattice that has the picture's own shape."""

    raster: bool = True
    """The lattice is the picture: each pixel enters at its own site, in row-major order.
    Otherwise pixels drive learned patterns on a ring of --sites sites."""
    channels: int = 4
    """Fields on the lattice (complex; for conv-orthogonal real, X layers first, then as many P);
    several are mixed by the kernel."""
    taps: int = 3
    """Size of the generating kernel along each axis, odd."""
    activation: ActivationName = "softnorm"
    """What follows each step. "identity" and "fold" keep every gradient's norm; the others do
    not, whatever the kernel."""
    kernel_gain: float = 0.3
    """Scale of the initial phases in radians: 0 starts from the identity, 2 or more spread the
    eigenvalues over the whole circle."""
    kernel_rate: float = 0.3
    """Learning rate of the kernel relative to that of the other parameters; what a phase does
    grows with the number of steps, so that long sequences want less."""
    readout: int = 64
    """Width of a ReLU layer between what is read from the lattice and the outputs; 0 for none."""


@dataclass(frozen=True)
class PixelsOrthogonalConfig(PixelsUnitaryConfig, ConvOrthogonalConfig):
    """Orthogonal convolution of real layers that have the picture's own shape."""

    channels: int = 8
    """Fields on the lattice (complex; for conv-orthogonal real, X layers first, then as many P);
    several are mixed by the kernel."""
    form: Form = "full"
    """Which kernels turn X and P into each other: "symmetric" (sine and cosine of one even
    kernel), "pair" (one of any symmetry), "full" (kernels within X and within P as well)."""


@dataclass(frozen=True)
class Facts:
    """What prediction must know of the training data."""

    height: int
    width: int
    channels: int
    classes: tuple[str, ...]
    peak: float  # the value of full brightness
    mean: tuple[float, ...]  # per channel, of pixels in 0..1
    deviation: tuple[float, ...]


class PixelSource:
    """One part of the data as sequences."""

    endless = False

    def __init__(self, part: ImageSet, task: "PixelsTask") -> None:
        self.part = part
        self.task = task

    def __len__(self) -> int:
        """Number of pictures."""
        return len(self.part)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Sequences "x" (B, T, size) and classes "y" (B,)."""
        at = np.asarray(indices, dtype=np.int64)
        x = self.task.sequences(self.part.images[at])
        return {"x": x, "y": torch.from_numpy(self.part.labels[at])}


class PixelsTask(SequenceTask[PixelsConfig]):
    """Read a picture pixel by pixel, then say what it shows."""

    name = "pixels"
    summary = "classify pictures read pixel by pixel (plain or permuted)"
    data_help = (
        "a folder with MNIST's IDX files, CIFAR-10 (class folders, zip files of them, or *.bin), "
        "class folders of equal-sized pictures, or an .npz file; without: scikit-learn's digits"
    )
    Config = PixelsConfig
    models: ClassVar[Mapping[str, type[Any]]] = {
        **SEQUENCE_MODELS,
        "sab": PixelsSABConfig,
        "conv-unitary": PixelsUnitaryConfig,
        "conv-orthogonal": PixelsOrthogonalConfig,
    }
    metric = "accuracy"
    higher_is_better = True
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "steps": 2000,
        "batch_size": 64,
        "lr": 3e-3,
        "weight_decay": 0.1,
        "schedule": "cosine",
        "warmup": 50,
    }

    images: ImageData
    facts: Facts

    def load(self) -> None:
        """Reads the pictures and fixes the order of pixels.

        After `load_state`, the pictures are read by the restored classes, size and scale.
        """
        config = self.config
        path = self.data
        if config.download != "none":
            if path is not None:
                raise expected("download", "no --data beside it", str(path))
            path = fetch_dataset(config.download)
        self.images = load_images(path, config.valid_share, config.test_share)
        if config.max_train:
            train = _balanced(self.images.train, config.max_train)
            self.images = replace(self.images, train=train)
        restored = getattr(self, "facts", None)
        if restored is not None:
            self.images = _by_classes(self.images, restored)
        self._set_facts(restored or _facts(self.images))

    def _set_facts(self, facts: Facts) -> None:
        pixels = facts.height * facts.width
        self.chunk = self.config.chunk or facts.width
        if pixels % self.chunk:
            divisors = ", ".join(str(i) for i in range(1, pixels + 1) if pixels % i == 0)
            size = f"{facts.width}x{facts.height}"
            raise expected(
                "chunk",
                f"a divisor of the {pixels} pixels of {size}",
                self.chunk,
                f"one of {divisors}",
            )
        self.facts = facts
        self.order = np.arange(pixels)
        if self.config.order == "permuted":
            self.order = permutation(self.config.permutation_seed, pixels)

    def sequences(self, images: Array) -> Tensor:
        """(B, T, chunk * channels) floats from pictures (B, height, width[, 3])."""
        f = self.facts
        flat = images.reshape(len(images), f.height * f.width, f.channels)[:, self.order]
        values = flat.astype(np.float32) / np.float32(f.peak)
        if self.config.scaling == "standard":
            mean, deviation = (np.array(v, dtype=np.float32) for v in (f.mean, f.deviation))
            values = (values - mean) / deviation
        steps = len(self.order) // self.chunk
        return torch.from_numpy(values.reshape(len(images), steps, self.chunk * f.channels))

    def to_picture(self, steps: Array) -> Array:
        """Lays one number a step (..., T) back over the picture: (..., height, width)."""
        flat = np.repeat(steps, self.chunk, axis=-1)
        picture = np.empty_like(flat)
        picture[..., self.order] = flat
        return picture.reshape(*steps.shape[:-1], self.facts.height, self.facts.width)

    def source(self, split: Split) -> PixelSource:
        """The pictures of a part, as sequences."""
        return PixelSource(getattr(self.images, split), self)

    def inputs(self) -> InputSpec:
        """Chunks of pixels."""
        f = self.facts
        steps = f.height * f.width // self.chunk
        return InputSpec("values", self.chunk * f.channels, steps)

    def outputs(self) -> OutputSpec:
        """One logit a class."""
        return OutputSpec(len(self.facts.classes), per_step=False)

    def build(self, model: Any) -> nn.Module:
        """A fresh model; on a lattice of the picture's shape if the config says so."""
        if not (isinstance(model, PixelsUnitaryConfig) and model.raster):
            return super().build(model)
        f = self.facts
        places = torch.from_numpy(self.order.reshape(-1, self.chunk))
        return RasterModel(model, places, (f.height, f.width), f.channels, len(f.classes))

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross-entropy of the class in nats."""
        logits = run(model, batch)
        hits = (logits.detach().argmax(-1) == batch["y"]).float()
        return cross_entropy(logits, batch["y"]), {"accuracy": hits.mean()}

    def evaluation(self) -> Evaluation:
        """Mean cross-entropy and accuracy."""
        return MeanEvaluation(_measure)

    def baselines(self) -> dict[str, float]:
        """Test accuracy of always naming the commonest class."""
        labels = self.images.test.labels
        return {"commonest class": float(np.bincount(labels).max() / len(labels))}

    def exhibits(self, model: nn.Module, split: Split = "test") -> list[Exhibit]:
        """Accuracy by class, confusion, examples, and what was recalled."""
        from lawful.tasks.pixels._exhibits import pixel_exhibits

        return pixel_exhibits(self, model, split)

    def predict(self, model: nn.Module, path: Path) -> Iterator[dict[str, Any]]:
        """Class and probability of a picture, a folder of pictures, or a NumPy or IDX file."""
        return predictions(self, model, path)

    def state(self) -> dict[str, Any]:
        """Size, classes and scale of the training pictures."""
        return dict(vars(self.facts))

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned."""
        try:
            lists = {k: tuple(state[k]) for k in ("classes", "mean", "deviation")}
            facts = Facts(**{**state, **lists})
        except (KeyError, TypeError) as error:
            raise InputError(f"task state: expected the facts of pixels, got {error}") from error
        self._set_facts(facts)


def _measure(model: nn.Module, batch: Batch) -> dict[str, tuple[Tensor, int]]:
    logits, y = run(model, batch), batch["y"]
    hits = (logits.argmax(-1) == y).sum()
    loss = cross_entropy(logits, y, reduction="sum")
    return {"loss": (loss, len(y)), "accuracy": (hits, len(y))}


def _balanced(part: ImageSet, count: int) -> ImageSet:
    """The first pictures of each class in a fixed shuffle, ``count`` in all or all there are."""
    shuffled = permutation(0, len(part))
    rank = np.empty(len(part), dtype=np.int64)
    for label in np.unique(part.labels):
        members = shuffled[part.labels[shuffled] == label]
        rank[members] = np.arange(len(members))
    return part.take(np.sort(np.argsort(rank, kind="stable")[:count]))


def _by_classes(data: ImageData, facts: Facts) -> ImageData:
    """Other pictures than those trained on, their classes numbered as in training.

    Raises:
        InputError: Pictures of another size or brightness, or of a class unknown in training.
    """
    mine, theirs = _facts(data), facts
    for name in ("height", "width", "channels", "peak"):
        now, then = getattr(mine, name), getattr(theirs, name)
        if now != then:
            raise expected("data", f"pictures of {name} {then}, as in training", now)
    unknown = [c for c in data.classes if c not in facts.classes]
    if unknown:
        known = ", ".join(facts.classes)
        raise expected("data", f"only classes of the training data ({known})", unknown[0])
    number = np.array([facts.classes.index(c) for c in data.classes], dtype=np.int64)
    parts = {
        name: replace(getattr(data, name), labels=number[getattr(data, name).labels])
        for name in ("train", "valid", "test")
    }
    return replace(data, classes=facts.classes, **parts)


def _facts(data: ImageData) -> Facts:
    images = data.train.images
    channels = 3 if images.ndim == 4 else 1
    flat = images.reshape(-1, channels)
    mean = flat.mean(0, dtype=np.float64) / data.peak
    deviation = flat.std(0, dtype=np.float64) / data.peak
    deviation = np.where(deviation > 0, deviation, 1.0)  # pictures of one colour stay finite
    return Facts(
        images.shape[1],
        images.shape[2],
        channels,
        data.classes,
        data.peak,
        tuple(mean.tolist()),
        tuple(deviation.tolist()),
    )
