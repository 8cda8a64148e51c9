"""E3: anti-Hermitian kernels, and the unitary kernels they generate."""

import torch
from torch import Tensor

from lawful.reproduce._figures import Demonstration, Figure
from lawful.reproduce.unitary._exact import dense_exp, lifted
from lawful.reproduce.unitary._fields import centred, gap, line, source
from lawful.tasks.exhibits import Curves, Heatmap
from lawful.unitary import (
    Identity,
    SoftNorm,
    UnitaryConv,
    antihermitian,
    conv_apply,
    conv_exp,
    from_antihermitian,
    gradient_gain,
    symbol,
)

__all__ = ["spectrum"]

_CASES = (((5,), (64,)), ((5,), (63,)), ((3, 3), (12, 11)))


def spectrum(quick: bool, seed: int) -> Demonstration:
    """E3: white spectrum, unit circle, inverse by conjugation, and running back."""
    draw = source(seed)
    real = [torch.randn(taps, dtype=torch.float64, generator=draw) for taps, _ in _CASES]
    sizes = [size for _, size in _CASES]
    kernels = [antihermitian(u) for u in real]
    pairs = list(zip(kernels, sizes, strict=True))
    made = [conv_exp(a, size) for a, size in pairs]
    dense = [dense_exp(lifted(a, size)) for a, size in pairs]
    steps = 200 if quick else 2000
    figures = [
        Figure(
            "real part of the symbol of A, worst",
            max(float(symbol(a, size).real.abs().max()) for a, size in pairs),
            at_most=1e-13,
            note="Erratum: it is imaginary only with the origin at index 0 of the lattice.",
        ),
        Figure(
            "modulus of the symbol of e^A minus 1, worst",
            max(_unevenness(g) for g in made),
            at_most=1e-13,
        ),
        Figure(
            "the same with A left in the corner of the lattice",
            _unevenness(conv_exp(_corner(kernels[0], sizes[0]), sizes[0], origin="zero")),
            at_least=0.1,
            note="Control: the kernel's array starts at index 0 instead of its centre tap.",
        ),
        Figure(
            "e^A minus the dense exponential of the lifted matrix, worst",
            max(gap(m[:, 0].view(s), g) for m, g, s in zip(dense, made, sizes, strict=True)),
            at_most=1e-13,
        ),
        Figure(
            "dense U U' minus the identity, worst",
            max(gap(m @ m.mH, torch.eye(len(m))) for m in dense),
            at_most=1e-12,
        ),
        Figure(
            "real array -> A -> real array, worst difference",
            max(gap(from_antihermitian(a), u) for a, u in zip(kernels, real, strict=True)),
            at_most=1e-15,
        ),
        Figure(
            "e^(-A) minus the conjugate flip of e^A, worst",
            max(gap(conv_exp(a, s, -1.0), _conjugate_flip(conv_exp(a, s))) for a, s in pairs),
            at_most=1e-14,
        ),
        _backtracking(kernels[0], sizes[0], steps, draw),
        _cropped(kernels[0]),
        *_gains(quick),
    ]
    text = (
        "Random real arrays of 5 taps on rings of 64 and 63 sites and of 3 x 3 taps on a torus of "
        "12 x 11, turned into anti-Hermitian kernels A; e^A by Fourier transforms against the "
        f"dense exponential of the lifted matrix; {steps} steps forth and back."
    )
    exhibits = _exhibits(dense[0], kernels, made, draw)
    return Demonstration("E3", "Unitary kernels", text, figures, exhibits)


def _unevenness(kernel: Tensor) -> float:
    """How far the spectrum is from white."""
    return gap(symbol(kernel, kernel.shape, origin="zero").abs(), 1.0)


def _corner(kernel: Tensor, size: tuple[int, ...]) -> Tensor:
    out = kernel.new_zeros(size)
    out[: len(kernel)] = kernel
    return out


def _conjugate_flip(kernel: Tensor) -> Tensor:
    axes = tuple(range(kernel.ndim))
    return kernel.flip(axes).roll([1] * kernel.ndim, axes).conj()


def _backtracking(
    kernel: Tensor, size: tuple[int, ...], steps: int, draw: torch.Generator
) -> Figure:
    layer = UnitaryConv(1, len(kernel), dtype=torch.float64).requires_grad_(False)
    layer.weight.copy_(from_antihermitian(kernel)[None])
    start = torch.randn(1, 1, *size, dtype=torch.complex128, generator=draw)
    operator, z = layer.operator(size), start
    for _ in range(steps):
        z = operator(z)
    for _ in range(steps):
        z = operator.inverse(z)
    return Figure(
        f"{steps} steps forth and back: relative error",
        float((z - start).norm() / start.norm()),
        at_most=1e-11,
    )


def _cropped(kernel: Tensor) -> Figure:
    """What emulating an infinite lattice does: exponentiate on 4N sites, apply, keep N of them."""
    sites = 64
    strong = kernel * (4 / kernel.abs().sum())
    wide = conv_exp(strong, 4 * sites)
    basis = torch.eye(sites, dtype=wide.dtype)
    padded = torch.nn.functional.pad(basis, (0, 3 * sites))
    matrix = conv_apply(wide, padded)[:, :sites]
    return Figure(
        "smallest singular value after padding and cropping, weight 4",
        float(torch.linalg.svdvals(matrix).min()),
        at_most=0.95,
        note="Erratum: a periodic lattice needs no padding, and cropping destroys unitarity.",
    )


def _gains(quick: bool) -> list[Figure]:
    steps, draws = (100, 3) if quick else (1000, 9)
    return [
        Figure(
            f"gradient after {steps} linear steps over that before",
            gradient_gain(Identity(), steps, draws=draws),
            expected=1.0,
            at_least=1 - 1e-10,
            at_most=1 + 1e-10,
        ),
        Figure(
            "the same with z/sqrt(1 + |z|^2) after each step",
            gradient_gain(SoftNorm(), steps, draws=draws),
            at_most=0.2,
            note="Erratum: the kernel keeps gradients, the network does so only if phi does.",
        ),
    ]


def _exhibits(
    dense: Tensor, kernels: list[Tensor], made: list[Tensor], draw: torch.Generator
) -> list[Curves | Heatmap]:
    free = torch.randn(5, dtype=torch.complex128, generator=draw)
    other = torch.linalg.eigvals(dense_exp(lifted(0.3 * free, (64,))))
    values = torch.linalg.eigvals(dense)
    circle = torch.linspace(0, 2 * torch.pi, 200)
    k = torch.linspace(0, 2 * torch.pi, 65)[:-1]
    phases = symbol(kernels[0], 64).imag
    flat = torch.stack([centred(made[2]).real, centred(made[2]).imag])
    return [
        Curves(
            "Eigenvalues of the lifted exponential",
            {
                "e^A, A anti-Hermitian": (values.real.tolist(), values.imag.tolist()),
                "e^K, K any kernel": (other.real.tolist(), other.imag.tolist()),
                "unit circle": (circle.cos().tolist(), circle.sin().tolist()),
            },
            "real part",
            "imaginary part",
            style="points",
            equal_axes=True,
            muted=("unit circle",),
        ),
        Curves(
            "Spectrum of e^A: the phase varies, the modulus does not",
            {
                "phase of the symbol of A": line(phases, k),
                "modulus of the symbol of e^A": line(symbol(made[0], 64, origin="zero").abs(), k),
            },
            "frequency",
        ),
        Heatmap(
            "A unitary kernel of the plane",
            flat.numpy(),
            scale="diverging",
            panels=("real part", "imaginary part"),
            note="Three by three parameters; the exponential reaches as far as its weight decays.",
        ),
    ]
