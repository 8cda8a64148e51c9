"""Unitary layers and recurrences keep their laws, and every law catches a broken layer."""

import copy

import pytest
import torch

import lawful
from lawful.laws import laws_of
from lawful.unitary import ConvOrthogonalRNN, ConvUnitaryRNN, OrthogonalConv, UnitaryConv
from lawful.unitary._activations import SoftNorm

CONVOLUTIONS = {
    "ring": lambda d: (UnitaryConv(1, 3, 1, dtype=d), (2, 1, 9)),
    "torus": lambda d: (UnitaryConv(2, 3, 2, dtype=d), (2, 2, 4, 5)),
    "neumann": lambda d: (UnitaryConv(2, 3, 1, boundary="neumann", even=True, dtype=d), (2, 2, 8)),
    "dirichlet": lambda d: (UnitaryConv(1, 3, 1, boundary="dirichlet", even=True, dtype=d), (1, 7)),
    "zeros": lambda d: (UnitaryConv(2, 3, 1, boundary="zeros", dtype=d), (2, 2, 8)),
    "strong": lambda d: (UnitaryConv(2, 5, 1, gain=20.0, dtype=d), (2, 2, 8)),
    "orthogonal": lambda d: (OrthogonalConv(3, 3, 1, dtype=d), (2, 3, 8)),
    "pair": lambda d: (OrthogonalConv(2, 3, 2, form="pair", dtype=d), (2, 2, 4, 4)),
    "large": lambda d: (OrthogonalConv(2, 3, 2, dtype=d), (1, 2, 40, 40)),
}


def field(layer, shape, dtype):
    g = torch.Generator().manual_seed(0)
    real = torch.randn(shape, generator=g, dtype=torch.float64)
    if isinstance(layer, OrthogonalConv):
        return real.to(dtype)
    return torch.complex(real, real.flip(-1)).to(torch.complex(real, real).to(dtype.to_complex()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", list(CONVOLUTIONS))
def test_every_convolution_keeps_every_law(name, dtype):
    torch.manual_seed(0)
    layer, shape = CONVOLUTIONS[name](dtype)
    certificate = lawful.check(layer, field(layer, shape, dtype))
    assert certificate.holds, f"\n{certificate}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [ConvUnitaryRNN, ConvOrthogonalRNN])
@pytest.mark.parametrize("activation", ["identity", "fold", "softnorm"])
def test_every_recurrence_keeps_every_law(kind, activation, dtype):
    torch.manual_seed(0)
    layer = kind(3, 8, channels=2, activation=activation, output_size=2, dtype=dtype)
    certificate = lawful.check(layer, torch.randn(2, 12, 3, dtype=dtype))
    assert certificate.holds, f"\n{certificate}"
    assert {"chunks", "norm" if activation == "none" else "gradient gain"} <= {
        r.law for r in certificate if r.holds
    }


class Longer(UnitaryConv):
    def forward(self, x, t=1.0):
        return 1.001 * super().forward(x, t)


class NoWayBack(UnitaryConv):
    def inverse(self, y, t=1.0):
        return super().forward(y, t)


class Turned(UnitaryConv):
    """Still unitary, but no exponential: the half step's square is not the step."""

    def forward(self, x, t=1.0):
        return -super().forward(x, t)


class Drifting(UnitaryConv):
    def operator(self, size, t=1.0, *, dtype=None):
        sound = super().operator(size, t, dtype=dtype)

        class Off:
            tensors, packed = sound.tensors, sound.packed

            def __call__(self, z):
                return 1.0001 * sound(z)

            def inverse(self, z):
                return sound.inverse(z)

        return Off()


class Forgetful(ConvUnitaryRNN):
    def forward(self, x, state=None, lengths=None):
        return super().forward(x, None, lengths)


class Leaking(ConvUnitaryRNN):
    def propagate(self, state, steps):
        return 0.9 * super().propagate(state, steps)


class Boasting(SoftNorm):
    gain = (1.0, 1.0e6, 1.0)


def conv(kind):
    torch.manual_seed(0)
    return kind(1, 3, 1)


def rnn(kind, **options):
    torch.manual_seed(0)
    return kind(3, 8, **options)


FIELD = (torch.randn(2, 1, 9, generator=torch.Generator().manual_seed(1), dtype=torch.complex64),)
SERIES = (torch.randn(2, 10, 3, generator=torch.Generator().manual_seed(1)),)
MUTANTS = {
    "norm": (lambda: conv(Longer), FIELD),
    "spectrum": (lambda: conv(Longer), FIELD),
    "inverse": (lambda: conv(NoWayBack), FIELD),
    "flow": (lambda: conv(Turned), FIELD),
    "drift": (lambda: conv(Drifting), FIELD),
    "chunks": (lambda: rnn(Forgetful), SERIES),
    "free run": (lambda: rnn(Leaking), SERIES),
    "gradient gain": (lambda: rnn(ConvUnitaryRNN, activation=Boasting()), SERIES),
}


@pytest.mark.parametrize("law", list(MUTANTS))
def test_every_law_catches_its_mutant(law):
    make, given = MUTANTS[law]
    broken = lawful.check(make(), *given).broken
    assert law in {r.law for r in broken}


def test_every_law_has_a_mutant():
    layers = (conv(UnitaryConv), rnn(ConvUnitaryRNN))
    assert {law.name for layer in layers for law in laws_of(layer)} == set(MUTANTS)


def test_a_copy_of_a_broken_layer_is_broken():
    assert lawful.check(copy.deepcopy(conv(Longer)), *FIELD).broken
