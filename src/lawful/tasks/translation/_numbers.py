"""Numbers by their English and French names: a small translation problem made on the spot.

The English name is written without spaces, so that its words have to be found in a row of
letters; the French one counts by twenties from seventy on.
"""

import random

_ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_UNS = [
    "zéro", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze",
    "douze", "treize", "quatorze", "quinze", "seize",
]  # fmt: skip
_DIZAINES = ["vingt", "trente", "quarante", "cinquante", "soixante"]


def english(n: int) -> str:
    """The name of 0 <= n < 1,000,000, without spaces: "threehundredtwelve"."""
    if n >= 1000:
        return english(n // 1000) + "thousand" + (english(n % 1000) if n % 1000 else "")
    if n >= 100:
        return _ONES[n // 100] + "hundred" + (english(n % 100) if n % 100 else "")
    if n >= 20:
        return _TENS[n // 10 - 2] + (_ONES[n % 10] if n % 10 else "")
    return _ONES[n]


def french(n: int) -> list[str]:
    """The words of the name of 0 <= n < 1,000,000: ["trois", "cent", "douze"]."""
    if n >= 1000:
        head = [] if n < 2000 else french(n // 1000)
        return [*head, "mille", *(french(n % 1000) if n % 1000 else [])]
    if n >= 100:
        head = [] if n < 200 else french(n // 100)
        return [*head, "cent", *(french(n % 100) if n % 100 else [])]
    return _below_hundred(n)


def _below_hundred(n: int) -> list[str]:
    if n < 17:
        return [_UNS[n]]
    if n < 20:
        return ["dix", _UNS[n - 10]]
    if n < 70:
        return _joined([_DIZAINES[n // 10 - 2]], n % 10)
    if n < 80:
        return _joined(["soixante"], n - 60)
    return ["quatre", "vingt", *(_below_hundred(n - 80) if n > 80 else [])]


def _joined(tens: list[str], rest: int) -> list[str]:
    if rest == 0:
        return tens
    return [*tens, *(["et"] if rest in (1, 11) else []), *_below_hundred(rest)]


def pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Different numbers below 100,000, drawn by their number of digits first."""
    rng = random.Random(f"numbers {seed}")
    found: dict[int, None] = {}
    while len(found) < count:
        digits = rng.randint(1, 5)
        found[rng.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits)] = None
    return [(english(n), " ".join(french(n))) for n in found]
