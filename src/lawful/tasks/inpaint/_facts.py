"""What a trained network must know of the pictures it was trained on, and their patches."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lawful.errors import expected
from lawful.models import PatchSpec
from lawful.tasks.data import Pictures
from lawful.tasks.exhibits import Array


@dataclass(frozen=True)
class Facts:
    """Size and scale of the training pictures."""

    height: int
    width: int
    channels: int
    patch: int
    mean: tuple[float, ...]  # per channel, of pixels in 0..1
    deviation: tuple[float, ...]

    @property
    def spec(self) -> PatchSpec:
        """How pictures are cut up."""
        p = self.patch
        return PatchSpec(self.height // p, self.width // p, self.channels * p * p)

    def _scale(self) -> tuple[Array, Array]:
        shape = (1, -1, 1, 1)
        return tuple(np.array(v, np.float32).reshape(shape) for v in (self.mean, self.deviation))  # type: ignore[return-value]

    def normalise(self, pictures: Array, peak: float) -> Tensor:
        """(B, C, H, W) with the training mean and deviation removed, from (B, H, W[, C])."""
        x = pictures.reshape(len(pictures), self.height, self.width, self.channels)
        x = np.moveaxis(x, -1, 1).astype(np.float32) / np.float32(peak)
        mean, deviation = self._scale()
        return torch.from_numpy((x - mean) / deviation)

    def to_pictures(self, normalised: Tensor) -> Array:
        """Pictures (B, H, W) or (B, H, W, 3) in [0, 1] from (B, C, H, W)."""
        mean, deviation = self._scale()
        x = (normalised.detach().cpu().numpy() * deviation + mean).clip(0, 1)
        return np.moveaxis(x, 1, -1) if self.channels == 3 else x[:, 0]

    def to_patches(self, pictures: Tensor) -> Tensor:
        """(B, N, P) from (B, C, H, W): patches row by row, each in the order (c, y, x)."""
        p, s = self.patch, self.spec
        x = pictures.reshape(-1, self.channels, s.rows, p, s.columns, p)
        return x.permute(0, 2, 4, 1, 3, 5).reshape(-1, s.count, s.size)

    def from_patches(self, patches: Tensor) -> Tensor:
        """(B, C, H, W) from (B, N, P)."""
        p, s = self.patch, self.spec
        x = patches.reshape(-1, s.rows, s.columns, self.channels, p, p)
        return x.permute(0, 3, 1, 4, 2, 5).reshape(-1, self.channels, self.height, self.width)

    def spread(self, per_patch: Tensor) -> Tensor:
        """(B, H, W) with the value of each pixel's patch, from (B, N)."""
        x = per_patch.reshape(-1, self.spec.rows, self.spec.columns)
        return x.repeat_interleave(self.patch, 1).repeat_interleave(self.patch, 2)

    def pixel_deviation(self) -> Tensor:
        """The deviation that each of a patch's P values was divided by (P,)."""
        return torch.tensor(self.deviation).repeat_interleave(self.patch**2)


def facts_of(pictures: Pictures, patch: int) -> Facts:
    """Size and scale of training pictures.

    Raises:
        InputError: Their size is no multiple of the patch, or there is only one patch.
    """
    images = pictures.train
    height, width = images.shape[1:3]
    channels = 3 if images.ndim == 4 else 1
    if height % patch or width % patch:
        both = [i for i in range(1, min(height, width) + 1) if height % i == 0 == width % i]
        hint = f"one of {', '.join(map(str, both))}, or another --image-size"
        want = f"a divisor of the width and height of {width}x{height}"
        raise expected("patch", want, patch, hint)
    if height * width == patch**2:
        raise expected("patch", f"smaller than the picture of {width}x{height}", patch)
    flat = images.reshape(-1, channels)
    mean = flat.mean(0, dtype=np.float64) / pictures.peak
    deviation = flat.std(0, dtype=np.float64) / pictures.peak
    deviation = np.where(deviation > 0, deviation, 1.0)  # pictures of one colour stay finite
    return Facts(height, width, channels, patch, tuple(mean.tolist()), tuple(deviation.tolist()))
