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

POOL = 64  # batches whose examples are sorted by length together


class EpochOrder:
    """In what order each epoch reads the examples: a pure function of (seed, epoch).

    A fresh permutation; where the source has ``lengths``, one in which batches hold examples of
    similar length: pools of `POOL` random batches are sorted by length and cut into batches again,
    and these are shuffled.
    """

    def __init__(self, source: Source, seed: int, size: int) -> None:
        self._count, self._seed, self._size = len(source), seed, size
        self._lengths = getattr(source, "lengths", None)
        self.of = functools.lru_cache(maxsize=2)(self._make)

    def _make(self, epoch: int) -> npt.NDArray[np.int64]:
        random = np.random.default_rng([self._seed, epoch])
        order = random.permutation(self._count)
        if self._lengths is None:
            return order
        # The first `head` examples complete the batch that the epoch before began.
        head = min(-epoch * self._count % self._size, self._count)
        pool = self._size * POOL
        for start in range(head, self._count, pool):
            part = order[start : start + pool]
            order[start : start + pool] = part[self._lengths[part].argsort(kind="stable")]
        whole = (self._count - head) // self._size
        rows = order[head : head + whole * self._size].reshape(whole, self._size)
        rows[:] = rows[random.permutation(whole)]
        return order


def update_indices(
    source: Source, seed: int, step: int, size: int, order: EpochOrder | None = None
) -> list[int]:
    """The examples of update ``step`` (counted from 0), ``size`` of them.

    A finite source is read in a fresh `EpochOrder` every epoch. A batch may straddle two epochs, so
    every example is seen exactly once per epoch whatever the batch size. An endless source is read
    in order.

    Args:
        source: What is read.
        seed: Seed of the orders.
        step: Number of the update.
        size: Examples per update.
        order: The orders of this source, seed and size; made here if absent.
    """
    start = step * size
    if source.endless:
        return list(range(start, start + size))
    n = len(source)
    order = order or EpochOrder(source, seed, size)
    result: list[int] = []
    for epoch in range(start // n, (start + size - 1) // n + 1):
        lo, hi = max(start - epoch * n, 0), min(start + size - epoch * n, n)
        result.extend(order.of(epoch)[lo:hi].tolist())
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
        order = EpochOrder(self.source, self.seed, self.size)
        for step in range(self.start, self.stop):
            indices = update_indices(self.source, self.seed, step, self.size, order)
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
