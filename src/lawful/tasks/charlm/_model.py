"""A sequence model as a language model, and what it carries from window to window."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lawful.errors import expected
from lawful.models import Carried, Streaming
from lawful.tasks._base import Batch


class LanguageModel(nn.Module):
    """Logits of the next character after each character.

    Args:
        net: A causal sequence model, one output a step, that reads in pieces.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        if not isinstance(net, Streaming):
            raise expected("model", "one that reads in pieces", type(net).__name__)
        if not getattr(getattr(net, "config", None), "causal", True):
            hint = "a language model must not see what it predicts"
            raise expected("causal", "True", False, hint)
        self.net = net

    def forward(self, x: Tensor, *state: Tensor) -> tuple[Tensor, Carried]:
        """Logits (B, T, characters) for codes (B, T), and the state after them.

        Args:
            x: The next characters of B texts.
            state: What the call before returned; nothing at the start of the texts.
        """
        out: tuple[Tensor, Carried] = self.net.stream(x, state)
        return out


class Carrier:
    """The states that rows of text were left with, until their next window comes.

    Rows come in groups (the batches) that stay the same; a group is known by its first row. A group
    whose window is not the one that follows starts from nothing.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[int, Carried]] = {}

    def take(self, batch: Batch) -> Carried:
        """The state to read this batch with."""
        row, number = int(batch["row"][0]), int(batch["number"][0])
        due, state = self._kept.get(row, (-1, ()))
        fits = due == number and not bool(batch["first"][0])
        return tuple(t.to(batch["x"].device) for t in state) if fits else ()

    def keep(self, batch: Batch, state: Carried) -> None:
        """Keeps the state after this batch; no credit passes to what came before."""
        row, number = int(batch["row"][0]), int(batch["number"][0])
        self._kept[row] = number + 1, tuple(t.detach() for t in state)

    def state(self) -> dict[str, Any]:
        """For exact resume."""
        return {str(row): [due, *state] for row, (due, state) in self._kept.items()}

    def load(self, state: dict[str, Any]) -> None:
        """Restores what `state` gave."""
        self._kept = {int(row): (int(v[0]), tuple(v[1:])) for row, v in state.items()}


def read(
    model: nn.Module, x: Tensor, window: int, state: Carried = ()
) -> Iterator[tuple[int, Tensor]]:
    """Reads texts (B, T) window by window with carried state: (start, logits) of each window."""
    for start in range(0, x.shape[1], window):
        logits, state = model(x[:, start : start + window], *state)
        yield start, logits


@torch.no_grad()
def generate(
    model: nn.Module,
    prompt: Tensor,
    length: int,
    temperature: float,
    generator: torch.Generator,
    window: int,
) -> Tensor:
    """Characters drawn one after the other, each given all before it.

    Unknown characters are never drawn.

    Args:
        model: A `LanguageModel` in evaluation mode.
        prompt: Codes (B, T), T >= 1, to go on from.
        length: Characters to draw.
        temperature: Logits are divided by it; 0 always takes the likeliest.
        generator: Source of the random numbers, on the CPU.
        window: Characters of the prompt read at once.

    Returns:
        Codes (B, length).
    """
    state: Carried = ()
    for piece in torch.split(prompt, window, dim=1):
        logits, state = model(piece, *state)
    drawn = []
    for _ in range(length):
        scores = logits[:, -1].double().cpu()
        scores[:, 0] = -torch.inf
        if temperature == 0:
            said = scores.argmax(-1, keepdim=True)
        else:
            said = torch.multinomial((scores / temperature).softmax(-1), 1, generator=generator)
        drawn.append(said)
        logits, state = model(said.to(prompt.device), *state)
    return torch.cat(drawn, 1) if drawn else prompt.new_zeros(len(prompt), 0).cpu()
