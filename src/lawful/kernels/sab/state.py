"""What a layer carries from one step, and from one call, to the next."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lawful.errors import expected

__all__ = ["SABState"]


@dataclass(frozen=True)
class SABState:
    """The state of one layer in one direction; rows are independent of each other.

    Attributes:
        recurrent: The cell's tensors, each (B, n): (h, c) for LSTM, (h,) for GRU. ``h`` includes
            what was recalled.
        memory: (B, R, n) stored states, oldest first; row b uses the first ``counts[b]``.
        keys: (B, R, A) the memories as the score function wants them, made when they were stored.
        counts: (B,) int64.
        stamps: (B, R) int64, the step at which each memory was stored (-1: the zero memory).
        saliency: (B, R) the total weight with which each memory has been recalled.
        steps: (B,) int64, steps done since the sequence began. ``k_att`` and ``k_trunc`` count
            from there, so that a sequence in pieces equals the whole.
    """

    recurrent: tuple[Tensor, ...]
    memory: Tensor
    keys: Tensor
    counts: Tensor
    stamps: Tensor
    saliency: Tensor
    steps: Tensor

    @property
    def h(self) -> Tensor:
        """Hidden state (B, n)."""
        return self.recurrent[0]

    @property
    def c(self) -> Tensor:
        """Cell state (B, n) of an LSTM.

        Raises:
            InputError: The cell has none.
        """
        if len(self.recurrent) < 2:
            raise expected("state.c", "a cell with a second state", "a cell with h only")
        return self.recurrent[1]

    @property
    def batch_size(self) -> int:
        """Number of rows."""
        return self.steps.shape[0]

    def map(self, fn: Callable[[Tensor], Tensor]) -> "SABState":
        """The state with ``fn`` applied to each tensor."""
        return SABState(
            tuple(fn(r) for r in self.recurrent),
            fn(self.memory),
            fn(self.keys),
            fn(self.counts),
            fn(self.stamps),
            fn(self.saliency),
            fn(self.steps),
        )

    def detach(self) -> "SABState":
        """The same values, cut from the graph: no credit passes to what came before."""
        return self.map(Tensor.detach)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> "SABState":
        """Moves all tensors to a device, and the floating-point ones to a dtype."""
        return self.map(lambda t: t.to(device, dtype if t.is_floating_point() else None))

    def index_select(self, rows: Tensor) -> "SABState":
        """The state of some rows, (K,) int64, in that order and with repeats (for beam search)."""
        return self.map(lambda t: t.index_select(0, rows.to(t.device)))
