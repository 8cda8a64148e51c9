"""E4: two real layers that rotate into each other."""

import torch
from torch import Tensor

from lawful.reproduce._figures import Demonstration, Figure
from lawful.reproduce.unitary._exact import dense_exp, lifted
from lawful.reproduce.unitary._fields import centred, gap, line, offsets, source
from lawful.tasks.exhibits import Curves, Heatmap
from lawful.unitary import antisymmetric, conv_apply, conv_cos, conv_exp, conv_sin, xp_kernels

__all__ = ["pairs"]

_NAMES = ("X from X", "X from P", "P from X", "P from P")


def _blocks(kernels: tuple[Tensor, ...], size: tuple[int, ...]) -> Tensor:
    """The dense operator of four kernels of a whole lattice, by applying them to unit fields."""
    total = int(torch.tensor(size).prod())
    eye = torch.eye(total, dtype=torch.float64).view(total, *size)
    xx, xp, px, pp = (conv_apply(k, eye).reshape(total, total).T for k in kernels)
    return torch.cat([torch.cat([xx, xp], 1), torch.cat([px, pp], 1)])


def _generator(k: Tensor, size: tuple[int, ...], a: Tensor | None, c: Tensor | None) -> Tensor:
    """[[A, K], [-K', C]] as a dense matrix."""
    forward = lifted(k, size)
    zero = torch.zeros_like(forward)
    within = [zero if m is None else lifted(m, size) for m in (a, c)]
    return torch.cat([torch.cat([within[0], forward], 1), torch.cat([-forward.T, within[1]], 1)])


def _unorthogonal(matrix: Tensor) -> float:
    return gap(matrix @ matrix.T, torch.eye(len(matrix)))


def _case(k: Tensor, size: tuple[int, ...], *within: Tensor) -> tuple[float, float, float]:
    """Error against the dense exponential, orthogonality error, determinant."""
    a, c = within or (None, None)
    made = _blocks(xp_kernels(k, size, 1.0, a, c), size)
    want = dense_exp(_generator(k, size, a, c))
    return gap(made, want), _unorthogonal(made), float(torch.linalg.det(made))


def pairs(quick: bool, seed: int) -> Demonstration:
    """E4: cosine and sine kernels for symmetric K, four kernels for any K."""
    sites = 32 if quick else 128
    draw = source(seed)
    k = torch.randn(5, dtype=torch.float64, generator=draw)
    even = (k + k.flip(0)) / 2
    a, c = (antisymmetric(torch.randn(3, dtype=torch.float64, generator=draw)) for _ in range(2))
    flat = torch.randn(3, 3, dtype=torch.float64, generator=draw)
    symmetric, general = _case(even, (sites,)), _case(k, (sites,))
    inner, torus = _case(k, (sites,), a, c), _case(flat, (6, 7))
    worst = [max(v) for v in zip(symmetric, general, inner, torus, strict=True)]
    wrong = (conv_cos(k, sites), conv_sin(k, sites), -conv_sin(k, sites), conv_cos(k, sites))
    figures = [
        *_symmetric_figures(even, sites, draw),
        Figure(
            "symmetric K: four kernels minus the dense exponential", symmetric[0], at_most=1e-12
        ),
        Figure("any K: the same", general[0], at_most=1e-12),
        Figure("any K, with kernels inside X and inside P: the same", inner[0], at_most=1e-12),
        Figure("any K on a torus of 6 x 7: the same", torus[0], at_most=1e-12),
        Figure("orthogonality error, worst", worst[1], at_most=1e-12),
        Figure(
            "determinant minus 1, worst",
            max(abs(v[2] - 1) for v in (symmetric, general, inner, torus)),
            at_most=1e-10,
        ),
        Figure(
            "orthogonality error of cosine and sine kernels of a K that is not symmetric",
            _unorthogonal(_blocks(wrong, (sites,))),
            at_least=0.05,
            note="Control, and erratum: these are the exponential of the pair whose way back uses "
            "K as it is. K is arbitrary only if the way back uses its flip.",
        ),
        *_orientation(k, sites),
    ]
    text = (
        f"X' = K * P, P' = -flip(K) * X on a ring of {sites} sites with five random taps, K "
        "symmetric and not, with and without kernels inside each layer, and on a torus: the four "
        "kernels against the dense exponential of the lifted block matrix."
    )
    return Demonstration(
        "E4", "Orthogonal pairs of layers", text, figures, _exhibits(k, even, flat)
    )


def _symmetric_figures(even: Tensor, sites: int, draw: torch.Generator) -> list[Figure]:
    xx, xp, px, _ = xp_kernels(even, sites)
    cos, sin = conv_cos(even, sites), conv_sin(even, sites)
    x, p = (torch.randn(sites, dtype=torch.float64, generator=draw) for _ in range(2))
    new_x = conv_apply(xx, x) + conv_apply(xp, p)
    new_p = conv_apply(px, x) + conv_apply(xx, p)
    turn = conv_exp(1j * even, sites)
    right = conv_apply(turn, torch.complex(p, x)) - torch.complex(new_p, new_x)
    wrong = conv_apply(turn, torch.complex(x, p)) - torch.complex(new_x, new_p)
    return [
        Figure(
            "symmetric K: cosine and sine kernels minus the four",
            max(gap(xx, cos), gap(xp, sin), gap(px, -sin)),
            at_most=1e-14,
        ),
        Figure("e^(iK) on P + iX minus the pair", float(right.abs().max()), at_most=1e-13),
        Figure(
            "e^(iK) on X + iP minus the pair",
            float(wrong.abs().max()),
            at_least=0.1,
            note="Erratum: e^(iK) acts on P + iX, and e^(-iK) on X + iP.",
        ),
    ]


def _orientation(k: Tensor, sites: int) -> list[Figure]:
    """For a short time the X-from-P kernel is t K, read in convolution order."""
    t = 1e-4
    _, xp, px, _ = xp_kernels(k, sites, t)
    placed = k.new_zeros(sites)
    placed[offsets(len(k)).long()] = torch.fft.ifftshift(k)
    mirror = placed.flip(0).roll(1)
    return [
        Figure("short time: X from P over t, minus K", gap(xp / t, placed), at_most=1e-6),
        Figure("short time: P from X over t, minus (-flip K)", gap(px / t, -mirror), at_most=1e-6),
        Figure(
            "the same against K that is not flipped",
            gap(px / t, -placed),
            at_least=0.1,
            note="Control for the orientation of the kernels.",
        ),
    ]


def _exhibits(k: Tensor, even: Tensor, flat: Tensor) -> list[Curves | Heatmap]:
    sites = 32
    x = centred(offsets(sites))
    drawn = {
        title: {n: line(centred(v), x) for n, v in zip(_NAMES, xp_kernels(a, sites), strict=True)}
        for title, a in (("K symmetric", even), ("K not symmetric", k))
    }
    torus = torch.stack([centred(v) for v in xp_kernels(flat, (25, 25), 2.0)])
    return [
        *(Curves(f"The four kernels, {title}", lines, "site") for title, lines in drawn.items()),
        Heatmap(
            "The four kernels of the plane, K not symmetric, t = 2",
            torus.numpy(),
            scale="diverging",
            panels=_NAMES,
            note="P from X is X from P turned by half a turn, with the other sign.",
        ),
    ]
