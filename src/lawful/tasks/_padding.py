"""Rows of different lengths as one array."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def padded(rows: Sequence[Sequence[int]], value: int = 0) -> Tensor:
    """Whole numbers (B, longest), each row filled up with ``value``."""
    out = np.full((len(rows), max(map(len, rows), default=0)), value, np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return torch.from_numpy(out)
