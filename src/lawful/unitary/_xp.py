"""Two real layers that rotate into each other: the four kernels of their exponential."""

import math
from typing import Any

import torch
from torch import Tensor

from lawful.unitary._functions import kernel_of, symbol
from lawful.unitary._lattice import Size, as_size

__all__ = ["su2", "xp_kernels"]


def sinc(x: Tensor) -> Tensor:
    """sin(x)/x, 1 at 0, with finite derivatives there."""
    out: Tensor = torch.special.sinc(x / math.pi)
    return out


def xp_kernels(
    kernel: Tensor,
    size: Size,
    t: float = 1.0,
    a: Tensor | None = None,
    c: Tensor | None = None,
) -> tuple[Tensor, ...]:
    r"""The four real kernels of ``exp(t [[A, K], [-K', C]])`` acting on two real layers (X, P).

    With ``r = |K^|``: ``XX = PP = cos r``, ``XP = K^ sinc r``, ``PX = -conj(K^) sinc r``; the
    antisymmetric intralayer kernels A, C add a phase and a tilt (closed SU(2) form). Only for
    symmetric K do these reduce to cosine and sine kernels. Orthogonal, determinant 1.

    Args:
        kernel: Real K, (\*taps), from P to X; any symmetry.
        size: Sites on each axis.
        t: Time.
        a: Real antisymmetric A within X, or None.
        c: Real antisymmetric C within P, or None.

    Returns:
        (XX, XP, PX, PP), each (\*size) with the origin at index 0.

    Source: Magnasco 2023, sections 6-8; general K and the intralayer parts follow from
        exponentiating the 2 x 2 block of each frequency.
    """
    dims = len(as_size(size))
    values = [None if k is None else symbol(k, size) * t for k in (kernel, a, c)]
    phase_a, phase_c = (None if v is None else v.imag for v in values[1:])
    assert values[0] is not None
    blocks = su2(values[0], phase_a, phase_c)
    xx, xp, px, pp = (kernel_of(b, dims, kernel, True) for b in blocks)
    return xx, xp, px, pp


def su2(k: Tensor, a: Tensor | None, c: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """exp([[i a, k], [-conj k, i c]]) for complex k and real a, c, elementwise."""
    square = k.real.square() + k.imag.square()
    if a is None and c is None:
        cos, over = _cos_sinc_of_square(square)
        even = cos.to(k.dtype)
        return even, k * over, -k.conj() * over, even
    zero = torch.zeros_like(square)
    a, c = zero if a is None else a, zero if c is None else c
    mean, tilt = (a + c) / 2, (a - c) / 2
    cos, over = _cos_sinc_of_square(square + tilt.square())
    turn = torch.polar(torch.ones_like(mean), mean)
    lean = torch.complex(cos, tilt * over)
    return turn * lean, turn * k * over, -turn * k.conj() * over, turn * lean.conj()


class _CosSinc(torch.autograd.Function):
    """cos sqrt(s) and sinc sqrt(s) as entire functions of s: no square root is differentiated."""

    @staticmethod
    def forward(square: Tensor) -> tuple[Tensor, Tensor]:
        root = square.sqrt()
        return torch.cos(root), sinc(root)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, g_cos: Tensor, g_sinc: Tensor) -> Tensor:
        (square,) = ctx.saved_tensors
        cos, over = _cos_sinc_of_square(square)
        # d/ds sinc(sqrt s) = (cos - sinc)/(2 s); its series near 0, where the quotient cancels.
        small = square < 1e-2
        safe = torch.where(small, torch.ones_like(square), square)
        series = -1 / 6 + square * (1 / 60 - square * (1 / 1680 - square * (1 / 90720)))
        slope = torch.where(small, series, (cos - over) / (2 * safe))
        return -g_cos * over / 2 + g_sinc * slope


def _cos_sinc_of_square(square: Tensor) -> tuple[Tensor, Tensor]:
    out: tuple[Tensor, Tensor] = _CosSinc.apply(square)  # type: ignore[no-untyped-call]
    return out
