"""Small stories of our own in bAbI format: people walk about, take things and put them down."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from lawful.errors import expected

__all__ = ["KINDS", "story_text"]

#: Kinds of stories by their number of supporting facts.
KINDS = {"1": "where is somebody", "2": "where is something"}
PEOPLE = ("Lena", "Omar", "Tilda", "Viktor")
ROOMS = ("attic", "cellar", "library", "porch", "workshop", "pantry")
THINGS = ("lamp", "kettle", "violin")
WALKS = ("walked to", "ran to", "went into")
TAKES = ("took", "picked up")
DROPS = ("put down", "left")
_QUESTIONS = 3  # of each story
_FEWEST, _MORE = 2, 3  # facts before a question: 2, 3 or 4


@dataclass
class _World:
    """What is known, with the line that told it."""

    rng: random.Random
    where: dict[str, tuple[str, int]] = field(default_factory=dict)  # person -> room, line
    holds: dict[str, str] = field(default_factory=dict)  # thing -> person
    told: dict[str, tuple[int, str, int]] = field(default_factory=dict)
    # thing -> line of its last event; room and its line, where it has been put down

    def pick(self, options: tuple[str, ...]) -> str:
        """One of them; only ``random()`` is used, whose course no version changes."""
        return options[int(self.rng.random() * len(options))]

    def event(self, line: int) -> str:
        """Something happens, and is told in this line."""
        who = self.pick(PEOPLE)
        if who not in self.where or self.rng.random() < 0.5:
            room = self.pick(tuple(r for r in ROOMS if r != self.where.get(who, ("",))[0]))
            self.where[who] = room, line
            return f"{who} {self.pick(WALKS)} the {room}."
        mine = tuple(t for t, p in self.holds.items() if p == who)
        if mine and self.rng.random() < 0.4:
            thing = self.pick(mine)
            del self.holds[thing]
            self.told[thing] = (line, *self.where[who])
            return f"{who} {self.pick(DROPS)} the {thing}."
        room = self.where[who][0]
        free = tuple(
            t for t in THINGS
            if t not in self.holds and (t not in self.told or self.told[t][1] == room)
        )  # fmt: skip
        if not free:
            room = self.pick(tuple(r for r in ROOMS if r != room))
            self.where[who] = room, line
            return f"{who} {self.pick(WALKS)} the {room}."
        thing = self.pick(free)
        self.holds[thing] = who
        self.told[thing] = line, "", 0
        return f"{who} {self.pick(TAKES)} the {thing}."

    def question(self, kind: str) -> tuple[str, str, list[int]] | None:
        """Question, answer and lines of the supporting facts; None if there is nothing to ask."""
        if kind == "1":
            who = self.pick(tuple(self.where))
            room, line = self.where[who]
            return f"Where is {who}?", room, [line]
        if not self.told:
            return None
        thing = self.pick(tuple(self.told))
        line, room, walked = self.told[thing]
        if thing in self.holds:
            room, walked = self.where[self.holds[thing]]
        return f"Where is the {thing}?", room, [line, walked]


def story_text(rng: random.Random, kind: str, questions: int) -> str:
    """Stories with so many questions together, in bAbI format.

    Args:
        rng: Source of randomness; only its ``random()`` is used.
        kind: One of `KINDS`: the number of facts that answer a question.
        questions: How many.

    Raises:
        InputError: An unknown kind.
    """
    if kind not in KINDS:
        raise expected("story", "1 or 2 where no data are named", repr(kind))
    return "\n".join(_lines(rng, kind, questions)) + "\n"


def _lines(rng: random.Random, kind: str, questions: int) -> Iterator[str]:
    world, line = _World(rng), 0
    for asked in range(questions):
        if asked % _QUESTIONS == 0:
            world, line = _World(rng), 0
        found = None
        while found is None:
            for _ in range(_FEWEST + int(rng.random() * _MORE)):
                line += 1
                yield f"{line} {world.event(line)}"
            found = world.question(kind)
        line += 1
        text, answer, support = found
        yield f"{line} {text}\t{answer}\t{' '.join(map(str, support))}"
