"""Problems that a convolutional unitary network solves by construction, against exact solutions."""

import math

import pytest
import torch

from lawful.unitary import (
    Activation,
    ConvOrthogonalRNN,
    ConvUnitaryRNN,
    OrthogonalConv,
    UnitaryConv,
    conv_apply,
    conv_exp,
    from_antihermitian,
    support_radius,
)


def set_generator(conv, kernel):
    """Gives a one-channel unitary layer the anti-Hermitian kernel."""
    with torch.no_grad():
        conv.weight.copy_(from_antihermitian(kernel)[None])


def translation_generator(sites):
    """The anti-Hermitian kernel of the whole ring whose exponential moves by one site."""
    k = torch.arange(sites)
    signed = torch.where(k <= sites // 2, k, k - sites).double()
    if sites % 2 == 0:
        raise ValueError("an odd ring has a translation with a real generator")
    values = torch.complex(torch.zeros(sites).double(), -2 * math.pi * signed / sites)
    return torch.fft.ifft(values).roll(sites // 2, 0)  # origin to the centre tap


@pytest.mark.parametrize("delay", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_copying_problem_by_a_translation_ring(delay):
    """Ten symbols out of eight, repeated after `delay` steps, by moving them along a ring."""
    symbols, length = 8, 10
    steps = delay + 2 * length
    sites = (steps + 54) | 1
    conv = {"mixing": False, "kernel_size": sites, "dtype": torch.float64}
    rnn = ConvUnitaryRNN(symbols + 2, sites, symbols, output_size=symbols, **conv)
    rnn.requires_grad_(False)
    kernel = translation_generator(sites)
    rnn.conv.weight.copy_(from_antihermitian(kernel).expand_as(rnn.conv.weight))
    rnn.input_weight.zero_()
    rnn.output_weight.zero_()
    for s in range(symbols):
        rnn.input_weight[s, 0, s, 0] = 1  # write symbol s of channel s at site 0
        rnn.output_weight[s, 0, s, delay + length] = 30.0  # read it where it then is
    rnn.output_bias.zero_()
    rnn = rnn.float()
    generator = torch.Generator().manual_seed(0)
    message = torch.randint(symbols, (4, length), generator=generator)
    ids = torch.full((4, steps), symbols)
    ids[:, :length] = message
    ids[:, delay + length - 1] = symbols + 1  # the cue; a translation needs none
    with torch.no_grad():
        out, _ = rnn(torch.nn.functional.one_hot(ids, symbols + 2).float())
    answer = out[:, -length:]
    assert torch.equal(answer.argmax(-1), message)
    loss = torch.nn.functional.cross_entropy(answer.flatten(0, 1), message.flatten())
    baseline = 10 * math.log(8) / (delay + 20)
    assert float(loss) * length / steps < 0.02 * baseline


def test_wave_equation_with_the_forward_difference():
    """dX/dt = D P, dP/dt = -D' X, so that X obeys X'' = c^2 Laplacian X."""
    c, n, t = 0.4, 48, 50
    rnn = ConvOrthogonalRNN(1, n, 2, form="pair", dtype=torch.float64)
    with torch.no_grad():
        rnn.conv.weight.copy_(torch.tensor([[c, -c, 0.0]], dtype=torch.float64))
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
    layer = OrthogonalConv(3, 3, 2, form="pair", split=(1, 2), dtype=torch.float64)
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[0, :, 1, 1] = -c
        layer.weight[0, 0, 0, 1] = c  # tap -1 along the first axis
        layer.weight[0, 1, 1, 0] = c
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
    rnn = ConvUnitaryRNN(1, n, 1)
    laplacian = torch.tensor([1.0, -2.0, 1.0], dtype=torch.float64)
    set_generator(rnn.conv, 0.5j * dt * laplacian)
    site = torch.arange(n).double()
    packet = torch.exp(-((site - 20) ** 2) / 30 + 0.7j * site)
    with torch.no_grad():
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


def rule110(cells):
    left, right = cells.roll(1, -1), cells.roll(-1, -1)
    return (cells | right) & ~(left & cells & right)


class Staircase(Activation):
    """psi with values 0,1,1,1,0,1,1,0 at 0..7 and plateaus around the integers."""

    table = (0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0)

    def __init__(self, sharpness=60.0):
        super().__init__()
        self.sharpness = sharpness

    def run(self, z, tensors, branch=None):
        u, out = z.real, torch.full_like(z.real, self.table[0])
        for j in range(7):
            rise = self.table[j + 1] - self.table[j]
            if rise:
                out = out + rise * torch.sigmoid(self.sharpness * (u - j - 0.5))
        return torch.complex(out, torch.zeros_like(out))


class Unimodal(Activation):
    """The difference of two logistic steps, for sums 0..5 -> 0,0,1,1,1,0."""

    def __init__(self, sigma):
        super().__init__()
        self.sigma = sigma

    def run(self, z, tensors, branch=None):
        u = z.real
        out = torch.sigmoid(self.sigma * (u - 1.5)) - torch.sigmoid(self.sigma * (u - 4.5))
        return torch.complex(out, torch.zeros_like(out))


def run_automaton(kernel, activation, steps, noise, seed=0, ring=200):
    """Steps of the network beside the Boolean automaton; the first step at which they differ."""
    source = torch.Generator().manual_seed(seed)
    cells = torch.rand(ring, generator=source) < 0.5
    z = cells.float()
    kernel = torch.tensor(kernel)
    wrap = torch.arange(-1, ring + 1) % ring
    for step in range(1, steps + 1):
        sums = torch.conv1d(z[wrap].view(1, 1, -1), kernel.flip(0).view(1, 1, 3)).flatten()
        z = activation(torch.complex(sums, torch.zeros_like(sums))).real
        cells = rule110(cells)
        if noise:
            z = z + noise * (2 * torch.rand(ring, generator=source) - 1)
        if not torch.equal(z > 0.5, cells):
            return step
    return None


EMBEDDINGS = {
    # convolution order: tap a multiplies the neighbour at x - a
    "421": ([1.0, 2.0, 4.0], Staircase(60.0), 0.05),
    "221": ([2.0, 2.0, 1.0], Unimodal(30.0), 0.07),
}


@pytest.mark.parametrize("name", list(EMBEDDINGS))
@pytest.mark.parametrize("steps", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_rule_110_in_both_embeddings_with_noise(name, steps):
    kernel, activation, noise = EMBEDDINGS[name]
    assert run_automaton(kernel, activation, steps, 0.0) is None
    assert run_automaton(kernel, activation, steps, noise) is None


def test_rule_110_needs_the_right_order_and_a_steep_activation():
    kernel, activation, _ = EMBEDDINGS["221"]
    assert run_automaton(kernel[::-1], activation, 50, 0.0) is not None  # that is rule 124
    assert run_automaton(kernel, Unimodal(6.0), 50, 0.0) is not None
    kernel, _, _ = EMBEDDINGS["421"]
    assert run_automaton(kernel, Staircase(60.0), 50, 0.3) is not None


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
