"""Problems that a convolutional unitary network solves by construction, against exact solutions."""

import math

import pytest
import torch

from lawful.reproduce.unitary import (
    copying_network,
    schroedinger_network,
    set_generator,
    translation_generator,
    wave_layer,
    wave_network,
)
from lawful.reproduce.unitary._automaton import EMBEDDINGS, Embedding, rule110, survival
from lawful.reproduce.unitary._networks import Unimodal
from lawful.unitary import (
    ConvUnitaryRNN,
    UnitaryConv,
    conv_apply,
    conv_exp,
    support_radius,
)


@pytest.mark.parametrize("delay", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_copying_problem_by_a_translation_ring(delay):
    """Ten symbols out of eight, repeated after `delay` steps, by moving them along a ring."""
    symbols, length = 8, 10
    steps = delay + 2 * length
    rnn = copying_network(delay, symbols, length)
    generator = torch.Generator().manual_seed(0)
    message = torch.randint(symbols, (4, length), generator=generator)
    ids = torch.full((4, steps), symbols)
    ids[:, :length] = message
    ids[:, delay + length - 1] = symbols + 1  # the cue; a translation needs none
    out, _ = rnn(torch.nn.functional.one_hot(ids, symbols + 2).float())
    answer = out[:, -length:]
    assert torch.equal(answer.argmax(-1), message)
    loss = torch.nn.functional.cross_entropy(answer.flatten(0, 1), message.flatten())
    baseline = 10 * math.log(8) / (delay + 20)
    assert float(loss) * length / steps < 0.02 * baseline


def test_wave_equation_with_the_forward_difference():
    """dX/dt = D P, dP/dt = -D' X, so that X obeys X'' = c^2 Laplacian X."""
    c, n, t = 0.4, 48, 50
    rnn = wave_network(n, c)
    x = torch.randn(1, 1, n, dtype=torch.float64)
    p = torch.randn(1, 1, n, dtype=torch.float64)
    _, last = rnn(torch.zeros(1, t, 1), torch.cat([x, p], 1))
    shift = torch.eye(n, dtype=torch.float64).roll(-1, 0)
    d = c * (shift - torch.eye(n, dtype=torch.float64))
    system = torch.zeros(2 * n, 2 * n, dtype=torch.float64)
    system[:n, n:], system[n:, :n] = d, -d.T
    laplacian = -d @ d.T / c**2
    assert torch.allclose(laplacian[0, :2], torch.tensor([-2.0, 1.0]).double())
    want = torch.linalg.matrix_exp(t * system) @ torch.cat([x[0, 0], p[0, 0]])
    assert (last.flatten() - want).abs().max() < 1e-10
    energy = [float(v.detach().square().sum()) for v in (torch.cat([x, p], 1), last)]
    assert abs(energy[1] / energy[0] - 1) < 1e-13


def test_wave_equation_in_two_dimensions_with_one_field_and_two_fluxes():
    """A rectangular coupling: X has one channel, P has two (the gradient)."""
    c, n, t = 0.5, 6, 7.3
    layer = wave_layer(c)
    state = torch.randn(1, 3, n, n, dtype=torch.float64)
    eye = torch.eye(n, dtype=torch.float64)
    one = c * (eye.roll(-1, 0) - eye)
    d = torch.cat([torch.kron(one, eye), torch.kron(eye, one)], 1)
    total = n * n
    system = torch.zeros(3 * total, 3 * total, dtype=torch.float64)
    system[:total, total:], system[total:, :total] = d, -d.T
    want = torch.linalg.matrix_exp(t * system) @ state.flatten()
    assert (layer(state, t).flatten() - want).abs().max() < 1e-12


def test_free_schroedinger_equation():
    """i psi' = -Laplacian psi / 2, a plane wave and a packet, exact in the lattice dispersion."""
    n, dt, steps = 64, 0.1, 200
    rnn = schroedinger_network(n, dt, torch.tensor([1.0, -2.0, 1.0], dtype=torch.float64))
    site = torch.arange(n).double()
    packet = torch.exp(-((site - 20) ** 2) / 30 + 0.7j * site)
    out, last = rnn(torch.zeros(1, steps, 1), packet.view(1, 1, n).to(torch.complex64))
    eye = torch.eye(n, dtype=torch.float64)
    hamiltonian = eye.roll(1, 0) + eye.roll(-1, 0) - 2 * eye
    dense = torch.linalg.matrix_exp(0.5j * dt * steps * hamiltonian)
    want = dense @ packet
    assert (last.flatten() - want).norm() / want.norm() < 1e-5
    norms = out.abs().square().sum(-1).sqrt().flatten()
    assert (norms / norms[0] - 1).abs().max() < 3e-6


def test_advection_by_the_spectral_derivative_is_a_shift():
    n = 65
    rnn = ConvUnitaryRNN(1, n, 1, kernel_size=n, dtype=torch.float64)
    set_generator(rnn.conv, translation_generator(n))
    field = torch.randn(1, 1, n, dtype=torch.complex128)
    _, last = rnn(torch.zeros(1, 37, 1), field)
    assert torch.allclose(last, field.roll(37, -1), atol=1e-11)
    half = rnn.propagate(rnn.propagate(field, 0.5), 0.5)
    assert torch.allclose(half, field.roll(1, -1), atol=1e-12)


def test_central_difference_translates_only_smooth_fields():
    n = 256
    kernel = torch.tensor([-0.5, 0.0, 0.5], dtype=torch.float64)
    site = torch.arange(n).double()
    gauss = torch.exp(-((site - 64) ** 2) / (2 * 8.0**2))
    for t, worst in ((1, 1e-3), (20, 2e-2)):
        moved = conv_apply(conv_exp(kernel, n, float(t)), gauss)
        assert (moved - gauss.roll(t, 0)).abs().max() < worst
    delta = torch.zeros(n).double()
    delta[64] = 1
    moved = conv_apply(conv_exp(kernel, n, 110.0), delta)
    assert moved.max() < 0.2  # dispersed, not moved


def test_heat_is_the_control_that_is_not_unitary():
    kernel = torch.tensor([1.0, -2.0, 1.0], dtype=torch.float64)
    values = torch.fft.fft(conv_exp(kernel, 32)).abs()
    assert values.min() < 0.02
    back = conv_exp(kernel, 32, -3.0)
    assert back.abs().max() > 1e3


# --- Rule 110 ---------------------------------------------------------------------------------


def cells_at_random(ring=200):
    return torch.rand(1, ring, generator=torch.Generator().manual_seed(0)) < 0.5


def test_the_automaton_is_the_one_numbered_110():
    for pattern in range(8):
        left, centre, right = (bool(pattern >> i & 1) for i in (2, 1, 0))
        ring = torch.tensor([[left, centre, right, False, False]])
        assert bool(rule110(ring)[0, 1]) == bool(110 >> pattern & 1)


@pytest.mark.parametrize("net", EMBEDDINGS, ids=lambda net: net.name)
@pytest.mark.parametrize("steps", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_rule_110_in_both_embeddings_with_noise(net, steps):
    assert int(survival(net, cells_at_random(), steps)) == steps
    assert int(survival(net, cells_at_random(), steps, net.noise)) == steps


def test_rule_110_needs_the_right_order_and_a_steep_activation():
    staircase, bump = EMBEDDINGS
    assert int(survival(bump.mirrored(), cells_at_random(), 50)) < 50  # that is rule 124
    assert int(survival(bump.mirrored(), cells_at_random(), 50, mirror=True)) == 50
    soft = Embedding("", bump.taps, Unimodal(6.0))
    assert int(survival(soft, cells_at_random(), 50)) < 50
    assert int(survival(staircase, cells_at_random(), 50, 0.3)) < 50


# --- backtracking -----------------------------------------------------------------------------


def test_wave_leaves_the_support_radius_dark():
    layer = UnitaryConv(1, 3, dtype=torch.float64)
    kernel = layer.generator()[0, 0].detach()
    radius = support_radius(kernel, 1e-9)
    flash = torch.zeros(1, 1, 201, dtype=torch.complex128)
    flash[..., 100] = 1
    out = layer(flash).abs()[0, 0]
    assert out[: 100 - radius].sum() + out[101 + radius :].sum() < 1e-9
    assert torch.allclose(layer.inverse(layer(flash)), flash, atol=1e-14)
