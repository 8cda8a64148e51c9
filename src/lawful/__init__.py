"""Attention, memory and recurrent layers that come with a law, and prove that they keep it."""

from lawful._version import __version__ as __version__
from lawful.laws import Certificate as Certificate
from lawful.laws import Law as Law
from lawful.laws import check as check

__all__ = ["Certificate", "Law", "__version__", "check"]
