"""Whole networks that tasks train."""

from lawful.models._specs import InputSpec as InputSpec
from lawful.models._specs import OutputSpec as OutputSpec

__all__ = ["InputSpec", "OutputSpec"]
