"""Every choice that the name "sparse attentive backtracking" leaves open, in one frozen record."""

import dataclasses
import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from torch import Tensor

from lawful.errors import expected, unknown

Store = Callable[[Tensor, Tensor], Tensor]
_T = TypeVar("_T")

_CHOICES: dict[str, tuple[str, ...]] = {
    "truncation": ("blocked", "window"),
    "phase": ("start", "end"),
    "score": ("mlp", "dot", "additive_release"),
    "score_grad": ("full", "params_only"),
    "threshold": ("k+1", "k"),
    "normaliser": ("relu", "softmax"),
    "small_memory": ("shift", "softmax", "raw"),
    "init_memory": ("empty", "zero"),
    "policy": ("last", "uniform", "saliency"),
}


@dataclass(frozen=True)
class SABConfig:
    """What is stored, what is recalled, how it is weighed, and where credit goes.

    Steps are counted from 0 at the start of a sequence, across calls that carry the state on.

    Attributes:
        k_top: Memories recalled at a step (at least 1; may exceed the number of memories).
        k_att: Store the state after every ``k_att``-th step (steps ``k_att - 1``,
            ``2 k_att - 1``, ...). Attention itself runs at every step. Or a function
            ``(hidden (B, n), step (B,)) -> (B,) bool`` that decides by content.
        k_trunc: Length of the recurrent path that credit may follow; ``None`` never cuts.
        truncation: "blocked" cuts the recurrence between blocks of ``k_trunc`` steps, as all known
            code does. "window" gives each loss and each recalled memory a path of exactly
            ``k_trunc`` steps of its own, as the paper's words say (costs ``k_trunc`` times more).
        phase: Where blocks begin. "start": at steps 0, k, 2k, ..., so that with
            ``k_att = k_trunc`` a memory is the last state of a full block. "end": the first block
            is one step short (the authors' code); with ``k_att = k_trunc`` a memory then sits just
            behind a cut, and its mental update is one step deep.
        hops: How many recalls credit may pass through in a row; ``None``: any number (the web).
        mental_updates: How many steps credit may follow the recurrence into a recalled memory's
            past: ``None`` as far as the truncation allows, 0 not even into the memory.
        score: "mlp" ``w·tanh(W1 m + W2 h)``; "dot" ``(W1 m)·(W2 h)/√width``; "additive_release"
            ``w·tanh([h; m])``, in which the query cancels.
        score_grad: "full", or "params_only": the scores train their own weights, and no credit
            flows through them into states (smooth training, see the guide).
        threshold: Rank of the score that is subtracted: "k+1" keeps ``k_top`` memories;
            "k" (released code) keeps ``k_top - 1``.
        normaliser: "relu": excess over the threshold, divided by its sum. "softmax" over the
            ``k_top`` best.
        margin: Added to each excess, so that the sum is never 0, ties or not. It
            bounds the derivative of the weights by about ``1/(k_top · margin)``.
        straight_through: Weights as above, derivative of a softmax over the ``k_top + 1`` best.
        small_memory: Rule while there are at most ``k_top`` memories. "shift": the lowest score is
            the threshold; "softmax" over all; "raw": scores are the weights (released code).
        init_memory: "empty", or "zero": a zero vector is the first memory.
        recall_scale: ``h = ĥ + recall_scale · s``; below 1 it bounds the growth of ``h``.
        heads: Independent reads; each recalls a slice of ``n / heads`` features.
        max_memories: Bound on the memory; ``None`` keeps all.
        policy: What a full memory gives up: "last" the oldest; "uniform" the one in the densest
            part of the timeline; "saliency" the one recalled least.
    """

    k_top: int = 5
    k_att: int | Store = 5
    k_trunc: int | None = 5
    truncation: Literal["blocked", "window"] = "blocked"
    phase: Literal["start", "end"] = "start"
    hops: int | None = None
    mental_updates: int | None = None
    score: Literal["mlp", "dot", "additive_release"] = "mlp"
    score_grad: Literal["full", "params_only"] = "full"
    threshold: Literal["k+1", "k"] = "k+1"
    normaliser: Literal["relu", "softmax"] = "relu"
    margin: float = 1e-7
    straight_through: bool = False
    small_memory: Literal["shift", "softmax", "raw"] = "shift"
    init_memory: Literal["empty", "zero"] = "empty"
    recall_scale: float = 1.0
    heads: int = 1
    max_memories: int | None = None
    policy: Literal["last", "uniform", "saliency"] = "last"

    def __post_init__(self) -> None:
        positive = {"k_top": self.k_top, "heads": self.heads}
        if not callable(self.k_att):
            positive["k_att"] = self.k_att
        for name in ("k_trunc", "hops", "max_memories"):
            if getattr(self, name) is not None:
                positive[name] = getattr(self, name)
        for name, value in positive.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise expected(name, "an integer of at least 1", repr(value))
        depth = self.mental_updates
        if depth is not None and (not isinstance(depth, int) or depth < 0):
            raise expected("mental_updates", "None or an integer of at least 0", repr(depth))
        for name, allowed in _CHOICES.items():
            choose(name, getattr(self, name), allowed)
        if not self.margin > 0:
            raise expected("margin", "a number above 0", repr(self.margin))
        if self.truncation == "window" and self.k_trunc is None:
            raise expected("k_trunc", 'an integer with truncation="window"', "None")

    def replace(self, **knobs: Any) -> "SABConfig":
        """A copy with some fields changed.

        Raises:
            InputError: An unknown field, or an impossible value.
        """
        known = [f.name for f in dataclasses.fields(self)]
        for name in knobs:
            if name not in known:
                raise unknown("option", known, name)
        return dataclasses.replace(self, **knobs)

    @staticmethod
    def preset(name: str) -> "SABConfig":
        """The settings that go by a name.

        "paper": this class's defaults. "authors": the authors' development code (zero memory, late
        cuts, raw scores while few memories exist). "release": the published code (query-free
        scores, k-th threshold). "stable": bounds gradients and states.
        """
        return PRESETS[choose("preset", name, tuple(PRESETS))]


def choose(name: str, value: _T, allowed: tuple[str, ...]) -> _T:
    """Returns ``value`` if it is allowed.

    Raises:
        InputError: It is not; the message lists what is, and the nearest.
    """
    if value not in allowed:
        near = difflib.get_close_matches(str(value), allowed, 1)
        hint = f'did you mean "{near[0]}"?' if near else ""
        raise expected(name, "one of " + ", ".join(f'"{a}"' for a in allowed), repr(value), hint)
    return value


_AUTHORS = SABConfig(phase="end", init_memory="zero", small_memory="raw")
PRESETS: dict[str, SABConfig] = {
    "paper": SABConfig(),
    "authors": _AUTHORS,
    "release": _AUTHORS.replace(score="additive_release", threshold="k"),
    "stable": SABConfig(score_grad="params_only", recall_scale=0.5, small_memory="softmax"),
}
