"""Settings of forecasters of fields, and what they must know of the frames."""

from dataclasses import dataclass
from typing import Literal

from lawful.errors import expected
from lawful.models._common import check_count, check_positive
from lawful.models._unitary import Form, TransitionConfig


@dataclass(frozen=True)
class FieldSpec:
    """Frames that a task feeds and wants back.

    ``channels`` fields on a lattice of ``size``; ``signal`` is the number of observed frames that
    carry a signal, which sets the scale of the first weights.
    """

    channels: int
    size: tuple[int, ...]
    signal: int = 1


@dataclass(frozen=True)
class FieldMapConfig:
    """How frames enter a hidden lattice and leave it."""

    channels: int = 0
    """Hidden fields; 0 for as many as the frames have (conv-orthogonal: made even)."""
    taps: int = 11
    """Size of the kernel that moves the state on, along each axis; odd."""
    window: int = 1
    """Observed frames that enter the state together at each step."""
    map_taps: int = 1
    """Size of the kernels of the maps in and out, odd; 1 maps site by site."""
    features: int = 0
    """Width of a ReLU layer within the maps in and out; 0 for linear maps."""
    wrap: bool = True
    """Space is periodic; otherwise there are zeros outside."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        check_positive(window=self.window)
        check_count(channels=self.channels, features=self.features)
        check_odd(taps=self.taps, map_taps=self.map_taps)


@dataclass(frozen=True)
class FieldUnitaryConfig(FieldMapConfig, TransitionConfig):
    """Frames drive a complex lattice that a unitary convolution moves on."""

    kernel_gain: float = 0.1
    """Scale of the initial phases in radians: 0 starts from the identity, 2 or more spread the
    eigenvalues over the whole circle."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        FieldMapConfig.__post_init__(self)
        TransitionConfig.__post_init__(self)


@dataclass(frozen=True)
class FieldOrthogonalConfig(FieldUnitaryConfig):
    """Frames drive real layers X and P that an orthogonal convolution turns into each other."""

    form: Form = "full"
    """Which kernels turn X and P into each other: "symmetric" (sine and cosine of one even
    kernel), "pair" (one of any symmetry), "full" (kernels within X and within P as well)."""


@dataclass(frozen=True)
class FieldRNNConfig(FieldMapConfig):
    """The same maps around a convolution without any constraint: the control."""

    nonlinearity: Literal["identity", "tanh", "relu"] = "identity"
    """What follows each step."""


@dataclass(frozen=True)
class ConvLSTMConfig:
    """Convolutional LSTM that feeds its forecasts back to itself."""

    hidden: int = 8
    """Hidden fields."""
    taps: int = 7
    """Size of the kernels, odd."""
    wrap: bool = True
    """Space is periodic; otherwise there are zeros outside."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        check_positive(hidden=self.hidden)
        check_odd(taps=self.taps)


def check_odd(**values: int) -> None:
    """Raises `InputError` for the first value that is not odd and positive."""
    for name, value in values.items():
        if value < 1 or value % 2 == 0:
            raise expected(name, "an odd number of at least 1", value)
