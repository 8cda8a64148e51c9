"""What the two norm-preserving layers share: checks, shapes, batches, inverse."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lawful.errors import expected
from lawful.kernels import Backend
from lawful.unitary._boundaries import REFUSED, Boundary
from lawful.unitary._build import Time
from lawful.unitary._lattice import Size, as_size
from lawful.unitary._operators import Operator

__all__ = ["ExponentialConv"]

_BOUNDARIES = ("circular", "neumann", "dirichlet", "zeros")


def _check_boundary(boundary: str, even: bool) -> None:
    if boundary in REFUSED:
        raise expected("boundary", f"one of {_BOUNDARIES}", repr(boundary), REFUSED[boundary])
    if boundary not in _BOUNDARIES:
        raise expected("boundary", f"one of {_BOUNDARIES}", repr(boundary))
    if boundary in ("neumann", "dirichlet") and not even:
        hint = "a mirror at the face is exact only for kernels even along each axis: pass even=True"
        raise expected("even", f"True with boundary {boundary!r}", "False", hint)


def _taps(kernel_size: int | Sequence[int], dims: int | None) -> tuple[int, ...]:
    if isinstance(kernel_size, int):
        taps = (kernel_size,) * (1 if dims is None else dims)
    else:
        taps = tuple(kernel_size)
    if dims is not None and len(taps) != dims:
        raise expected("kernel_size", f"{dims} entries", taps)
    if len(taps) not in (1, 2, 3):
        raise expected("dims", "1, 2 or 3", len(taps))
    if any(k < 1 or k % 2 == 0 for k in taps):
        hint = "the origin is the centre tap, so that the flip of the kernel is its adjoint"
        raise expected("kernel_size", "odd numbers of taps", taps, hint)
    return taps


class ExponentialConv(nn.Module):
    """A layer e^{tA}; subclasses give the generator A and build the operator."""

    _complex: bool

    def __init__(
        self,
        channels: int,
        kernel_size: int | Sequence[int],
        dims: int | None,
        boundary: Boundary,
        mixing: bool,
        even: bool,
        gain: float,
        backend: Backend,
    ) -> None:
        super().__init__()
        if channels < 1:
            raise expected("channels", "at least 1", channels)
        _check_boundary(boundary, even)
        if not (gain >= 0 and math.isfinite(gain)):
            raise expected("gain", "a finite number of at least 0", gain)
        self.channels, self.taps = channels, _taps(kernel_size, dims)
        self.boundary, self.mixing, self.even = boundary, mixing, even
        self.gain, self.backend = gain, backend

    @property
    def dims(self) -> int:
        """Number of space axes."""
        return len(self.taps)

    def generator(self) -> Tensor:
        r"""The kernel of the generator, (C, C, \*taps), origin at the centre tap."""
        raise NotImplementedError

    def operator(self, size: Size, t: Time = 1.0, *, dtype: torch.dtype | None = None) -> Operator:
        """Builds the exponential for one lattice; apply it as often as wanted."""
        raise NotImplementedError

    def _field_dtype(self, x: Tensor) -> torch.dtype:
        raise NotImplementedError

    def _lattice(self, size: Size) -> tuple[int, ...]:
        sides = as_size(size)
        if len(sides) != self.dims:
            raise expected("size", f"{self.dims} axes", sides)
        return sides

    def _run(self, x: Tensor, t: Time, inverse: bool) -> Tensor:
        unbatched = x.ndim == self.dims + 1
        batch = x.unsqueeze(0) if unbatched else x
        if batch.ndim != self.dims + 2 or batch.shape[1] != self.channels:
            want = f"(B, {self.channels}, {', '.join(['n'] * self.dims)})"
            raise expected("input", want, f"shape {tuple(x.shape)}")
        dtype = self._field_dtype(x)
        if batch.numel() == 0:  # FFT libraries refuse empty batches
            return x.to(dtype if self._complex else x.dtype)
        with torch.autocast(x.device.type, enabled=False):
            operator = self.operator(batch.shape[2:], t, dtype=dtype)
            field = batch.to(dtype)
            y = operator.inverse(field) if inverse else operator(field)
        if x.is_floating_point() and not y.is_complex():
            y = y.to(x.dtype)
        return y.squeeze(0) if unbatched else y

    def forward(self, x: Tensor, t: Time = 1.0) -> Tensor:
        r"""Applies e^{tA}.

        Args:
            x: (B, C, \*size) or (C, \*size); the lattice may differ from call to call.
            t: Time of the flow, float or 0-d tensor; 1 is the layer itself, -1 its inverse.

        Returns:
            Same shape and, for every input, the same norm.
        """
        return self._run(x, t, False)

    def inverse(self, y: Tensor, t: Time = 1.0) -> Tensor:
        """Undoes `forward` exactly: the adjoint of a unitary operator is its inverse."""
        return self._run(y, t, True)

    def logdet(self, x: Tensor | None = None) -> Tensor:
        r"""Log |det| of the layer, for normalising flows: zero for every input.

        Args:
            x: (B, C, \*size), or None for a scalar.

        Returns:
            Zeros of shape (B,), or a 0-d zero.
        """
        weight = next(self.parameters())
        batch = () if x is None else x.shape[:1] if x.ndim == self.dims + 2 else ()
        return torch.zeros(batch, device=weight.device, dtype=weight.dtype)

    def extra_repr(self) -> str:
        """Settings, as in the constructor."""
        parts = [f"{self.channels}, kernel_size={self.taps}", f"boundary={self.boundary!r}"]
        parts += [f"{k}={v}" for k, v in (("mixing", self.mixing), ("even", self.even))]
        return ", ".join(parts)
