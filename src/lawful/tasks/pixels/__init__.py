"""Sequence image classification: digits, MNIST, CIFAR-10 or the user's pictures, by pixels."""

from lawful.tasks.pixels._task import PixelsConfig as PixelsConfig
from lawful.tasks.pixels._task import PixelsTask as PixelsTask

__all__ = ["PixelsConfig", "PixelsTask"]
