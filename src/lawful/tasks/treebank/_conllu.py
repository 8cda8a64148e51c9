"""Reading CoNLL-U: strict about what would be misread, exact about everything it passes through."""

import re
from collections.abc import Iterable, Iterator

from lawful.errors import InputError
from lawful.tasks.treebank._sentence import BOM, HEAD, Sentence, refusal

_WORD = re.compile(r"[1-9][0-9]*")
_RANGE = re.compile(r"([1-9][0-9]*)-([1-9][0-9]*)")
_EMPTY = re.compile(r"(0|[1-9][0-9]*)\.([1-9][0-9]*)")


def decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of a file as text with their endings.

    Raises:
        InputError: A line is not UTF-8.
    """
    for number, raw in enumerate(lines, 1):
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError as error:
            bad = f"byte 0x{raw[error.start]:02x} at position {error.start + 1}"
            raise refusal(name, number, f"expected UTF-8, got {bad}") from None


def blocks(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Groups of lines up to and including the blank lines after them, with the first's number."""
    block: list[str] = []
    first, content, ended = 1, False, False
    for number, line in enumerate(lines, 1):
        blank = not line.strip(f" \t\r\n{BOM}")
        if ended and not blank:
            yield first, block
            block, first, ended = [], number, False
        content = content or not blank
        ended = ended or (blank and content)
        block.append(line)
    if block and content:
        yield first, block


def read_conllu(lines: Iterable[bytes], name: str) -> Iterator[Sentence]:
    """The sentences of a CoNLL-U file, one at a time.

    Checked: ten columns, none empty; words numbered 1, 2, ...; multiword tokens (``1-2``) and empty
    nodes (``3.1``) where the format has them. Columns other than ID are not interpreted here; see
    `gold_tree`.

    Args:
        lines: The file's lines as bytes, with endings.
        name: The file's name, for messages.

    Raises:
        InputError: Anything else, with file and line; also for a file without sentences.
    """
    empty = True
    for first, block in blocks(decoded(lines, name)):
        empty = False
        yield _sentence(block, name, first)
    if empty:
        raise InputError(f"{name}: expected CoNLL-U, got a file without sentences")


def _sentence(block: list[str], name: str, first: int) -> Sentence:
    words: list[int] = []
    fields: list[tuple[str, ...]] = []
    ids = _Ids()
    for i, line in enumerate(block):
        text = line.rstrip("\r\n").removeprefix(BOM)
        if not text.strip():
            continue
        if text.startswith("#"):
            if ids.begun:
                raise refusal(name, first + i, "expected comments only before the words")
            continue
        columns = tuple(text.split("\t"))
        problem = _columns_problem(columns) or ids.problem(columns[0])
        if problem:
            raise refusal(name, first + i, problem)
        if _WORD.fullmatch(columns[0]):
            words.append(i)
            fields.append(columns)
    if not words:
        raise refusal(name, first, "expected words after the comments, got none")
    if ids.range_end > len(words):
        what = f"a multiword token reaches to word {ids.range_end}"
        raise refusal(name, first + words[-1], f"{what}, but the sentence has {len(words)}")
    return Sentence(name, first, tuple(block), tuple(words), tuple(fields), conllu=True)


def _columns_problem(columns: tuple[str, ...]) -> str:
    if len(columns) != 10:
        return f"expected 10 columns parted by tabs, got {len(columns)}"
    if "" in columns:
        return f"column {columns.index('') + 1} is empty; the format writes _ for no value"
    return ""


class _Ids:
    """Follows the ID column and says what is wrong with the next one."""

    def __init__(self) -> None:
        self.word = self.empty = self.range_end = 0
        self.begun = False

    def problem(self, text: str) -> str:
        """Takes the next ID; a message if it cannot follow."""
        self.begun = True
        if _WORD.fullmatch(text):
            self.word, self.empty = self.word + 1, 0
            want, got = self.word, int(text)
            return "" if got == want else f"expected word {want}, got {got}"
        if match := _RANGE.fullmatch(text):
            return self._range(int(match[1]), int(match[2]))
        if match := _EMPTY.fullmatch(text):
            self.empty += 1
            want_id = f"{self.word}.{self.empty}"
            return "" if text == want_id else f"expected empty node {want_id}, got {text}"
        return f"expected an ID such as 1, 1-2 or 1.1, got {text!r}"

    def _range(self, low: int, high: int) -> str:
        if high < low:
            return f"multiword token {low}-{high} is empty"
        if low <= self.range_end:
            return f"multiword token {low}-{high} overlaps the one before"
        if low != self.word + 1:
            return f"multiword token {low}-{high} must stand before word {low}"
        self.range_end = high
        return ""


def gold_tree(sentence: Sentence) -> list[int]:
    """The heads of all words: 0-based indices, -1 for the root.

    Raises:
        InputError: A head is missing or outside the sentence, there is not exactly one root, or
            there is a cycle; with file and line.
    """
    n = len(sentence)
    heads: list[int] = []
    for i, text in enumerate(sentence.column(HEAD)):
        if not text.isascii() or not text.isdecimal():
            raise sentence.error(i, f"expected a head in 0..{n}, got {text!r}")
        head = int(text)
        if head > n:
            raise sentence.error(i, f"head {head} is outside 0..{n}")
        if head == i + 1:
            raise sentence.error(i, f"word {head} is its own head")
        heads.append(head - 1)
    roots = [i for i, h in enumerate(heads) if h < 0]
    if len(roots) != 1:
        where = roots[1] if roots else 0
        found = " and ".join(str(r + 1) for r in roots[:3]) or "none"
        raise sentence.error(where, f"expected exactly one root (head 0), got {found}")
    if (word := in_cycle(heads)) >= 0:
        raise sentence.error(word, f"word {word + 1} is part of a cycle of heads")
    return heads


def in_cycle(heads: list[int]) -> int:
    """A word on a cycle of heads (0-based, -1 for a root), or -1 where there is none."""
    safe = [False] * len(heads)
    for start in range(len(heads)):
        path: list[int] = []
        at = start
        while at >= 0 and not safe[at]:
            if len(path) > len(heads):
                return at
            path.append(at)
            at = heads[at]
        for word in path:
            safe[word] = True
    return -1
