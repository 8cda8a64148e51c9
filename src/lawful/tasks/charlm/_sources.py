"""The ways a text is read: windows in any order, streams side by side, long pieces."""

from collections.abc import Sequence

import numpy as np
import torch

from lawful.errors import expected
from lawful.tasks._base import Batch
from lawful.tasks.charlm._text import Codes


def _rows(codes: Codes, starts: Codes, length: int) -> Batch:
    """Inputs "x" and targets "y" (B, length): y is one character further on."""
    at = starts[:, None] + np.arange(length)
    return {"x": torch.from_numpy(codes[at]), "y": torch.from_numpy(codes[at + 1])}


class Windows:
    """Windows side by side, in whatever order; what is left over at the end is not used.

    Args:
        codes: The text.
        window: Characters predicted in one window.
    """

    endless = False

    def __init__(self, codes: Codes, window: int) -> None:
        self.codes, self.window = codes, window
        if len(codes) <= window:
            want = f"at least {window + 1} characters, one window and one more"
            raise expected("training text", want, len(codes), "a smaller --window?")

    def __len__(self) -> int:
        """Number of windows."""
        return (len(self.codes) - 1) // self.window

    def batch(self, indices: Sequence[int]) -> Batch:
        """Inputs "x" and targets "y", both (B, window)."""
        return _rows(self.codes, np.asarray(indices, np.int64) * self.window, self.window)


class Streams:
    """The text cut into ``streams`` rows that are read on, window by window, again and again.

    Example i is window i // streams of row i % streams. "row" tells the row, "number" that window,
    counted on through all passes, and "first" whether it opens the row. What is left over at the
    end of a row is not used.

    Args:
        codes: The text.
        window: Characters predicted in one window.
        streams: Rows; the size of a batch must divide it.
    """

    endless = True  # read in order, however long

    def __init__(self, codes: Codes, window: int, streams: int) -> None:
        self.codes, self.window, self.streams = codes, window, streams
        self.length = (len(codes) - 1) // streams
        self.windows = self.length // window
        if not self.windows:
            want = f"more than {streams * window} characters, a window of {window} for each stream"
            hint = "fewer --streams or a smaller --window?"
            raise expected("training text", want, len(codes), hint)

    def __len__(self) -> int:
        """Windows in one pass."""
        return self.streams * self.windows

    def batch(self, indices: Sequence[int]) -> Batch:
        """Inputs and targets "x", "y" (B, window), and "row", "number", "first" (B,)."""
        at = np.asarray(indices, np.int64)
        if self.streams % len(at) or at[0] % len(at):
            hint = "rows are carried from window to window"
            raise expected("batch_size", f"a divisor of streams ({self.streams})", len(at), hint)
        row, number = at % self.streams, at // self.streams
        place = number % self.windows
        batch = _rows(self.codes, row * self.length + place * self.window, self.window)
        facts = {"row": row, "number": number, "first": place == 0}
        return batch | {k: torch.from_numpy(v) for k, v in facts.items()}


class Pieces:
    """All of a text in pieces, each read from its start to its end; the last one is shorter.

    Args:
        codes: The text, at least two characters.
        length: Characters predicted in one piece.
        part: Name of the text, for errors.
    """

    endless = False

    def __init__(self, codes: Codes, length: int, part: str) -> None:
        self.codes, self.length = codes, length
        if len(codes) < 2:
            hint = "a longer text, or a larger share for it?"
            raise expected(f"{part} text", "at least 2 characters", len(codes), hint)

    def __len__(self) -> int:
        """Number of pieces."""
        return -(-(len(self.codes) - 1) // self.length)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Inputs and targets "x", "y" (B, T), padded with 0, and "lengths" (B,)."""
        starts = np.asarray(indices, np.int64) * self.length
        lengths = np.minimum(self.length, len(self.codes) - 1 - starts)
        longest = int(lengths.max(initial=1))
        padded = np.pad(self.codes, (0, longest + 1))
        batch = _rows(padded, starts, longest)
        beyond = torch.from_numpy(np.arange(longest) >= lengths[:, None])
        masked = {k: v.masked_fill(beyond, 0) for k, v in batch.items()}
        return masked | {"lengths": torch.from_numpy(lengths)}
