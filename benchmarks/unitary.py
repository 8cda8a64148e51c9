"""How fast are exact unitary convolutions, and how exact are the fast ones?

Run as ``python benchmarks/unitary.py [--out FILE] [--only NAME] [--seconds S] [--quick]``.
Contestants take turns; times of one thread, wall and CPU; ``sigma`` is the largest
|singular value - 1| of the operator each of them applies, measured on a small lattice. The peer
orthogonium (AOC) takes part if it is installed: ``pip install orthogonium``.
"""

import argparse
import math
from pathlib import Path

import torch

from _harness import Contestant, Row, race, report
from _unitary_peers import annotate, dense_lift, pull, real_generator, sigma, taylor
from _unitary_recurrences import recurrences
from lawful.kernels import native_status
from lawful.kernels.spectral import spectral_apply
from lawful.unitary import OrthogonalConv, UnitaryConv


def one_channel(seconds: float, quick: bool) -> list[Row]:
    """Build, apply and backward of one complex channel, 3 taps, batch 8, against N."""
    small = (16,)
    lengths = (256, 1024, 4096) if quick else (256, 1024, 4096, 16384, 65536)
    rows: list[Row] = []
    cpu: dict[int, float] = {}
    for n in lengths:
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
        if n <= (256 if quick else 1024):
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
    for first in lengths[:3:2]:
        last = lengths[-1]
        if first < last:
            slope = math.log(cpu[last] / cpu[first]) / math.log(last / first)
            rows[0].extra[f"exponent {first}..{last}"] = round(slope, 3)
    return rows


def multi_channel(seconds: float, quick: bool) -> list[Row]:
    """One application between channels against its floor: FFTs and a contiguous complex bmm."""
    rows: list[Row] = []
    cases = (((1024,), 16, 8), ((32, 32), 16, 8), ((64, 64), 32, 4))
    for size, c, b in cases[:2] if quick else cases:
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


def xp(seconds: float, quick: bool) -> list[Row]:
    """One X/P step with symmetric K: one complex FFT against two real ones."""
    rows: list[Row] = []
    sizes = ((256,), (32, 32), (1024,), (4096,), (64, 64))
    for size in sizes[:2] if quick else sizes:
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


def main() -> None:
    """Parses the command line, races, reports."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", choices=["one_channel", "multi_channel", "xp", "recurrences"])
    parser.add_argument("--seconds", type=float, help="for each contestant; 2, or 0.2 if quick")
    parser.add_argument("--steps", type=int, help="length of the recurrences; 100, or 10 if quick")
    parser.add_argument("--quick", action="store_true", help="a few small cases: does it all run?")
    args = parser.parse_args()
    quick = args.quick
    seconds = args.seconds or (0.2 if quick else 2.0)
    steps = args.steps or (10 if quick else 100)
    torch.set_num_threads(1)
    parts = {
        "one_channel": lambda: one_channel(seconds, quick),
        "multi_channel": lambda: multi_channel(seconds, quick),
        "xp": lambda: xp(seconds, quick),
        "recurrences": lambda: recurrences(seconds, steps, quick),
    }
    rows = [row for name, run in parts.items() if args.only in (None, name) for row in run()]
    report("unitary", rows, args.out, kernels=native_status().describe())


if __name__ == "__main__":
    main()
