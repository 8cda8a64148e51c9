"""Beyond the paper's figures: the copying problem, solved by writing the weights down."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from lawful.reproduce._figures import Demonstration, Figure
from lawful.reproduce.unitary._fields import source
from lawful.reproduce.unitary._networks import copying_network
from lawful.tasks.exhibits import Heatmap

__all__ = ["copying"]

SYMBOLS, LENGTH = 8, 10


def _sequences(delay: int, batch: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """One-hot inputs (B, delay + 20, 10) and the ten symbols of each (B, 10)."""
    message = torch.randint(SYMBOLS, (batch, LENGTH), generator=draw)
    ids = torch.full((batch, delay + 2 * LENGTH), SYMBOLS)
    ids[:, :LENGTH] = message
    ids[:, delay + LENGTH - 1] = SYMBOLS + 1  # the cue; a translation needs none
    return F.one_hot(ids, SYMBOLS + 2).float(), message


def copying(quick: bool, seed: int) -> Demonstration:
    """C3: ten symbols, repeated after a long delay, by moving them along a ring."""
    delay = 200 if quick else 2000
    x, message = _sequences(delay, 8, source(seed))
    rnn = copying_network(delay, SYMBOLS, LENGTH)
    with torch.no_grad():
        answer = rnn(x)[0][:, -LENGTH:]
    loss = float(F.cross_entropy(answer.flatten(0, 1), message.flatten()))
    steps = delay + 2 * LENGTH
    baseline = LENGTH * math.log(SYMBOLS) / steps
    figures = [
        Figure(
            f"symbols right after a delay of {delay}",
            float((answer.argmax(-1) == message).double().mean()),
            expected=1.0,
            at_least=1.0,
        ),
        Figure(
            "cross-entropy per step over that of guessing",
            loss * LENGTH / steps / baseline,
            at_most=0.02,
            note=f"Guessing the ten symbols costs {baseline:.4f} nats per step.",
        ),
    ]
    text = (
        f"Eight channels on a ring of {rnn.size[0]} sites, single precision, a translation as "
        "kernel: each symbol is written at site 0 and read where it has moved to. Nothing is "
        "trained. This shows that the recurrence loses nothing, not that it can be learned."
    )
    return Demonstration("C3", "Copying by construction", text, figures, [_ring(seed)])


def _ring(seed: int) -> Heatmap:
    """Which symbol is where, over time, for a short delay."""
    delay = 40
    x, _ = _sequences(delay, 1, source(seed))
    rnn = copying_network(delay, SYMBOLS, LENGTH)
    state, rows = None, []
    with torch.no_grad():
        for now in x.unbind(1):
            state = rnn(now[:, None], state)[1]
            field = state[0].real  # (symbols, sites)
            rows.append((field * torch.arange(1, SYMBOLS + 1)[:, None]).sum(0))
    return Heatmap(
        "Symbols on their way, delay 40",
        torch.stack(rows)[:, : delay + 2 * LENGTH].numpy(),
        "site",
        "step",
        note="Colour: number of the symbol at a site, from 1 to 8.",
    )
