"""Which examples each update sees: a pure function of (seed, step), so that resuming is exact."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

from lawful.tasks import Batch, Source


@functools.lru_cache(maxsize=2)
def _permutation(n: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng([seed, epoch]).permutation(n)


def update_indices(source: Source, seed: int, step: int, size: int) -> list[int]:
    """The examples of update ``step`` (counted from 0), ``size`` of them.

    A finite source is read in a fresh permutation every epoch. A batch may straddle two epochs, so
    every example is seen exactly once per epoch whatever the batch size. An endless source is read
    in order.
    """
    start = step * size
    if source.endless:
        return list(range(start, start + size))
    n = len(source)
    result: list[int] = []
    for epoch in range(start // n, (start + size - 1) // n + 1):
        lo, hi = max(start - epoch * n, 0), min(start + size - epoch * n, n)
        result.extend(_permutation(n, seed, epoch)[lo:hi].tolist())
    return result


@dataclass(frozen=True)
class Share:
    """This process's part of the work: ``parts`` micro-batches an update, ``rank`` of ``world``."""

    parts: int
    rank: int = 0
    world: int = 1

    def of(self, indices: list[int], part: int) -> list[int]:
        """The examples of micro-batch ``part`` that belong to this process."""
        pieces = self.parts * self.world
        size, k = len(indices) // pieces, part * self.world + self.rank
        return indices[k * size : (k + 1) * size]


class _Plan:
    """The index lists of all micro-batches from update ``start`` to ``stop``, in order."""

    def __init__(
        self, source: Source, seed: int, start: int, stop: int, size: int, share: Share
    ) -> None:
        self.source, self.seed, self.start, self.stop = source, seed, start, stop
        self.size, self.share = size, share

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self.start, self.stop):
            indices = update_indices(self.source, self.seed, step, self.size)
            for part in range(self.share.parts):
                yield self.share.of(indices, part)

    def __len__(self) -> int:
        return (self.stop - self.start) * self.share.parts


class _Whole(Dataset[Batch]):
    """Adapts a `Source` to DataLoader, which fetches whole batches through ``__getitems__``."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __getitems__(self, wanted: list[int]) -> Batch:
        return self.source.batch(wanted)


def _as_is(batch: Any) -> Any:
    return batch


def training_batches(
    source: Source, *, seed: int, start: int, stop: int, size: int, share: Share, workers: int = 0
) -> Iterator[Batch]:
    """This process's micro-batches of updates ``start`` to ``stop``."""
    loader = DataLoader(
        _Whole(source),
        batch_sampler=_Plan(source, seed, start, stop, size, share),
        collate_fn=_as_is,
        num_workers=workers,
        # A generator of its own: otherwise making the iterator draws from the global one, and a
        # resumed run would differ from an uninterrupted one.
        generator=torch.Generator(),
    )
    return iter(loader)
