"""A user's own energies join the descent; structures' log-partitions do."""

import pytest
import torch

from lawful.energy import EnergyTerm, EnergyTransformer
from lawful.errors import InputError


class ChainTerm(EnergyTerm):
    """Minus the log-partition of a linear chain whose states are scored by g: a forward pass."""

    def __init__(self, dim, states):
        super().__init__()
        self.emit = torch.nn.Parameter(torch.randn(states, dim) / dim**0.5)
        self.move = torch.nn.Parameter(torch.randn(states, states))

    def energy(self, g, mask=None):
        unary = g @ self.emit.T
        alpha = unary[:, 0]
        for t in range(1, g.shape[1]):
            new = (alpha[:, :, None] + self.move).logsumexp(1) + unary[:, t]
            alpha = new if mask is None else torch.where(mask[:, t, None], new, alpha)
        return -alpha.logsumexp(-1)


class Spring(EnergyTerm):
    """½ k |g|², with everything in closed form."""

    def __init__(self, stiffness):
        super().__init__()
        self.stiffness = torch.nn.Parameter(torch.tensor(stiffness))

    def energy(self, g, mask=None):
        squares = g.square().sum(-1)
        squares = squares if mask is None else squares * mask
        return 0.5 * self.stiffness * squares.sum(-1)

    def update(self, g, mask=None):
        return -self.stiffness * g

    def curvature(self, g, mask=None):
        return self.stiffness.detach().expand(len(g))


def build(term, **options):
    torch.manual_seed(0)
    return EnergyTransformer(8, 2, 3, 10, steps=5, terms=[term], dtype=torch.float64, **options)


def test_the_sum_of_energies_is_descended():
    model = build(ChainTerm(8, 3).double(), step_size=0.2)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True, True, True, False, False]])
    y, e = model(x, mask, return_energy=True)
    g = model.norm(x).detach().requires_grad_()
    total = model.attention.energy(g, mask) + model.hopfield.energy(g, mask)
    total = total + model.blocks[0].terms[0].energy(g, mask)
    torch.testing.assert_close(e[0], total)
    (slope,) = torch.autograd.grad(total.sum(), g)
    one = model(x, mask, steps=1)
    torch.testing.assert_close(one[mask], (x - 0.2 * slope)[mask])
    assert torch.equal(y[~mask], x[~mask])
    torch.testing.assert_close(model.energy(x, mask), total)


@pytest.mark.parametrize("step_rule", ["fixed", "learned", "backtracking"])
@pytest.mark.parametrize("recompute", [False, True])
def test_derivative_through_a_custom_term(step_rule, recompute):
    model = build(ChainTerm(8, 3).double(), step_rule=step_rule, recompute=recompute)
    x = torch.randn(1, 4, 8, dtype=torch.float64, requires_grad=True)
    names = [n for n, _ in model.named_parameters()]
    values = [p.detach().requires_grad_() for p in model.parameters()]

    def run(x, *values):
        state = dict(zip(names, values, strict=True))
        return torch.func.functional_call(model, state, (x,), {"return_energy": True})

    assert torch.autograd.gradcheck(run, (x, *values), fast_mode=True)


@pytest.mark.parametrize("recompute", [False, True])
def test_the_general_way_equals_the_fused_one(recompute):
    fused = EnergyTransformer(8, 2, 3, 10, steps=4, dtype=torch.float64)
    torch.manual_seed(1)
    general = build(Spring(0.0).double(), recompute=recompute)
    missing = general.load_state_dict(fused.state_dict(), strict=False).missing_keys
    assert missing == ["blocks.0.terms.0.stiffness"]
    x = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    found = []
    for model in (fused, general):
        y, e = model(x, return_energy=True, steps=4)
        loss = y.sin().sum() + e.sum()
        shared = [model.get_parameter(n) for n, _ in fused.named_parameters()]
        found.append((y, e, *torch.autograd.grad(loss, [x, *shared])))
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("step_rule", ["certified", "backtracking"])
def test_guarantees_extend_to_convex_terms(step_rule):
    model = build(Spring(3.0).double(), step_rule=step_rule, step_size=1e4)
    x = 0.01 * torch.randn(3, 6, 8, dtype=torch.float64)
    _, e = model(x, return_energy=True, steps=30)
    assert (e.diff(dim=0) <= 1e-13 * e.abs().max()).all()
    fixed = build(Spring(30.0).double(), step_size=1e-2)
    _, e = fixed(x, return_energy=True, steps=30)
    assert e.diff(dim=0).max() > 0


def test_default_update_and_hvp_follow_from_the_energy():
    term, g = ChainTerm(4, 3).double(), torch.randn(2, 3, 4, dtype=torch.float64)
    v, h = torch.randn_like(g), 1e-6
    with torch.no_grad():
        update = term.update(g)
    slope = (term.energy(g + h * v) - term.energy(g - h * v)) / (2 * h)
    torch.testing.assert_close(-(update * v).sum((1, 2)), slope, rtol=1e-6, atol=1e-7)
    bend = -(term.update(g + h * v) - term.update(g - h * v)) / (2 * h)
    torch.testing.assert_close(term.hvp(g, v), bend, rtol=1e-5, atol=1e-7)
    assert not update.requires_grad
    assert term.update(g).requires_grad


def test_a_term_without_a_bound_cannot_be_certified():
    model = build(ChainTerm(8, 3).double(), step_rule="certified")
    with pytest.raises(InputError, match="ChainTerm states no bound on its curvature"):
        model(torch.randn(4, 8, dtype=torch.float64))


def test_later_blocks_get_copies():
    model = build(Spring(1.0).double(), blocks=2)
    first, second = (b.terms[0] for b in model.blocks)
    assert first is not second
    model(torch.randn(3, 8, dtype=torch.float64)).sum().backward()
    assert first.stiffness.grad != second.stiffness.grad
