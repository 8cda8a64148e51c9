"""Sequence models around convolutional unitary and orthogonal recurrences."""

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
Mode = Literal["auto", "recurrent"]


@dataclass(frozen=True)
class ConvUnitaryConfig:
    """Recurrence whose transition is a unitary convolution of a complex lattice."""

    sites: int = 256
    """Sites of the periodic lattice that holds the state."""
    channels: int = 1
    """Complex fields on the lattice; several are mixed by the kernel."""
    taps: int = 5
    """Size of the generating kernel, odd; its exponential reaches much further."""
    activation: ActivationName = "identity"
    """What follows each step. The identity keeps every gradient's norm, and lets the whole
    sequence be computed as one filter; the fold keeps it too, and is not linear."""
    kernel_gain: float = 2.0
    """Scale of the initial phases in radians: 0 starts from the identity, 2 or more spread the
    eigenvalues over the whole circle."""
    freeze_kernel: bool = False
    """Keep the random kernel as it was drawn: the control that tells what training it adds."""
    features: int = 0
    """Width of a ReLU layer that every step passes before it drives the lattice; 0 for none."""
    readout: int = 0
    """Width of a ReLU layer between what is read from the lattice and the outputs; 0 for none."""
    reverse: bool = False
    """Undo the steps in the backward pass instead of storing them; activations that amplify
    rounding keep every eighth state to start from."""
    run: Mode = "auto"
    """"auto" computes linear recurrences of one kernel as a filter over time (same outputs);
    "recurrent" always goes step by step."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        check_positive(sites=self.sites, channels=self.channels, taps=self.taps)
        check_count(features=self.features, readout=self.readout)


@dataclass(frozen=True)
class ConvOrthogonalConfig(ConvUnitaryConfig):
    """Recurrence whose transition is an orthogonal convolution of real layers X and P."""

    channels: int = 2
    """Real fields on the lattice, X layers first, then as many P."""
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
            config.features or self.encoder.size,
            config.sites,
            config.readout or outputs.size,
            place,
        )
        self.readout: nn.Module | None = None
        if config.readout:
            linear = nn.Linear(config.readout, outputs.size, **place)
            self.readout = nn.Sequential(nn.ReLU(), linear)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, size) or (B, T, size), as the task wants; see `InputSpec` for ``x``."""
        x = self.encoder(x, lengths)
        out = self._run(x if self.features is None else self.features(x), lengths)
        if not self.outputs.per_step:
            out = last_valid(out, lengths)
        return out if self.readout is None else self.readout(out)

    def _run(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        config = self.config
        if config.run == "auto" and not config.reverse:
            out = self.rnn.respond(x)
            if out is not None:
                return out
        read: Tensor = self.rnn(x, lengths=lengths)[0]
        return read


def lattice_rnn(
    config: ConvUnitaryConfig,
    input_size: int,
    size: int | tuple[int, ...],
    output_size: int | None,
    place: dict[str, Any],
    **more: Any,
) -> ConvUnitaryRNN | ConvOrthogonalRNN:
    """The recurrence that a config describes, its kernel frozen if it says so."""
    rnn: ConvUnitaryRNN | ConvOrthogonalRNN
    window = None
    if config.reverse and config.activation not in ("identity", "fold"):
        window = 8
    shared = {
        "activation": config.activation,
        "output_size": output_size,
        "memory": "reverse" if config.reverse else "store",
        "window": window,
        "gain": config.kernel_gain,
        **more,
        **place,
    }
    sizes = (input_size, size, config.channels, config.taps)
    if isinstance(config, ConvOrthogonalConfig):
        rnn = ConvOrthogonalRNN(*sizes, form=config.form, **shared)
    else:
        rnn = ConvUnitaryRNN(*sizes, **shared)
    if config.freeze_kernel:
        rnn.conv.requires_grad_(False)
    return rnn


def _relu_layer(size: int, width: int, place: dict[str, Any]) -> nn.Module | None:
    return nn.Sequential(nn.Linear(size, width, **place), nn.ReLU()) if width else None
