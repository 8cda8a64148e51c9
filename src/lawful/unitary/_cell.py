"""One step of a recurrence as a pure function of its tensors, so that it can be replayed."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from lawful.unitary._activations import Activation, Identity
from lawful.unitary._maps import drive_channels, drive_profiles, read_profiles
from lawful.unitary._operators import Operator, SpectralOperator, pack_pair

__all__ = ["Cell", "InputMap"]

InputMap = Literal["profile", "field", "direct"]


@dataclass(frozen=True)
class Cell:
    """z_n = phi(e^A z_{n-1} + I_n), with input map and readout, in inner form.

    The tensors of a step are always passed in, in this order: the operator's, the activation's,
    the input map's, the readout's.
    """

    operator: Operator
    activation: Activation
    input_map: InputMap
    reads: bool
    counts: tuple[int, int, int, int]

    @property
    def packed(self) -> bool:
        """Whether fields are X/P layers packed as complex ones."""
        return self.operator.packed

    @property
    def linear(self) -> bool:
        """Whether the recurrence can stay in mode space."""
        return isinstance(self.activation, Identity) and isinstance(self.operator, SpectralOperator)

    def split(self, tensors: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], ...]:
        """The four groups of tensors."""
        groups, start = [], 0
        for count in self.counts:
            groups.append(tensors[start : start + count])
            start += count
        return tuple(groups)

    def rebuilt(self, tensors: tuple[Tensor, ...]) -> Operator:
        """The operator with the tensors of a step."""
        return self.operator.with_tensors(*tensors)

    def drive(self, x: Tensor, tensors: tuple[Tensor, ...]) -> Tensor:
        """I for a stretch of the sequence, x (T, B, ...) -> (T, B, C, *size)."""
        if self.input_map == "profile":
            return drive_profiles(x, tensors[0])
        if self.input_map == "field":
            return drive_channels(x, tensors[0])
        if not self.packed:
            return x
        z = pack_pair(x.flatten(0, 1))
        return z.view(*x.shape[:2], *z.shape[1:])

    def read(self, z: Tensor, tensors: tuple[Tensor, ...]) -> Tensor:
        """Features of states z (..., C, *size) -> (..., O); the states themselves without them."""
        return read_profiles(z, tensors[0], tensors[1]) if self.reads else z
