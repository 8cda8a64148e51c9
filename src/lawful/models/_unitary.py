"""Sequence models around convolutional unitary and orthogonal recurrences."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lawful.errors import expected
from lawful.models._common import StepEncoder, check_count, check_positive, factory, last_valid
from lawful.models._specs import InputSpec, OutputSpec
from lawful.unitary import ConvOrthogonalRNN, ConvUnitaryRNN

ActivationName = Literal["identity", "fold", "softnorm", "modrelu", "split_relu"]
Form = Literal["symmetric", "pair", "full"]
Scheme = Literal["auto", "recurrent"]


@dataclass(frozen=True)
class TransitionConfig:
    """A transition that keeps the norm, and what follows it."""

    activation: ActivationName = "identity"
    """What follows each step. "identity" and "fold" keep every gradient's norm; the others do
    not, whatever the kernel."""
    kernel_gain: float = 1.0
    """Scale of the initial phases in radians: 0 starts from the identity, 2 or more spread the
    eigenvalues over the whole circle."""
    kernel_rate: float = 1.0
    """Learning rate of the kernel relative to that of the other parameters; what a phase does
    grows with the number of steps, so that long sequences want less."""
    freeze_kernel: bool = False
    """Keep the random kernel as it was drawn: the control that tells what training it adds."""
    reverse: bool = False
    """Undo the steps in the backward pass instead of storing them; activations that amplify
    rounding keep every eighth state to start from."""

    def __post_init__(self) -> None:
        """Refuses impossible rates."""
        if not (math.isfinite(self.kernel_rate) and self.kernel_rate >= 0):
            raise expected("kernel_rate", "a finite number of at least 0", self.kernel_rate)


@dataclass(frozen=True)
class ConvUnitaryConfig(TransitionConfig):
    """Recurrence whose transition is a unitary convolution of a complex lattice."""

    kernel_gain: float = 2.0
    """Scale of the initial phases in radians: 0 starts from the identity, 2 or more spread the
    eigenvalues over the whole circle."""
    kernel_rate: float = 0.01
    """Learning rate of the kernel relative to that of the other parameters; what a phase does
    grows with the number of steps, so that long sequences want less."""
    sites: int = 256
    """Sites of the periodic lattice that holds the state."""
    channels: int = 1
    """Fields on the lattice (complex; for conv-orthogonal real, X layers first, then as many P);
    several are mixed by the kernel."""
    taps: int = 5
    """Size of the generating kernel, odd; its exponential reaches much further."""
    features: int = 0
    """Width of a ReLU layer that every step passes before it drives the lattice; 0 for none."""
    readout: int = 0
    """Width of a ReLU layer between what is read from the lattice and the outputs; 0 for none."""
    scheme: Scheme = "auto"
    """"auto" computes linear recurrences of one kernel as a filter over time (same outputs);
    "recurrent" always goes step by step."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        super().__post_init__()
        check_positive(sites=self.sites, channels=self.channels, taps=self.taps)
        check_count(features=self.features, readout=self.readout)


@dataclass(frozen=True)
class ConvOrthogonalConfig(ConvUnitaryConfig):
    """Recurrence whose transition is an orthogonal convolution of real layers X and P."""

    channels: int = 2
    """Fields on the lattice (complex; for conv-orthogonal real, X layers first, then as many P);
    several are mixed by the kernel."""
    form: Form = "symmetric"
    """Which kernels turn X and P into each other: "symmetric" (sine and cosine of one even
    kernel), "pair" (one of any symmetry), "full" (kernels within X and within P as well)."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        super().__post_init__()
        if self.channels % 2:
            raise expected("channels", "an even number: as many X as P layers", self.channels)


class ConvUnitaryModel(nn.Module):
    """Encoder, recurrence on a lattice driven and read by learned profiles, readout.

    Args:
        config: Sizes, activation, and how to run; its kind says which recurrence.
        inputs: What the task feeds.
        outputs: What the task wants.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Law: the linear part keeps the norm of states and gradients exactly; see `ConvUnitaryRNN`.

    Cost: O(T N (D + O)) time per row step by step; O(T D O) and FFTs over time as a filter.
    """

    def __init__(
        self,
        config: ConvUnitaryConfig,
        inputs: InputSpec,
        outputs: OutputSpec,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config, self.outputs = config, outputs
        self.encoder = StepEncoder(inputs, 0, device, dtype)
        place = factory(device, dtype)
        self.features = _relu_layer(self.encoder.size, config.features, place)
        self.rnn = lattice_rnn(
            config,
            (config.features or self.encoder.size, config.sites, config.channels, config.taps),
            form=config.form if isinstance(config, ConvOrthogonalConfig) else None,
            output_size=config.readout or outputs.size,
            **place,
        )
        self.readout: nn.Module | None = None
        if config.readout:
            linear = nn.Linear(config.readout, outputs.size, **place)
            self.readout = nn.Sequential(nn.ReLU(), linear)

    def learning_rates(self) -> dict[nn.Parameter, float]:
        """Rates of some parameters relative to the others', for the optimiser."""
        return dict.fromkeys(self.rnn.conv.parameters(), self.config.kernel_rate)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, size) or (B, T, size), as the task wants; see `InputSpec` for ``x``."""
        x = self.encoder(x, lengths)
        out = self._run(x if self.features is None else self.features(x), lengths)
        if not self.outputs.per_step:
            out = last_valid(out, lengths)
        return out if self.readout is None else self.readout(out)

    def _run(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        config = self.config
        if config.scheme == "auto" and not config.reverse and not _watched(self.rnn):
            out = self.rnn.respond(x)
            if out is not None:
                return out
        return run_lattice(self.rnn, x, lengths=lengths)[0]


class RasterModel(nn.Module):
    """Reads a picture into a lattice of the picture's own shape, each pixel at its own site.

    Step n adds its pixels to the sites they come from (row-major, or in whatever order the task
    reads them) while the transition moves what is there already; the last state is classified.

    Args:
        config: Sizes and activation; ``sites`` and ``features`` have no meaning here.
        places: (T, chunk) which site, counted row by row, each value of a step comes from.
        size: Height and width.
        colours: Values per pixel.
        outputs: How many numbers to give.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Cost: O(T N log N) time per row and field.
    """

    places: Tensor

    def __init__(
        self,
        config: ConvUnitaryConfig,
        places: Tensor,
        size: tuple[int, int],
        colours: int,
        outputs: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config, self.size, self.colours = config, size, colours
        place = factory(device, dtype)
        self.register_buffer("places", places, persistent=False)
        self.rnn = lattice_rnn(
            config,
            (colours, size, config.channels, config.taps),
            form=config.form if isinstance(config, ConvOrthogonalConfig) else None,
            input_map="field",
            output_size=None,
            **place,
        )
        parts = 1 if isinstance(config, ConvOrthogonalConfig) else 2
        features = parts * config.channels * size[0] * size[1]
        hidden = _relu_layer(features, config.readout, place)
        last = nn.Linear(config.readout or features, outputs, **place)
        self.readout = last if hidden is None else nn.Sequential(hidden, last)

    def learning_rates(self) -> dict[nn.Parameter, float]:
        """Rates of some parameters relative to the others', for the optimiser."""
        return dict.fromkeys(self.rnn.conv.parameters(), self.config.kernel_rate)

    def fields(self, x: Tensor) -> Tensor:
        """Fields (B, T, colours, height, width), zero but for the pixels of each step."""
        rows, steps, _ = x.shape
        values = x.view(rows, steps, -1, self.colours).transpose(2, 3)  # (B, T, colours, chunk)
        empty = x.new_zeros(rows, steps, self.colours, self.size[0] * self.size[1])
        index = self.places[None, :, None].expand_as(values)
        return empty.scatter(3, index, values).view(rows, steps, self.colours, *self.size)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, outputs) from steps (B, T, chunk * colours)."""
        want = (len(self.places), self.places.shape[1] * self.colours)
        if x.ndim != 3 or tuple(x.shape[1:]) != want:
            raise expected("inputs", f"(batch, {want[0]}, {want[1]})", tuple(x.shape))
        _, state = run_lattice(self.rnn, self.fields(x), lengths=lengths)
        if state.is_complex():
            state = torch.cat([state.real, state.imag], 1)
        out: Tensor = self.readout(state.flatten(1))
        return out


def lattice_rnn(
    config: TransitionConfig,
    sizes: tuple[int, int | tuple[int, ...], int, int],
    *,
    form: Form | None,
    **more: Any,
) -> ConvUnitaryRNN | ConvOrthogonalRNN:
    """The recurrence that a config describes, its kernel frozen if it says so.

    Args:
        config: Activation, scale of the kernel, and how the backward pass runs.
        sizes: Input size, lattice, channels, taps.
        form: Of the orthogonal recurrence; None for the unitary one.
        more: Further arguments of the recurrence.
    """
    rnn: ConvUnitaryRNN | ConvOrthogonalRNN
    exact = config.activation in ("identity", "fold")
    settings = {
        "activation": config.activation,
        "memory": "reverse" if config.reverse else "store",
        "window": 8 if config.reverse and not exact else None,
        "gain": config.kernel_gain,
        **more,
    }
    if form is None:
        rnn = ConvUnitaryRNN(*sizes, **settings)
    else:
        rnn = ConvOrthogonalRNN(*sizes, form=form, **settings)
    if config.freeze_kernel:
        rnn.conv.requires_grad_(False)
    return rnn


def run_lattice(
    rnn: ConvUnitaryRNN | ConvOrthogonalRNN, *args: Any, **kwargs: Any
) -> tuple[Tensor, Tensor]:
    """Outputs and last state of a recurrence.

    It applies its kernel as an operator, without a call that hooks would see. Where there are
    some (`lawful.laws.check` measures by them), the kernel is called on the last state as well.
    """
    out, state = rnn(*args, **kwargs)
    if _watched(rnn.conv):
        rnn.conv(state)
    return out, state


def _watched(module: nn.Module) -> bool:
    return bool(module._forward_pre_hooks or module._forward_hooks)


def _relu_layer(size: int, width: int, place: dict[str, Any]) -> nn.Module | None:
    return nn.Sequential(nn.Linear(size, width, **place), nn.ReLU()) if width else None
