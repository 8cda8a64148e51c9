"""Convolutions that keep the norm: exponentials of anti-Hermitian and antisymmetric kernels."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from lawful.errors import expected
from lawful.kernels import Backend
from lawful.unitary._boundaries import Boundary
from lawful.unitary._build import (
    Time,
    _diagonal,
    coupling_generator,
    orthogonal_operator,
    pair_generator,
    pair_operator,
    unitary_operator,
)
from lawful.unitary._lattice import Size, antihermitian, mirrored
from lawful.unitary._layer import ExponentialConv
from lawful.unitary._operators import Operator

__all__ = ["OrthogonalConv", "UnitaryConv"]

Form = Literal["full", "pair", "symmetric"]


class UnitaryConv(ExponentialConv):
    r"""A unitary convolution of complex fields: ``y = e^{tA} x``, A an anti-Hermitian kernel.

    Norms, angles and volumes are kept for any size of the parameters; zero parameters are the
    identity, so weight decay is harmless. The exponential has full support although A is small.

    Args:
        channels: C.
        kernel_size: Taps of A, odd; one number or one per axis; may exceed the lattice.
        dims: Number of space axes (1, 2 or 3); may be left out if ``kernel_size`` is a sequence.
        boundary: "circular" (FFT), "neumann" (DCT-II, no flux through the faces), "dirichlet"
            (DST-I, zero on the faces) or "zeros" (zeros outside, by a Chebyshev series).
        mixing: Whether channels mix; without, each has a kernel of its own.
        even: Keep to kernels that are even along each axis; "neumann" and "dirichlet" need it.
        gain: Scale of the initial phases in radians.
        backend: Path of the matrix products.
        device: Where the parameters live.
        dtype: Real dtype of the parameters.

    Shape:
        Complex (or real, then promoted) (B, C, \*size) -> complex (B, C, \*size).

    Raises:
        InputError: Even kernel sizes, or a boundary for which the operator would not be unitary.

    Cost: two FFTs of the field; building takes O(N C^3) for mixing channels, O(N log N) else.

    Source: Magnasco 2023 (arXiv 2302.07396), sections 1-4. Departures: several channels,
        other boundaries than periodic.

    Example:
        >>> layer = UnitaryConv(2, kernel_size=3, dims=2)
        >>> x = torch.randn(5, 2, 8, 9, dtype=torch.complex64)
        >>> y = layer(x)
        >>> bool((y.norm() / x.norm() - 1).abs() < 1e-5)
        True
        >>> bool((layer.inverse(y) - x).abs().max() < 1e-4)
        True
    """

    _complex = True

    def __init__(
        self,
        channels: int,
        kernel_size: int | Sequence[int] = 3,
        dims: int | None = None,
        *,
        boundary: Boundary = "circular",
        mixing: bool = True,
        even: bool = False,
        gain: float = 1.0,
        backend: Backend = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        mixing = mixing and channels > 1
        super().__init__(channels, kernel_size, dims, boundary, mixing, even, gain, backend)
        shape = (channels, channels, *self.taps) if mixing else (channels, *self.taps)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws parameters so that phases are of the order of ``gain`` radians."""
        fan = math.prod(self.taps) * (self.channels if self.mixing else 1)
        nn.init.normal_(self.weight, std=self.gain / math.sqrt(fan), generator=generator)

    def _field_dtype(self, x: Tensor) -> torch.dtype:
        double = torch.float64 in (self.weight.dtype, x.dtype) or x.dtype == torch.complex128
        return torch.complex128 if double else torch.complex64

    def generator(self) -> Tensor:
        r"""The anti-Hermitian kernel A, complex (C, C, \*taps)."""
        weight = mirrored(self.weight, self.dims) if self.even else self.weight
        return antihermitian(weight if self.mixing else _diagonal(weight), self.dims)

    def operator(self, size: Size, t: Time = 1.0, *, dtype: torch.dtype | None = None) -> Operator:
        """Builds e^{tA} for one lattice.

        Args:
            size: The lattice.
            t: Time.
            dtype: Complex dtype of the fields it will be applied to.
        """
        if dtype is None:
            dtype = torch.complex128 if self.weight.dtype == torch.float64 else torch.complex64
        return unitary_operator(
            self.weight,
            self._lattice(size),
            t,
            dtype,
            boundary=self.boundary,
            even=self.even,
            backend=self.backend,
        )


class OrthogonalConv(ExponentialConv):
    r"""An orthogonal convolution of real fields: ``y = e^{tB} x``, B an antisymmetric real kernel.

    The channels may be read as two groups X and P that drive each other,
    ``dX/dt = A X + K P, dP/dt = -K' X + C P`` (K' the flipped kernel), which is a Hamiltonian
    rotation; the exponential then is the four kernels of `xp_kernels`.

    Args:
        channels: M, X channels first, then P.
        kernel_size: Taps, odd; one number or one per axis; may exceed the lattice.
        dims: Number of space axes.
        form: "full" (any antisymmetric B: K with the intralayer parts A and C), "pair" (only K,
            of any symmetry) or "symmetric" (K = K', so that e^B is made of cosine and sine).
        split: (X channels, P channels) for "pair"; halves by default.
        boundary: As in `UnitaryConv`.
        mixing: False: channel j of X couples with channel j of P only, in closed form and by one
            complex FFT. Always so for one X and one P channel.
        even: Keep to kernels that are even along each axis.
        gain: Scale of the initial rotation angles in radians.
        backend: Path of the matrix products.
        device: Where the parameters live.
        dtype: Real dtype of the parameters.

    Shape:
        Real (B, M, \*size) -> real (B, M, \*size), determinant +1.

    Raises:
        InputError: Even kernel sizes, a boundary that would break orthogonality, or channels that
            do not fit ``form``.

    Limits: e^B of a real kernel is connected to the identity: determinant +1 at frequencies 0 and
        Nyquist; a single real channel keeps its sum.

    Source: Magnasco 2023 (arXiv 2302.07396), sections 6-8. Departures: general K and intralayer
        parts in closed form, several and unequal channels, other boundaries.
    """

    _complex = False

    def __init__(
        self,
        channels: int,
        kernel_size: int | Sequence[int] = 3,
        dims: int | None = None,
        *,
        form: Form = "full",
        split: tuple[int, int] | None = None,
        boundary: Boundary = "circular",
        mixing: bool = True,
        even: bool = False,
        gain: float = 1.0,
        backend: Backend = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(channels, kernel_size, dims, boundary, mixing, even, gain, backend)
        self.form, self.split = form, _split(channels, form, split, mixing)
        self.mixing = mixing and self.split != (1, 1)
        shapes = self._shapes()
        factory = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.empty(shapes[0], **factory))  # type: ignore[arg-type]
        if len(shapes) == 3:
            self.weight_x = nn.Parameter(torch.empty(shapes[1], **factory))  # type: ignore[arg-type]
            self.weight_p = nn.Parameter(torch.empty(shapes[2], **factory))  # type: ignore[arg-type]
        self.reset_parameters()

    def _shapes(self) -> list[tuple[int, ...]]:
        if not self.mixing:
            # A layer's own kernel is antisymmetric, so there is none if it must be even too.
            inner = self.form == "full" and not self.even
            return [(self.split[0], *self.taps)] * (3 if inner else 1)
        if self.form == "full":
            return [(self.channels, self.channels, *self.taps)]
        return [(*self.split, *self.taps)]

    def _weights(self) -> list[Tensor]:
        return list(self.parameters())

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws parameters so that rotation angles are of the order of ``gain`` radians."""
        fan = math.prod(self.taps) * (self.channels if self.mixing else 1)
        for weight in self._weights():
            nn.init.normal_(weight, std=self.gain / math.sqrt(fan), generator=generator)

    def _field_dtype(self, x: Tensor) -> torch.dtype:
        if x.is_complex():
            raise expected("input", "a real tensor", x.dtype, "complex fields: UnitaryConv")
        return torch.float64 if torch.float64 in (self.weight.dtype, x.dtype) else torch.float32

    def generator(self) -> Tensor:
        r"""The antisymmetric kernel B, real (M, M, \*taps)."""
        weights = self._weights()
        if self.even:
            weights = [mirrored(w, self.dims) for w in weights]
        if self.mixing:
            return coupling_generator(weights, self.form, self.split, self.dims)
        return pair_generator(weights, self.form, self.dims)

    def operator(self, size: Size, t: Time = 1.0, *, dtype: torch.dtype | None = None) -> Operator:
        """Builds e^{tB} for one lattice.

        Args:
            size: The lattice.
            t: Time.
            dtype: Real dtype of the fields it will be applied to.
        """
        sides = self._lattice(size)
        if dtype is None:
            dtype = torch.float64 if self.weight.dtype == torch.float64 else torch.float32
        if self.mixing or self.boundary == "zeros":
            return orthogonal_operator(
                self.generator(),
                sides,
                t,
                dtype,
                boundary=self.boundary,
                even=False,
                backend=self.backend,
            )
        return pair_operator(
            self._weights(), self.form, sides, t, dtype, boundary=self.boundary, even=self.even
        )

    def extra_repr(self) -> str:
        """Settings, as in the constructor."""
        return f"{super().extra_repr()}, form={self.form!r}, split={self.split}"


def _split(
    channels: int, form: str, split: tuple[int, int] | None, mixing: bool
) -> tuple[int, int]:
    if form not in ("full", "pair", "symmetric"):
        raise expected("form", '"full", "pair" or "symmetric"', repr(form))
    if split is None:
        split = (channels - channels // 2, channels // 2)
    elif len(split) != 2 or sum(split) != channels or min(split) < 0:
        raise expected("split", f"two numbers that sum to {channels}", split)
    halves = split[0] == split[1]
    if not halves and (form == "symmetric" or not mixing):
        what = 'form="symmetric"' if form == "symmetric" else "mixing=False"
        raise expected("channels", f"an even number with {what}", channels)
    if form == "pair" and min(split) < 1:
        raise expected("channels", "at least one for X and one for P", split)
    return split[0], split[1]
