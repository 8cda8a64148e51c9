"""Complete pictures of which patches are hidden."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from lawful.errors import InputError, expected
from lawful.models import (
    EnergyInpainterConfig,
    TiedViTInpainterConfig,
    ViTInpainterConfig,
    build_inpainter,
)
from lawful.tasks._base import Batch, Evaluation, MeanEvaluation, Split, Task
from lawful.tasks._random import STREAMS, uniform, words
from lawful.tasks.data import Channels, Pictures, fetch_dataset, load_pictures
from lawful.tasks.exhibits import Array, Exhibit
from lawful.tasks.inpaint._facts import Facts, facts_of
from lawful.tasks.inpaint._fill import harmonic_fill
from lawful.tasks.inpaint._masks import Kind, Mask, draw_masks
from lawful.tasks.inpaint._predict import InpaintPredictOptions, predictions, write_pictures


@dataclass(frozen=True)
class InpaintConfig:
    """Which pictures, how they are cut up, and what is hidden."""

    patch: int = 2
    """Side of a patch in pixels; a divisor of the pictures' width and height."""
    image_size: int = 0
    """Scale and cut pictures to squares of this side; 0 keeps their size."""
    channels: Channels = "auto"
    """Grey or coloured pictures; auto takes them as they are."""
    mask: Kind = "scatter"
    """What is hidden: scatter and random hide random patches, block a rectangle of them; scatter
    scores some patches that it leaves visible, as the paper does."""
    mask_share: float = 0.5
    """Share of the patches in the loss."""
    intact_share: float = 0.1
    """Share of those that scatter leaves visible."""
    mask_seed: int = 0
    """Which masks validation and testing use; independent of the run's seed, so that runs can be
    compared."""
    objective: Literal["mse", "rmse"] = "mse"
    """Training loss: mean squared error over the scored patches, or the paper's root mean square
    over all patches, those not scored counting as 0."""
    flip: bool = False
    """Mirror half of the training pictures, left to right."""
    valid_share: float = 0.1
    """Share for validation, where the data has no such part."""
    test_share: float = 0.2
    """Share for testing, where the data has no such part."""
    max_train: int = 0
    """Use only this many training pictures; 0 for all."""
    download: Literal["none", "mnist", "cifar10"] = "none"
    """Fetch a published data set into the cache folder (checked by SHA-256) and use it."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        for name, least in (("patch", 1), ("image_size", 0), ("max_train", 0), ("mask_seed", 0)):
            if getattr(self, name) < least:
                raise expected(name, f"a whole number of at least {least}", getattr(self, name))
        if not 0 < self.mask_share < 1:
            raise expected("mask_share", "a number between 0 and 1", self.mask_share)
        if not 0 <= self.intact_share < 1:
            raise expected("intact_share", "a number in [0, 1)", self.intact_share)
        shares = (self.valid_share, self.test_share)
        if min(shares) <= 0 or sum(shares) >= 1:
            raise expected(
                "valid_share and test_share", "shares above 0 with a sum below 1", shares
            )


class PictureSource:
    """One part of the data as patches; validation and testing have masks that never change."""

    endless = False

    def __init__(self, images: Array, task: "InpaintTask", split: Split) -> None:
        self.images, self.task, self.split = images, task, split

    def __len__(self) -> int:
        """Number of pictures."""
        return len(self.images)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Patches "x" (B, N, P); and "hidden" and "scored" (B, N), except in training."""
        facts = self.task.facts
        at = np.asarray(indices, dtype=np.int64)
        x = facts.to_patches(facts.normalise(self.images[at], self.task.peak))
        if self.split == "train":
            return {"x": x}
        mask = self.task.fixed_masks(self.split, indices)
        return {"x": x, "hidden": mask.hidden, "scored": mask.scored}


class InpaintTask(Task[InpaintConfig]):
    """Fill in the hidden patches of a picture."""

    name = "inpaint"
    summary = "complete pictures of which patches are hidden"
    data_help = (
        "a folder or zip file of pictures, an array (.npy, .npz), a folder of MNIST's IDX or "
        "CIFAR-10's files; without: scikit-learn's digits"
    )
    Config = InpaintConfig
    PredictOptions = InpaintPredictOptions
    models: ClassVar[Mapping[str, type[Any]]] = {
        "energy": EnergyInpainterConfig,
        "vit": ViTInpainterConfig,
        "vit-compute": ViTInpainterConfig,
        "vit-tied": TiedViTInpainterConfig,
    }
    default_model = "energy"
    # "energy" has 2 D HY + M D = 9 D^2 weights for HY = 4 D and M = D, and a step of it costs as
    # much as 1.5 layers of width D. So "vit": 3 layers of width D/2, 3 x 12 (D/2)^2 = 9 D^2; and
    # 6 layers for 4 steps.
    model_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "vit": {"width": 32, "layers": 3},
        "vit-compute": {"layers": 6},
    }
    metric = "masked_mse"
    higher_is_better = False
    output_suffixes = (".png", ".gif")
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "steps": 3000,
        "batch_size": 32,
        "lr": 1e-2,
        "weight_decay": 0.05,
        "schedule": "cosine",
        "warmup": 100,
        "ema": 0.999,
    }

    pictures: Pictures
    facts: Facts
    peak: float

    def load(self) -> None:
        """Reads the pictures."""
        config, path = self.config, self.data
        if config.download != "none":
            if path is not None:
                raise expected("download", "no --data beside it", str(path))
            path = fetch_dataset(config.download)
        found = load_pictures(
            path,
            size=config.image_size,
            channels=config.channels,
            valid_share=config.valid_share,
            test_share=config.test_share,
        )
        if config.max_train:
            found = replace(found, train=found.train[: config.max_train])
        facts = facts_of(found, config.patch)
        self.pictures, self.peak = found, found.peak
        # A finished run is measured on other data by the scale it was trained with.
        self.facts = _same_size(self.facts, facts) if hasattr(self, "facts") else facts
        self._fill_errors: dict[str, dict[str, dict[str, float]]] = {}

    def source(self, split: Split) -> PictureSource:
        """The pictures of a part, as patches."""
        return PictureSource(getattr(self.pictures, split), self, split)

    def build(self, model: Any) -> nn.Module:
        """A fresh network for this task's patches."""
        return build_inpainter(model, self.facts.spec)

    def masks(self, noise: Tensor) -> Mask:
        """Masks from uniform noise (B, N)."""
        c, spec = self.config, self.facts.spec
        return draw_masks(noise, c.mask, spec.rows, spec.columns, c.mask_share, c.intact_share)

    def fixed_masks(self, split: Split, indices: Sequence[int]) -> Mask:
        """Masks of these pictures of a part: a function of mask_seed, part and index alone."""
        drawn = words(self.config.mask_seed, STREAMS[split], indices, self.facts.spec.count)
        return self.masks(torch.from_numpy(uniform(drawn)))

    def _masks_of(self, batch: Batch) -> Mask:
        """A batch's own masks, or fresh ones from torch's global generator."""
        if "hidden" in batch:
            return Mask(batch["hidden"], batch["scored"])
        return self.masks(torch.rand(batch["x"].shape[:2]).to(batch["x"].device))

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The objective on freshly drawn masks, and the error on the hidden patches."""
        x = self._flipped(batch["x"]) if self.config.flip else batch["x"]
        mask = self._masks_of({"x": x})
        error = (model(x, mask.hidden) - x).square().mean(-1)  # (B, N)
        hidden = error.detach()[mask.hidden].mean()
        return objective(error, mask.scored, self.config.objective), {"masked_mse": hidden}

    def _flipped(self, x: Tensor) -> Tensor:
        turned = self.facts.to_patches(self.facts.from_patches(x).flip(-1))
        which = (torch.rand(len(x)) < 0.5).to(x.device)
        return torch.where(which[:, None, None], turned, x)

    def evaluation(self) -> Evaluation:
        """Objective, and mean squared error on hidden patches in two units."""
        return MeanEvaluation(self._measure)

    def _measure(self, model: nn.Module, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        x, mask = batch["x"], self._masks_of(batch)
        square = (model(x, mask.hidden) - x).square()
        loss = objective(square.mean(-1), mask.scored, self.config.objective)
        found = {"loss": (loss * len(x), len(x))}
        return {**found, **self._errors(square, mask.hidden)}

    def _errors(self, square: Tensor, hidden: Tensor) -> dict[str, tuple[Tensor, int]]:
        """Sums and counts of the squared errors (B, N, P) of hidden patches, in both units."""
        inside = square[hidden]  # (hidden patches, P)
        unit = inside * self.facts.pixel_deviation().to(inside).square()
        return {
            "masked_mse": (inside.double().sum(), inside.numel()),
            "masked_mse_unit": (unit.double().sum(), inside.numel()),
        }

    def baselines(self) -> dict[str, float]:
        """masked_mse on the test pictures without learning: means, and neighbour fill."""
        return {name: errors["masked_mse"] for name, errors in self.fill_errors("test").items()}

    def fill_errors(self, split: Split) -> dict[str, dict[str, float]]:
        """masked_mse and masked_mse_unit of what needs no learning, by name."""
        if split not in self._fill_errors:
            fills: dict[str, Callable[[Batch], Tensor]] = {
                "mean": lambda batch: torch.zeros(()),
                "mean picture": lambda batch: middle,
                "neighbour fill": self.neighbour_fill,
            }
            average = self.pictures.train.mean(0, dtype=np.float64)[None]
            middle = self.facts.to_patches(self.facts.normalise(average, self.peak))
            self._fill_errors[split] = {k: self._measure_fill(f, split) for k, f in fills.items()}
        return self._fill_errors[split]

    def _measure_fill(self, fill: Callable[[Batch], Tensor], split: Split) -> dict[str, float]:
        found, source = MeanEvaluation(None), self.source(split)
        for start in range(0, len(source), 1024):
            indices = range(start, min(start + 1024, len(source)))
            batch = {**source.batch(indices), **self.fixed_masks(split, indices)._asdict()}
            found.add(self._errors((fill(batch) - batch["x"]).square(), batch["hidden"]))
        return found.compute()

    def neighbour_fill(self, batch: Batch) -> Tensor:
        """Patches (B, N, P) with the hidden ones filled from their neighbours."""
        facts = self.facts
        pictures = facts.from_patches(batch["x"])
        return facts.to_patches(harmonic_fill(pictures, facts.spread(batch["hidden"])))

    def exhibits(self, model: nn.Module, split: Split = "test") -> list[Exhibit]:
        """Completions, energies, attention, memories, and the error against the steps taken."""
        from lawful.tasks.inpaint._exhibits import inpaint_exhibits

        return inpaint_exhibits(self, model, split)

    def predict(self, model: nn.Module, path: Path) -> Iterator[dict[str, Any]]:
        """What was hidden of each picture, how well it was completed, and the energies."""
        return predictions(self, model, path)

    def write_predictions(self, model: nn.Module, path: Path, out: Path) -> None:
        """The completed picture as .png, or its course as .gif."""
        write_pictures(self, model, path, out)

    def state(self) -> dict[str, Any]:
        """Size and scale of the training pictures."""
        return dict(vars(self.facts))

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned."""
        try:
            lists = {k: tuple(state[k]) for k in ("mean", "deviation")}
            self.facts = Facts(**{**state, **lists})
        except (KeyError, TypeError) as error:
            raise InputError(f"task state: expected the facts of inpaint, got {error}") from error


def objective(error: Tensor, scored: Tensor, kind: Literal["mse", "rmse"]) -> Tensor:
    """The training loss of errors (B, N), each the mean over a patch's P values of (p̂ - p)².

    With the scored set S (a set of patches for each picture):

    - "mse": ``Σ_{(b,A) in S} error_bA / |S|``;
    - "rmse": ``sqrt(Σ_{(b,A) in S} error_bA / (B N))``, the formula of the paper's code, whose mean
      runs over every patch. So mse = rmse² B N / |S|.
    """
    chosen = torch.where(scored, error, 0.0).sum()
    if kind == "mse":
        return chosen / scored.sum().clamp_min(1)
    return (chosen / error.numel()).clamp_min(1e-12).sqrt()


def _same_size(trained: Facts, found: Facts) -> Facts:
    def shape(f: Facts) -> str:
        return f"{f.width}x{f.height} {'colour' if f.channels == 3 else 'grey'}"

    if shape(trained) != shape(found):
        hint = "--image-size and --channels of the run bring them there"
        raise expected("data", f"pictures of {shape(trained)}, as trained", shape(found), hint)
    return trained
