"""The papers' tables and demonstrations, measured again: ours beside theirs."""

from lawful.reproduce._figures import Demonstration as Demonstration
from lawful.reproduce._figures import Figure as Figure

__all__ = ["Demonstration", "Figure"]
