"""Convolutions of fields, and the maps between frames and a hidden lattice."""

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from lawful.models._field_configs import FieldMapConfig


class FieldConv(nn.Module):
    r"""A convolution (torch's order) of fields (B, C, \*size) in 1 to 3 dimensions, same size."""

    def __init__(
        self,
        ins: int,
        outs: int,
        taps: int,
        dims: int,
        *,
        wrap: bool = True,
        bias: bool = True,
        **place: Any,
    ) -> None:
        super().__init__()
        self.taps, self.dims, self.wrap = taps, dims, wrap
        self.weight = nn.Parameter(torch.empty(outs, ins, *[taps] * dims, **place))
        self.bias = nn.Parameter(torch.empty(outs, **place)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weights that keep variances."""
        nn.init.normal_(self.weight, std=1 / math.sqrt(self.weight[0].numel()))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def start_as(self, matrix: Tensor, noise: float) -> None:
        """Makes the centre tap a matrix (outs, ins), and draws the rest with a deviation."""
        with torch.no_grad():
            nn.init.normal_(self.weight, std=noise / math.sqrt(self.weight[0].numel()))
            centre = self.weight.flatten(2)
            centre[:, :, centre.shape[2] // 2] += matrix

    def forward(self, x: Tensor) -> Tensor:
        r"""(B, outs, \*size) from (B, ins, \*size)."""
        reach = self.taps // 2
        if reach and self.wrap:
            x = _wrapped(x, reach, self.dims)
        elif reach:
            x = pad(x, [reach] * (2 * self.dims))
        conv = (nn.functional.conv1d, nn.functional.conv2d, nn.functional.conv3d)[self.dims - 1]
        out: Tensor = conv(x, self.weight, self.bias)
        return out

    def extra_repr(self) -> str:
        """Sizes."""
        return f"{self.weight.shape[1]} -> {self.weight.shape[0]}, taps={self.taps}"


def _wrapped(x: Tensor, reach: int, dims: int) -> Tensor:
    """Circular padding by any width, wider than the lattice too."""
    for axis in range(-dims, 0):
        n = x.shape[axis]
        index = torch.arange(-reach, n + reach, device=x.device) % n
        x = x.index_select(axis, index)
    return x


class FieldMap(nn.Module):
    """Maps fields to fields: one convolution, or two with a ReLU between them.

    Without ``bias``, blank fields give blank fields. A linear map starts as ``scale`` times the
    identity between its first fields, plus noise.
    """

    def __init__(
        self,
        ins: int,
        outs: int,
        dims: int,
        config: FieldMapConfig,
        *,
        scale: float,
        bias: bool,
        **place: Any,
    ) -> None:
        super().__init__()
        more = {"wrap": config.wrap, "bias": bias, **place}
        self.dims = dims
        sizes = [ins, config.features, outs] if config.features else [ins, outs]
        pairs = pairwise(sizes)
        layers = [FieldConv(a, b, config.map_taps, dims, **more) for a, b in pairs]
        if len(layers) == 1:
            self.layers = nn.Sequential(*layers)
            matrix = scale * torch.eye(outs, ins, **place)
            layers[0].start_as(matrix, 0.01 * scale)
        else:
            self.layers = nn.Sequential(layers[0], nn.ReLU(), layers[1])

    def forward(self, x: Tensor) -> Tensor:
        r"""(..., outs, \*size) from (..., ins, \*size)."""
        lead = x.shape[: x.ndim - self.dims - 1]
        out: Tensor = self.layers(x.flatten(0, len(lead) - 1))
        return out.view(*lead, *out.shape[1:])
