"""What the two recurrences share: maps, checks, and the choice of how to run."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lawful.errors import expected
from lawful.unitary._activations import Activation, Identity, activation_of
from lawful.unitary._cell import Cell, InputMap
from lawful.unitary._lattice import Size, as_size
from lawful.unitary._layers import OrthogonalConv, UnitaryConv
from lawful.unitary._operators import (
    Operator,
    PairOperator,
    PhaseOperator,
    pack_pair,
    unpack_pair,
)
from lawful.unitary._response import filtered, response
from lawful.unitary._reversible import reversible
from lawful.unitary._run import run_linear, run_stored

__all__ = ["ConvRNN", "Memory", "Scan"]

Memory = Literal["store", "reverse"]
Scan = Literal["auto", "loop", "frame"]


class ConvRNN(nn.Module):
    """What the two recurrences share; a subclass names its convolution and its usual channels."""

    conv: UnitaryConv | OrthogonalConv
    _kind: ClassVar[type[UnitaryConv | OrthogonalConv]]
    _channels: ClassVar[int]

    def __init__(
        self,
        input_size: int,
        size: Size,
        channels: int | None = None,
        kernel_size: int | Sequence[int] = 3,
        *,
        activation: str | Activation = "identity",
        input_map: InputMap = "profile",
        output_size: int | None = None,
        memory: Memory = "store",
        window: int | None = None,
        reverse_tolerance: float = 1e-3,
        scan: Scan = "auto",
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **conv: Any,
    ) -> None:
        super().__init__()
        channels = self._channels if channels is None else channels
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        if input_size < 1:
            raise expected("input_size", "at least 1", input_size)
        if input_map not in ("profile", "field", "direct"):
            raise expected("input_map", '"profile", "field" or "direct"', repr(input_map))
        if input_map == "direct" and input_size != channels:
            raise expected("input_size", f"{channels}, the channels, with direct input", input_size)
        if output_size is not None and output_size < 1:
            raise expected("output_size", "at least 1 or None", output_size)
        if scan not in ("auto", "loop", "frame"):
            raise expected("scan", '"auto", "loop" or "frame"', repr(scan))
        self.input_size, self.size, self.channels = input_size, as_size(size), channels
        self.activation, self.input_map = activation_of(activation), input_map
        self.output_size, self.batch_first, self.scan = output_size, batch_first, scan
        self.memory, self.window, self.reverse_tolerance = memory, window, reverse_tolerance
        _check_memory(memory, window, self.activation)
        if not self._complex and not isinstance(self.activation, Identity) and channels % 2:
            raise expected("channels", "an even number with an activation", channels)
        self._make_maps(factory)
        self.conv = self._kind(channels, kernel_size, len(self.size), **conv, **factory)
        self.reset_parameters()

    @property
    def _complex(self) -> bool:
        return self._kind is UnitaryConv

    def _make_maps(self, factory: dict[str, Any]) -> None:
        """Input map and readout; complex ones are stored as pairs of reals."""
        pair = (2,) if self._complex else ()
        profile = (*pair, self.channels, *self.size)
        if self.input_map == "profile":
            self.input_weight = nn.Parameter(torch.empty((self.input_size, *profile), **factory))
        elif self.input_map == "field":
            shape = (*pair, self.channels, self.input_size)
            self.input_weight = nn.Parameter(torch.empty(shape, **factory))
        if self.output_size is not None:
            self.output_weight = nn.Parameter(torch.empty((self.output_size, *profile), **factory))
            self.output_bias = nn.Parameter(torch.empty(self.output_size, **factory))

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws all parameters; inputs of variance 1 then drive sites with variance 1."""
        self.conv.reset_parameters(generator)
        halves = 2.0 if self._complex else 1.0
        if self.input_map != "direct":
            std = 1 / math.sqrt(self.input_size * halves)
            nn.init.normal_(self.input_weight, std=std, generator=generator)
        if self.output_size is not None:
            std = 1 / math.sqrt(halves * self.channels * math.prod(self.size))
            nn.init.normal_(self.output_weight, std=std, generator=generator)
            nn.init.zeros_(self.output_bias)

    def _inner(self, field: Tensor, axis: int, packed: bool) -> Tensor:
        """A parameter or state in the form in which the recurrence runs; channels on ``axis``."""
        if packed:
            return pack_pair(field.movedim(axis, 1)).movedim(1, axis)
        return field

    def _array(self, weight: Tensor, axis: int, packed: bool) -> Tensor:
        if self._complex:  # the pair axis stands before the channels
            real, imag = weight.unbind(axis)
            return torch.complex(real, imag)
        return self._inner(weight, axis, packed)

    def _cell(self, size: tuple[int, ...], dtype: torch.dtype) -> tuple[Cell, tuple[Tensor, ...]]:
        """Builds the step once for the whole sequence, with the tensors it depends on."""
        operator: Operator = self.conv.operator(size, dtype=dtype)
        packed = operator.packed
        inner = dtype if not packed else torch.empty((), dtype=dtype).to(torch.complex64).dtype
        if packed and dtype == torch.float64:
            inner = torch.complex128
        maps: tuple[Tensor, ...] = ()
        reads: tuple[Tensor, ...] = ()
        if self.input_map == "profile":
            maps = (self._array(self.input_weight, 1, packed).to(inner),)
        elif self.input_map == "field":
            weight: Tensor = self.input_weight
            if packed:
                weight = self._inner(weight.unsqueeze(0), 1, True).squeeze(0)
            elif self._complex:
                weight = torch.complex(weight[0], weight[1])
            maps = (weight.to(inner),)
        if self.output_size is not None:
            real = torch.empty((), dtype=dtype).real.dtype
            profile = self._array(self.output_weight, 1, packed).to(inner)
            reads = (profile, self.output_bias.to(real))
        act = self.activation.tensors()
        counts = (len(operator.tensors), len(act), len(maps), len(reads))
        cell = Cell(operator, self.activation, self.input_map, bool(reads), counts)
        return cell, (*operator.tensors, *act, *maps, *reads)

    def _dtype(self, x: Tensor) -> torch.dtype:
        weight = self.conv.weight
        double = torch.float64 in (weight.dtype, x.dtype) or x.dtype == torch.complex128
        if self._complex:
            return torch.complex128 if double else torch.complex64
        if x.is_complex():
            raise expected("input", "a real tensor", x.dtype, "complex inputs: ConvUnitaryRNN")
        return torch.float64 if double else torch.float32

    def _check_input(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """Time-first input and the lattice of this call."""
        dims = len(self.size)
        ndim = 3 if self.input_map == "profile" else 3 + dims
        if x.ndim != ndim or x.shape[2] != self.input_size:
            order = "B, T" if self.batch_first else "T, B"
            tail = "" if self.input_map == "profile" else ", *size"
            want = f"({order}, {self.input_size}{tail})"
            raise expected("input", want, f"shape {tuple(x.shape)}")
        fixed = self.input_map == "profile" or self.output_size is not None
        size = self.size if self.input_map == "profile" else tuple(x.shape[3:])
        if fixed and size != self.size:
            raise expected("input", f"a lattice of {self.size}, that of the readout", size)
        return (x.transpose(0, 1) if self.batch_first else x), size

    def _start(
        self, state: Tensor | None, batch: int, size: tuple[int, ...], dtype: torch.dtype
    ) -> Tensor:
        shape = (batch, self.channels, *size)
        if state is None:
            return torch.zeros(shape, dtype=dtype, device=self.conv.weight.device)
        if tuple(state.shape) != shape:
            raise expected("state", f"shape {shape}", tuple(state.shape))
        return state.to(dtype)

    def forward(
        self, x: Tensor, state: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        r"""Runs the recurrence.

        Args:
            x: (B, T, input_size) for profile input, (B, T, input_size, \*size) for fields;
                time first if ``batch_first`` is False.
            state: z_0, (B, C, \*size); zero by default.
            lengths: (B,) numbers of valid steps, from 0 to T; None if all are valid.

        Returns:
            output: (B, T, output_size), or the states (B, T, C, \*size) without a readout; zero
                beyond the lengths.
            state: The state after the last valid step, (B, C, \*size). Passing it on continues
                the sequence exactly.
        """
        x, size = self._check_input(x)
        dtype = self._dtype(x)
        alive = _alive(lengths, x.shape[0], x.shape[1], x.device)
        with torch.autocast(x.device.type, enabled=False):
            if self.input_map == "direct":
                x = x.to(dtype)
            elif not x.is_complex():
                x = x.to(torch.empty((), dtype=dtype).real.dtype)
            start = self._start(state, x.shape[1], size, dtype)
            cell, tensors = self._cell(size, dtype)
            start = pack_pair(start) if cell.packed else start
            out, last = self._run(cell, x, start, lengths, alive, tensors)
            last = unpack_pair(last) if cell.packed else last
            if cell.packed and not cell.reads:
                steps = out.shape[:2]
                out = unpack_pair(out.flatten(0, 1))
                out = out.view(*steps, *out.shape[1:])
        if alive is not None:
            out = out * alive.view(*alive.shape, *[1] * (out.ndim - 2))
        return (out.transpose(0, 1) if self.batch_first else out), last

    def _run(
        self,
        cell: Cell,
        x: Tensor,
        start: Tensor,
        lengths: Tensor | None,
        alive: Tensor | None,
        tensors: tuple[Tensor, ...],
    ) -> tuple[Tensor, Tensor]:
        mask = None if alive is None else alive.view(*alive.shape, *[1] * (start.ndim - 1))
        if len(x) == 0 or x.shape[1] == 0:  # no steps, or an empty batch that FFTs refuse
            tail = (x.shape[1], self.output_size) if cell.reads else start.shape
            return (tensors[-1] if cell.reads else start).new_zeros((len(x), *tail)), start
        if self.memory == "reverse":
            return reversible(
                cell, x, start, mask, tensors, window=self.window, tolerance=self.reverse_tolerance
            )
        if cell.linear:
            return run_linear(cell, x, start, lengths, tensors, scan=self.scan)
        return run_stored(cell, x, start, mask, tensors)

    def respond(self, x: Tensor) -> Tensor | None:
        r"""The outputs alone, from a zero start, as one filter over time; None where there is none.

        A linear recurrence with profiles in and out whose modes turn by a phase each (one channel,
        ``mixing=False``, or X/P layers of the symmetric form) is a filter of D inputs and O
        outputs. Its response is computed once for the whole batch, and no state ever is.

        Args:
            x: (B, T, input_size), as in `forward`.

        Returns:
            What `forward` outputs for it, (B, T, output_size), within rounding that does not
            grow with T.

        Cost: O(T N O D) for the response and O(B T D (O + log T)) for the batch, against
            O(B T N (O + D)) of the recurrence.
        """
        if self.input_map != "profile" or self.output_size is None:
            return None
        if not isinstance(self.activation, Identity):
            return None
        steps, size = self._check_input(x)
        if 0 in steps.shape[:2] or x.is_complex():
            return None
        with torch.autocast(x.device.type, enabled=False):
            cell, tensors = self._cell(size, self._dtype(x))
            operator = cell.operator
            if not isinstance(operator, PhaseOperator | PairOperator) or operator.angle is None:
                return None
            _, _, maps, (reader, bias) = cell.split(tensors)
            profiles, readers = (operator.transform.forward(p) for p in (maps[0], reader))
            weights = operator.transform.weights(x.device)
            if weights is not None:
                readers = readers * weights.to(readers.dtype)
            taps = response(operator.angle, profiles, readers, len(steps))
            out = filtered(steps.to(bias.dtype), taps, bias)
        return out.transpose(0, 1) if self.batch_first else out

    def propagate(self, state: Tensor, steps: float) -> Tensor:
        """The state after ``steps`` free steps (no input, no activation), in closed form.

        One exponential ``e^{steps A}`` with the phase reduced in double precision: the norm is
        kept to 1e-6 and the phase to 1e-6 after 10^6 steps, at the cost of one. Fractions of a
        step and negative numbers are steps too.

        Raises:
            InputError: The recurrence has an activation, so no closed form.
        """
        if not isinstance(self.activation, Identity):
            hint = "with an activation, steps have to be made one by one"
            raise expected("activation", "identity", type(self.activation).__name__, hint)
        out: Tensor = self.conv(state, t=float(steps))
        return out

    def extra_repr(self) -> str:
        """Settings, as in the constructor."""
        return (
            f"{self.input_size}, size={self.size}, input_map={self.input_map!r}, "
            f"output_size={self.output_size}, memory={self.memory!r}"
        )


def _check_memory(memory: str, window: int | None, activation: Activation) -> None:
    if memory not in ("store", "reverse"):
        raise expected("memory", '"store" or "reverse"', repr(memory))
    if window is not None and window < 1:
        raise expected("window", "at least 1 step", window)
    if memory == "reverse" and not activation.invertible:
        raise expected("memory", '"store"', '"reverse"', f"{activation} cannot be undone")
    if memory == "reverse" and not activation.isometric and window is None:
        hint = f"undoing {activation} amplifies rounding; give window=8 or so to keep some states"
        raise expected("window", "a number of steps", None, hint)


def _alive(lengths: Tensor | None, steps: int, batch: int, device: torch.device) -> Tensor | None:
    """(T, B) bool: which steps are valid."""
    if lengths is None:
        return None
    if lengths.shape != (batch,) or lengths.is_floating_point():
        raise expected("lengths", f"({batch},) integers", f"{lengths.dtype} {tuple(lengths.shape)}")
    if batch and not (int(lengths.min()) >= 0 and int(lengths.max()) <= steps):
        raise expected("lengths", f"values from 0 to {steps}", lengths.tolist())
    return torch.arange(steps, device=device)[:, None] < lengths.to(device)
