"""One training loop for every task: exact resume, clear failures, a run folder that tells all."""

from lawful.training._checkpoint import load_weights as load_weights
from lawful.training._config import RESUMABLE as RESUMABLE
from lawful.training._config import TrainConfig as TrainConfig
from lawful.training._log import read_metrics as read_metrics
from lawful.training._loop import Trainer as Trainer
from lawful.training._loop import certify as certify
from lawful.training._loop import evaluate as evaluate
from lawful.training._loop import make_fabric as make_fabric
from lawful.training._run import RunFolder as RunFolder
from lawful.training._run import environment as environment
from lawful.training._run import write_json as write_json

__all__ = [
    "RESUMABLE",
    "RunFolder",
    "TrainConfig",
    "Trainer",
    "certify",
    "environment",
    "evaluate",
    "load_weights",
    "make_fabric",
    "read_metrics",
    "write_json",
]
