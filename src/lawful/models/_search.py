"""Greedy and beam search over anything that predicts the next token."""

from collections.abc import Callable

import torch
from torch import Tensor

from lawful.errors import expected

__all__ = ["State", "beam_search"]

State = tuple[Tensor, ...]  # what a decoder carries, first dimension: one row a hypothesis
Step = Callable[[Tensor, State], tuple[Tensor, State]]


def beam_search(
    step: Step, state: State, *, rows: int, width: int, start: int, end: int, limit: int
) -> tuple[Tensor, Tensor]:
    """The most probable continuations found with ``width`` hypotheses a row.

    A hypothesis is finished by ``end``; finished ones keep their log-probability (without a
    correction for length) and their place as long as no better one is found.

    Args:
        step: (tokens (rows * width), state) -> logits (rows * width, V), state. Hypotheses of one
            row lie beside each other.
        state: State before the first token, (rows * width, ...) each.
        rows: How many sequences are decoded at once.
        width: Hypotheses of each row; 1 is greedy search.
        start: Token that is fed first.
        end: Token that finishes a sequence.
        limit: Largest number of tokens, ``end`` included.

    Returns:
        Tokens (rows, T <= limit), filled with ``end`` behind the first one, and their
        log-probabilities (rows).

    Cost: T calls of ``step``; stops as soon as no row's best can change any more.
    """
    if width < 1:
        raise expected("width", "a whole number of at least 1", width)
    device = state[0].device
    tokens = torch.full((rows * width,), start, device=device)
    # Only the first hypothesis counts at first: they are all the same.
    scores = torch.full((rows, width), -torch.inf, dtype=torch.float64, device=device)
    scores[:, 0] = 0.0
    finished = torch.zeros(rows, width, dtype=torch.bool, device=device)
    history = torch.empty(rows, width, 0, dtype=torch.int64, device=device)
    base = torch.arange(rows, device=device)[:, None] * width
    for _ in range(limit):
        logits, state = step(tokens, state)
        size = logits.shape[-1]
        gain = logits.double().log_softmax(-1).reshape(rows, width, size)
        only_end = torch.full((size,), -torch.inf, dtype=torch.float64, device=device)
        only_end[end] = 0.0
        gain = torch.where(finished[..., None], only_end, gain)
        scores, flat = (scores[..., None] + gain).flatten(1).topk(width)
        parent, chosen = flat // size, flat % size
        history = history.gather(1, parent[..., None].expand(-1, -1, history.shape[-1]))
        history = torch.cat([history, chosen[..., None]], -1)
        finished = finished.gather(1, parent) | (chosen == end)
        if bool(finished[:, 0].all()):  # the best is finished, and no score can grow
            break
        tokens = chosen.flatten()
        order = (base + parent).flatten()
        state = state if width == 1 else tuple(s.index_select(0, order) for s in state)
    return history[:, 0], scores[:, 0]
