"""The update is minus the gradient of the energy, and the derivative of a descent is exact."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from tests.reference import energy as oracle
from torch.autograd import gradcheck, gradgradcheck

from lawful.energy import ConvexPotential, EnergyTransformer

N, D, H, Y, M = 5, 6, 2, 3, 7
SOFTPLUS = ConvexPotential(F.softplus, torch.sigmoid)
OPTIONS = [
    dict(zip(("self_attention", "bias", "activation", "beta"), values, strict=True))
    for values in itertools.product(
        (False, True), (False, True), ("relu", "softmax", SOFTPLUS), (None, [0.3, 1.7])
    )
]
CONSTRAINTS = ["none", "mask", "edges", "multiply", "add", "all"]


def build(seed=0, **options):
    torch.manual_seed(seed)
    model = EnergyTransformer(
        D, H, Y, M, **{"steps": 3, "memory_beta": 0.8, "dtype": torch.float64, **options}
    )
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "log" not in name:
                value.add_(0.3 * torch.randn_like(value))
    return model


def scene(kind, batch=2):
    torch.manual_seed(1)
    x = torch.randn(batch, N, D, dtype=torch.float64)
    mask = torch.tensor([[True] * N, [True, False, True, True, False]])[:batch]
    edges = torch.rand(batch, H, N, N) > 0.4
    edges[0, :, 2] = False  # a query without any key
    weights = torch.rand(batch, H, N, N, dtype=torch.float64) + 0.2
    inputs = {
        "none": {},
        "mask": {"mask": mask},
        "edges": {"adjacency": edges},
        "multiply": {"adjacency": weights * edges},
        "add": {"adjacency": weights.masked_fill(~edges, float("-inf"))},
        "all": {"mask": mask, "adjacency": weights * edges},
    }[kind]
    return x, inputs


def oracle_energy(model, g, inputs):
    """Of the whole batch (B,), at activations g."""
    block, found = model.blocks[0], []
    act = model.hopfield.activation
    for i in range(len(g)):
        mask = None if "mask" not in inputs else inputs["mask"][i]
        a = inputs.get("adjacency")
        allowed = weight = None
        if a is not None:
            allowed = a[i] if a.dtype == torch.bool else (a[i] != 0) & (a[i] != float("-inf"))
            weight = None if a.dtype == torch.bool else a[i]
        beta = block.attention.beta
        e = oracle.attention_energy(
            g[i], block.attention.query, block.attention.key, beta, mask=mask, allowed=allowed,
            self_attention=block.attention.self_attention, weight=weight,
            form=block.attention.adjacency_form, query_bias=block.attention.query_bias,
            key_bias=block.attention.key_bias, causal=block.attention.causal,
        )  # fmt: skip
        b = block.hopfield.beta
        potential = {
            "relu": lambda h: 0.5 * h.relu().square().sum(),
            "softmax": lambda h, b=b: (b * h).logsumexp(0) / b,
        }.get(act if isinstance(act, str) else "", lambda h: F.softplus(h).sum())
        found.append(
            e + oracle.memory_energy(
                g[i], block.hopfield.memories, potential, mask=mask, bias=block.hopfield.bias
            )
        )  # fmt: skip
    return torch.stack(found)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(str(v)[:8] for v in o.values()))
def test_one_step_follows_the_gradient_of_the_oracle(options, constraint, backend):
    form = "add" if constraint == "add" else "multiply"
    model = build(steps=1, step_size=0.7, adjacency_form=form, **options)
    x, inputs = scene(constraint)
    norm = model.norm
    g = torch.stack([oracle.layer_norm(s, norm.gamma, norm.delta, norm.eps) for s in x]).detach()
    g.requires_grad_()
    energy = oracle_energy(model, g, inputs)
    (slope,) = torch.autograd.grad(energy.sum(), g)
    with torch.no_grad():
        y, energies = model(x, **inputs, return_energy=True)
    torch.testing.assert_close(y, x - 0.7 * slope, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(energies[0], energy, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(model.energy(x, **inputs), energy, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(model.energy(y, **inputs), energies[1], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_update_against_finite_differences(constraint):
    model = build(adjacency_form="add" if constraint == "add" else "multiply")
    x, inputs = scene(constraint)
    g, h = model.norm(x).detach(), 1e-5
    update = model.attention(g, **inputs) + model.hopfield(g, inputs.get("mask"))
    for i, a, d in [(0, 2, 1), (1, 0, 3), (1, 3, 5), (1, 1, 0)]:
        e = []
        for sign in (1, -1):
            moved = g.clone()
            moved[i, a, d] += sign * h
            mask = inputs.get("mask")
            e.append(model.attention.energy(moved, **inputs) + model.hopfield.energy(moved, mask))
        slope = (e[0] - e[1])[i] / (2 * h)
        torch.testing.assert_close(-slope, update[i, a, d], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("step_rule", ["fixed", "learned"])
@pytest.mark.parametrize("activation", ["relu", "softmax", SOFTPLUS], ids=["relu", "softmax", "G"])
@pytest.mark.parametrize("recompute", [False, True])
def test_gradcheck_of_the_whole_block(activation, step_rule, constraint, recompute, backend):
    form = "add" if constraint == "add" else "multiply"
    model = build(
        activation=activation, step_rule=step_rule, recompute=recompute, adjacency_form=form,
        bias=True, learn_beta=True, self_attention=recompute,
    )  # fmt: skip
    x, inputs = scene(constraint)
    names = [n for n, _ in model.named_parameters()]
    adjacency = inputs.pop("adjacency", None)
    floating = adjacency is not None and adjacency.is_floating_point()
    if floating:  # only entries that are edges are differentiable
        at = (adjacency != 0) & (adjacency != float("-inf"))
        base, adjacency = adjacency, adjacency[at]

    def run(x, weights, *values):
        if floating:
            inputs["adjacency"] = base.masked_scatter(at, weights)
        elif adjacency is not None:
            inputs["adjacency"] = adjacency
        call = {"mask": inputs.get("mask"), "adjacency": inputs.get("adjacency")}
        state = dict(zip(names, values, strict=True))
        found = torch.func.functional_call(model, state, (x,), {**call, "return_energy": True})
        return found[0], found[1]

    values = [v.detach().requires_grad_() for v in model.parameters()]
    weights = adjacency.requires_grad_() if floating else None
    assert gradcheck(run, (x.requires_grad_(), weights, *values), atol=1e-6, fast_mode=True)


def test_gradcheck_element_by_element(backend):
    model = build(steps=2, step_rule="learned")
    x, inputs = scene("mask")
    values = [v.detach().requires_grad_() for v in model.parameters()]
    names = [n for n, _ in model.named_parameters()]

    def run(x, *values):
        state = dict(zip(names, values, strict=True))
        options = {**inputs, "return_energy": True}
        return torch.func.functional_call(model, state, (x,), options)

    assert gradcheck(run, (x.requires_grad_(), *values))


def test_second_derivatives():
    model = build(steps=2, step_rule="learned", learn_beta=True)
    x, inputs = scene("all")
    values = [v.detach().requires_grad_() for v in model.parameters()]
    names = [n for n, _ in model.named_parameters()]

    def run(x, *values):
        state = dict(zip(names, values, strict=True))
        options = {**inputs, "return_energy": True}
        return torch.func.functional_call(model, state, (x,), options)

    assert gradgradcheck(run, (x.requires_grad_(), *values), atol=1e-6, fast_mode=True)


@pytest.mark.parametrize("step_rule", ["certified", "backtracking"])
def test_guaranteed_steps_are_constants_of_the_derivative(step_rule, backend):
    model = build(step_rule=step_rule, step_size=50.0, activation="softmax")
    x, inputs = scene("mask")
    x.requires_grad_()
    y, energies = model(x, **inputs, return_energy=True)
    (y.sin().sum() + energies.cos().sum()).backward()
    # The same descent as a chain of single steps with the lengths that were found.
    z = x.detach().clone().requires_grad_()
    lengths, state, rows = _lengths(model, z.detach(), inputs), z, []
    plain = build(step_rule="fixed", activation="softmax")
    for alpha in lengths:
        rows.append(plain.energy(state, **inputs))
        update = plain.attention(g := plain.norm(state), **inputs) + plain.hopfield(g, **inputs)
        state = state + alpha[:, None, None] * update
    rows.append(plain.energy(state, **inputs))
    real = inputs["mask"]
    torch.testing.assert_close(y[real], state[real], rtol=1e-10, atol=1e-10)
    (state[real].sin().sum() + torch.stack(rows).cos().sum()).backward()
    torch.testing.assert_close(x.grad[real], z.grad[real], rtol=1e-7, atol=1e-7)


def _lengths(model, x, inputs):
    """α of each step and sample, read off the trajectory."""
    path = model.settle(x, **inputs, trajectory=True).trajectory
    found = []
    for old, new in itertools.pairwise(path):
        g = model.norm(old)
        update = model.attention(g, **inputs) + model.hopfield(g, **inputs)
        found.append(((new - old) * update).sum((1, 2)) / update.square().sum((1, 2)))
    return [a.detach() for a in found]


def test_long_inputs_take_the_same_way_in_blocks(monkeypatch):
    from lawful.kernels.energy import _stage

    model = build(step_rule="learned", activation="softmax", learn_beta=True)
    x, inputs = scene("all")
    inputs["adjacency"].requires_grad_()
    found = []
    for size in (1 << 22, 1):
        monkeypatch.setattr(_stage, "BLOCK_ELEMENTS", size)
        y, e = model(x, **inputs, return_energy=True)
        wanted = [inputs["adjacency"], *model.parameters()]
        found.append((y, e, *torch.autograd.grad(y.sin().sum() + e.sum(), wanted)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("self_attention", [False, True])
def test_causal_form_descends_each_tokens_own_energy(self_attention, backend):
    model = build(causal=True, self_attention=self_attention, steps=1, step_size=1.0)
    x, _ = scene("none")
    g = model.norm(x).detach()
    at = model.attention
    for c in range(N):
        mine = g[0, c].clone().requires_grad_()
        keys = [b for b in range(N) if b < c or (b == c and self_attention)]
        energy = torch.zeros((), dtype=torch.float64)
        for h in range(H):
            if keys:
                scores = torch.stack([at.key[h] @ g[0, b] @ (at.query[h] @ mine) for b in keys])
                energy = energy - (at.beta[h] * scores).logsumexp(0) / at.beta[h]
        energy = energy - 0.5 * (model.hopfield.memories @ mine).relu().square().sum()
        (slope,) = torch.autograd.grad(energy, mine)
        torch.testing.assert_close(model(x)[0, c], x[0, c] - slope, rtol=1e-11, atol=1e-11)
    assert gradcheck(lambda x: model(x, return_energy=True), (x.requires_grad_(),))


def test_causal_form_hides_the_future(backend):
    model = build(causal=True, self_attention=True)
    x, _ = scene("none")
    other = x.clone()
    other[:, 3:] = torch.randn(2, 2, D, dtype=torch.float64)
    torch.testing.assert_close(model(x)[:, :3], model(other)[:, :3], rtol=0, atol=1e-13)
    assert not torch.allclose(model(x)[:, 3:], model(other)[:, 3:])


@pytest.mark.parametrize("options", [{}, {"self_attention": True}, {"activation": SOFTPLUS}])
def test_hessian_vector_products(options):
    model = build(**options)
    x, inputs = scene("all")
    g = model.norm(x).detach()
    v = torch.randn_like(g)
    for term, context in (
        (model.attention, (inputs["mask"], inputs["adjacency"])),
        (model.hopfield, (inputs["mask"],)),
    ):
        got, h = term.hvp(g, v, *context), 1e-6
        moved = [term.update(g + s * h * v, *context) for s in (1, -1)]
        torch.testing.assert_close(got, -(moved[0] - moved[1]) / (2 * h), rtol=1e-5, atol=1e-6)
