"""Natural language inference: does one sentence follow from another."""

from lawful.tasks.nli._pairs import LABELS as LABELS
from lawful.tasks.nli._pairs import Pair as Pair
from lawful.tasks.nli._pairs import read_pairs as read_pairs
from lawful.tasks.nli._published import PUBLISHED as PUBLISHED
from lawful.tasks.nli._task import NLIConfig as NLIConfig
from lawful.tasks.nli._task import NLITask as NLITask

__all__ = ["LABELS", "PUBLISHED", "NLIConfig", "NLITask", "Pair", "read_pairs"]
