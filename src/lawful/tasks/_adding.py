"""The adding task: of a long sequence of numbers, add the two that were marked."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from lawful.errors import InputError, expected
from lawful.models import InputSpec, OutputSpec
from lawful.tasks._base import Batch, Evaluation, MeanEvaluation, Split
from lawful.tasks._generated import NOMINAL_EPOCH, Generated
from lawful.tasks._random import STREAMS, below, uniform, words
from lawful.tasks._sequence import SequenceTask, place, recall_views, run
from lawful.tasks.exhibits import Array, Curves, Exhibit, Table, Text

Target = Literal["half", "sum"]
# Variance of the target: the error of always answering its mean.
GUESS = {"half": 1 / 24, "sum": 1 / 6}


@dataclass(frozen=True)
class AddingConfig:
    """How long the sequences are, and what is asked."""

    length: int = 50
    """T, steps of a sequence. The paper uses 200 and 400."""
    target: Target = "half"
    """Ask for half the sum, as the authors' code does (errors are 4 times smaller), or the sum."""
    eval_length: int = 0
    """T of the test sequences, to measure transfer to other lengths; 0 for the same as trained."""
    valid_size: int = 512
    """Validation sequences, drawn apart from the training ones."""
    test_size: int = 2048
    """Test sequences, drawn apart from both."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        for name, least in (("length", 2), ("eval_length", 0), ("valid_size", 1), ("test_size", 1)):
            if getattr(self, name) < least:
                want = f"a whole number of at least {least}"
                raise expected(name, want, getattr(self, name))
        if self.eval_length == 1:
            raise expected("eval_length", "0, or at least 2 (two steps are marked)", 1)


def adding_sequences(
    seed: int, stream: int, indices: Sequence[int], length: int, target: Target = "half"
) -> tuple[Tensor, Tensor]:
    """Inputs and targets of the adding task.

    x_t = (v_t, m_t) with v_t uniform on [0, 1) and m_t = 1 at one step of the first half
    (0..floor(T/2)-1) and one of the rest, each step equally likely, else 0. The target is
    (v_a + v_b) / 2 of the marked steps, or the sum.

    Args:
        seed: Seed of the data.
        stream: Which stream of the seed.
        indices: Which examples.
        length: T >= 2.
        target: "half" or "sum".

    Returns:
        (B, T, 2) and (B, 1) float32.

    Source: Hochreiter and Schmidhuber (1997), in the form of Ke et al. (2018).
    """
    w = words(seed, stream, indices, 2 + length)
    first = length // 2
    marks = np.stack([below(w[:, 0], first), first + below(w[:, 1], length - first)], axis=1)
    x = np.zeros((len(w), length, 2), dtype=np.float32)
    x[..., 0] = uniform(w[:, 2:])
    np.put_along_axis(x[..., 1], marks, 1.0, axis=1)
    picked = np.take_along_axis(x[..., 0], marks, axis=1)
    y = picked.sum(1, keepdims=True) * np.float32(0.5 if target == "half" else 1.0)
    return torch.from_numpy(x), torch.from_numpy(y)


class AddingTask(SequenceTask[AddingConfig]):
    """Add the two marked numbers of a long sequence."""

    name = "adding"
    summary = "add the two marked numbers of a long sequence (long-term regression)"
    data_help = "none: sequences are generated from the seed"
    Config = AddingConfig
    metric = "mse"
    higher_is_better = False
    train_defaults: ClassVar[Mapping[str, Any]] = {"steps": 3000, "batch_size": 64, "lr": 1e-3}
    # A linear recurrence cannot multiply value and mark, a ReLU layer before it can; and a kernel
    # that starts as the identity has the sum at once. Measured at T=200: 3e-6 after 300 updates
    # at --lr 0.01, against 4e-3 with random phases.
    model_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "conv-unitary": {"features": 32, "sites": 64, "kernel_gain": 0.0},
        "conv-orthogonal": {"features": 32, "sites": 64, "kernel_gain": 0.0},
    }

    def load(self) -> None:
        """Refuses a data path: there is nothing to read."""
        if self.data is not None:
            raise expected("data", "nothing: the sequences are generated", str(self.data))

    def source(self, split: Split) -> Generated:
        """Endless training sequences; fixed validation and test sequences from other streams."""
        config = self.config
        length = (config.eval_length or config.length) if split == "test" else config.length
        sizes = {"train": NOMINAL_EPOCH, "valid": config.valid_size, "test": config.test_size}

        def make(indices: Sequence[int]) -> Batch:
            return self._batch(STREAMS[split], indices, length)

        return Generated(make, sizes[split], endless=split == "train")

    def _batch(self, stream: int, indices: Sequence[int], length: int) -> Batch:
        x, y = adding_sequences(self.seed, stream, indices, length, self.config.target)
        return {"x": x, "y": y}

    def inputs(self) -> InputSpec:
        """A value and a mark at each step."""
        c = self.config
        return InputSpec("values", 2, c.length if c.eval_length in (0, c.length) else None)

    def outputs(self) -> OutputSpec:
        """One number."""
        return OutputSpec(1, per_step=False)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean squared error."""
        return mse_loss(run(model, batch), batch["y"]), {}

    def evaluation(self) -> Evaluation:
        """Mean squared error, as "loss" and "mse"."""
        return MeanEvaluation(_measure)

    def baselines(self) -> dict[str, float]:
        """Mean squared error of always answering the mean: the variance of the target."""
        return {"constant": 1 / 24 if self.config.target == "half" else 1 / 6}

    def exhibits(self, model: nn.Module, split: Split = "test") -> list[Exhibit]:
        """Examples, answers against the truth, errors by length, recall and credit."""
        model.eval()
        batch = {k: v.to(place(model)) for k, v in self.source(split).batch(range(128)).items()}
        with torch.no_grad():
            said = run(model, batch)
        views: list[Exhibit] = [
            _samples(batch["x"].cpu(), batch["y"].cpu(), said.cpu()),
            _answers(batch["y"].cpu(), said.cpu()),
            self._by_length(model),
        ]
        ticks = [f"{v:.2f}{'*' if m else ''}" for v, m in batch["x"][0].tolist()]
        return views + recall_views(model, batch["x"][:64], ticks)

    def _by_length(self, model: nn.Module) -> Table:
        trained = self.config.length
        guess = GUESS[self.config.target]
        rows: list[tuple[int, float, float]] = []
        for length in sorted({max(2, trained // 2), trained, 2 * trained, 4 * trained}):
            batch = self._batch(STREAMS["show"], range(256), length)
            try:
                with torch.no_grad():
                    said = run(model, {"x": batch["x"].to(place(model))}).cpu()
            except InputError:  # learned positions end
                continue
            rows.append((length, float(mse_loss(said, batch["y"])), guess))
        note = f"Trained at T = {trained}; 256 sequences each. Guessing is to answer the mean."
        columns = ("steps", "mean squared error", "guessing")
        return Table("Error by length", columns, rows, note)

    def predict(self, model: nn.Module, path: Path) -> Iterator[dict[str, Any]]:
        """The answer for each sequence of an .npy array (T, 2) or (n, T, 2), or a CSV of T rows."""
        model.eval()
        x = torch.from_numpy(_read_sequences(path))
        for i, row in enumerate(x):
            with torch.no_grad():
                said = run(model, {"x": row[None].to(place(model))})
            yield {"sequence": i, "answer": float(said)}


def _measure(model: nn.Module, batch: Batch) -> dict[str, tuple[Tensor, int]]:
    y = batch["y"]
    error = mse_loss(run(model, batch), y, reduction="sum")
    return {"loss": (error, len(y)), "mse": (error, len(y))}


def _samples(x: Tensor, y: Tensor, said: Tensor, count: int = 10) -> Text:
    lines = ["marked steps   their values     asked   answered"]
    for row, want, got in zip(x[:count], y[:count, 0], said[:count, 0], strict=True):
        a, b = row[:, 1].nonzero()[:, 0].tolist()
        values = f"{float(row[a, 0]):.3f} + {float(row[b, 0]):.3f}"
        lines.append(f"{a:>5} {b:>5}    {values}  {float(want):8.3f}  {float(got):9.3f}")
    return Text("Sequences", lines, f"{x.shape[1]} steps each, counted from 0.")


def _answers(y: Tensor, said: Tensor) -> Curves:
    order = y[:, 0].argsort()
    asked, answered = y[order, 0].tolist(), said[order, 0].tolist()
    series = {"model": (asked, answered), "exact": (asked, asked)}
    return Curves("Answers against the truth", series, "asked", "answered")


def _read_sequences(path: Path) -> Array:
    want = "numbers of shape (T, 2) or (n, T, 2): value and mark"
    array: Array
    try:
        if path.suffix == ".npy":
            array = np.load(path, allow_pickle=False)
        else:
            array = np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: expected {want}, got {error}") from error
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3 or array.shape[2] != 2 or 0 in array.shape or array.dtype.kind not in "uif":
        raise expected(str(path), want, f"{array.dtype} of shape {array.shape}")
    if not np.isfinite(array).all():
        raise expected(str(path), "finite numbers", "NaN or infinity")
    return array.astype(np.float32)
