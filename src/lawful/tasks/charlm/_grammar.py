"""A text to start with: pseudo-English of a small grammar, written for this project.

Its sentences make little sense, but what decides some characters lies far back, and is certain:

- a verb agrees with its subject, whatever nouns stand between ("the kings near the old mill
  sleep");
- "he" or "she" goes back to the name that opened the paragraph;
- quotation marks and brackets are closed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

NOUNS = (
    "king", "farmer", "miller", "sailor", "painter", "singer", "baker", "doctor", "hunter",
    "teacher", "dog", "horse", "owl", "bear", "goat", "river", "mill", "garden", "tower", "bridge",
    "forest", "village", "harbour", "mountain",
)  # fmt: skip
ADJECTIVES = (
    "old", "young", "quiet", "brave", "small", "grey", "clever", "tired", "hungry", "proud",
    "gentle", "strange",
)  # fmt: skip
VERBS = ("sleep", "sing", "wait", "laugh", "dance", "listen", "tremble", "smile", "wander", "rest")
TRANSITIVE = ("see", "follow", "find", "help", "fear", "greet", "paint", "remember", "visit")
PLACES = ("near", "behind", "above", "below", "beside")
TIMES = ("today", "at night", "in spring", "every morning", "once more")
NAMES = (
    ("Anna", "she"), ("Clara", "she"), ("Greta", "she"), ("Mira", "she"), ("Bruno", "he"),
    ("David", "he"), ("Oskar", "he"), ("Paul", "he"),
)  # fmt: skip
PROPORTIONS = {"train": 1.0, "valid": 0.06, "test": 0.06}


@dataclass(frozen=True)
class Probe:
    """A sentence up to its verb, the verb that agrees with the subject, and the one that does not.

    ``distance`` is the number of words between subject and verb.
    """

    start: str
    right: str
    wrong: str
    distance: int


def sample_text(part: str, size: int) -> str:
    """At least ``size`` characters in whole paragraphs, always the same for a part.

    Args:
        part: "train", "valid" or "test"; each has paragraphs of its own.
        size: Characters wanted.
    """
    paragraphs: list[str] = []
    made = 0
    while made < size:
        paragraphs.append(_paragraph(Random(f"charlm {part} {len(paragraphs)}")))
        made += len(paragraphs[-1])
    return "".join(paragraphs)


def probes(count: int) -> list[Probe]:
    """Sentences that end before a verb whose form the subject decides."""
    return [_probe(Random(f"charlm probe {i}")) for i in range(count)]


def _probe(rng: Random) -> Probe:
    plural = rng.random() < 0.5
    subject, words = _phrase(rng, plural, reach=rng.randrange(3))
    verb = rng.choice(VERBS)
    forms = verb, verb + "s"
    right, wrong = forms if plural else forms[::-1]
    return Probe(f"{_capital(subject)} ", right, wrong, words)


def _phrase(rng: Random, plural: bool, reach: int) -> tuple[str, int]:
    """A noun phrase, with ``reach`` attachments, and the number of words behind its noun."""
    noun = rng.choice(NOUNS) + ("s" if plural else "")
    adjective = rng.choice(ADJECTIVES) + " " if rng.random() < 0.4 else ""
    tail = "".join(f" {_attachment(rng, plural)}" for _ in range(reach))
    return f"the {adjective}{noun}{tail}", len(tail.split())


def _attachment(rng: Random, plural: bool) -> str:
    other = rng.random() < 0.5  # another number, to mislead
    if rng.random() < 0.5:
        return f"{rng.choice(PLACES)} {_phrase(rng, other, 0)[0]}"
    return f"that {_agree(rng.choice(TRANSITIVE), plural)} {_phrase(rng, other, 0)[0]}"


def _agree(verb: str, plural: bool) -> str:
    return verb if plural else verb + "s"


def _clause(rng: Random) -> str:
    plural = rng.random() < 0.5
    subject, _ = _phrase(rng, plural, reach=rng.choice((0, 0, 1, 1, 2)))
    return f"{subject} {_predicate(rng, plural)}"


def _predicate(rng: Random, plural: bool) -> str:
    if rng.random() < 0.6:
        said = _agree(rng.choice(VERBS), plural)
    else:
        thing, _ = _phrase(rng, rng.random() < 0.5, reach=0)
        said = f"{_agree(rng.choice(TRANSITIVE), plural)} {thing}"
    return f"{said} {rng.choice(TIMES)}" if rng.random() < 0.3 else said


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _sentences(rng: Random) -> Iterator[str]:
    name, pronoun = rng.choice(NAMES)
    yield f"{name} {_predicate(rng, False)}."
    for _ in range(rng.randrange(3, 7)):
        kind = rng.random()
        if kind < 0.4:
            yield f"{_capital(_clause(rng))}."
        elif kind < 0.65:
            yield f"{_capital(pronoun)} {_predicate(rng, False)}."
        elif kind < 0.85:
            yield f'"{_capital(_clause(rng))}," {pronoun} says.'
        else:
            plural = rng.random() < 0.5
            subject, _ = _phrase(rng, plural, 0)
            yield f"{_capital(subject)} ({_clause(rng)}) {_predicate(rng, plural)}."


def _paragraph(rng: Random) -> str:
    return " ".join(_sentences(rng)) + "\n"
