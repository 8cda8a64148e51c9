"""E5: how the exponential changes with a tap of its kernel."""

from collections.abc import Callable

import torch
from torch import Tensor

from lawful.reproduce._figures import Demonstration, Figure
from lawful.reproduce.unitary._fields import centred, gap, line, offsets, source
from lawful.tasks.exhibits import Curves
from lawful.unitary import conv_apply, conv_cos, conv_exp, conv_sin

__all__ = ["derivatives"]

Made = Callable[[Tensor], Tensor]


def _difference(make: Made, kernel: Tensor, tap: tuple[int, ...], h: float = 1e-5) -> Tensor:
    """Central difference of make(kernel) in one tap."""
    step = torch.zeros_like(kernel)
    step[tap] = h
    return (make(kernel + step) - make(kernel - step)) / (2 * h)


def _moved(made: Tensor, kernel: Tensor, tap: tuple[int, ...]) -> Tensor:
    """The kernel of a lattice, moved to where the tap stands."""
    shift = [a - k // 2 for a, k in zip(tap, kernel.shape, strict=True)]
    return made.roll(shift, tuple(range(made.ndim)))


def _rule(make: Made, other: Made, kernel: Tensor, sign: float = 1.0) -> float:
    """Worst error of ``d make / dK[a] = sign T_a other`` over all taps."""
    taps = torch.cartesian_prod(*map(torch.arange, kernel.shape)).view(-1, kernel.ndim).tolist()
    target = other(kernel)
    found = [
        gap(_difference(make, kernel, tuple(a)), sign * _moved(target, kernel, tuple(a)))
        for a in taps
    ]
    return max(found)


def derivatives(quick: bool, seed: int) -> Demonstration:
    """E5: translated kernels as derivatives, one correlation as gradient, and several channels."""
    sites, side = (32, 8) if quick else (256, 32)
    draw = source(seed)
    k = torch.randn(5, dtype=torch.complex128, generator=draw)
    flat = torch.randn(3, 3, dtype=torch.float64, generator=draw)

    def on(function: Callable[..., Tensor], size: int | tuple[int, int]) -> Made:
        return lambda kernel: function(kernel, size)

    exp, sin, cos = (on(f, sites) for f in (conv_exp, conv_sin, conv_cos))
    scale = float(exp(k).abs().max())
    figures = [
        Figure(
            "ring: d exp minus T_a exp, over its peak", _rule(exp, exp, k) / scale, at_most=1e-8
        ),
        Figure(
            "torus: d exp minus T_a exp",
            _rule(on(conv_exp, (side, side)), on(conv_exp, (side, side)), flat),
            at_most=1e-7,
        ),
        Figure("d sin minus T_a cos, over the peak", _rule(sin, cos, k) / scale, at_most=1e-8),
        Figure(
            "d cos plus T_a sin, over the peak",
            _rule(cos, sin, k, -1.0) / scale,
            at_most=1e-8,
            note="Erratum: the derivative of the cosine is minus the translated sine.",
        ),
        Figure(
            "d cos minus T_a sin, over the peak",
            _rule(cos, sin, k) / scale,
            at_least=1e-2,
            note="Control: the sign as the paper prints it.",
        ),
        _gradient(k, sites, draw),
        *_channels(draw),
    ]
    text = (
        f"Every tap of a complex kernel on a ring of {sites} sites and of a real one on a torus of "
        f"{side} x {side}: central differences of exponential, sine and cosine against translated "
        "kernels; the gradient of a loss against one correlation; two channels."
    )
    return Demonstration("E5", "Derivatives", text, figures, _exhibits(exp, k))


def _gradient(k: Tensor, sites: int, draw: torch.Generator) -> Figure:
    """The gradient of a real loss is the conjugate flip of e^K, applied to that of e^K."""
    leaf = k.clone().requires_grad_()
    made = conv_exp(leaf, sites)
    g = torch.randn(sites, dtype=torch.complex128, generator=draw)
    (found,) = torch.autograd.grad(made, leaf, g)
    flip = made.detach().flip(0).roll(1).conj()
    everywhere = conv_apply(flip, g)
    want = everywhere[torch.arange(len(k)) - len(k) // 2]
    error = gap(found, want) / float(want.abs().max())
    return Figure("gradient minus one correlation, relative", error, at_most=1e-12)


def _channels(draw: torch.Generator) -> list[Figure]:
    """Matrices do not commute: with channels the translated kernel is not the derivative."""
    sites, tap = 12, (0, 1, 2)
    k = torch.randn(2, 2, 3, dtype=torch.float64, generator=draw)
    want = _difference(lambda w: conv_exp(w, sites), k, tap)
    leaf = k.clone().requires_grad_()
    made = conv_exp(leaf, sites)
    g = torch.randn(made.shape, dtype=torch.float64, generator=draw)
    (found,) = torch.autograd.grad(made, leaf, g)
    step = torch.zeros(2, 2, dtype=torch.float64)
    step[tap[:2]] = 1
    moved = torch.einsum("oj,jix->oix", step, made.detach()).roll(tap[2] - 1, -1)
    zero = torch.zeros_like(k).requires_grad_()
    (at_zero,) = torch.autograd.grad(conv_exp(zero, sites), zero, g)
    direct = g[..., [-1, 0, 1]]  # d e^K = dK at K = 0
    scale = float(want.abs().max())
    return [
        Figure(
            "two channels: gradient minus the central difference, relative",
            abs(float((g * want).sum() - found[tap])) / float((g * want).abs().sum()),
            at_most=1e-7,
        ),
        Figure(
            "two channels: gradient at K = 0 minus that of K itself",
            gap(at_zero, direct),
            at_most=1e-13,
        ),
        Figure(
            "two channels: central difference minus the translated kernel, over its peak",
            gap(want, moved) / scale,
            at_least=1e-2,
            note="Erratum: derivative = translation holds for one channel only.",
        ),
    ]


def _exhibits(exp: Made, k: Tensor) -> list[Curves]:
    steps = [10.0**-e for e in range(1, 8)]
    tap = (3,)
    want = _moved(exp(k), k, tap)
    errors = [gap(_difference(exp, k, tap, h), want) for h in steps]
    made = exp(k)
    x = centred(offsets(len(made)))
    near = slice(len(x) // 2 - 12, len(x) // 2 + 13)
    lines = {"e^K": line(centred(made.real)[near], x[near])}
    for a in (0, 3):
        slope = _difference(exp, k, (a,))
        lines[f"d e^K / dK[{a - 2:+d}]"] = line(centred(slope.real)[near], x[near])
    return [
        Curves(
            "The derivative in a tap is the kernel, moved to that tap (real parts)", lines, "site"
        ),
        Curves(
            "Central difference minus translated kernel",
            {
                "measured": (steps, errors),
                "second order": (steps[:4], [errors[0] * (h / steps[0]) ** 2 for h in steps[:4]]),
            },
            "step of the difference",
            log_x=True,
            log_y=True,
            muted=("second order",),
            note="Second order down to rounding: what differs is the difference quotient.",
        ),
    ]
