"""Guaranteed steps never raise the energy, whatever is asked for; noise, tolerance, blocks."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lawful.energy import ConvexPotential, EnergyTransformer
from lawful.errors import InputError

# A certified step cannot raise E; its computed value carries the rounding of the sums it is made
# of. 32 units in the last place of the largest |E| on the way covers what was seen (4).
ROUNDING = {torch.float32: 32 * 2**-23, torch.float64: 32 * 2**-52}


def repulsive(dtype=torch.float32, **options):
    """W_Q = -W_K and no memories: the case in which a fixed step does raise the energy."""
    model = EnergyTransformer(12, 2, 6, 0, steps=25, dtype=dtype, **options)
    with torch.no_grad():
        model.attention.key.copy_(-model.attention.query)
    return model


def rise(model, x, *inputs):
    with torch.no_grad():
        _, e = model(x, *inputs, return_energy=True)
    assert e.isfinite().all()
    return (e.diff(dim=0) / e.abs().amax(0).clamp(min=1)).amax().item()


def test_a_fixed_step_can_raise_the_energy():
    worst = []
    for seed in range(5):
        torch.manual_seed(seed)
        worst.append(rise(repulsive(step_size=1.0), 0.003 * torch.randn(4, 10, 12)))
    assert max(worst) > 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("asked", [1e-3, 0.1, 1.0, 30.0, 1e8])
@pytest.mark.parametrize("scale", [0.003, 1.0])
@pytest.mark.parametrize("step_rule", ["certified", "backtracking"])
def test_the_energy_never_rises(step_rule, scale, asked, dtype, backend):
    limit = 0.0 if step_rule == "backtracking" else ROUNDING[dtype]
    for seed in range(5):
        torch.manual_seed(seed)
        model = repulsive(dtype, step_size=asked, step_rule=step_rule)
        assert rise(model, scale * torch.randn(4, 10, 12, dtype=dtype)) <= limit


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 2, 5, 9]),
    st.floats(-3, 6),
    st.sampled_from([0.01, 0.3, 1.0, 4.0]),
    st.booleans(),
    st.sampled_from(["relu", "softmax", "softplus"]),
)
def test_the_energy_never_rises_for_random_weights(seed, n, asked, gain, self_attention, kind):
    torch.manual_seed(seed)
    if kind == "softplus":
        kind = ConvexPotential(torch.nn.functional.softplus, torch.sigmoid)
    x = torch.randn(3, n, 8)
    mask, edges = torch.rand(3, n) > 0.2, torch.rand(3, n, n) > 0.2
    weights = torch.randn(3, n, n) * edges
    for step_rule in ("certified", "backtracking"):
        model = EnergyTransformer(
            8, 2, 4, 6, 10, 10.0**asked, step_rule=step_rule, activation=kind, bias=True,
            self_attention=self_attention, learn_beta=True,
        )  # fmt: skip
        with torch.no_grad():
            for p in model.parameters():
                p.add_(gain * torch.randn_like(p))
            model.attention.log_beta.clamp_(-2, 2)
        limit = 0.0 if step_rule == "backtracking" else ROUNDING[torch.float32]
        for inputs in ((), (mask,), (mask, edges), (None, weights)):
            assert rise(model, x, *inputs) <= limit


def test_the_energy_never_rises_on_trained_weights(backend):
    """A few steps of learning to undo noise, then descents far longer and wider than trained."""
    torch.manual_seed(0)
    model = EnergyTransformer(16, 2, 8, 32, steps=6)
    clean = torch.randn(64, 8, 16).cumsum(1)
    clean = clean / clean.std()
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = (model.norm(model(clean + 0.5 * torch.randn_like(clean))) - clean).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    state = model.state_dict()
    for step_rule, limit in (("certified", ROUNDING[torch.float32]), ("backtracking", 0.0)):
        for asked in (0.1, 100.0):
            guarded = EnergyTransformer(16, 2, 8, 32, 80, asked, step_rule=step_rule)
            guarded.load_state_dict(state)
            assert rise(guarded, clean[:8]) <= limit


def test_certified_steps_are_not_timid():
    """Asked for little, they give what is asked; asked for much, they move."""
    torch.manual_seed(0)
    x = torch.randn(2, 6, 12)
    small = repulsive(step_size=1e-3, step_rule="certified")
    plain = repulsive(step_size=1e-3)
    plain.load_state_dict(small.state_dict())
    assert torch.equal(small(x), plain(x))
    _, e = repulsive(step_size=1e6, step_rule="certified")(x, return_energy=True)
    assert (e[0] - e[-1]).min() > 1.0


def test_certified_bound_is_met_by_the_hessian():
    """No eigenvalue of the energy's second derivative exceeds the stated curvature."""
    torch.manual_seed(0)
    model = repulsive(torch.float64, self_attention=True)
    worst = 0.0
    for _ in range(5):
        g = 2 * torch.randn(5, 12, dtype=torch.float64)
        h = torch.autograd.functional.hessian(model.attention.energy, g).reshape(60, 60)
        worst = max(worst, torch.linalg.eigvalsh(h)[-1].item())
    bound = model.attention.curvature(g).item()
    assert 0.1 * bound < worst <= bound


def test_negative_gain_takes_no_step():
    torch.manual_seed(0)
    x = torch.randn(2, 5, 12)
    for step_rule in ("certified", "backtracking"):
        model = repulsive(step_rule=step_rule)
        with torch.no_grad():
            model.norm.gamma.fill_(-1.0)
        assert rise(model, x) <= 0
    assert rise(_negative(), x) > 0


def _negative():
    model = repulsive()
    with torch.no_grad():
        model.norm.gamma.fill_(-1.0)
    return model


def test_learned_step_size_learns():
    torch.manual_seed(0)
    model = EnergyTransformer(8, 2, 4, 8, 3, 0.2, step_rule="learned", blocks=2)
    names = [n for n, _ in model.named_parameters() if "step" in n]
    assert names == ["blocks.0.log_step_size", "blocks.1.log_step_size"]
    x = torch.randn(2, 5, 8)
    plain = EnergyTransformer(8, 2, 4, 8, 3, 0.2, blocks=2)
    state = {k: v for k, v in model.state_dict().items() if "step" not in k}
    plain.load_state_dict(state)
    torch.testing.assert_close(model(x), plain(x))
    torch.testing.assert_close(model(x, step_size=0.3), plain(x, step_size=0.3))
    model(x).square().sum().backward()
    assert all(model.get_parameter(n).grad.abs() > 0 for n in names)


def test_noise_is_langevins_and_off_in_evaluation():
    torch.manual_seed(0)
    model = EnergyTransformer(8, 2, 4, 8, steps=1, step_size=0.09, noise=0.5)
    x = torch.randn(400, 5, 8)
    quiet = EnergyTransformer(8, 2, 4, 8, steps=1, step_size=0.09)
    quiet.load_state_dict(model.state_dict())
    kick = (model(x) - quiet(x)) / math.sqrt(0.09)
    assert abs(kick.std().item() - 0.5) < 0.01
    assert abs(kick.mean().item()) < 0.02
    model.eval()
    assert torch.equal(model(x), quiet(x))
    noisy = [model(x, langevin=True, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(noisy[0], noisy[1])
    assert not torch.equal(noisy[0], noisy[2])
    mask = torch.rand(400, 5) > 0.5
    assert torch.equal(model(x, mask, langevin=True)[~mask], x[~mask])


def test_noise_does_not_disturb_the_derivative():
    torch.manual_seed(0)
    for step_rule in ("fixed", "learned"):
        model = EnergyTransformer(6, 2, 3, 5, 3, noise=0.3, step_rule=step_rule).double()
        x = torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)

        def run(x, *values, model=model):
            names = [n for n, _ in model.named_parameters()]
            options = {"generator": torch.Generator().manual_seed(3)}
            state = dict(zip(names, values, strict=True))
            return torch.func.functional_call(model, state, (x,), options)

        values = [p.detach().requires_grad_() for p in model.parameters()]
        assert torch.autograd.gradcheck(run, (x, *values), fast_mode=True)


def test_stopping_by_the_change_of_g(backend):
    torch.manual_seed(0)
    model = EnergyTransformer(12, 2, 6, 24, steps=400, step_size=0.5)
    x = torch.randn(3, 6, 12)
    found = model.settle(x, tolerance=1e-3, trajectory=True)
    assert found.energies.shape == (401, 3)
    assert found.trajectory.shape == (401, 3, 6, 12)
    assert (found.steps < 400).all()
    assert (found.change < 1e-3).all()
    for i in range(3):
        t = int(found.steps[i])
        g = [model.norm(found.trajectory[s, i]) for s in (t - 2, t - 1, t)]
        sizes = [(b - a).square().mean(-1).sqrt().max() for a, b in (g[:2], g[1:])]
        assert sizes[0] >= 1e-3 > sizes[1]
        assert torch.equal(found.trajectory[t, i], found.tokens[i])
        alone = model.settle(x[i], tolerance=1e-3)
        assert alone.steps == t
        torch.testing.assert_close(alone.tokens, found.tokens[i], rtol=1e-4, atol=1e-4)
        assert (found.energies[t:, i] == found.energies[t, i]).all()
    free = model.settle(x, tolerance=0.0, steps=7)
    assert (free.steps == 7).all()
    assert torch.equal(free.tokens, model(x, steps=7))


def test_derivative_after_an_early_stop():
    torch.manual_seed(0)
    model = EnergyTransformer(6, 2, 3, 8, steps=300, step_size=0.5).double()
    x = torch.randn(1, 4, 6, dtype=torch.float64)
    steps = int(model.settle(x, tolerance=1e-2).steps)
    assert 2 < steps < 300
    grads = []
    for options in ({"tolerance": 1e-2}, {"steps": steps}):
        a = x.clone().requires_grad_()
        s = model.settle(a, trajectory=True, **options)
        weight = torch.ones(len(s.energies), 1, dtype=torch.float64)
        if "steps" in options:
            weight[-1] += 300 - steps
        loss = s.tokens.sin().sum() + (weight * s.energies).sum()
        loss = loss + (weight[..., None, None] * s.trajectory).square().sum() * 0
        loss.backward()
        grads.append(a.grad)
    torch.testing.assert_close(grads[0], grads[1])


def test_several_blocks_run_in_sequence():
    torch.manual_seed(0)
    model = EnergyTransformer(8, 2, 4, 8, steps=3, blocks=2)
    x = torch.randn(2, 5, 8)
    y, e = model(x, return_energy=True)
    assert e.shape == (2, 4, 2)
    first = EnergyTransformer(8, 2, 4, 8, steps=3)
    for i in range(2):
        first.blocks[0].load_state_dict(model.blocks[i].state_dict())
        x, f = first(x, return_energy=True)
        torch.testing.assert_close(e[i], f)
    torch.testing.assert_close(x, y)
    torch.testing.assert_close(model.energy(y, block=1), e[1, -1])


def test_what_cannot_be_guaranteed_is_refused():
    with pytest.raises(InputError, match="noise"):
        EnergyTransformer(8, step_rule="certified", noise=0.1)
    with pytest.raises(InputError, match="causal"):
        EnergyTransformer(8, step_rule="backtracking", causal=True)
