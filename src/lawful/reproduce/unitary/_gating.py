"""E7: a steady input opens and closes paths for waves, and so decides what is connected."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lawful.reproduce._figures import Demonstration, Figure
from lawful.reproduce.unitary._exact import flood
from lawful.reproduce.unitary._fields import picture, source
from lawful.reproduce.unitary._networks import gated_lattice
from lawful.tasks.exhibits import Images
from lawful.unitary import ConvUnitaryRNN

__all__ = ["gating", "maze"]

WIDTH = 6  # sites: of corridors and of the walls between them
REST, COUPLING = 2.4, 0.15  # phases of the kernel run from 2.4 to 3.6
TONE = 3.0  # phase per step of the waves' source: the middle of the band
WALL, SOURCE = 8.0, 0.02  # amplitudes of the steady input and of the source
SETTLE, CHUNK = 60, 20  # steps before the source sounds; steps per call
HEARD = 1e-6  # of the amplitude at the source: a site above it counts as reached


@dataclass(frozen=True)
class Echo:
    """What a source did: B mazes of side n."""

    peak: Tensor  # (B, n, n) largest amplitude of the wave, over that at the source
    rest: Tensor  # (B, n, n) modulus of the steady state
    frames: dict[int, Tensor]  # step -> (B, n, n) amplitude of the wave


def maze(cells: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Corridors along a random tree of cells x cells rooms, whole, and cut in one place.

    Returns:
        Two bool pictures of side ``2 WIDTH cells + WIDTH``: all rooms connected; one passage shut.
    """

    def pick(n: int) -> int:
        return int(torch.randint(n, (), generator=draw))

    seen, stack, doors = {(0, 0)}, [(0, 0)], []
    while stack:
        i, j = stack[-1]
        around = [(i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)]
        new = [r for r in around if r not in seen and min(r) >= 0 and max(r) < cells]
        if not new:
            stack.pop()
            continue
        there = new[pick(len(new))]
        doors.append(((i, j), there))
        seen.add(there)
        stack.append(there)
    shut = pick(len(doors))
    return _drawn(cells, doors), _drawn(cells, doors[:shut] + doors[shut + 1 :])


def _drawn(cells: int, doors: list[tuple[tuple[int, int], tuple[int, int]]]) -> Tensor:
    side, w = 2 * WIDTH * cells + WIDTH, WIDTH
    out = torch.zeros(side, side, dtype=torch.bool)
    rooms = [((i, j), (i, j)) for i in range(cells) for j in range(cells)]
    for a, b in [*rooms, *doors]:
        (top, left), (bottom, right) = (min(a, b), max(a, b))
        out[w + 2 * w * top : 2 * w + 2 * w * bottom, w + 2 * w * left : 2 * w + 2 * w * right] = (
            True
        )
    return out


def listen(
    rnn: ConvUnitaryRNN, opened: Tensor, steps: int, wall: float, frames: tuple[int, ...] = ()
) -> Echo:
    """Runs the lattice with and without the source; the difference is the wave."""
    spot, side = WIDTH + WIDTH // 2, opened.shape[-1]
    steady = torch.where(opened, 0.0, wall).to(torch.complex128)
    drive = torch.cat([steady, steady])[:, None, None].expand(-1, CHUNK, 1, side, side)
    with torch.no_grad():
        z = torch.zeros(len(drive), 1, side, side, dtype=torch.complex128)
        for _ in range(SETTLE // CHUNK):
            z = rnn(drive, z)[1]
        rest = z[: len(opened), 0].abs()
        peak, seen = torch.zeros(opened.shape, dtype=torch.float64), {}
        for start in range(0, steps, CHUNK):
            tone = torch.polar(
                torch.full((CHUNK,), SOURCE, dtype=torch.float64),
                TONE * torch.arange(start, start + CHUNK, dtype=torch.float64),
            )
            sounding = drive.clone()
            sounding[len(opened) :, :, 0, spot, spot] += tone
            out, z = rnn(sounding, z)
            wave = (out[len(opened) :, :, 0] - out[: len(opened), :, 0]).abs()
            peak = torch.maximum(peak, wave.amax(1))
            if start + CHUNK in frames:
                seen[start + CHUNK] = wave[:, -1]
    return Echo(peak / peak[:, spot, spot, None, None], rest, seen)


def gating(quick: bool, seed: int) -> Demonstration:
    """E7: waves in mazes that a steady input draws, against a flood fill."""
    cells, count, steps = (3, 2, 400) if quick else (5, 6, 1600)
    draw = source(seed)
    drawn = [maze(cells, draw) for _ in range(count)]
    opened = torch.stack([m for pair in drawn for m in pair])
    spot = (WIDTH + WIDTH // 2,) * 2
    truth = torch.stack([flood(m, spot) for m in opened])
    rnn = gated_lattice((opened.shape[-1],) * 2, REST, COUPLING)
    marks = tuple(steps * i // 8 // CHUNK * CHUNK for i in (1, 2, 4, 8))
    echo = listen(rnn, opened, steps, WALL, marks)
    free = listen(rnn, opened[:2], min(steps, 400), 0.0)
    away = opened & ~truth
    verdict = (echo.peak > HEARD) == truth
    margin = [
        float(echo.peak[i][truth[i]].min() / echo.peak[i][away[i]].max())
        for i in range(len(opened))
        if away[i].any()
    ]
    figures = [
        Figure(
            "corridor sites judged as the flood fill does",
            float(verdict[opened].double().mean()),
            expected=1.0,
            at_least=0.999,
            note=f"A site counts as reached above {HEARD:g} of the source's own amplitude.",
        ),
        Figure(
            "mazes judged right, all sites",
            float((verdict | ~opened).flatten(1).all(1).double().mean()),
            expected=1.0,
            at_least=0.99,
        ),
        Figure(
            "weakest connected site over strongest other, worst maze", min(margin), at_least=10.0
        ),
        Figure(
            "the same without the steady input",
            float(free.peak[1][truth[1]].min() / free.peak[1][away[1]].max()),
            at_most=1.0,
            note="Control: the same weights, open everywhere.",
        ),
        Figure(
            "modulus at rest in the walls, median", float(echo.rest[~opened].median()), at_least=0.8
        ),
        Figure(
            "modulus at rest in the corridors, median",
            float(echo.rest[opened].median()),
            at_most=0.1,
            note="A steady input does not spread, because no phase of the kernel is 0.",
        ),
    ]
    text = (
        f"Z <- phi(e^A Z + I) on a torus of {opened.shape[-1]} x {opened.shape[-1]} complex sites, "
        "phi(z) = z/sqrt(1 + |z|^2), one kernel for all. A steady input of "
        f"{WALL:g} saturates the sites of the walls, whose gain falls; a tone at one site sends "
        f"waves along the quiet corridors. {count} random mazes, each whole and with one passage "
        f"shut, {steps} steps. After Magnasco 2024 (arXiv 2405.15036); kernel, amplitudes and "
        "mazes are ours, as the original notebook was not to be found."
    )
    exhibits = [_film(opened, echo), _verdicts(opened, truth, echo)]
    return Demonstration("E7", "Waves along paths that the input opens", text, figures, exhibits)


def _film(opened: Tensor, echo: Echo) -> Images:
    """Frames of the first maze, whole and cut; walls are drawn grey."""
    images, captions = [], []
    for i, name in enumerate(("whole", "one passage shut")):
        for step, wave in echo.frames.items():
            shown = (wave[i] / SOURCE).clamp_min(1e-9).log10() / 6 + 1  # 1e-6 is black, 1 white
            images.append(torch.where(opened[i], shown.clamp(0, 1), 0.35))
            captions.append(f"{name}, step {step}")
    note = "Logarithmic: black is 1e-6 of the source's amplitude, white the amplitude itself."
    grid = torch.stack(images).numpy()
    return Images("Waves in a maze", grid, captions, note=note, columns=len(echo.frames))


def _verdicts(opened: Tensor, truth: Tensor, echo: Echo) -> Images:
    """What the waves reached beside the flood fill, for up to four mazes with a shut passage."""
    images, captions = [], []
    for i in range(1, min(len(opened), 8), 2):
        reached = (echo.peak[i] > HEARD) & opened[i]
        for name, found in (("waves", reached), ("flood fill", truth[i])):
            images.append(picture(opened[i] * 0.35 + found * 0.65, 1.0))
            captions.append(f"maze {i // 2 + 1}, {name}")
    note = "White: reached. Grey: corridor that is not. Black: wall."
    return Images(
        "Reached by waves, and connected",
        np.stack(images),
        captions,
        note=note,
        columns=4,
    )
