"""Memories that keep past states, recall a few, and decide where credit goes."""

from lawful.kernels.sab import SABConfig as SABConfig
from lawful.kernels.sab import SABState as SABState
from lawful.kernels.sab import sparse_attention as sparse_attention
from lawful.memory import _laws as _laws
from lawful.memory._cell import SABCell as SABCell
from lawful.memory._recall import Recall as Recall
from lawful.memory._recurrence import RecurrentCell as RecurrentCell
from lawful.memory._sab import SAB as SAB
from lawful.memory._stack import StackedState as StackedState

__all__ = [
    "SAB",
    "Recall",
    "RecurrentCell",
    "SABCell",
    "SABConfig",
    "SABState",
    "StackedState",
    "sparse_attention",
]
