"""The loop of a descent, apart from how a step's length is chosen and how a reading is taken."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

MAX_HALVINGS = 40


class Reading(NamedTuple):
    """What is known at a state: everything the next step and its derivative need."""

    g: Tensor  # (B, N, D)
    energy: Tensor  # (B,)
    push: Tensor  # activations (B, N, R), or the update (B, N, D) itself
    kept: tuple[Tensor, ...] = ()  # pre-activations, when asked for


class Field(Protocol):
    """Takes readings of an energy and moves states along its negative gradient."""

    def read(self, x: Tensor) -> Reading:
        """Energy and activations at ``LN(x)``."""

    def update(self, reading: Reading) -> Tensor:
        """``-∂E/∂g`` (B, N, D)."""

    def spread(self, value: Tensor) -> Tensor:
        """A value of each sample (B,), broadcastable to the states."""

    def move(self, x: Tensor, reading: Reading, alpha: Tensor | float) -> Tensor:
        """``x + α · update``; ``alpha`` a number, () or (B,). Never writes to ``x``."""

    def take(self, reading: Reading, other: Reading, which: Tensor) -> Reading:
        """``other`` where ``which`` (B,) holds, else ``reading``."""


class Step(NamedTuple):
    """One step as a rule took it."""

    alpha: Tensor | float
    x: Tensor
    reading: Reading | None  # at the new x, when the rule had to look


class Rule(Protocol):
    """Chooses the length of each step."""

    def part(self, rows: slice) -> "Rule":
        """A rule of its own for some of the samples."""

    def __call__(self, field: Field, x: Tensor, reading: Reading, active: Tensor | None) -> Step:
        """Takes one step; samples with ``active`` (B,) False stay where they are."""


def _hold(alpha: Tensor | float, active: Tensor | None) -> Tensor | float:
    return alpha if active is None else alpha * active


@dataclass(frozen=True)
class Fixed:
    """The same length for every step: a number, or a scalar tensor that is learned."""

    alpha: Tensor | float

    def part(self, rows: slice) -> "Fixed":
        """The same for all."""
        return self

    def __call__(self, field: Field, x: Tensor, reading: Reading, active: Tensor | None) -> Step:
        """One step of the given length."""
        alpha = _hold(self.alpha, active)
        return Step(alpha, field.move(x, reading, alpha), None)


@dataclass(frozen=True)
class Certified:
    """The asked length, cut to what is proven to lower the energy of each sample.

    With the gain γ > 0, λ a bound on the positive curvature of E, s a token's deviation and u the
    root mean square of its centred update, every α ≤ 2 s_min / (γ λ) descends, where s_min is the
    least deviation met on the way; s - α u and the deviation left after the update's direction is
    projected out bound it from below.
    """

    alpha: float
    curvature: Tensor  # () or (B,)
    gamma: Tensor  # ()
    eps: float

    def part(self, rows: slice) -> "Certified":
        """The bound of these samples."""
        bound = self.curvature[rows] if self.curvature.dim() else self.curvature
        return replace(self, curvature=bound)

    def __call__(self, field: Field, x: Tensor, reading: Reading, active: Tensor | None) -> Step:
        """One step of the certified length."""
        alpha = _hold(self.longest(x, field.update(reading)), active)
        return Step(alpha, field.move(x, reading, alpha), None)

    @torch.no_grad()
    def longest(self, x: Tensor, update: Tensor) -> Tensor:
        """The longest certified step of each sample, at most ``alpha`` (B,)."""
        kind = torch.promote_types(x.dtype, torch.float32)
        c, d = (t.to(kind) - t.to(kind).mean(-1, keepdim=True) for t in (x, update))
        size = max(1, x.shape[-1])
        var, speed2 = c.square().sum(-1) / size, d.square().sum(-1) / size
        inward = ((c * d).sum(-1) / size).clamp(max=0)
        moving = speed2 > 0
        left = torch.where(moving, var - inward.square() / speed2.where(moving, 1), var)
        floor = (left.clamp(min=0) + self.eps).sqrt()
        bend = (self.gamma.to(kind) * self.curvature.to(kind)).reshape(-1, 1)
        bend = bend.expand(var.shape)
        safe = torch.maximum(
            2 * (var + self.eps).sqrt() / (bend + 2 * speed2.sqrt()), 2 * floor / bend
        )
        longest = safe.where(bend > 0, float("inf")).where(moving, float("inf"))
        # A little under the bound, so that rounding cannot reach past it.
        longest = (0.999 * longest).clamp(max=self.alpha)
        longest = longest.amin(-1) if x.shape[1] else longest.new_full(x.shape[:1], self.alpha)
        return (longest * (self.gamma > 0)).to(x.dtype)


@dataclass
class Backtracking:
    """Halves the asked length, for each sample alone, until its computed energy does not rise.

    A sample that finds no such length in `MAX_HALVINGS` halvings stays where it is, so the
    energies reported never rise, whatever the rounding. The reading of an accepted trial is the
    next step's reading: a search that accepts at once costs nothing. A search starts at four
    times the length that was last accepted, and never above the asked one.
    """

    alpha: float
    _start: Tensor | None = field(default=None, repr=False)

    def part(self, rows: slice) -> "Backtracking":
        """A search of its own."""
        return Backtracking(self.alpha)

    def __call__(self, field: Field, x: Tensor, reading: Reading, active: Tensor | None) -> Step:
        """One accepted step of each sample."""
        with torch.no_grad():
            found = self._search(field, x, reading, active)
        if torch.is_grad_enabled():
            return Step(found.alpha, field.move(x, reading, found.alpha), None)
        return found

    def _search(self, field: Field, x: Tensor, reading: Reading, active: Tensor | None) -> Step:
        asked = torch.full(reading.energy.shape, self.alpha, dtype=x.dtype, device=x.device)
        searching = torch.ones_like(asked, dtype=torch.bool) if active is None else active
        alpha = (asked if self._start is None else self._start) * searching
        update = field.update(reading)
        best_x, best, taken = x, reading, torch.zeros_like(alpha)
        for _ in range(MAX_HALVINGS + 1):
            trial_x = x + field.spread(alpha) * update
            trial = field.read(trial_x)
            found = searching & (trial.energy <= reading.energy)
            best = field.take(best, trial, found)
            best_x = torch.where(field.spread(found), trial_x, best_x)
            taken = torch.where(found, alpha, taken)
            searching = searching & ~found
            if not bool(searching.any()):
                break
            alpha = alpha / 2
        self._start = torch.where(taken > 0, torch.minimum(asked, 4 * taken), asked)
        return Step(taken, best_x, best)


@dataclass
class Course:
    """What a descent went through."""

    x: Tensor
    states: list[Tensor] = field(default_factory=list)  # after each step
    energies: list[Tensor] = field(default_factory=list)
    alphas: list[Tensor | float] = field(default_factory=list)
    kept: list[tuple[Tensor, ...]] = field(default_factory=list)
    change: Tensor | None = None  # (B,) last change of g: rms over features, max over tokens
    taken: Tensor | None = None  # (B,) steps taken before the change fell under the tolerance


Noise = Callable[[Tensor, Tensor | float], Tensor]


def descend(
    field: Field,
    x: Tensor,
    rule: Rule,
    steps: int,
    *,
    last: bool,
    tolerance: float | None = None,
    noise: Noise | None = None,
    record: bool = False,
) -> Course:
    """Runs ``steps`` steps from ``x`` (B, N, D).

    Args:
        field: Takes the readings.
        x: Start.
        rule: Chooses the step lengths.
        steps: How many steps.
        last: Take a reading at the end too (half a step's work; free with backtracking).
        tolerance: A sample stops when no token's g changes by this root mean square any more.
        noise: Given (x, α), what is added after a step.
        record: Keep all states and what the readings kept.
    """
    course = Course(x)
    active: Tensor | None = None
    if tolerance is not None:
        active = torch.ones(x.shape[0], dtype=torch.bool, device=x.device)
        course.taken = torch.zeros(x.shape[0], dtype=torch.long, device=x.device)
        course.change = torch.full(x.shape[:1], float("inf"), device=x.device)
    reading: Reading | None = field.read(x) if steps or last else None
    for t in range(steps):
        assert reading is not None
        course.energies.append(reading.energy)
        if record:
            course.kept.append(reading.kept)
        old_g = reading.g
        step = rule(field, x, reading, active)
        x, reading = step.x, step.reading
        if noise is not None:
            x = x + noise(x, step.alpha)
        if record:
            course.states.append(x)
            course.alphas.append(step.alpha)
        if reading is None and (last or t + 1 < steps or tolerance is not None):
            reading = field.read(x)
        if active is not None and reading is not None:
            active = _watch(course, active, old_g, reading.g, tolerance or 0.0)
            if not bool(active.any()):
                break
    if last and reading is not None:
        # A descent that stopped early keeps its last energy for the steps not taken.
        course.energies += [reading.energy] * (steps + 1 - len(course.energies))
        if record:
            course.kept.append(reading.kept)
    course.x = x
    return course


@torch.no_grad()
def _watch(course: Course, active: Tensor, old: Tensor, new: Tensor, tolerance: float) -> Tensor:
    """Notes the change of g of the active samples and returns those that go on."""
    assert course.change is not None
    assert course.taken is not None
    if not new.numel():
        return torch.zeros_like(active)
    # The largest token's change, so that padding cannot thin it out.
    change = (new - old).square().mean(-1).sqrt().amax(-1)
    course.change = torch.where(active, change.to(course.change.dtype), course.change)
    course.taken = course.taken + active
    return active & (change >= tolerance)
