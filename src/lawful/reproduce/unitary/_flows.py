"""E1 and E2: what the Laplacian and the derivative generate."""

import numpy as np
import torch
from torch import Tensor

from lawful.reproduce._figures import Demonstration, Figure
from lawful.reproduce.unitary._exact import bessel_i, bessel_j
from lawful.reproduce.unitary._fields import (
    DERIVATIVE,
    LAPLACIAN,
    centred,
    gap,
    line,
    moments,
    offsets,
    picture,
    plane,
)
from lawful.reproduce.unitary._networks import set_generator, translation_generator
from lawful.tasks.exhibits import Curves, Heatmap, Images
from lawful.unitary import ConvUnitaryRNN, conv_apply, conv_exp, symbol

__all__ = ["diffusion", "translation"]

_TIMES = (0.5, 1.0, 4.0, 16.0, 64.0)


def gaussian(sites: int, variance: float) -> Tensor:
    """The density of the continuum, at the sites of a ring."""
    bell = torch.exp(-(offsets(sites) ** 2) / (2 * variance))
    density: Tensor = bell / (2 * torch.pi * variance) ** 0.5
    return density


def folded(half: Tensor, sites: int, odd_sign: float = 1.0) -> Tensor:
    """Values at orders 0, 1, ... as a kernel on a ring; negative orders get (odd_sign)^n."""
    x = offsets(sites)
    order = x.abs().long()
    values = torch.where(order < len(half), half[order.clamp_max(len(half) - 1)], 0.0)
    return torch.where((x < 0) & (order % 2 == 1), odd_sign * values, values)


def diffusion(quick: bool, seed: int) -> Demonstration:
    """E1: e^{t Laplacian} against Bessel functions and the Gaussian."""
    sites, side = (256, 32) if quick else (1024, 128)
    kernels = {t: conv_exp(LAPLACIAN, sites, t) for t in _TIMES}
    bessel = max(gap(k, folded(bessel_i(2 * t, sites // 2), sites)) for t, k in kernels.items())
    shapes = {t: moments(k) for t, k in kernels.items()}
    normal = {t: gaussian(sites, 2 * t) for t in _TIMES}
    away = {t: gap(kernels[t], normal[t]) / float(normal[t].max()) for t in _TIMES}
    flat = {t: conv_exp(plane(LAPLACIAN), (side, side), t) for t in (1.0, 4.0, 16.0)}
    product = conv_exp(LAPLACIAN, side, 4.0)
    backwards = float(conv_exp(plane(LAPLACIAN), (32, 32), -3.0).abs().max())
    peak = float(bessel_i(6.0, 0)[0]) * torch.e**12  # e^6 I_0(6)
    figures = [
        Figure("kernel minus e^(-2t) I_n(2t), worst of all t", bessel, at_most=1e-14),
        Figure("mass minus 1, worst", max(abs(s[0] - 1) for s in shapes.values()), at_most=1e-12),
        Figure(
            "variance over 2t, minus 1, worst",
            max(abs(s[2] / (2 * t) - 1) for t, s in shapes.items()),
            at_most=1e-9,
            note="Erratum: the paper's width sqrt(t) should be sqrt(2t).",
        ),
        *(
            Figure(
                f"distance to the Gaussian over its peak, t = {t:g}",
                away[t],
                expected=1 / (16 * t),
                at_most=1.15 / (16 * t) if t >= 4 else None,
                note="Expected: 1/(16t), the leading term for large t." if t == 0.5 else "",
            )
            for t in _TIMES
        ),
        Figure(
            "plane: kernel minus the outer product of two lines, t = 4",
            gap(flat[4.0], torch.outer(product, product)),
            at_most=1e-15,
        ),
        Figure(
            "largest value of the plane's kernel at t = -3",
            backwards,
            expected=peak**2,
            at_least=0.999 * peak**2,
            note="Heat cannot be run back: the Laplacian is not anti-Hermitian.",
        ),
    ]
    text = (
        f"The kernel (1, -2, 1) on a ring of {sites} sites, exponentiated for t = 0.5 to 64, "
        "against Bessel functions from a recurrence and against the continuum's Gaussian of "
        f"variance 2t; the same on a torus of {side} x {side} sites."
    )
    return Demonstration("E1", "Diffusion", text, figures, _diffusion_exhibits(kernels, away, flat))


def _diffusion_exhibits(
    kernels: dict[float, Tensor], away: dict[float, float], flat: dict[float, Tensor]
) -> list[Curves | Images]:
    sites = len(kernels[1.0])
    near = slice(sites // 2 - 16, sites // 2 + 17)
    x = centred(offsets(sites))[near]
    shown = {f"e^(tK), t = {t:g}": line(centred(kernels[t])[near], x) for t in (0.5, 4.0, 16.0)}
    normal = {f"Gaussian, t = {t:g}": centred(gaussian(sites, 2 * t))[near] for t in (0.5, 4, 16)}
    return [
        Curves(
            "Exponential of the Laplacian and the Gaussian",
            {**shown, **{k: line(v, x) for k, v in normal.items()}},
            "site",
            "weight",
            muted=tuple(normal),
        ),
        Curves(
            "Distance to the Gaussian, over its peak",
            {
                "measured": (list(away), list(away.values())),
                "1/(16t)": (list(away), [1 / (16 * t) for t in away]),
            },
            "t",
            log_x=True,
            log_y=True,
            muted=("1/(16t)",),
        ),
        Images(
            "Kernels of the plane, each scaled to its own peak",
            np.stack([picture(centred(k)) for k in flat.values()]),
            [f"t = {t:g}" for t in flat],
            columns=3,
        ),
    ]


def translation(quick: bool, seed: int) -> Demonstration:
    """E2: e^{t d/dx} against Bessel functions, and what it does and does not translate."""
    sites, times = (512, (1.0, 20.0, 110.0)) if quick else (4096, (1.0, 20.0, 110.0, 1010.0))
    kernels = {t: conv_exp(DERIVATIVE, sites, t) for t in times}
    bessel = max(gap(k, folded(bessel_j(t, sites // 2), sites, -1.0)) for t, k in kernels.items())
    bump = torch.exp(-((torch.arange(sites) - 64.0) ** 2) / (2 * 8.0**2)).double()
    moved = {t: gap(conv_apply(kernels[t], bump), bump.roll(int(t), 0)) for t in (1.0, 20.0)}
    values = symbol(kernels[20.0], sites, origin="zero")
    last = times[-1]
    figures = [
        Figure("kernel minus J_n(t), worst of all t", bessel, at_most=1e-13),
        Figure(
            "mean minus t, worst",
            max(abs(moments(k)[1] - t) for t, k in kernels.items()),
            at_most=1e-8,
        ),
        Figure(
            "sum of squares minus 1, worst",
            max(abs(float(k.square().sum()) - 1) for k in kernels.values()),
            at_most=1e-13,
        ),
        Figure(
            "sum and Nyquist mode of e^(20K), distance from 1",
            max(abs(complex(values[0]) - 1), abs(complex(values[sites // 2]) - 1)),
            at_most=1e-13,
            note="A real antisymmetric kernel cannot change them: determinant +1 only.",
        ),
        Figure(
            "where a unit pulse has its peak at t = 20",
            float(kernels[20.0][: sites // 2].argmax()),
            expected=18,
            at_least=17,
            at_most=19,
            note="Erratum: (-1/2, 0, 1/2) translates smooth fields only; a pulse lags and spreads.",
        ),
        Figure(
            f"height of that peak at t = {last:g}",
            float(kernels[last].max()),
            expected=0.6749 * last ** (-1 / 3),
            at_most=0.7 * last ** (-1 / 3),
            note="Expected: the Airy front, 0.6749 t^(-1/3).",
        ),
        Figure("error of moving a Gaussian of sd 8 by t = 1", moved[1.0], at_most=1e-3),
        Figure("the same by t = 20", moved[20.0], at_most=2e-2),
        *_shift_figures(sites // 8 | 1, seed),
        *_drift_figures(sites),
    ]
    text = (
        f"The kernel (-1/2, 0, 1/2) on a ring of {sites} sites for t up to {last:g}, against "
        "Bessel functions from a recurrence; the full-ring kernel of the spectral derivative, "
        "which is a shift for every field; and Laplacian plus derivative, a drifting Gaussian."
    )
    exhibits = _translation_exhibits(kernels, bump)
    return Demonstration("E2", "Translation", text, figures, exhibits)


def _shift_figures(sites: int, seed: int) -> list[Figure]:
    """The spectral derivative as a recurrence: exact shifts, and fractions of them."""
    rnn = ConvUnitaryRNN(1, sites, 1, sites, dtype=torch.float64).requires_grad_(False)
    set_generator(rnn.conv, translation_generator(sites))  # type: ignore[arg-type]
    field = torch.randn(
        1, 1, sites, dtype=torch.complex128, generator=torch.Generator().manual_seed(seed)
    )
    _, last = rnn(torch.zeros(1, 37, 1), field)
    half = rnn.propagate(rnn.propagate(field, 0.5), 0.5)
    return [
        Figure(
            "spectral derivative: 37 steps minus a shift",
            gap(last, field.roll(37, -1)),
            at_most=1e-11,
        ),
        Figure("two half steps minus a shift by one", gap(half, field.roll(1, -1)), at_most=1e-12),
    ]


def _drift_figures(sites: int) -> list[Figure]:
    t = 16.0
    mass, mean, variance, third = moments(conv_exp(LAPLACIAN + DERIVATIVE, sites, t))
    return [
        Figure("Laplacian + derivative, t = 16: mass minus 1", abs(mass - 1), at_most=1e-12),
        Figure("mean", mean, expected=t, at_least=t - 1e-8, at_most=t + 1e-8),
        Figure("variance", variance, expected=2 * t, at_least=2 * t - 1e-7, at_most=2 * t + 1e-7),
        Figure(
            "third cumulant",
            third,
            expected=t,
            at_least=t - 1e-5,
            at_most=t + 1e-5,
            note="Not a Gaussian's 0: the difference is the dispersion of the derivative.",
        ),
    ]


def _translation_exhibits(kernels: dict[float, Tensor], bump: Tensor) -> list[Curves | Heatmap]:
    times = (0, 20, 60, 110)
    smooth = {
        f"t = {t}": line(conv_apply(conv_exp(DERIVATIVE, len(bump), float(t)), bump)[:256])
        for t in times
    }
    pulses = torch.stack([conv_exp(DERIVATIVE, 256, float(t)) for t in range(4, 112, 2)])
    return [
        Curves(
            "A unit pulse becomes a Bessel function",
            {f"t = {t:g}": line(kernels[t][:140]) for t in (20.0, 110.0)},
            "site",
            "e^(tK)",
        ),
        Curves("A smooth bump keeps its shape longer", smooth, "site", "field"),
        Heatmap(
            "A unit pulse over time",
            pulses[:, :140].numpy(),
            "site",
            "time from 4 on, two units a row",
            scale="diverging",
            note="The front runs one site a unit of time; the tail is the dispersion.",
        ),
    ]
