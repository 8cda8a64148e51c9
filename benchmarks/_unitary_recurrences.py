"""Recurrences of 100 nonlinear steps, forward and backward, against every peer that can be had."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from _harness import Contestant, Row, race
from _unitary_peers import (
    Explicit,
    FourierCayley,
    annotate,
    aoc,
    dense_lift,
    dense_parametrised,
    padded,
    pull,
    real_generator,
    sigma,
    taylor,
)
from lawful.unitary import ConvOrthogonalRNN, ConvUnitaryRNN


@dataclass(frozen=True)
class Case:
    """One recurrence with its data; batch 8, one complex channel or several real ones."""

    rnn: ConvUnitaryRNN | ConvOrthogonalRNN
    size: tuple[int, ...]
    state: Tensor
    drive: Tensor

    @property
    def small(self) -> tuple[int, ...]:
        """A lattice on which singular values can be had."""
        return (6,) * len(self.size)

    def split(self) -> tuple[Tensor, Tensor]:
        """State and input as real fields, for peers that have no others."""
        if not self.state.is_complex():
            return self.state, self.drive
        state, drive = self.state, self.drive
        return torch.cat([state.real, state.imag], 1), torch.cat([drive.real, drive.imag], 2)


Entry = tuple[str, Callable[[], None], float]  # name, what is timed, orthogonality error


def make_case(size: tuple[int, ...], c: int, taps: int, steps: int) -> Case:
    """Draws network and data."""
    torch.manual_seed(0)
    kind = ConvUnitaryRNN if c == 1 else ConvOrthogonalRNN
    # One feature is read per step, so that the states need not be handed out.
    rnn = kind(c, size, c, taps, activation="softnorm", input_map="direct", output_size=1)
    dtype = torch.complex64 if c == 1 else torch.float32
    drive = 0.1 * torch.randn(8, steps, c, *size, dtype=dtype)
    return Case(rnn, size, torch.randn(8, c, *size, dtype=dtype), drive)


def timed(case: Case, build, apply, leaves, real: bool) -> Callable[[], None]:
    """Build + all steps + backward of a peer's transition."""
    net = Explicit(build, apply)
    state, drive = case.split() if real else (case.state, case.drive)
    return lambda: pull(net(state, drive).abs().sum(), *leaves)


def enter_ours(case: Case) -> Entry:
    """This library's recurrence."""
    leaves = list(case.rnn.conv.parameters())
    error = sigma(case.rnn.conv, case.rnn.channels, case.small, case.state.dtype)
    return (
        "ours",
        lambda: pull(case.rnn(case.drive, case.state)[1].abs().sum(), *leaves),
        error,
    )


def enter_taylor(case: Case, terms: int) -> Entry:
    """SOC's series."""
    conv, fields = case.rnn.conv, max(2, case.rnn.channels)

    def apply(z: Tensor, kernel: Tensor) -> Tensor:
        return taylor(z, kernel, terms)

    def build() -> Tensor:
        return real_generator(conv)

    error = sigma(lambda z: apply(z, build()), fields, case.small, torch.float32)
    return f"Taylor {terms}", timed(case, build, apply, list(conv.parameters()), True), error


def enter_aoc(case: Case, taps: int) -> list[Entry]:
    """The explicit orthogonal kernel of orthogonium, in the plane, if it is installed."""
    c = case.rnn.channels
    peer = aoc(c, taps) if len(case.size) == 2 and c > 1 else None
    if peer is None:
        return []
    learned = [p for p in peer.parameters() if p.requires_grad]
    error = sigma(lambda z: padded(z, peer.weight), c, (8, 8), torch.float32)
    return [("AOC", timed(case, lambda: peer.weight, padded, learned, True), error)]


def enter_cayley(case: Case, taps: int) -> Entry:
    """The Cayley transform per frequency."""
    c = case.rnn.channels
    peer = FourierCayley(c, taps, len(case.size), case.size)
    trial = FourierCayley(c, taps, len(case.size), case.small)
    error = sigma(lambda z: trial.turn(z, trial.build()), c, case.small, case.state.dtype)
    return "FFT + Cayley", timed(case, peer.build, peer.turn, [peer.weight], False), error


def enter_dense(case: Case) -> list[Entry]:
    """Dense unitary matrices, on small lattices: of our generator, and torch's own."""
    if case.rnn.channels > 1 or len(case.size) > 1 or case.size[0] > 256:
        return []
    conv, dtype = case.rnn.conv, case.state.dtype

    def lift(size: tuple[int, ...]) -> Tensor:
        return torch.linalg.matrix_exp(dense_lift(conv, size))

    def apply(z: Tensor, matrix: Tensor) -> Tensor:
        return z @ matrix.T

    error = sigma(lambda z: apply(z, lift(case.small)), 1, case.small, dtype)
    run = timed(case, lambda: lift(case.size), apply, list(conv.parameters()), False)
    entries: list[Entry] = [("dense expm", run, error)]
    for kind in ("cayley", "matrix_exp"):
        peer = dense_parametrised(case.size[0], dtype, kind)
        tiny = dense_parametrised(case.small[0], dtype, kind)
        error = sigma(lambda z, tiny=tiny: apply(z, tiny.weight), 1, case.small, dtype)
        build = partial(getattr, peer, "weight")
        run = timed(case, build, apply, list(peer.parameters()), False)
        entries.append((f"torch {kind}, dense", run, error))
    return entries


def recurrence_case(
    size: tuple[int, ...], c: int, taps: int, steps: int, seconds: float
) -> list[Row]:
    """Build + ``steps`` nonlinear steps, forward and backward, batch 8."""
    case = make_case(size, c, taps, steps)
    entries = [enter_ours(case), enter_taylor(case, 12), enter_taylor(case, 5)]
    entries += [*enter_aoc(case, taps), enter_cayley(case, taps), *enter_dense(case)]
    name = f"rec{steps} {'x'.join(map(str, size))} C={c} k={taps}"
    field = [Contestant(title, run) for title, run, _ in entries]
    errors = {title: error for title, _, error in entries}
    return annotate(race(name, field, seconds=seconds, min_runs=3), errors)


def recurrences(seconds: float, steps: int, quick: bool) -> list[Row]:
    """Recurrences at the sizes of the paper's demonstrations against the peers that can be had."""
    rows: list[Row] = []
    cases = [((256,), 1), ((1024,), 1), ((4096,), 1), ((1024,), 16)]
    cases += [((32, 32), 1), ((64, 64), 1), ((32, 32), 16), ((32, 32), 32), ((64, 64), 16)]
    for size, c in [cases[0], cases[6]] if quick else cases:
        rows += recurrence_case(size, c, 3, steps, seconds)
    return rows
