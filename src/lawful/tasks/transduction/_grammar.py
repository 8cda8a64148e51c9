"""Arithmetic expressions: random trees, prefix and infix notation, and their symbols."""

import random
import re
from collections.abc import Sequence

from lawful.errors import expected

__all__ = [
    "BOS",
    "EOS",
    "NAMES",
    "PAD",
    "Expression",
    "draw",
    "encode",
    "infix",
    "parse",
    "prefix",
    "words_of",
]

LARGEST = 20  # numbers 0..20 are single symbols
MAX_ARGUMENTS = 4
NAMES = ("<pad>", "<s>", "</s>", "$", "(", ")", "+", "*", *map(str, range(LARGEST + 1)))
PAD, BOS, EOS, ROOT = range(4)
_CODES = {name: i for i, name in enumerate(NAMES)}

#: A number, or an operator with its arguments.
Expression = int | tuple[str, tuple["Expression", ...]]


def draw(rng: random.Random, depth: int, nest: float) -> Expression:
    """A random expression whose parentheses nest exactly ``depth`` deep.

    An operator, + or *, has 2 to 4 arguments. One of them, at a random place, goes on to the full
    depth; each of the others is nested with probability ``nest``, to any smaller depth, or a
    number.

    Args:
        rng: Source of randomness; only its ``random()`` is used.
        depth: At least 1.
        nest: In [0, 1].
    """
    operator = "+*"[_below(rng, 2)]
    count = 2 + _below(rng, MAX_ARGUMENTS - 1)
    forced = _below(rng, count)
    arguments: list[Expression] = []
    for i in range(count):
        if depth > 1 and i == forced:
            arguments.append(draw(rng, depth - 1, nest))
        elif depth > 1 and rng.random() < nest:
            arguments.append(draw(rng, 1 + _below(rng, depth - 1), nest))
        else:
            arguments.append(_below(rng, LARGEST + 1))
    return operator, tuple(arguments)


def _below(rng: random.Random, limit: int) -> int:
    return int(rng.random() * limit)


def prefix(expression: Expression) -> list[str]:
    """Symbols in prefix notation: ( operator arguments )."""
    if isinstance(expression, int):
        return [str(expression)]
    operator, arguments = expression
    return ["(", operator, *(s for a in arguments for s in prefix(a)), ")"]


def infix(expression: Expression) -> list[str]:
    """Symbols in infix notation, without the outermost parentheses.

    >>> print(*infix(parse("( * ( + ( + 15 7 ) 1 8 ) ( + 19 0 11 ) )".split())))
    ( ( 15 + 7 ) + 1 + 8 ) * ( 19 + 0 + 11 )
    """
    if isinstance(expression, int):
        return [str(expression)]
    operator, arguments = expression
    symbols: list[str] = []
    for i, argument in enumerate(arguments):
        inner = infix(argument)
        symbols += [operator] * (i > 0)
        symbols += inner if isinstance(argument, int) else ["(", *inner, ")"]
    return symbols


def parse(symbols: Sequence[str]) -> Expression | None:
    """The expression that prefix symbols write; None if they are not well-formed."""
    stack: list[list[Expression | str]] = [[]]
    for symbol in symbols:
        if symbol == "(":
            stack.append([])
        elif symbol == ")":
            inner = stack.pop()
            if not stack or len(inner) < 2 or inner[0] not in ("+", "*"):
                return None
            if any(isinstance(a, str) for a in inner[1:]):
                return None
            stack[-1].append((str(inner[0]), tuple(inner[1:])))  # type: ignore[arg-type]
        else:
            stack[-1].append(symbol if symbol in ("+", "*") else int(symbol))
    if len(stack) > 1 or len(stack[0]) != 1 or isinstance(stack[0][0], str):
        return None
    return stack[0][0]


def words_of(line: str, place: str) -> list[str]:
    """The symbols of a line; blanks around parentheses and operators may be left out.

    Raises:
        InputError: Something that is no symbol, named with its place.
    """
    found = re.findall(r"[()+*]|\d+|\S", line)
    for word in found:
        if word not in _CODES or word == "$":
            want = f"( ) + * and numbers 0..{LARGEST}"
            raise expected(place, want, repr(word))
    return found


def encode(symbols: Sequence[str]) -> list[int]:
    """Codes of symbols."""
    return [_CODES[s] for s in symbols]
