"""E6: a convolutional network that is Rule 110, and so can compute anything."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lawful.reproduce._figures import Demonstration, Figure
from lawful.reproduce.unitary._fields import source
from lawful.reproduce.unitary._networks import Staircase, Unimodal
from lawful.tasks.exhibits import Curves, Heatmap, Table
from lawful.unitary import symbol

__all__ = ["EMBEDDINGS", "Embedding", "rule110", "rule_110_network", "survival"]


@dataclass(frozen=True)
class Embedding:
    """A kernel in convolution order and an activation that make a step of Rule 110.

    Attributes:
        name: For tables.
        taps: Tap a = -1, 0, 1 multiplies the neighbour at x - a.
        activation: Psi.
        noise: Uniform noise that the embedding stands for 10^4 steps.
    """

    name: str
    taps: tuple[float, float, float]
    activation: Staircase | Unimodal
    noise: float = 0.0

    def mirrored(self) -> "Embedding":
        """The same taps read as correlation."""
        return Embedding(f"{self.name} mirrored", self.taps[::-1], self.activation)


EMBEDDINGS = (
    Embedding("{4,2,1}, staircase", (1.0, 2.0, 4.0), Staircase(60.0), 0.05),
    Embedding("(2,2,1), one bump", (2.0, 2.0, 1.0), Unimodal(30.0), 0.07),
)


def rule110(cells: Tensor) -> Tensor:
    """One step of the Boolean automaton on rings, (..., ring) bool."""
    left, right = cells.roll(1, -1), cells.roll(-1, -1)
    return (cells | right) & ~(left & cells & right)


def _rule124(cells: Tensor) -> Tensor:
    return rule110(cells.flip(-1)).flip(-1)


def survival(
    net: Embedding,
    cells: Tensor,
    steps: int,
    noise: Tensor | float = 0.0,
    *,
    seed: int = 0,
    mirror: bool = False,
) -> Tensor:
    """How many steps networks agree with the automaton after rounding.

    Args:
        net: The network.
        cells: (B, ring) bool, the first row of each automaton.
        steps: T.
        noise: Half width of the uniform noise added to every site after every step, (B, 1).
        seed: Of the noise.
        mirror: Compare with Rule 124, the mirror image.

    Returns:
        (B,) number of steps before the first that differs; T where none does.
    """
    draw, rule = source(seed), _rule124 if mirror else rule110
    half = cells.shape[-1] // 2 + 1
    values = symbol(torch.tensor(net.taps, dtype=torch.float64), cells.shape[-1])[:half]
    z, kept = cells.double(), torch.full((len(cells),), steps)
    alive = torch.ones(len(cells), dtype=torch.bool)
    for step in range(steps):
        z = net.activation.of(torch.fft.irfft(values * torch.fft.rfft(z), n=cells.shape[-1]))
        z = z + noise * (2 * torch.rand(z.shape, generator=draw, dtype=z.dtype) - 1)
        cells = rule(cells)
        agree = ((z > 0.5) == cells).all(-1)
        kept[alive & ~agree] = step
        alive &= agree
        if not alive.any():
            break
    return kept


def _start(rows: int, ring: int, seed: int) -> Tensor:
    return torch.rand(rows, ring, generator=source(seed)) < 0.5


def rule_110_network(quick: bool, seed: int) -> Demonstration:
    """E6: both embeddings, their orientation, and how much noise they stand."""
    steps, ring = (300, 100) if quick else (10_000, 200)
    figures: list[Figure] = []
    for net in EMBEDDINGS:
        noise = torch.tensor([[0.0], [net.noise]], dtype=torch.float64)
        clean, noisy = survival(net, _start(2, ring, seed), steps, noise, seed=seed).tolist()
        other = survival(net.mirrored(), _start(1, ring, seed), steps)
        as_124 = survival(net.mirrored(), _start(1, ring, seed), steps, mirror=True)
        figures += [
            Figure(f"{net.name}: steps that agree", clean, expected=steps, at_least=steps),
            Figure(
                f"{net.name}: with uniform noise of {net.noise:g}",
                noisy,
                expected=steps,
                at_least=steps,
            ),
            Figure(
                f"{net.name}: taps in the other order",
                float(other),
                at_most=20,
                note="Erratum: (2, 2, 1) is Rule 110 as true convolution, {4, 2, 1} as "
                "correlation; the other order of each is the mirror image.",
            ),
            Figure(
                f"{net.name}: the other order against Rule 124",
                float(as_124),
                expected=steps,
                at_least=steps,
            ),
        ]
    soft, strong = Embedding("", (2.0, 2.0, 1.0), Unimodal(6.0)), EMBEDDINGS[0]
    figures += [
        Figure(
            "(2,2,1) with sharpness 6: steps that agree",
            float(survival(soft, _start(1, ring, seed), steps)),
            at_most=20,
            note="Control: sums drift away from the integers, for want of contraction.",
        ),
        Figure(
            "{4,2,1} with uniform noise of 0.3: steps that agree",
            float(survival(strong, _start(1, ring, seed), steps, 0.3)),
            at_most=20,
            note="Control: the basin of attraction is 1/14 wide at most.",
        ),
        Figure(
            "(2,2,1) with sharpness 15: 5 max |psi'| at the integers",
            5 * _steepest(Unimodal(15.0)),
            expected=0.041,
            at_most=0.05,
            note="Below 1 errors contract. Zero slope alone is not enough: the basin counts.",
        ),
    ]
    text = (
        f"Rings of {ring} random cells for {steps} steps: z <- psi(K * z) for both codes, compared "
        "with the Boolean automaton after rounding at every step. The noise is added to every site "
        "at every step. The formula of the activation of (2, 2, 1) is a reconstruction."
    )
    exhibits = _exhibits(steps, ring, seed, quick)
    return Demonstration("E6", "Rule 110", text, figures, exhibits)


def _steepest(psi: Unimodal) -> float:
    u = torch.arange(6.0, dtype=torch.float64).requires_grad_()
    (slope,) = torch.autograd.grad(psi.of(u).sum(), u)
    return float(slope.abs().max())


def _exhibits(steps: int, ring: int, seed: int, quick: bool) -> list[Curves | Heatmap | Table]:
    rows, first = 120, _start(1, ring, seed)
    net, draw = EMBEDDINGS[1], source(seed)
    values = symbol(torch.tensor(net.taps, dtype=torch.float64), ring)[: ring // 2 + 1]
    cells, z = [first[0]], [first[0].double()]
    for _ in range(rows - 1):
        cells.append(rule110(cells[-1]))
        noise = net.noise * (2 * torch.rand(ring, generator=draw, dtype=torch.float64) - 1)
        z.append(net.activation.of(torch.fft.irfft(values * torch.fft.rfft(z[-1]), n=ring)) + noise)
    u = torch.linspace(-0.5, 7.5, 321, dtype=torch.float64)
    return [
        Heatmap(
            "Automaton and network",
            torch.stack([torch.stack(cells).double(), torch.stack(z)]).numpy(),
            "site",
            "step",
            panels=("Rule 110", f"network (2,2,1), noise {net.noise:g}"),
        ),
        Curves(
            "Activations",
            {
                "{4,2,1}, sharpness 60": (u.tolist(), Staircase(60.0).of(u).tolist()),
                "(2,2,1), sharpness 30": (u.tolist(), Unimodal(30.0).of(u).tolist()),
                "(2,2,1), sharpness 8": (u.tolist(), Unimodal(8.0).of(u).tolist()),
            },
            "sum of the neighbours",
            "psi",
        ),
        _sweep(min(steps, 300) if quick else steps, ring, seed),
    ]


def _sweep(steps: int, ring: int, seed: int) -> Table:
    """Steps survived by networks of several sharpnesses at several levels of noise."""
    levels = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09)
    nets = [
        *(Embedding(f"{{4,2,1}}, {s}", (1.0, 2.0, 4.0), Staircase(s)) for s in (15, 30, 60, 120)),
        *(Embedding(f"(2,2,1), {s}", (2.0, 2.0, 1.0), Unimodal(s)) for s in (6, 8, 10, 15, 30, 60)),
    ]
    noise = torch.tensor(levels, dtype=torch.float64)[:, None]
    rows = []
    for net in nets:
        kept = survival(net, _start(len(levels), ring, seed), steps, noise, seed=seed)
        rows.append([net.name, *kept.tolist()])
    return Table(
        f"Steps that agree with the automaton, of {steps}, by code and sharpness",
        ["network", *(f"noise {x:g}" for x in levels)],
        rows,
        note="One random start for each entry; uniform noise of this half width.",
    )
