"""Beyond the paper's figures: wave and Schroedinger equations that are networks, exactly."""

import math

import numpy as np
import torch
from torch import Tensor

from lawful.reproduce._figures import Demonstration, Figure
from lawful.reproduce.unitary._exact import dense_exp, lifted, runge_kutta
from lawful.reproduce.unitary._fields import LAPLACIAN, gap, line, picture, source
from lawful.reproduce.unitary._networks import schroedinger_network, wave_layer, wave_network
from lawful.tasks.exhibits import Curves, Exhibit, Heatmap, Images
from lawful.unitary import ConvUnitaryRNN

__all__ = ["schroedinger", "waves"]


def waves(quick: bool, seed: int) -> Demonstration:
    """C1: the wave equation as X/P recurrence."""
    sites, side, speed, time, h = 64, 32 if quick else 96, 0.4, 50, 0.02 if quick else 0.01
    draw = source(seed)
    start = torch.randn(1, 2, sites, dtype=torch.float64, generator=draw)
    rnn = wave_network(sites, speed)
    _, last = rnn(torch.zeros(1, time, 1), start)

    def slope(y: Tensor) -> Tensor:
        x, p = y
        return speed * torch.stack([p.roll(-1) - p, x - x.roll(1)])

    solved = runge_kutta(slope, start[0], time, h)
    pulse = _bump((sites,), sites / 16)[None, None]
    film, _ = rnn(torch.zeros(1, 160, 1), torch.cat([pulse, torch.zeros_like(pulse)], 1))
    plane, moment = _plane(side, speed, time + 0.3)
    far = 10**4 if quick else 10**6
    kept = rnn.propagate(start.float(), float(far))
    back = rnn.propagate(rnn.propagate(start, 1000.0), -1000.0)
    figures = [
        Figure(
            f"{time} steps minus Runge-Kutta with steps of {h:g}",
            gap(last[0], solved),
            at_most=1e-6 if quick else 1e-8,
            note="The difference is the solver's own error, which falls with the fourth power.",
        ),
        Figure("energy over energy at the start, minus 1", abs(_ratio(last, start)), at_most=1e-13),
        Figure(
            f"single precision, {far:g} steps in closed form: norm minus 1",
            abs(float(kept.norm() / start.norm()) - 1),
            at_most=1e-6,
        ),
        Figure("1000 steps forth and back", gap(back, start), at_most=1e-12),
        Figure(
            "plane, one field and its gradient, t = 50.3: error of all modes",
            gap(plane[0, 0], moment),
            at_most=1e-12,
        ),
    ]
    text = (
        f"X' = D P, P' = -D' X with D the forward difference times {speed:g}, on a ring of {sites} "
        "sites (a K that is not symmetric) and on a torus with the gradient as two channels P (a "
        "rectangular K): against Runge-Kutta, and against cos(omega t) for every mode."
    )
    exhibits: list[Exhibit] = [
        Heatmap("A pulse on a ring", film[0, :, 0].numpy(), "site", "step", scale="diverging"),
        _ripples(side, speed),
    ]
    return Demonstration("C1", "The wave equation as a network", text, figures, exhibits)


def _ratio(a: Tensor, b: Tensor) -> float:
    return float(a.square().sum() / b.square().sum()) - 1


def _bump(size: tuple[int, ...], width: float) -> Tensor:
    """A Gaussian at a quarter of each axis."""
    out = torch.ones(size, dtype=torch.float64)
    for axis, n in enumerate(size):
        shape = [1] * len(size)
        shape[axis] = n
        out = out * torch.exp(-((torch.arange(n) - n // 4) ** 2) / (2 * width**2)).view(shape)
    return out


def _plane(side: int, speed: float, time: float) -> tuple[Tensor, Tensor]:
    """The layer's field at ``time``, and the exact one by modes; both start at rest."""
    field = _bump((side, side), 2.0)
    state = torch.cat([field[None, None], torch.zeros(1, 2, side, side, dtype=torch.float64)], 1)
    wave = (torch.pi * torch.arange(side, dtype=torch.float64) / side).sin().square()
    omega = 2 * speed * (wave[:, None] + wave).sqrt()
    exact = torch.fft.ifft2(torch.fft.fft2(field) * torch.cos(omega * time)).real
    return wave_layer(speed)(state, time), exact


def _ripples(side: int, speed: float) -> Images:
    times = (0.0, 10.0, 20.0, 30.0, 50.0, 80.0)
    fields = [_plane(side, speed, t)[0][0, 0] for t in times]
    shown = [picture(f / float(f.abs().max()) / 2 + 0.5, 1.0) for f in fields]
    captions = [f"t = {t:g}" for t in times]
    note = "Grey is 0; each frame is scaled to its own largest value."
    return Images("A drop on a torus", np.stack(shown), captions, note=note, columns=6)


def schroedinger(quick: bool, seed: int) -> Demonstration:
    """C2: the free Schroedinger equation as unitary recurrence."""
    sites, dt, steps = 129, 0.1, 200
    spectral = schroedinger_network(sites, dt, _second_derivative(sites), torch.float64)
    start, want = _packet(sites, 1.0, 0.0), _packet(sites, 1.0, dt * steps)
    film, last = spectral(torch.zeros(1, steps, 1), start[None, None])
    lattice = schroedinger_network(sites, dt, LAPLACIAN)
    single, end = lattice(torch.zeros(1, steps, 1), start[None, None].to(torch.complex64))
    dense = dense_exp(0.5j * dt * steps * lifted(LAPLACIAN, (sites,))) @ start
    norms = single.abs().double().square().sum(-1).flatten()
    errors = {h: _lattice_error(h, dt * steps) for h in (1.0, 0.5, 0.25, 0.125)}
    order = math.log2(errors[0.25] / errors[0.125])
    figures = [
        Figure(
            "continuum: network minus the packet's closed form",
            gap(last[0, 0], want),
            at_most=1e-11,
            note="With the spectral second derivative as kernel.",
        ),
        Figure(
            "lattice, single precision: relative error against the dense exponential",
            float((end[0, 0] - dense).norm() / dense.norm()),
            at_most=1e-5,
        ),
        Figure(
            "probability over that at the first step, minus 1, worst of all steps",
            gap(norms / norms[0], 1.0),
            at_most=6e-6,
        ),
        Figure(
            "order in which three taps approach the continuum",
            order,
            expected=2.0,
            at_least=1.9,
            at_most=2.1,
        ),
    ]
    text = (
        f"i psi' = -psi''/2 on a ring of {sites} sites: a Gaussian packet with momentum 0.7 for "
        f"{steps} steps of {dt:g}, with the kernel (1, -2, 1) and with the full-ring kernel of the "
        "second derivative, against the closed form of the continuum and a dense exponential."
    )
    return Demonstration(
        "C2", "The Schroedinger equation as a network", text, figures, _quantum(film, want, errors)
    )


def _second_derivative(sites: int) -> Tensor:
    k = 2 * torch.pi * torch.fft.fftfreq(sites, dtype=torch.float64)
    kernel: Tensor = torch.fft.ifft(-(k**2)).real.roll(sites // 2)
    return kernel


def _packet(sites: int, spacing: float, time: float, width: float = 6.0) -> Tensor:
    """The free packet of the continuum: it moves with its momentum and spreads."""
    x = spacing * torch.arange(sites, dtype=torch.float64) - 57
    momentum, spread = 0.7, complex(1, time / width**2)
    shape = -((x - momentum * time) ** 2) / (2 * width**2 * spread)
    out: Tensor = torch.exp(shape + 1j * (momentum * x - momentum**2 * time / 2)) / spread**0.5
    return out


def _lattice_error(spacing: float, time: float) -> float:
    """Worst error of three taps at this spacing, in a box of 128."""
    sites = round(128 / spacing)
    rnn: ConvUnitaryRNN = schroedinger_network(sites, 1.0, LAPLACIAN / spacing**2, torch.float64)
    found = rnn.propagate(_packet(sites, spacing, 0.0)[None, None], time)
    return gap(found[0, 0], _packet(sites, spacing, time))


def _quantum(film: Tensor, want: Tensor, errors: dict[float, float]) -> list[Curves | Heatmap]:
    last = film[0, -1, 0]
    spacings, found = list(errors), list(errors.values())
    return [
        Heatmap(
            "|psi|^2 of a free packet", film[0, ::2, 0].abs().square().numpy(), "site", "steps / 2"
        ),
        Curves(
            "The packet after 200 steps",
            {
                "network, real part": line(last.real),
                "network, modulus": line(last.abs()),
                "closed form, real part": line(want.real),
            },
            "site",
            muted=("closed form, real part",),
        ),
        Curves(
            "Error of three taps against the continuum",
            {
                "measured": (spacings, found),
                "second order": (spacings, [found[-1] * (h / spacings[-1]) ** 2 for h in spacings]),
            },
            "spacing of the sites",
            log_x=True,
            log_y=True,
            muted=("second order",),
        ),
    ]
