"""Forecasters of fields: observe some frames, then roll out as many as wanted."""

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from lawful.errors import expected
from lawful.models._common import factory
from lawful.models._field_configs import (
    ConvLSTMConfig,
    FieldMapConfig,
    FieldOrthogonalConfig,
    FieldRNNConfig,
    FieldSpec,
    FieldUnitaryConfig,
)
from lawful.models._field_layers import FieldConv, FieldMap
from lawful.models._unitary import lattice_rnn, run_lattice

State: TypeAlias = tuple[Tensor, ...]


class Forecaster(nn.Module, ABC):
    """Observes frames, and rolls out from what it has seen."""

    @abstractmethod
    def observe(self, frames: Tensor, state: State | None = None) -> State:
        r"""The state after frames (B, k, C, \*size); a state given is continued exactly."""

    @abstractmethod
    def rollout(self, state: State, steps: int) -> Tensor:
        r"""The next frames, (B, steps, C, \*size)."""

    def forward(self, frames: Tensor, steps: int) -> Tensor:
        r"""The ``steps`` frames that follow: (B, steps, C, \*size) from (B, k, C, \*size)."""
        return self.rollout(self.observe(frames), steps)

    def transition(self, z: Tensor) -> Tensor | None:
        """One linear step of a hidden state; None for models that are not one convolution."""
        return None


class LatticeForecaster(Forecaster):
    """Frames drive a hidden lattice; its states are mapped back to frames.

    z_n = phi(step z_{n-1} + in(x_n)) while observing, with nothing driven in a roll-out, and
    frame n is out(z_n). Subclasses say what a step is.
    """

    def __init__(
        self,
        config: FieldMapConfig,
        spec: FieldSpec,
        parts: int,
        hidden: int,
        place: dict[str, Any],
    ) -> None:
        super().__init__()
        self.config, self.spec, self.parts, self.hidden = config, spec, parts, hidden
        dims, fields = len(spec.size), parts * hidden
        observed, scale = spec.channels * config.window, 1 / spec.signal
        # Blank frames drive nothing, or a long silence would drown what was seen before it.
        self.into = FieldMap(observed, fields, dims, config, scale=scale, bias=False, **place)
        self.out = FieldMap(fields, spec.channels, dims, config, scale=1.0, bias=True, **place)

    def driven(self, frames: Tensor, recent: Tensor | None) -> tuple[Tensor, Tensor]:
        """What each frame drives, and the frames to remember for the next call's window."""
        _check_frames(frames, self.spec)
        keep = self.config.window - 1
        if recent is None:
            recent = frames.new_zeros(len(frames), keep, *frames.shape[2:])
        whole = torch.cat([recent, frames], 1)
        steps = frames.shape[1]
        # The newest frame comes first: it is what the map starts from.
        stack = [whole[:, keep - i : keep - i + steps] for i in range(keep + 1)]
        return self.into(torch.cat(stack, 2)), whole[:, steps:]


class ConvForecaster(LatticeForecaster):
    """Forecasts by a `ConvUnitaryRNN` or `ConvOrthogonalRNN`: the roll-out keeps the norm.

    Args:
        config: Sizes; its kind says which recurrence.
        spec: The frames.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Law: without an activation, every state of a roll-out has the norm of the first. What the
        frames keep of that is up to the map out, which is learned.
    """

    config: FieldUnitaryConfig

    def __init__(
        self,
        config: FieldUnitaryConfig,
        spec: FieldSpec,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        orthogonal = isinstance(config, FieldOrthogonalConfig)
        hidden = config.channels or spec.channels
        if orthogonal and not config.channels:
            hidden += hidden % 2
        place = factory(device, dtype)
        super().__init__(config, spec, 1 if orthogonal else 2, hidden, place)
        self.rnn = lattice_rnn(
            config,
            (hidden, spec.size, hidden, config.taps),
            form=config.form if isinstance(config, FieldOrthogonalConfig) else None,
            input_map="direct",
            boundary="circular" if config.wrap else "zeros",
            **place,
        )

    def learning_rates(self) -> dict[nn.Parameter, float]:
        """Rates of some parameters relative to the others', for the optimiser."""
        return dict.fromkeys(self.rnn.conv.parameters(), self.config.kernel_rate)

    def _complex(self, fields: Tensor) -> Tensor:
        if self.parts == 1:
            return fields
        real, imag = fields.chunk(2, 2)
        return torch.complex(real, imag)

    def observe(self, frames: Tensor, state: State | None = None) -> State:
        """The lattice after the frames."""
        z, recent = (None, None) if state is None else state
        fields, recent = self.driven(frames, recent)
        _, z = run_lattice(self.rnn, self._complex(fields), z)
        return z, recent

    def states(self, state: State, steps: int) -> Tensor:
        r"""Hidden states of a roll-out, (B, steps, hidden, \*size)."""
        z = state[0]
        silence = z.new_zeros(1, 1, 1, *[1] * (z.ndim - 2)).expand(len(z), steps, *z.shape[1:])
        out: Tensor = self.rnn(silence, z)[0]
        return out

    def rollout(self, state: State, steps: int) -> Tensor:
        """Free steps of the recurrence, mapped back to frames."""
        states = self.states(state, steps)
        if self.parts == 2:
            states = torch.cat([states.real, states.imag], 2)
        frames: Tensor = self.out(states)
        return frames

    def transition(self, z: Tensor) -> Tensor:
        """E^A z."""
        out: Tensor = self.rnn.conv(z)
        return out


class ConvRNNForecaster(LatticeForecaster):
    """The same with a transition without constraint: any convolution, and a nonlinearity."""

    config: FieldRNNConfig

    def __init__(
        self,
        config: FieldRNNConfig,
        spec: FieldSpec,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        hidden, place = config.channels or spec.channels, factory(device, dtype)
        super().__init__(config, spec, 1, hidden, place)
        dims = len(spec.size)
        more = {"wrap": config.wrap, "bias": False, **place}
        self.step = FieldConv(hidden, hidden, config.taps, dims, **more)
        self.step.start_as(torch.eye(hidden, **place), 0.1)

    def _phi(self, z: Tensor) -> Tensor:
        match self.config.nonlinearity:
            case "tanh":
                return z.tanh()
            case "relu":
                return z.relu()
            case _:
                return z

    def observe(self, frames: Tensor, state: State | None = None) -> State:
        """The lattice after the frames."""
        z, recent = (None, None) if state is None else state
        fields, recent = self.driven(frames, recent)
        for drive in fields.unbind(1):
            z = self._phi(drive if z is None else self.step(z) + drive)
        assert z is not None
        return z, recent

    def states(self, state: State, steps: int) -> Tensor:
        r"""Hidden states of a roll-out, (B, steps, hidden, \*size)."""
        z, found = state[0], []
        for _ in range(steps):
            z = self._phi(self.step(z))
            found.append(z)
        return torch.stack(found, 1)

    def rollout(self, state: State, steps: int) -> Tensor:
        """Free steps, mapped back to frames."""
        frames: Tensor = self.out(self.states(state, steps))
        return frames

    def transition(self, z: Tensor) -> Tensor:
        """The convolution."""
        out: Tensor = self.step(z)
        return out


class ConvLSTM(Forecaster):
    """Convolutional LSTM: gates are convolutions; it forecasts changes and feeds them back.

    i, f, o = sigmoid, g = tanh of convolutions of (x, h); c = f c + i g; h = o tanh(c); the next
    frame is x + a linear map of h.

    Source: Shi et al. (2015). Departures: no peepholes; it forecasts the change of the frame.
    """

    def __init__(
        self,
        config: ConvLSTMConfig,
        spec: FieldSpec,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config, self.spec = config, spec
        place, dims = factory(device, dtype), len(spec.size)
        inputs, hidden = spec.channels + config.hidden, config.hidden
        self.gates = FieldConv(inputs, 4 * hidden, config.taps, dims, wrap=config.wrap, **place)
        self.out = FieldConv(hidden, spec.channels, 1, dims, **place)
        with torch.no_grad():
            assert self.gates.bias is not None
            self.gates.bias[hidden : 2 * hidden] = 1.0  # remember at first
            self.out.weight.mul_(0.1)

    def _step(self, x: Tensor, state: State | None) -> State:
        if state is None:
            zero = x.new_zeros(len(x), self.config.hidden, *x.shape[2:])
            state = (zero, zero, x)
        h, cell, _ = state
        i, f, o, g = self.gates(torch.cat([x, h], 1)).chunk(4, 1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        h = o.sigmoid() * cell.tanh()
        return h, cell, x + self.out(h)

    def observe(self, frames: Tensor, state: State | None = None) -> State:
        """Hidden state, cell, and the frame forecast next."""
        _check_frames(frames, self.spec)
        for frame in frames.unbind(1):
            state = self._step(frame, state)
        assert state is not None
        return state

    def rollout(self, state: State, steps: int) -> Tensor:
        """Forecasts, each fed back as if it had been observed."""
        found = [state[2]]
        for _ in range(steps - 1):
            state = self._step(state[2], state)
            found.append(state[2])
        return torch.stack(found, 1)


def _check_frames(frames: Tensor, spec: FieldSpec) -> None:
    if frames.ndim != 3 + len(spec.size) or tuple(frames.shape[2:]) != (spec.channels, *spec.size):
        want = f"(batch, frames, {spec.channels}, {', '.join(map(str, spec.size))})"
        raise expected("frames", want, f"shape {tuple(frames.shape)}")
    if frames.shape[1] == 0:
        raise expected("frames", "at least one frame", tuple(frames.shape))


FIELD_MODELS: dict[str, type[Any]] = {
    "conv-unitary": FieldUnitaryConfig,
    "conv-orthogonal": FieldOrthogonalConfig,
    "conv-rnn": FieldRNNConfig,
    "convlstm": ConvLSTMConfig,
}
_FORECASTERS: dict[type[Any], type[Any]] = {
    FieldUnitaryConfig: ConvForecaster,
    FieldOrthogonalConfig: ConvForecaster,
    FieldRNNConfig: ConvRNNForecaster,
    ConvLSTMConfig: ConvLSTM,
}


def build_forecaster(
    config: Any,
    spec: FieldSpec,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Forecaster:
    """A fresh forecaster from its config, one of `FIELD_MODELS`.

    Raises:
        InputError: For a config of no known model.
    """
    if type(config) not in _FORECASTERS:
        known = ", ".join(FIELD_MODELS)
        raise expected("model config", f"the config of one of {known}", type(config).__name__)
    model: Forecaster = _FORECASTERS[type(config)](config, spec, device=device, dtype=dtype)
    return model
