"""Sparse attentive backtracking as a plain loop: the truth that fast paths are held against.

How far credit may go is built into the graph. A state is kept in several *levels* (a, q) that
have equal values: ``a`` is how many more steps of recurrence credit may follow from it (None: up to
the next cut) and ``q`` how many more recalls it may pass (None: any number). Level (a, q) of a step
comes from level (a - 1, q) of the step before, and recalls memories of level (m, q - 1). Outputs
use the top level. With the default options there is just one level.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lawful.kernels.sab.config import SABConfig
from lawful.kernels.sab.schedule import Schedule
from lawful.kernels.sab.scores import Scorer, read
from lawful.kernels.sab.state import SABState
from lawful.kernels.sab.weights import threshold_index

__all__ = ["Read", "StepLoop", "run"]

Recurrence = Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]
States = tuple[Tensor, ...]
Level = tuple[int | None, int | None]


class Read(NamedTuple):
    """What one step recalled.

    Dense weights (B, H, R), when each memory was stored (B, R), and when the one that set the
    threshold was (B, H), -1 if there was none.
    """

    weights: Tensor
    stamps: Tensor
    threshold: Tensor


class Bank(NamedTuple):
    """Memories (B, R, n) and their keys (B, R, A), in one level."""

    memory: Tensor
    keys: Tensor

    def detach(self) -> "Bank":
        return Bank(self.memory.detach(), self.keys.detach())

    def map(self, fn: Callable[[Tensor], Tensor]) -> "Bank":
        return Bank(fn(self.memory), fn(self.keys))


@dataclass(frozen=True)
class Levels:
    """The levels that a configuration needs, top first, and which one memories have."""

    all: list[Level]
    memory_depth: int | None

    @staticmethod
    def of(config: SABConfig) -> "Levels":
        window = config.truncation == "window"
        top = config.k_trunc if window else None
        depth = config.mental_updates
        if window:
            depth = top if depth is None else min(depth, top or 0)
        depths: list[int | None] = [top]
        if depth is not None:
            depths += range((top or depth + 1) - 1, 0, -1)
        hops: Sequence[int | None] = [None] if config.hops is None else range(config.hops, -1, -1)
        if not torch.is_grad_enabled():
            return Levels([(None, hops[0])], 0)
        return Levels([(a, q) for q in hops for a in depths], depth)

    @property
    def top(self) -> Level:
        return self.all[0]

    def banks(self) -> list[int | None]:
        """Hop counts that memories are kept in; the first is the one outputs recall from."""
        q = self.top[1]
        return [None] if q is None else list(range(q - 1, -1, -1))


def run(
    x: Tensor,
    state: SABState,
    plan: Schedule,
    recurrence: Recurrence,
    scorer: Scorer,
    config: SABConfig,
    record: bool = False,
) -> tuple[Tensor, Tensor, SABState, list[Read]]:
    """Runs T steps.

    Args:
        x: (B, T, d).
        state: The state before the first step.
        plan: The schedule of these T steps.
        recurrence: ``(x_t, states) -> states``, hidden state first.
        scorer: Makes keys and scores.
        config: The options.
        record: Return what each step recalled.

    Returns:
        h (B, T, n) with the recalled part; s (B, T, n), the recalled part; the state after the
        last step; the reads. h and s are zero at padded steps.

    Cost: O(B·T·R·n) time, and as much memory when gradients are on.
    """
    loop = StepLoop(state, recurrence, scorer, config, record)
    hidden, recalled = [], []
    for t in range(x.shape[1]):
        h, s = loop.step(x[:, t], plan, t)
        active = plan.active[:, t, None]
        hidden.append(torch.where(active, h, 0.0))
        recalled.append(torch.where(active, s, 0.0))
    if not hidden:
        # A view of a step that is never used, so that the result still has a gradient (of zero).
        step = recurrence(x.new_zeros(x.shape[0], x.shape[2]), state.recurrent)
        empty = step[0][:, None][:, :0]
        return empty, empty, state, []
    return torch.stack(hidden, 1), torch.stack(recalled, 1), loop.state(plan.final), loop.reads


class StepLoop:
    """The loop's moving parts: recurrent states per level, memories per hop count."""

    def __init__(
        self,
        state: SABState,
        recurrence: Recurrence,
        scorer: Scorer,
        config: SABConfig,
        record: bool,
    ) -> None:
        self.config, self.scorer, self.recurrence, self.record = config, scorer, recurrence, record
        self.levels = Levels.of(config)
        carried = tuple(r.detach() for r in state.recurrent)
        # What was carried in has one level only. The lower ones take it as a constant, so that
        # credit never goes further than the options allow.
        exact = self.levels.top[0] is None
        self.rec = dict.fromkeys(self.levels.all, carried)
        self.rec[self.levels.top] = state.recurrent if exact else carried
        bank = Bank(state.memory, state.keys)
        self.banks = {q: bank.detach() for q in self.levels.banks()}
        self.banks[self.levels.banks()[0]] = bank
        self.counts, self.stamps, self.saliency = state.counts, state.stamps, state.saliency
        self.reads: list[Read] = []

    def state(self, steps: Tensor) -> SABState:
        """The state to carry on, after ``steps`` (B,) steps in all."""
        bank = self.banks[self.levels.banks()[0]]
        used = int(self.counts.max()) if len(self.counts) else 0
        return SABState(
            self.rec[self.levels.top],
            bank.memory[:, :used],
            bank.keys[:, :used],
            self.counts,
            self.stamps[:, :used],
            self.saliency[:, :used],
            steps,
        )

    def step(self, x: Tensor, plan: Schedule, t: int) -> tuple[Tensor, Tensor]:
        """Step t of the schedule with input (B, d): the hidden state and what was recalled."""
        active, cut, store = plan.active[:, t], plan.cut[:, t], plan.store[:, t]
        if bool(plan.reset[:, t].any()):
            self._restart(plan.reset[:, t])
        new, recalled = self._advance(x, cut)
        self.rec = {
            level: tuple(_where(active, n, o) for n, o in zip(new[level], old, strict=True))
            for level, old in self.rec.items()
        }
        if callable(self.config.k_att):
            chosen = self.config.k_att(self.rec[self.levels.top][0].detach(), plan.steps[:, t])
            store = chosen.to(torch.bool) & active
        if bool(store.any()):
            self._store(store, plan.steps[:, t])
        return self.rec[self.levels.top][0], recalled

    def _advance(self, x: Tensor, cut: Tensor) -> tuple[dict[Level, States], Tensor]:
        """All levels of the next step, and what the top one recalled."""
        new: dict[Level, States] = {}
        first: Tensor | None = None
        for a, q in self.levels.all:
            before = self.rec[(a, q)] if a is None else self._shallower(a, q)
            before = tuple(_where(~cut, r, r.detach()) for r in before)
            state = self.recurrence(x, before)
            if first is not None and q == 0:
                s = first.detach()
            else:
                s = self._recall(state[0], None if q is None else q - 1, first is None)
            first = s if first is None else first
            new[(a, q)] = (state[0] + self.config.recall_scale * s, *state[1:])
        assert first is not None
        return new, first

    def _shallower(self, a: int, q: int | None) -> States:
        if a == 1:
            return tuple(r.detach() for r in self.rec[(a, q)])
        return self.rec[(a - 1, q)]

    def _recall(self, hidden: Tensor, q: int | None, top: bool) -> Tensor:
        bank = self.banks[q]
        if bank.memory.shape[1] == 0:
            return torch.zeros_like(hidden)
        valid = torch.arange(bank.memory.shape[1], device=hidden.device) < self.counts[:, None]
        query = hidden if self.config.score_grad == "full" else hidden.detach()
        s, weights = read(self.scorer, query, bank.memory, bank.keys, valid, self.config)
        if top:
            seen = weights.detach()
            if self.config.policy == "saliency":
                self.saliency = self.saliency + seen.abs().sum(1)
            if self.record:
                scores = self.scorer.scores(query, bank.keys).detach()
                most = self.config.k_top - (self.config.threshold == "k")
                tau = threshold_index(scores, valid[:, None], most)
                stamp = self.stamps.gather(1, tau.clamp(min=0))
                self.reads.append(Read(seen, self.stamps, torch.where(tau >= 0, stamp, -1)))
        return s

    def _restart(self, rows: Tensor) -> None:
        self.rec = {
            level: tuple(_keep(~rows, r) for r in states) for level, states in self.rec.items()
        }
        keep = 1 if self.config.init_memory == "zero" else 0
        self.counts = torch.where(rows, keep, self.counts)
        if keep:
            self.banks = {q: b.map(lambda m: _keep(~rows, m)) for q, b in self.banks.items()}
            self.stamps = _where(~rows, self.stamps, torch.full_like(self.stamps, -1))
        self.saliency = _keep(~rows, self.saliency)

    def _store(self, rows: Tensor, steps: Tensor) -> None:
        """Appends the present state to the memory of ``rows``, and evicts beyond the bound."""
        depth = self.levels.memory_depth
        slots = int((self.counts + rows).max())
        for q in self.banks:
            wanted: Level = (depth, q)
            if depth == 0:
                hidden = self.rec[self.levels.top][0].detach()
            else:
                hidden = self.rec[wanted][0]
            source = hidden if self.config.score_grad == "full" else hidden.detach()
            new = Bank(hidden, self.scorer.key(source))
            grown = zip(self.banks[q], new, strict=True)
            self.banks[q] = Bank(*(_append(m, v, rows, self.counts, slots) for m, v in grown))
        self.stamps = _append(self.stamps, steps, rows, self.counts, slots)
        self.saliency = _append(
            self.saliency, torch.zeros_like(self.saliency[:, :0].sum(1)), rows, self.counts, slots
        )
        self.counts = self.counts + rows
        bound = self.config.max_memories
        if bound is not None and slots > bound:
            self._evict(bound)

    def _evict(self, bound: int) -> None:
        drop = victims(self.stamps, self.saliency, self.counts, self.config.policy)
        full = self.counts > bound
        drop = torch.where(full, drop, self.stamps.shape[1] - 1)
        keep = torch.arange(self.stamps.shape[1] - 1, device=drop.device)
        keep = keep + (keep >= drop[:, None])
        self.banks = {q: b.map(lambda m: _take(m, keep)) for q, b in self.banks.items()}
        self.stamps, self.saliency = self.stamps.gather(1, keep), self.saliency.gather(1, keep)
        self.counts = self.counts.clamp(max=bound)


def victims(stamps: Tensor, saliency: Tensor, counts: Tensor, policy: str) -> Tensor:
    """The memory (B,) that each row gives up, if it must; the newest is never one of them."""
    slots = torch.arange(stamps.shape[1], device=stamps.device)
    old = slots < counts[:, None] - 1
    if policy == "last":
        return torch.zeros_like(counts)
    if policy == "saliency":
        return torch.where(old, saliency, torch.inf).argmin(1)
    # The gap that would open between the neighbours; the oldest memory is kept as an anchor.
    gap = torch.full_like(stamps, torch.iinfo(torch.int64).max)
    gap[:, 1:-1] = torch.where(old[:, 1:-1], stamps[:, 2:] - stamps[:, :-2], gap[:, 1:-1])
    return torch.where(counts > 2, gap.argmin(1), 0)


def _where(rows: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(rows.view(-1, *[1] * (yes.dim() - 1)), yes, no)


def _keep(rows: Tensor, value: Tensor) -> Tensor:
    return _where(rows, value, torch.zeros_like(value))


def _append(old: Tensor, new: Tensor, rows: Tensor, counts: Tensor, slots: int) -> Tensor:
    """``old`` (B, R, ...) grown to ``slots``, with ``new`` (B, ...) at each row's count."""
    if slots > old.shape[1]:
        old = torch.cat([old, old.new_zeros(old.shape[0], slots - old.shape[1], *old.shape[2:])], 1)
    here = (torch.arange(slots, device=old.device) == counts[:, None]) & rows[:, None]
    return torch.where(here.view(*here.shape, *[1] * (old.dim() - 2)), new[:, None], old[:, :slots])


def _take(memory: Tensor, keep: Tensor) -> Tensor:
    return memory.gather(1, keep[..., None].expand(-1, -1, memory.shape[2]))
