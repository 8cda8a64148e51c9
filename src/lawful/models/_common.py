"""The two ends that every sequence model shares, and the checks of its settings."""

from typing import Any

import torch
from torch import Tensor, nn

from lawful.errors import expected
from lawful.models._specs import InputSpec, OutputSpec

Factory = dict[str, Any]  # the device and dtype that modules are made with


def factory(device: torch.device | str | None, dtype: torch.dtype | None) -> Factory:
    """The keyword arguments that place a module."""
    return {"device": device, "dtype": dtype}


def check_positive(**values: int) -> None:
    """Raises `InputError` for the first value that is below 1."""
    for name, value in values.items():
        if value < 1:
            raise expected(name, "a whole number of at least 1", value)


def check_count(**values: int) -> None:
    """Raises `InputError` for the first value that is below 0."""
    for name, value in values.items():
        if value < 0:
            raise expected(name, "a whole number of at least 0", value)


def check_share(**values: float) -> None:
    """Raises `InputError` for the first value outside [0, 1)."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise expected(name, "a number in [0, 1)", value)


def valid_steps(lengths: Tensor, steps: int) -> Tensor:
    """Which steps are real: (B, steps) boolean from lengths (B,)."""
    return torch.arange(steps, device=lengths.device) < lengths[:, None]


def last_valid(states: Tensor, lengths: Tensor | None) -> Tensor:
    """The state at each row's last real step: (B, D) from states (B, T, D)."""
    if lengths is None:
        return states[:, -1]
    rows = torch.arange(states.shape[0], device=states.device)
    return states[rows, lengths.to(states.device) - 1]


class StepEncoder(nn.Module):
    """Turns a task's sequence into float vectors, with padding set to zero.

    Values pass through. Tokens become one-hot vectors (``embedding=0``) or rows of a learned
    table. Padding cannot reach a gradient, whatever it holds (NaN and -1 included).

    Args:
        inputs: What the task feeds.
        embedding: Width of the learned token vectors; 0 for one-hot. Ignored for values.
        device: Where the parameters live.
        dtype: Their floating-point type.
    """

    _like: Tensor

    def __init__(
        self,
        inputs: InputSpec,
        embedding: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(input_size=inputs.size)
        check_count(embedding=embedding)
        self.inputs = inputs
        self.table: nn.Embedding | None = None
        if inputs.kind == "tokens" and embedding:
            self.table = nn.Embedding(inputs.size, embedding, **factory(device, dtype))
        self.size = self.table.embedding_dim if self.table else inputs.size
        # Follows the module through .to(dtype); says which dtype one-hot vectors get.
        self.register_buffer("_like", torch.empty(0, **factory(device, dtype)), persistent=False)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Vectors (B, T, size) from values (B, T, input size) or tokens (B, T)."""
        padding = self._check(x, lengths)
        if self.inputs.kind == "values":
            return x if padding is None else x.masked_fill(padding[..., None], 0.0)
        if padding is not None:
            x = x.masked_fill(padding, 0)
        self._check_tokens(x)
        if self.table is not None:
            vectors: Tensor = self.table(x.long())
        else:
            vectors = torch.nn.functional.one_hot(x.long(), self.inputs.size).to(self._like.dtype)
        return vectors if padding is None else vectors.masked_fill(padding[..., None], 0.0)

    def _check(self, x: Tensor, lengths: Tensor | None) -> Tensor | None:
        kind, size = self.inputs.kind, self.inputs.size
        if kind == "values" and (x.dim() != 3 or x.shape[-1] != size):
            raise expected("inputs", f"values of shape (batch, steps, {size})", tuple(x.shape))
        if kind == "tokens" and (x.dim() != 2 or x.is_floating_point()):
            got = f"{x.dtype} of shape {tuple(x.shape)}"
            raise expected("inputs", "integer tokens of shape (batch, steps)", got)
        if x.shape[1] == 0:
            raise expected("inputs", "at least one step", tuple(x.shape))
        if lengths is None:
            return None
        if lengths.shape != x.shape[:1] or lengths.is_floating_point():
            got = f"{lengths.dtype} of shape {tuple(lengths.shape)}"
            raise expected("lengths", f"{x.shape[0]} whole numbers, one a row", got)
        if lengths.numel() and not (int(lengths.min()) >= 1 and int(lengths.max()) <= x.shape[1]):
            raise expected("lengths", f"values in 1..{x.shape[1]}", lengths.tolist())
        return ~valid_steps(lengths.to(x.device), x.shape[1])

    def _check_tokens(self, x: Tensor) -> None:
        if x.numel() and not (int(x.min()) >= 0 and int(x.max()) < self.inputs.size):
            got = f"{int(x.min())}..{int(x.max())}"
            raise expected("inputs", f"tokens in 0..{self.inputs.size - 1}", got)

    def extra_repr(self) -> str:
        """Kind and sizes."""
        return f"{self.inputs.kind}, {self.inputs.size} -> {self.size}"


class Readout(nn.Module):
    """A linear map of the state: at each step, or at the last real step of each row.

    Args:
        features: Width of the state.
        outputs: What the task wants.
        dropout: Share of state entries dropped in training before the map.
        device: Where the parameters live.
        dtype: Their floating-point type.
    """

    def __init__(
        self,
        features: int,
        outputs: OutputSpec,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(output_size=outputs.size)
        self.per_step = outputs.per_step
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(features, outputs.size, **factory(device, dtype))

    def forward(self, states: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, T, size) per step, or (B, size) per sequence, from states (B, T, features)."""
        if not self.per_step:
            states = last_valid(states, lengths)
        out: Tensor = self.linear(self.dropout(states))
        return out
