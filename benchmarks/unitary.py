"""How fast are exact unitary convolutions, and how exact are the fast ones?

Run as ``python benchmarks/unitary.py [--out FILE] [--only NAME] [--seconds S]``. Contestants take
turns; times of one thread, wall and CPU; ``sigma`` is the largest |singular value - 1| of the
operator each of them applies, measured on a small lattice. The peer orthogonium (AOC) takes part if
it is installed: ``pip install orthogonium``.
"""

import argparse
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from _harness import Contestant, Row, race, report
from lawful.kernels import native_status
from lawful.kernels.spectral import spectral_apply
from lawful.unitary import ConvOrthogonalRNN, ConvUnitaryRNN, OrthogonalConv, UnitaryConv
from lawful.unitary._activations import SoftNorm

CONV = {1: F.conv1d, 2: F.conv2d}


def padded(x: Tensor, kernel: Tensor) -> Tensor:
    """Circular convolution with a small kernel, as every explicit method does it."""
    dims = x.ndim - 2
    pad = [k // 2 for k in kernel.shape[2:] for _ in range(2)][::-1]
    return CONV[dims](F.pad(x, pad, mode="circular"), kernel)


def real_generator(layer: UnitaryConv | OrthogonalConv) -> Tensor:
    """The generator as a real correlation kernel, channels doubled for complex fields."""
    kernel = layer.generator()
    if kernel.is_complex():
        rows = [[kernel.real, -kernel.imag], [kernel.imag, kernel.real]]
        kernel = torch.cat([torch.cat(row, 1) for row in rows], 0)
    return kernel.flip(tuple(range(2, kernel.ndim)))


def taylor(x: Tensor, kernel: Tensor, terms: int) -> Tensor:
    """SOC's way: the series of the exponential, term by term, on the field."""
    total = term = x
    for j in range(1, terms + 1):
        term = padded(term, kernel) / j
        total = total + term
    return total


def dense_lift(layer: UnitaryConv, size: tuple[int, ...]) -> Tensor:
    """The generator as a dense matrix (one channel, one axis)."""
    kernel = layer.generator()[0, 0]
    n, reach = size[0], kernel.shape[0] // 2
    site = torch.arange(n)
    rows = torch.zeros(n, n, dtype=kernel.dtype)
    for a in range(kernel.shape[0]):
        hit = torch.zeros(n, n)
        hit[site, (site - (a - reach)) % n] = 1
        rows = rows + kernel[a] * hit
    return rows


def sigma(operator, channels: int, size: tuple[int, ...], dtype: torch.dtype) -> float:
    """Largest |singular value - 1| of what ``operator`` applies on a small lattice."""
    total = channels * math.prod(size)
    basis = torch.eye(total, dtype=dtype).view(total, channels, *size)
    with torch.no_grad():
        matrix = operator(basis).reshape(total, total)
    wide = torch.complex128 if matrix.is_complex() else torch.float64
    return float((torch.linalg.svdvals(matrix.to(wide)) - 1).abs().max())


def annotate(rows: list[Row], errors: dict[str, float]) -> list[Row]:
    """Puts the orthogonality error and the ratio of CPU times beside each time."""
    base = rows[0].cpu_ms
    for row in rows:
        row.extra["cpu_x"] = round(row.cpu_ms / base, 2)
        if row.name in errors:
            row.extra["sigma"] = f"{errors[row.name]:.1e}"
    return rows


def pull(y: Tensor, *leaves: Tensor) -> None:
    torch.autograd.grad(y, leaves, torch.ones_like(y))


def one_channel(seconds: float) -> list[Row]:
    """Build, apply and backward of one complex channel, 3 taps, batch 8, against N."""
    small = (16,)
    rows: list[Row] = []
    cpu: dict[int, float] = {}
    for n in (256, 1024, 4096, 16384, 65536):
        torch.manual_seed(0)
        layer = UnitaryConv(1, 3)
        x = torch.randn(8, 1, n, dtype=torch.complex64, requires_grad=True)
        split = torch.cat([x.real, x.imag], 1).detach().requires_grad_()

        def ours(layer=layer, x=x):
            pull(layer(x), x, layer.weight)

        def series(layer=layer, split=split, terms=12):
            pull(taylor(split, real_generator(layer), terms), split, layer.weight)

        def dense(layer=layer, x=x, n=n):
            pull(x @ torch.linalg.matrix_exp(dense_lift(layer, (n,))).T, x, layer.weight)

        field = [Contestant("ours", ours), Contestant("Taylor 12", series)]
        if n <= 1024:
            field.append(Contestant("dense matrix_exp", dense))
        errors = {
            "ours": sigma(layer, 1, small, torch.complex64),
            "Taylor 12": sigma(
                lambda z, layer=layer: taylor(z, real_generator(layer), 12),
                2,
                small,
                torch.float32,
            ),
            "dense matrix_exp": sigma(
                lambda z, layer=layer: z @ torch.linalg.matrix_exp(dense_lift(layer, small)).T,
                1,
                small,
                torch.complex64,
            ),
        }
        limit = 3 if n == 1024 else 5
        found = race(f"1ch b+a+b N={n}", field, seconds=seconds, min_runs=limit)
        cpu[n] = found[0].cpu_ms
        rows += annotate(found, errors)
    slope = math.log(cpu[65536] / cpu[256]) / math.log(65536 / 256)
    steep = math.log(cpu[65536] / cpu[4096]) / math.log(65536 / 4096)
    rows[0].extra["exponent 256..65536"] = round(slope, 3)
    rows[0].extra["exponent 4096..65536"] = round(steep, 3)
    return rows


def multi_channel(seconds: float) -> list[Row]:
    """One application between channels against its floor: FFTs and a contiguous complex bmm."""
    rows: list[Row] = []
    for size, c, b in (((1024,), 16, 8), ((32, 32), 16, 8), ((64, 64), 32, 4)):
        torch.manual_seed(0)
        layer = OrthogonalConv(c, 3, len(size))
        axes = tuple(range(2, 2 + len(size)))
        x = torch.randn(b, c, *size)
        modes = torch.fft.rfftn(x, dim=axes)
        count = math.prod(modes.shape[2:])
        u = torch.randn(count, c, c, dtype=torch.complex64)
        dense = torch.randn(count, c, b, dtype=torch.complex64)
        operator = layer.operator(size)
        packed = torch.complex(x[:, c // 2 :], x[:, : c // 2])

        def ours(operator=operator, x=x):
            with torch.no_grad():
                operator(x)

        def inner(operator=operator, z=packed):
            with torch.no_grad():
                operator.turn(z)

        def floor(x=x, u=u, dense=dense, modes=modes, axes=axes, size=size):
            torch.fft.rfftn(x, dim=axes)
            torch.bmm(u, dense)
            torch.fft.irfftn(modes, s=size, dim=axes)

        def naive(x=x, u=u, axes=axes, size=size):
            y = torch.fft.rfftn(x, dim=axes)
            z = spectral_apply(u, y.flatten(2)).view(y.shape)
            torch.fft.irfftn(z, s=size, dim=axes)

        field = [
            Contestant("floor: FFTs + bmm", floor),
            Contestant("ours", ours),
            Contestant("ours, packed field", inner),
            Contestant("permute + bmm", naive),
        ]
        case = f"apply {'x'.join(map(str, size))} C={c} B={b}"
        errors = {"ours": sigma(layer, c, (4,) * len(size), torch.float32)}
        rows += annotate(race(case, field, seconds=seconds), errors)
    return rows


def xp(seconds: float) -> list[Row]:
    """One X/P step with symmetric K: one complex FFT against two real ones."""
    rows: list[Row] = []
    for size in ((256,), (1024,), (4096,), (32, 32), (64, 64)):
        torch.manual_seed(0)
        layer = OrthogonalConv(2, 3, len(size), form="symmetric")
        operator = layer.operator(size)
        operator = operator.with_tensors(*[t.detach() for t in operator.tensors])
        axes = tuple(range(2, 2 + len(size)))
        x = torch.randn(8, 2, *size)
        z = torch.complex(x[:, 1:], x[:, :1])
        angle = torch.rand(torch.fft.rfftn(x[:1, :1], dim=axes).shape[2:])
        cos, sin = torch.cos(angle), torch.sin(angle)

        def two(x=x, cos=cos, sin=sin, axes=axes, size=size):
            a, p = torch.fft.rfftn(x, dim=axes).unbind(1)
            both = torch.stack([cos * a + sin * p, cos * p - sin * a], 1)
            torch.fft.irfftn(both, s=size, dim=axes)

        field = [
            Contestant("ours, packed field", lambda operator=operator, z=z: operator.turn(z)),
            Contestant("ours", lambda operator=operator, x=x: operator(x)),
            Contestant("two rFFTs", two),
        ]
        rows += annotate(race(f"X/P {'x'.join(map(str, size))}", field, seconds=seconds), {})
    return rows


class Explicit(nn.Module):
    """100 steps with a given transition on real fields and the same activation."""

    def __init__(self, build, apply) -> None:
        super().__init__()
        self.build, self.apply_step, self.activation = build, apply, SoftNorm()

    def forward(self, z: Tensor, drive: Tensor) -> Tensor:
        """The last state."""
        operator = self.build()
        for now in drive.unbind(1):
            z = self.activation(self.apply_step(z, operator) + now)
        return z


def aoc(channels: int, taps: int):
    """The AOC layer of orthogonium, or None when it is not installed."""
    try:
        from orthogonium.layers import AdaptiveOrthoConv2d
    except ImportError:
        return None
    return AdaptiveOrthoConv2d(
        channels, channels, taps, padding="same", padding_mode="circular", bias=False
    )


def recurrence_case(size: tuple[int, ...], c: int, taps: int, steps: int, seconds: float):
    """Build + ``steps`` nonlinear steps, forward and backward, batch 8."""
    torch.manual_seed(0)
    batch, dims = 8, len(size)
    fields, features = max(c, 2), c if c > 1 else 1
    kind = ConvUnitaryRNN if c == 1 else ConvOrthogonalRNN
    # One feature is read per step, so that the states need not be handed out.
    rnn = kind(features, size, c, taps, activation="softnorm", input_map="direct", output_size=1)
    dtype = torch.complex64 if c == 1 else torch.float32
    drive = 0.1 * torch.randn(batch, steps, c, *size, dtype=dtype)
    real = torch.randn(batch, fields, *size)
    state = torch.complex(real[:, :1], real[:, 1:]) if c == 1 else real
    flat = torch.cat([drive.real, drive.imag], 2) if c == 1 else drive
    weights = list(rnn.conv.parameters())
    generator = rnn.conv

    def ours():
        pull(rnn(drive, state)[1].abs().sum(), *weights)

    field, errors = [Contestant("ours", ours)], {}
    small = (6,) * dims
    errors["ours"] = sigma(rnn.conv, c, small, dtype)
    for terms in (12, 5):
        net = Explicit(
            lambda: real_generator(generator), lambda z, k, terms=terms: taylor(z, k, terms)
        )
        field.append(
            Contestant(
                f"Taylor {terms}", lambda net=net: pull(net(real, flat).abs().sum(), *weights)
            )
        )
        errors[f"Taylor {terms}"] = sigma(
            lambda z, terms=terms: taylor(z, real_generator(generator), terms),
            fields,
            small,
            torch.float32,
        )
    peer = aoc(c, taps) if dims == 2 and c > 1 else None
    if peer is not None:
        net = Explicit(lambda: peer.weight, padded)
        learned = [p for p in peer.parameters() if p.requires_grad]
        field.append(Contestant("AOC", lambda: pull(net(real, flat).abs().sum(), *learned)))
        errors["AOC"] = sigma(lambda z: padded(z, peer.weight), c, (8, 8), torch.float32)
    if c == 1 and dims == 1 and size[0] <= 256:
        lift = Explicit(
            lambda: torch.linalg.matrix_exp(dense_lift(generator, size)), lambda z, m: z @ m.T
        )
        field.append(
            Contestant("dense expm", lambda: pull(lift(state, drive).abs().sum(), *weights))
        )
    name = f"rec{steps} {'x'.join(map(str, size))} C={c} k={taps}"
    return annotate(race(name, field, seconds=seconds, min_runs=3), errors)


def recurrences(seconds: float, steps: int) -> list[Row]:
    """Recurrences at the sizes of the paper's demonstrations against the peers that can be had."""
    rows: list[Row] = []
    cases = [((256,), 1), ((1024,), 1), ((4096,), 1), ((1024,), 16)]
    cases += [((32, 32), 1), ((64, 64), 1), ((32, 32), 16), ((32, 32), 32), ((64, 64), 16)]
    for size, c in cases:
        rows += recurrence_case(size, c, 3, steps, seconds)
    return rows


def main() -> None:
    """Parses the command line, races, reports."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", choices=["one_channel", "multi_channel", "xp", "recurrences"])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--steps", type=int, default=100, help="length of the recurrences")
    args = parser.parse_args()
    torch.set_num_threads(1)
    parts = {
        "one_channel": lambda: one_channel(args.seconds),
        "multi_channel": lambda: multi_channel(args.seconds),
        "xp": lambda: xp(args.seconds),
        "recurrences": lambda: recurrences(args.seconds, args.steps),
    }
    rows = [row for name, run in parts.items() if args.only in (None, name) for row in run()]
    report("unitary", rows, args.out, kernels=native_status().describe())


if __name__ == "__main__":
    main()
