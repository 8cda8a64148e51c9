"""Endless examples from a seed, each a pure function of its index."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lawful.tasks._base import Batch

NOMINAL_EPOCH = 64_000  # training examples between two "epochs" of endless data


@dataclass
class Generated:
    """Examples that ``make(indices)`` builds; ``size`` of them, or endless with a nominal size."""

    make: Callable[[Sequence[int]], Batch]
    size: int
    endless: bool

    def __len__(self) -> int:
        """Number of examples; a nominal epoch if endless."""
        return self.size

    def batch(self, indices: Sequence[int]) -> Batch:
        """The examples at these indices."""
        return self.make(indices)
