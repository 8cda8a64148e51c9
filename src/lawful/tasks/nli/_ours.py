"""Small pairs of sentences of our own: what follows, what may be, what cannot be."""

import random
from typing import NamedTuple

__all__ = ["our_pairs"]


class _Doing(NamedTuple):
    text: str
    wider: str  # follows from it
    other: str  # cannot be at the same time
    maybe: str  # may be or not


PEOPLE = {  # each with what follows of them, and somebody else
    "a boy": ("a child", "an old woman"),
    "a girl": ("a child", "an old man"),
    "a young woman": ("a person", "an old man"),
    "an old man": ("a man", "a girl"),
    "a cook": ("a person", "a baker's dog"),
    "two farmers": ("some people", "nobody"),
    "a tall nurse": ("a nurse", "a short boy"),
    "three children": ("some children", "nobody"),
}
DOINGS = (
    _Doing("is running along the river", "is moving", "is asleep", "is late for school"),
    _Doing("is sleeping under a tree", "is resting", "is dancing", "is dreaming of home"),
    _Doing("is playing the violin", "is making music", "is swimming", "is playing a sad tune"),
    _Doing("is eating an apple", "is eating fruit", "is painting a wall", "is very hungry"),
    _Doing("is riding a brown horse", "is riding an animal", "is driving a car", "is winning"),
    _Doing("is reading a long letter", "is reading", "is singing loudly", "is reading bad news"),
    _Doing("is cutting bread in the kitchen", "is in the kitchen", "is on a boat", "has guests"),
    _Doing("is carrying a heavy basket", "is carrying something", "is lying in bed",
           "is going to the market"),
)  # fmt: skip
PLACES = ("", "in the rain", "in the morning", "near the old bridge", "while a dog is watching")


def our_pairs(rng: random.Random, count: int) -> list[tuple[str, str, str]]:
    """Premise, hypothesis and label of so many different pairs, the labels in turn.

    Args:
        rng: Source of randomness; only its ``random()`` is used.
        count: How many, at most 1500 (there are not many more).
    """
    made: dict[tuple[str, str, str], None] = {}
    while len(made) < count:
        made.setdefault(_pair(rng, len(made) % 3))
    return list(made)


def _pair(rng: random.Random, kind: int) -> tuple[str, str, str]:
    def below(n: int) -> int:
        return int(rng.random() * n)

    who = list(PEOPLE)[below(len(PEOPLE))]
    wider, other = PEOPLE[who]
    doing, place = DOINGS[below(len(DOINGS))], PLACES[below(len(PLACES))]
    premise = _sentence(who, doing.text, place)
    same = (who, wider)[below(2)]
    if kind == 0:
        said = _sentence(same, (doing.text, doing.wider)[below(2)], "")
        return premise, said, "entailment"
    if kind == 1:
        return premise, _sentence(same, doing.maybe, ""), "neutral"
    if below(2):
        return premise, _sentence(same, doing.other, ""), "contradiction"
    said = _sentence(other, doing.text, place)
    return premise, said, "contradiction"


def _sentence(who: str, doing: str, place: str) -> str:
    plural = who.split()[0] in ("two", "three", "some")
    if plural:
        doing = doing.replace("is ", "are ", 1).replace("has ", "have ", 1)
    words = f"{who} {doing} {place}".strip()
    return words[0].upper() + words[1:] + "."
