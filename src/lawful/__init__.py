"""Attention, memory and recurrent layers that come with a law, and prove that they keep it."""

from lawful._version import __version__ as __version__

__all__ = ["__version__"]
