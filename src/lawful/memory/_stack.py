"""The states of several layers together, and reading rows from their end."""

from collections.abc import Callable

import torch
from torch import Tensor

from lawful.kernels.sab import SABState

__all__ = ["StackedState", "State", "pack", "reverse_index", "reverse_resets", "turn"]


class StackedState(tuple[SABState, ...]):
    """The states of several layers, lowest first; it offers what a `SABState` does."""

    __slots__ = ()

    def map(self, fn: Callable[[Tensor], Tensor]) -> "StackedState":
        """All states with ``fn`` applied to each tensor."""
        return StackedState(s.map(fn) for s in self)

    def detach(self) -> "StackedState":
        """The same values, cut from the graph."""
        return StackedState(s.detach() for s in self)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> "StackedState":
        """Moves all tensors to a device, and the floating-point ones to a dtype."""
        return StackedState(s.to(device, dtype) for s in self)

    def index_select(self, rows: Tensor) -> "StackedState":
        """The states of some rows."""
        return StackedState(s.index_select(rows) for s in self)


State = SABState | StackedState


def pack(states: list[SABState]) -> State:
    return states[0] if len(states) == 1 else StackedState(states)


def reverse_index(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Index (B, T) that reads each row from its true end, and leaves padding in place."""
    position = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
    if lengths is None:
        return position.flip(1)
    end = lengths.to(x.device)[:, None]
    return torch.where(position < end, end - 1 - position, position)


def turn(x: Tensor, index: Tensor) -> Tensor:
    return x.gather(1, index[..., None].expand(-1, -1, x.shape[2]))


def reverse_resets(reset: Tensor, lengths: Tensor | None) -> Tensor:
    """Reset marks for the reversed rows: a sequence begins where the next one began before."""
    follows = torch.zeros_like(reset)
    follows[:, :-1] = reset[:, 1:]
    return follows.gather(1, reverse_index(reset[..., None], lengths))
