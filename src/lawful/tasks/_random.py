"""Random numbers addressed by example: the same for any batch size, order or number of workers.

Philox4x32-10 is a bijection of a 128-bit counter under a 64-bit key. The key is the seed and the
counter is (block, index, stream), so no two of (seed, stream, index, block) share a number, and
any part of any stream is computed at once without the ones before it.

Source: Salmon, Moraes, Dror, Shaw (2011), "Parallel random numbers: as easy as 1, 2, 3".
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)

#: Streams of one seed; a stream's examples are disjoint from every other's.
STREAMS = {"train": 0, "valid": 1, "test": 2, "order": 16, "split": 17, "show": 18}


def philox(counter: npt.NDArray[np.uint64], key: tuple[int, int]) -> npt.NDArray[np.uint64]:
    """Philox4x32-10: (..., 4) words from (..., 4) counter words, all below 2^32."""
    c0, c1, c2, c3 = (counter[..., i] for i in range(4))
    k0, k1 = key
    for _ in range(10):
        left, right = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c2 = (right >> _32) ^ c1 ^ np.uint64(k0), (left >> _32) ^ c3 ^ np.uint64(k1)
        c1, c3 = right & _LOW, left & _LOW
        k0, k1 = (k0 + _KEY_STEPS[0]) & 0xFFFFFFFF, (k1 + _KEY_STEPS[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1)


def words(seed: int, stream: int, indices: Sequence[int], count: int) -> Words:
    """``count`` random words for each index: (len(indices), count), uniform on 0..2^32-1.

    Args:
        seed: Any whole number; taken modulo 2^64.
        stream: Which stream of the seed, in 0..2^32-1.
        indices: Which examples, each >= 0.
        count: Words per example; the first ones do not depend on how many are asked for.
    """
    at = np.asarray(indices, dtype=np.uint64)
    blocks = -(-count // 4)
    counter = np.empty((len(at), blocks, 4), dtype=np.uint64)
    counter[..., 0] = np.arange(blocks, dtype=np.uint64)
    counter[..., 1] = (at & _LOW)[:, None]
    counter[..., 2] = (at >> _32)[:, None]
    counter[..., 3] = stream
    key = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
    return philox(counter, key).reshape(len(at), -1)[:, :count].astype(np.uint32)


def below(values: Words, limit: int) -> npt.NDArray[np.int64]:
    """Whole numbers in 0..limit-1 from words; a value's chance is off by at most 2^-32."""
    return ((values.astype(np.uint64) * np.uint64(limit)) >> _32).astype(np.int64)


def uniform(values: Words) -> npt.NDArray[np.float32]:
    """Numbers in [0, 1) from words: multiples of 2^-24, exact in float32."""
    return (values >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def permutation(seed: int, size: int, stream: int = STREAMS["order"]) -> npt.NDArray[np.int64]:
    """A permutation of 0..size-1 that never changes for a seed."""
    w = words(seed, stream, range(size), 2).astype(np.uint64)
    return np.argsort((w[:, 0] << _32) | w[:, 1], kind="stable").astype(np.int64)
