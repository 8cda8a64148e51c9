"""One layer in one direction: a recurrent cell with a memory."""

import math
import warnings
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lawful.errors import InputError, NumericalWarning, expected
from lawful.kernels import Backend, use_native
from lawful.kernels.sab import (
    Read,
    SABConfig,
    SABState,
    Scorer,
    make_schedule,
    reasons,
    run_native,
    run_reference,
)
from lawful.kernels.sab.config import choose
from lawful.memory import _recurrence
from lawful.memory._recurrence import CellFactory

__all__ = ["SABCell"]

Output = Literal["hidden", "concat"]


class SABCell(nn.Module):
    """A recurrent cell that stores some of its states and recalls a few at each step.

    ``ĥ = cell(x, h_before)``; scores of the memories against ĥ become sparse weights w
    (`sparse_attention`); ``s = Σ w_i m_i``; ``h = ĥ + s``. See `SABConfig` for all choices.

    Args:
        input_size: Features d of the input.
        hidden_size: Features n of the state.
        k_top, k_att, k_trunc: See `SABConfig`.
        cell: "lstm", "gru", "rnn", or a function ``(input_size, hidden_size) -> module`` that makes
            an `nn.LSTMCell`, `nn.GRUCell`, `nn.RNNCell` or a `RecurrentCell`.
        output: "hidden": h, width n. "concat": [h; s], width 2n, the paper's input to the readout.
        preset: Settings to start from, see `SABConfig.preset`.
        bias: Whether a built-in cell has biases.
        backend: "auto", "native" or "reference".
        device, dtype: Where the parameters are made.
        **knobs: Further fields of `SABConfig`.

    Cost of a step: O(n·(d + n)) and O(R·n) for R memories, each row.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        k_top: int = 5,
        k_att: Any = 5,
        k_trunc: int | None = 5,
        cell: str | CellFactory = "lstm",
        *,
        output: Output = "hidden",
        preset: str = "paper",
        bias: bool = True,
        backend: Backend = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **knobs: Any,
    ) -> None:
        super().__init__()
        config = SABConfig.preset(preset).replace(
            k_top=k_top, k_att=k_att, k_trunc=k_trunc, **knobs
        )
        self._check_sizes(input_size, hidden_size, config)
        self.input_size, self.hidden_size = input_size, hidden_size
        self.config, self.backend = config, backend
        self.output: Output = choose("output", output, ("hidden", "concat"))
        made = {"device": device, "dtype": dtype}
        named = {"bias": bias, **made} if isinstance(cell, str) else made
        self.cell = _recurrence.make_cell(cell, input_size, hidden_size, **named)
        n = hidden_size
        if config.score == "additive_release":
            self.score = nn.Parameter(torch.empty(2 * n, **made))  # type: ignore[arg-type]
        else:
            self.key = nn.Parameter(torch.empty(n, n, **made))  # type: ignore[arg-type]
            self.query = nn.Parameter(torch.empty(n, n, **made))  # type: ignore[arg-type]
            if config.score == "mlp":
                self.score = nn.Parameter(torch.empty(n, **made))  # type: ignore[arg-type]
        self.reset_attention()

    @staticmethod
    def _check_sizes(input_size: int, hidden_size: int, config: SABConfig) -> None:
        for name, value in {"input_size": input_size, "hidden_size": hidden_size}.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise expected(name, "an integer of at least 1", repr(value))
        if hidden_size % config.heads:
            raise expected("heads", f"a divisor of hidden_size {hidden_size}", str(config.heads))
        if config.k_top == 1 and config.normaliser == "relu" and not config.straight_through:
            warnings.warn(
                "k_top=1 normalises a single weight to 1, so the scores get no gradient and what "
                "to recall is never learnt; use k_top >= 2 or straight_through=True",
                NumericalWarning,
                stacklevel=3,
            )

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset = getattr(self.cell, "reset_parameters", None)
        if reset is not None:
            reset()
        self.reset_attention()

    def reset_attention(self) -> None:
        """Draws the score weights: U(±1/√n), or N(0, 0.01²) for "additive_release"."""
        bound = 1 / math.sqrt(self.hidden_size)
        for name, weight in self._score_weights().items():
            if name == "score" and self.config.score == "additive_release":
                nn.init.normal_(weight, std=0.01)
            else:
                nn.init.uniform_(weight, -bound, bound)

    def _score_weights(self) -> dict[str, Tensor]:
        own = dict(self.named_parameters(recurse=False))
        return {name: own[name] for name in ("key", "query", "score") if name in own}

    @property
    def scorer(self) -> Scorer:
        """The score function with the present weights."""
        return Scorer(self.config.score, self.config.heads, self._score_weights())

    @property
    def output_size(self) -> int:
        """Width of the output."""
        return self.hidden_size * (2 if self.output == "concat" else 1)

    def extra_repr(self) -> str:
        """Sizes, and the options that differ from the defaults."""
        plain = SABConfig()
        names = [n for n in vars(plain) if n.startswith("k_")]
        names += [n for n in vars(plain) if n not in names]
        shown = [
            f"{n}={getattr(self.config, n)!r}"
            for n in names
            if n.startswith("k_") or getattr(self.config, n) != getattr(plain, n)
        ]
        return ", ".join(
            [f"{self.input_size}, {self.hidden_size}", *shown, f"output={self.output!r}"]
        )

    def initial_state(
        self,
        batch: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> SABState:
        """Zero states and an empty memory (or one zero memory, see ``init_memory``)."""
        like = next(self.cell.parameters()).new_empty(0, device=device, dtype=dtype)
        zeros = tuple(
            like.new_zeros(batch, self.hidden_size)
            for _ in range(_recurrence.state_count(self.cell))
        )
        kept = 1 if self.config.init_memory == "zero" else 0
        width = self.config.heads if self.config.score == "additive_release" else self.hidden_size
        counts = like.new_full((batch,), kept, dtype=torch.int64)
        return SABState(
            recurrent=zeros,
            memory=like.new_zeros(batch, kept, self.hidden_size),
            keys=like.new_zeros(batch, kept, width),
            counts=counts,
            stamps=like.new_full((batch, kept), -1, dtype=torch.int64),
            saliency=like.new_zeros(batch, kept),
            steps=torch.zeros_like(counts),
        )

    def rekey(self, state: SABState) -> SABState:
        """The state with its keys made anew by the present weights.

        Keys are made once, when a memory is stored. After an optimiser step, those of a state that
        is carried on are of the weights before it; this brings them up to date, and lets the
        key weights learn from old memories too.
        """
        memory = state.memory if self.config.score_grad == "full" else state.memory.detach()
        fields = {**vars(state), "keys": self.scorer.key(memory)}
        return SABState(**fields)

    def forward(self, x: Tensor, state: SABState | None = None) -> tuple[Tensor, SABState]:
        """One step.

        Args:
            x: (B, d).
            state: What the step before returned; ``None`` starts a sequence.

        Returns:
            The output (B, `output_size`) and the new state.

        Raises:
            InputError: Wrong shapes, NaN or infinite input.
        """
        if x.dim() != 2:
            raise expected("x", f"shape (B, {self.input_size})", str(tuple(x.shape)))
        hidden, recalled, state, _ = self.scan(x[:, None], state)
        return self.join(hidden, recalled)[:, 0], state

    def join(self, hidden: Tensor, recalled: Tensor) -> Tensor:
        """The output made of h and s."""
        return hidden if self.output == "hidden" else torch.cat([hidden, recalled], -1)

    def scan(
        self,
        x: Tensor,
        state: SABState | None = None,
        lengths: Tensor | None = None,
        reset: Tensor | None = None,
        record: bool = False,
        backend: Backend | None = None,
    ) -> tuple[Tensor, Tensor, SABState, list[Read]]:
        """Many steps: x (B, T, d) to h (B, T, n), s (B, T, n), the state, and what was recalled."""
        if x.dim() != 3 or x.shape[2] != self.input_size:
            raise expected("x", f"shape (B, T, {self.input_size})", str(tuple(x.shape)))
        if state is None:
            state = self.initial_state(x.shape[0], x.device, _state_dtype(x))
        self.check_state(state, x.shape[0])
        steps = x.shape[1]
        plan = make_schedule(state.steps, steps, self.config, lengths, reset)
        if lengths is not None:
            x = torch.where(plan.active[..., None], x, 0.0)
        if not torch.compiler.is_compiling() and not bool(torch.isfinite(x).all()):
            raise expected("x", "finite numbers", "NaN or infinity")
        backend = self.backend if backend is None else backend
        if steps and not record and self._native(backend, x, state, reset):
            return *run_native(x, state, plan, self.cell, self._score_weights(), self.config), []
        return run_reference(x, state, plan, self._recurrence, self.scorer, self.config, record)

    def _native(self, backend: Backend, x: Tensor, state: SABState, reset: Tensor | None) -> bool:
        """Whether the compiled path serves this call; "native" insists on it."""
        why = reasons(self.config)
        if type(self.cell) is not nn.LSTMCell:
            why.append("cells other than lstm")
        if reset is not None and self.config.init_memory == "zero":
            why.append('init_memory="zero" with reset')
        tensors = (x, *self.parameters(), *state.recurrent, state.memory)
        amp = torch.is_autocast_enabled(x.device.type)
        if not amp and len({t.dtype for t in tensors}) > 1:
            why.append("tensors of several dtypes")
        if not why:
            return use_native(backend, *tensors[1:] if amp else tensors)
        if backend == "native":
            raise expected("backend", "auto or reference", "native", f"not for {', '.join(why)}")
        return False

    def _recurrence(self, x: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return _recurrence.step(self.cell, x, states)

    def check_state(self, state: SABState, batch: int) -> None:
        """Refuses a state that does not fit this layer or batch.

        Raises:
            InputError: It is no `SABState`, or of another batch size, width or cell.
        """
        if not isinstance(state, SABState):
            raise expected("state", "a SABState", type(state).__name__)
        if state.batch_size != batch:
            hint = "take rows with state.index_select(rows)"
            raise expected("state", f"{batch} rows", f"{state.batch_size}", hint)
        count, width = _recurrence.state_count(self.cell), self.hidden_size
        if len(state.recurrent) != count or any(r.shape != (batch, width) for r in state.recurrent):
            got = str([tuple(r.shape) for r in state.recurrent])
            raise expected("state", f"{count} tensors of shape ({batch}, {width})", got)


def _state_dtype(x: Tensor) -> torch.dtype:
    return (
        torch.promote_types(x.dtype, torch.float32)
        if torch.is_autocast_enabled(x.device.type)
        else x.dtype
    )


def check_rows(name: str, value: Tensor | None, batch: int, steps: int) -> Tensor | None:
    """Checks ``lengths`` (B,) integers in 0..T.

    Raises:
        InputError: Another shape or type, or a length outside.
    """
    if value is None:
        return None
    value = torch.as_tensor(value)
    if value.shape != (batch,) or value.is_floating_point() or value.dtype == torch.bool:
        raise expected(name, f"integers of shape ({batch},)", f"{value.dtype} {tuple(value.shape)}")
    if torch.compiler.is_compiling():  # values are not there yet
        return value
    if batch and (int(value.min()) < 0 or int(value.max()) > steps):
        raise InputError(f"{name}: expected values in 0..{steps}, got {value.tolist()}")
    return value
