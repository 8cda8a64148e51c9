"""How good a roll-out is: errors by step, structural similarity, and the drift of energy."""

import importlib.util
from dataclasses import dataclass, field

from torch import Tensor, nn

from lawful.tasks._base import Batch, Evaluation

_WINDOW = 11  # of the structural similarity's Gaussian


def similarity(said: Tensor, truth: Tensor, span: float) -> Tensor | None:
    """Mean structural similarity (SSIM) of pictures (n, C, H, W), computed by torchmetrics.

    None where torchmetrics is not installed, or for pictures smaller than its window.
    """
    if truth.ndim != 4 or min(truth.shape[2:]) < _WINDOW:
        return None
    if importlib.util.find_spec("torchmetrics") is None:
        return None
    from torchmetrics.functional.image import structural_similarity_index_measure as ssim

    value = ssim(said, truth, data_range=span, reduction="elementwise_mean")
    assert isinstance(value, Tensor)
    return value


def squares(frames: Tensor) -> Tensor:
    r"""Sum of squares of each frame: (B, T) from (B, T, C, \*size), in double precision."""
    return frames.double().square().flatten(2).sum(2)


@dataclass
class RolloutEvaluation(Evaluation):
    """Errors of roll-outs, pooled over examples.

    Args:
        conserved: Whether the sum of squares of the true frames stays the same, so that a drift
            of energy means something.
        span: Range of the values, for the structural similarity; 0 for none.
        bits: Whether frames are pictures of which the share of right pixels (after rounding) is
            told.
    """

    conserved: bool
    span: float
    bits: bool = False
    error: Tensor | None = None  # by step, sums
    power: Tensor | None = None
    sums: dict[str, float] = field(default_factory=dict)
    frames: int = 0
    examples: int = 0
    numbers: int = 0

    def update(self, model: nn.Module, batch: Batch) -> None:
        """Adds the roll-outs of one batch."""
        truth = batch["y"]
        said = model(batch["x"], truth.shape[1])
        error, power = squares(said - truth).sum(0), squares(truth).sum(0)
        self.error = error if self.error is None else self.error + error
        self.power = power if self.power is None else self.power + power
        self.frames += truth.shape[0] * truth.shape[1]
        self.examples += len(truth)
        self.numbers += truth.numel()
        if self.conserved:
            self._add("energy_drift", energy_drift(said, truth).sum())
        if self.bits:
            self._add("pixels_right", ((said - truth).abs() < 0.5).double().sum())
        if self.span:
            value = similarity(said.flatten(0, 1), truth.flatten(0, 1), self.span)
            if value is not None:
                self._add("ssim", value.double() * truth.shape[0] * truth.shape[1])

    def _add(self, name: str, value: Tensor) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + float(value)

    def compute(self) -> dict[str, float]:
        """Mean squared error, errors relative to the truth's squares, and what else applies."""
        assert self.error is not None
        assert self.power is not None
        relative = float(self.error.sum() / self.power.sum().clamp_min(1e-300))
        last = float(self.error[-1] / self.power[-1].clamp_min(1e-300))
        found = {
            "loss": relative,
            "relative_mse": relative,
            "relative_mse_last": last,
            "mse": float(self.error.sum()) / self.numbers,
        }
        weights = {
            "energy_drift": self.examples,
            "pixels_right": self.numbers,
            "ssim": self.frames,
        }
        return found | {k: v / weights[k] for k, v in self.sums.items()}


def energy_drift(said: Tensor, truth: Tensor) -> Tensor:
    """How far each roll-out's energy moves from its first frame's, over the true one, (B,)."""
    energy = squares(said)
    return ((energy - energy[:, :1]) / squares(truth)).abs().amax(1)
