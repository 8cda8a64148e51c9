"""Which rows are active, restarted, cut and stored at which step."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lawful.kernels.sab.config import SABConfig

__all__ = ["Schedule", "make_schedule"]


@dataclass(frozen=True)
class Schedule:
    """Decisions for each row and step of one call, (B, T) bool each (``steps``: int64).

    Attributes:
        active: The row has this step (False: padding).
        reset: A new sequence begins with this step.
        cut: Credit does not pass from this step's cell to the state before it.
        store: The state after this step becomes a memory (ignored if stored by content).
        steps: The step's number in its sequence.
        final: (B,) steps done after the call.
    """

    active: Tensor
    reset: Tensor
    cut: Tensor
    store: Tensor
    steps: Tensor
    final: Tensor

    def part(self, steps: slice) -> "Schedule":
        """The schedule of some of the steps; ``final`` is right only after the last part."""
        return Schedule(
            self.active[:, steps],
            self.reset[:, steps],
            self.cut[:, steps],
            self.store[:, steps],
            self.steps[:, steps],
            self.final,
        )


def make_schedule(
    done: Tensor, steps: int, config: SABConfig, lengths: Tensor | None, reset: Tensor | None
) -> Schedule:
    """Counts each row's steps; ``done`` (B,) is what earlier calls did."""
    position = torch.arange(steps, device=done.device).expand(len(done), steps)
    active = torch.ones_like(position, dtype=torch.bool)
    if lengths is not None:
        active = position < lengths.to(done.device)[:, None]
    reset = torch.zeros_like(active) if reset is None else reset.to(done.device) & active
    began = torch.where(reset, position, -1).cummax(-1).values if steps else position
    number = torch.where(began >= 0, position - began, position + done[:, None])
    shift = 1 if config.phase == "end" else 0
    cut = torch.zeros_like(active)
    if config.truncation == "blocked" and config.k_trunc is not None:
        cut = ((number + shift) % config.k_trunc == 0) & (number > 0)
    store = torch.zeros_like(active)
    if not callable(config.k_att):
        store = (number + 1) % config.k_att == 0
    last = (active.sum(-1, keepdim=True) - 1).clamp(min=0)
    final = done
    if steps:
        final = torch.where(active.any(-1), number.gather(-1, last)[:, 0] + 1, done)
    return Schedule(active, reset, cut & active, store & active, number, final)
