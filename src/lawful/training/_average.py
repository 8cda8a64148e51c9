"""A running average of the weights, beside the weights that are trained."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


class WeightAverage:
    """Exponential moving average of a model's weights; buffers are copied.

    The first update is copied; after n updates the next one gives ``θ̄ ← d θ̄ + (1 - d) θ`` with
    ``d = min(decay, n / (n + 9))``, so that the first weights are soon forgotten.

    Args:
        model: The model that is trained; it is copied.
        decay: 0 < decay < 1.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        def mix(average: Any, current: Any, count: Tensor | int) -> None:
            n = int(count)
            torch._foreach_lerp_(average, current, 1 - min(decay, n / (n + 9)))

        self._averaged = AveragedModel(model, multi_avg_fn=mix)

    @property
    def model(self) -> nn.Module:
        """The model with the averaged weights."""
        inner: nn.Module = self._averaged.module
        return inner

    def update(self, model: nn.Module) -> None:
        """Takes in the weights after an update."""
        self._averaged.update_parameters(model)

    @property
    def count(self) -> int:
        """Updates taken in so far."""
        return int(self._averaged.n_averaged)

    @count.setter
    def count(self, value: int) -> None:
        self._averaged.n_averaged.fill_(value)
