"""Sparse attentive backtracking: options, score functions, sparse weights, and the loop."""

from lawful.kernels.sab.config import SABConfig as SABConfig
from lawful.kernels.sab.native import reasons as reasons
from lawful.kernels.sab.reference import Read as Read
from lawful.kernels.sab.reference import run as run_reference
from lawful.kernels.sab.run import run_native as run_native
from lawful.kernels.sab.schedule import Schedule as Schedule
from lawful.kernels.sab.schedule import make_schedule as make_schedule
from lawful.kernels.sab.scores import Scorer as Scorer
from lawful.kernels.sab.state import SABState as SABState
from lawful.kernels.sab.weights import sparse_attention as sparse_attention

__all__ = [
    "Read",
    "SABConfig",
    "SABState",
    "Schedule",
    "Scorer",
    "make_schedule",
    "reasons",
    "run_native",
    "run_reference",
    "sparse_attention",
]
