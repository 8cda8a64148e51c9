"""Which recurrent cells can be given a memory."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from lawful.errors import expected
from lawful.kernels.sab.config import choose

States = tuple[Tensor, ...]
CellFactory = Callable[[int, int], nn.Module]


@runtime_checkable
class RecurrentCell(Protocol):
    """What a cell of your own has to offer, besides being an `nn.Module`.

    Attributes:
        hidden_size: Width n of its hidden state.
        state_count: How many (B, n) tensors it carries; the first is the hidden state.
    """

    hidden_size: int
    state_count: int

    def __call__(self, x: Tensor, states: States) -> States:
        """One step: input (B, d) and states to new states."""
        ...


BUILT_IN: dict[str, type[nn.LSTMCell | nn.GRUCell | nn.RNNCell]] = {
    "lstm": nn.LSTMCell,
    "gru": nn.GRUCell,
    "rnn": nn.RNNCell,
}


def make_cell(
    cell: str | CellFactory, input_size: int, hidden_size: int, **factory: Any
) -> nn.Module:
    """The cell of that name, or made by ``cell(input_size, hidden_size)``.

    Raises:
        InputError: An unknown name, or what was made is no `RecurrentCell`.
    """
    if isinstance(cell, str):
        return BUILT_IN[choose("cell", cell, tuple(BUILT_IN))](input_size, hidden_size, **factory)
    made = cell(input_size, hidden_size)
    known = isinstance(made, (nn.LSTMCell, nn.GRUCell, nn.RNNCell, RecurrentCell))
    if not isinstance(made, nn.Module) or not known or made.hidden_size != hidden_size:
        want = f"a module with hidden_size {hidden_size} and state_count"
        raise expected("cell", f"a function that makes {want}", repr(made))
    return made.to(factory.get("device"), factory.get("dtype"))


def state_count(cell: nn.Module) -> int:
    """How many tensors the cell carries."""
    if isinstance(cell, nn.LSTMCell):
        return 2
    if isinstance(cell, (nn.GRUCell, nn.RNNCell)):
        return 1
    return int(cell.state_count)  # type: ignore[arg-type]


def step(cell: nn.Module, x: Tensor, states: States) -> States:
    """One step of any cell."""
    if isinstance(cell, (nn.GRUCell, nn.RNNCell)):
        return (cell(x, states[0]),)
    return tuple(cell(x, states))
