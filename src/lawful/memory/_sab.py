"""The layer: stacked, in one or both directions, over batches of sequences."""

from typing import Any, Literal, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from lawful.errors import expected
from lawful.kernels import Backend
from lawful.kernels.sab import SABConfig, SABState
from lawful.memory._cell import Output, SABCell, check_rows
from lawful.memory._credit import credit_map
from lawful.memory._recall import Recall, make_recall
from lawful.memory._recurrence import CellFactory
from lawful.memory._stack import (
    State,
    pack,
    reverse_index,
    reverse_resets,
    turn,
)

__all__ = ["SAB"]


class SAB(nn.Module):
    """Recurrent layer with sparse attentive backtracking.

    A recurrent cell stores its state every ``k_att`` steps and at each step recalls the ``k_top``
    best memories. Credit flows back along the recurrence for ``k_trunc`` steps, and through
    what was recalled to where that was stored, and the steps before it.

    Args:
        input_size: Features d of the input.
        hidden_size: Features n of the state.
        k_top, k_att, k_trunc: See `SABConfig`.
        batch_first: Input and output are (B, T, ·); otherwise (T, B, ·).
        cell: See `SABCell`.
        num_layers: Stacked layers; each has a memory of its own, and passes h on.
        dropout: Probability at the outputs of all layers but the last, in training.
        bidirectional: A second stack of layers reads each row from its end; outputs are joined.
        output: "hidden": h. "concat": [h; s], what the paper's readout sees.
        preset, bias, backend, device, dtype, **knobs: See `SABCell`.

    Cost: O(B·T·(n·(d + n) + R·n)) for R memories (T / k_att, or ``max_memories``).
    Source: Ke et al. 2018, "Sparse Attentive Backtracking: Temporal Credit Assignment Through
    Reminding". Departures: see the guide on memory.

    Example:
        >>> layer = SAB(3, 8, k_top=2, k_att=1, k_trunc=4)
        >>> output, state = layer(torch.zeros(2, 6, 3))
        >>> output.shape, state.counts.tolist()
        (torch.Size([2, 6, 8]), [6, 6])
        >>> output, state = layer(torch.zeros(2, 5, 3), state)  # goes on where it stopped
        >>> state.steps.tolist()
        [11, 11]
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        k_top: int = 5,
        k_att: Any = 5,
        k_trunc: int | None = 5,
        batch_first: bool = True,
        cell: str | CellFactory = "lstm",
        *,
        num_layers: int = 1,
        dropout: float = 0.0,
        bidirectional: bool = False,
        output: Output = "hidden",
        preset: str = "paper",
        bias: bool = True,
        backend: Backend = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **knobs: Any,
    ) -> None:
        super().__init__()
        if not isinstance(num_layers, int) or num_layers < 1:
            raise expected("num_layers", "an integer of at least 1", repr(num_layers))
        if not 0 <= dropout < 1:
            raise expected("dropout", "a probability in [0, 1)", repr(dropout))
        self.input_size, self.hidden_size = input_size, hidden_size
        self.batch_first, self.num_layers = batch_first, num_layers
        self.dropout, self.directions = dropout, 2 if bidirectional else 1
        widths = [input_size] + [hidden_size * self.directions] * (num_layers - 1)
        self.layers = nn.ModuleList(
            SABCell(
                width,
                hidden_size,
                k_top,
                k_att,
                k_trunc,
                cell,
                output=output,
                preset=preset,
                bias=bias,
                backend=backend,
                device=device,
                dtype=dtype,
                **knobs,
            )
            for width in widths
            for _ in range(self.directions)
        )

    @staticmethod
    def preset(name: str) -> SABConfig:
        """The options that go by a name, see `SABConfig.preset`."""
        return SABConfig.preset(name)

    @property
    def config(self) -> SABConfig:
        """The options in force."""
        return self._cells[0].config

    @property
    def bidirectional(self) -> bool:
        """Whether rows are read from both ends."""
        return self.directions == 2

    @property
    def output_size(self) -> int:
        """Width of the output."""
        return self._cells[0].output_size * self.directions

    @property
    def _cells(self) -> list[SABCell]:
        return [c for c in self.layers if isinstance(c, SABCell)]

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        for cell in self._cells:
            cell.reset_parameters()

    def extra_repr(self) -> str:
        """The shape of the stack."""
        return (
            f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}, "
            f"dropout={self.dropout}, bidirectional={self.bidirectional}, "
            f"batch_first={self.batch_first}"
        )

    def initial_state(
        self,
        batch: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> State:
        """The state before the first step of ``batch`` sequences."""
        return pack([c.initial_state(batch, device, dtype) for c in self._cells])

    def rekey(self, state: State) -> State:
        """The state with its keys made anew by the present weights, see `SABCell.rekey`."""
        parts = zip(self._cells, self._unpack(state), strict=True)
        return pack([cell.rekey(part) for cell, part in parts])

    @overload
    def forward(
        self,
        x: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        *,
        reset: Tensor | None = None,
        return_recall: Literal[False] = False,
    ) -> tuple[Tensor, State]: ...

    @overload
    def forward(
        self,
        x: PackedSequence,
        state: State | None = None,
        lengths: None = None,
        *,
        reset: Tensor | None = None,
        return_recall: Literal[False] = False,
    ) -> tuple[PackedSequence, State]: ...

    @overload
    def forward(
        self,
        x: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        *,
        reset: Tensor | None = None,
        return_recall: Literal[True],
    ) -> tuple[Tensor, State, list[Recall]]: ...

    def forward(
        self,
        x: Tensor | PackedSequence,
        state: State | None = None,
        lengths: Tensor | None = None,
        *,
        reset: Tensor | None = None,
        return_recall: bool = False,
    ) -> Any:
        """Reads sequences.

        Args:
            x: (B, T, d), or (T, B, d) if not ``batch_first``, or a `PackedSequence`.
            state: What an earlier call returned; ``None`` starts new sequences. Credit flows
                through it to that call unless it was detached. With ``truncation="window"`` credit
                does not follow the recurrence across the seam, and with ``hops`` limited only
                recalls by the output itself cross it.
            lengths: (B,) valid steps of each row. Further steps neither store nor recall; their
                output is 0, and the state is that at the row's true end.
            reset: (B, T) bool, True where a new sequence begins within a row: state and memory
                start anew before that step.
            return_recall: Also return what was recalled, one `Recall` for each layer and direction.

        Returns:
            The output (B, T, `output_size`), in the layout of ``x``, and the state.

        Raises:
            InputError: Wrong shapes or types, lengths outside 0..T, NaN or infinite input, a state
                of another batch size or layer; a state for a bidirectional layer.
        """
        if isinstance(x, PackedSequence):
            return self._forward_packed(x, state, reset, return_recall)
        if x.dim() != 3 or x.shape[2] != self.input_size:
            layout = "B, T" if self.batch_first else "T, B"
            raise expected("x", f"shape ({layout}, {self.input_size})", str(tuple(x.shape)))
        if not x.is_floating_point():
            raise expected("x", "floating-point numbers", str(x.dtype))
        if state is not None and self.bidirectional:
            raise expected("state", "None for a bidirectional layer", "a state")
        x = x if self.batch_first else x.transpose(0, 1)
        lengths = check_rows("lengths", lengths, x.shape[0], x.shape[1])
        if reset is not None and (reset.shape != x.shape[:2] or reset.dtype != torch.bool):
            want = f"a bool tensor of shape {tuple(x.shape[:2])}"
            raise expected("reset", want, f"{reset.dtype} {tuple(reset.shape)}")
        output, new, recalls = self._stack(x, state, lengths, reset, return_recall)
        output = output if self.batch_first else output.transpose(0, 1)
        return (output, new, recalls) if return_recall else (output, new)

    def _stack(
        self,
        x: Tensor,
        state: State | None,
        lengths: Tensor | None,
        reset: Tensor | None,
        record: bool,
    ) -> tuple[Tensor, State, list[Recall]]:
        states = self._unpack(state)
        new: list[SABState] = []
        recalls: list[Recall] = []
        output = x
        for depth in range(self.num_layers):
            parts, joined = [], []
            for side in range(self.directions):
                at = depth * self.directions + side
                cell = self._cells[at]
                index = reverse_index(x, lengths) if side else None
                marks = None if reset is None else reverse_resets(reset, lengths) if side else reset
                given = x if index is None else turn(x, index)
                h, s, after, reads = cell.scan(given, states[at], lengths, marks, record)
                if record:
                    recalls.append(make_recall(reads, h, self.config.heads))
                new.append(after)
                parts.append(h if index is None else turn(h, index))
                out = cell.join(h, s)
                joined.append(out if index is None else turn(out, index))
            output = torch.cat(joined, -1)
            x = nn.functional.dropout(torch.cat(parts, -1), self.dropout, self.training)
        return output, pack(new), recalls

    def _forward_packed(
        self, packed: PackedSequence, state: State | None, reset: Tensor | None, record: bool
    ) -> Any:
        x, lengths = pad_packed_sequence(packed, batch_first=self.batch_first)
        output, *rest = self(x, state, lengths, reset=reset, return_recall=record)
        order = packed.sorted_indices
        enforce = order is None
        again = pack_padded_sequence(
            output, lengths, batch_first=self.batch_first, enforce_sorted=enforce
        )
        return PackedSequence(again.data, packed.batch_sizes, order, packed.unsorted_indices), *rest

    def step(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """One step of all layers, for decoding: x (B, d) to the output (B, `output_size`).

        Raises:
            InputError: As `forward`; a bidirectional layer has no steps.
        """
        if self.bidirectional:
            raise expected("step", "a layer that reads in one direction", "a bidirectional one")
        if x.dim() != 2:
            raise expected("x", f"shape (B, {self.input_size})", str(tuple(x.shape)))
        row = x[:, None] if self.batch_first else x[None]
        output, state = self(row, state)
        return output[:, 0] if self.batch_first else output[0], state

    def credit_map(
        self, steps: int, x: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """How strongly a loss at each step reaches the input of each step.

        ``C[t, τ] = ‖∂(g·output_t)/∂x_τ‖`` for one random direction g, the greatest over the batch.
        An entry is 0 exactly if no credit flows from t to τ.

        Args:
            steps: T, the number of steps.
            x: (B, T, d) input; default: one row of normal random numbers.
            generator: Source of the random numbers; default: a fresh one with seed 0.

        Returns:
            (T, T), non-negative, zero above the diagonal (unless bidirectional).

        Cost: T backward passes through the plain loop.
        """
        return credit_map(self, steps, x, generator)

    def _unpack(self, state: State | None) -> list[SABState | None] | list[Any]:
        if state is None:
            return [None] * len(self.layers)
        parts = [state] if isinstance(state, SABState) else list(state)
        if len(parts) != len(self.layers):
            raise expected("state", f"states of {len(self.layers)} layers", str(len(parts)))
        return parts
