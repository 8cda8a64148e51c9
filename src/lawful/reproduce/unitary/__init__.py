"""The demonstrations of the convolutional unitary network, each against an exact solution.

E1 to E7 are the paper's (Magnasco 2023, arXiv 2302.07396; E7 of its sequel, 2405.15036), C1 to C3
further constructions. Where the paper shows pictures only, a figure is the deviation from what the
mathematics demands, and its bound is what rounding explains. Controls break a condition on purpose:
their bounds demand that the claim fails. The paper's slips are named in the notes of the figures.
"""

from collections.abc import Callable, Iterator

import torch

from lawful.reproduce._figures import Demonstration
from lawful.reproduce.unitary._automaton import rule_110_network
from lawful.reproduce.unitary._copying import copying
from lawful.reproduce.unitary._derivatives import derivatives
from lawful.reproduce.unitary._equations import schroedinger, waves
from lawful.reproduce.unitary._flows import diffusion, translation
from lawful.reproduce.unitary._gating import gating
from lawful.reproduce.unitary._networks import copying_network as copying_network
from lawful.reproduce.unitary._networks import gated_lattice as gated_lattice
from lawful.reproduce.unitary._networks import schroedinger_network as schroedinger_network
from lawful.reproduce.unitary._networks import set_generator as set_generator
from lawful.reproduce.unitary._networks import translation_generator as translation_generator
from lawful.reproduce.unitary._networks import wave_layer as wave_layer
from lawful.reproduce.unitary._networks import wave_network as wave_network
from lawful.reproduce.unitary._pairs import pairs
from lawful.reproduce.unitary._spectrum import spectrum

__all__ = [
    "copying_network",
    "demonstrations",
    "gated_lattice",
    "schroedinger_network",
    "set_generator",
    "translation_generator",
    "wave_layer",
    "wave_network",
]

_PARTS: tuple[Callable[[bool, int], Demonstration], ...] = (
    diffusion,
    translation,
    spectrum,
    pairs,
    derivatives,
    rule_110_network,
    gating,
    waves,
    schroedinger,
    copying,
)


def demonstrations(*, quick: bool, seed: int = 0) -> Iterator[Demonstration]:
    """Runs one demonstration after another and yields each as soon as it is done.

    Args:
        quick: A scaled form: smaller lattices and fewer steps, well under a minute in all.
        seed: Of random kernels, fields, mazes and noise; no figure depends on luck.

    Yields:
        E1 .. E7, C1 .. C3, with their figures and pictures.
    """
    for part in _PARTS:
        with torch.enable_grad():  # E3 and E5 differentiate, whatever the caller's mode
            found = part(quick, seed)
        yield found
