"""Shapes, types, state dicts, copies, transforms, refusals."""

import copy
import doctest
import pickle

import pytest
import torch
from torch import nn

import lawful.energy
from lawful.energy import EnergyAttention, EnergyLayerNorm, EnergyTransformer, HopfieldNetwork
from lawful.errors import InputError


def build(**options):
    torch.manual_seed(0)
    return EnergyTransformer(8, 2, 3, 10, steps=3, **options)


@pytest.mark.parametrize("batch", [(), (1,), (4,), (2, 3), (0,), (2, 0), (1, 2, 1)])
@pytest.mark.parametrize("n", [0, 1, 2, 7])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("step_rule", ["fixed", "certified", "backtracking"])
def test_any_batch_shape_and_length(batch, n, grad, step_rule, backend):
    model = build(step_rule=step_rule)
    x = torch.randn(*batch, n, 8, requires_grad=grad)
    y, e = model(x, return_energy=True)
    assert y.shape == x.shape
    assert e.shape == (4, *batch)
    assert model.energy(x).shape == batch
    count = torch.Size(batch).numel()
    flat = x.reshape(count, n, 8)
    for i in range(min(2, len(flat))):
        z, f = model(flat[i], return_energy=True)
        torch.testing.assert_close(y.reshape(count, n, 8)[i], z)
        torch.testing.assert_close(e.reshape(4, count)[:, i], f)
    if grad:
        (y.sum() + e.sum()).backward()
        assert x.grad.shape == x.shape
        assert x.grad.isfinite().all()


@pytest.mark.parametrize("options", [{"heads": 0}, {"memories": 0}, {"dim": 1}, {"steps": 0}])
def test_smallest_sizes(options, backend):
    sizes = {"dim": 4, "heads": 2, "head_dim": 3, "memories": 5, "steps": 2, **options}
    model = EnergyTransformer(**sizes)
    x = torch.randn(2, 3, sizes["dim"], requires_grad=True)
    y, e = model(x, return_energy=True)
    (y.sum() + e.sum()).backward()
    assert e.shape == (sizes["steps"] + 1, 2)
    assert x.grad.isfinite().all()
    if sizes["steps"] == 0:
        assert torch.equal(y, x)


def test_state_dict_keys_are_part_of_the_interface():
    plain = {"gamma", "delta", "query", "key", "log_beta", "allows_self", "is_causal", "memories"}
    keys = set(build().state_dict())
    assert {k.rpartition(".")[2] for k in keys} == plain
    assert keys == {
        "blocks.0.norm.gamma",
        "blocks.0.norm.delta",
        "blocks.0.attention.query",
        "blocks.0.attention.key",
        "blocks.0.attention.log_beta",
        "blocks.0.attention.allows_self",
        "blocks.0.attention.is_causal",
        "blocks.0.hopfield.memories",
    }
    full = set(build(bias=True, step_rule="learned", activation="softmax").state_dict())
    assert {k.removeprefix("blocks.0.") for k in full - keys} == {
        "attention.query_bias",
        "attention.key_bias",
        "hopfield.bias",
        "hopfield.log_beta",
        "log_step_size",
    }
    assert build().attention.query.shape == (2, 3, 8)
    assert build().hopfield.memories.shape == (10, 8)
    assert sum(p.numel() for p in EnergyTransformer(768).parameters()) == 3_539_713


def test_self_attention_is_stored_and_a_mismatch_refused():
    other = build(self_attention=True)
    with pytest.raises(RuntimeError, match="allows_self: the state dict has True, this layer Fal"):
        build().load_state_dict(other.state_dict())
    build(self_attention=True).load_state_dict(other.state_dict())


def test_layer_norm_is_the_gradient_of_its_lagrangian():
    norm = EnergyLayerNorm(7, eps=0.1, dtype=torch.float64)
    with torch.no_grad():
        norm.gamma.fill_(1.7)
        norm.delta.normal_()
    x = torch.randn(3, 5, 7, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(norm.lagrangian(x).sum(), x)
    torch.testing.assert_close(norm(x), slope)
    legendre = (norm(x) * x).sum(-1) - norm.lagrangian(x)
    torch.testing.assert_close(norm.neuron_energy(x), legendre)


def test_copies_and_pickles():
    model, x = build(step_rule="backtracking"), torch.randn(2, 5, 8)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x), model(x))
        assert other.state_dict().keys() == model.state_dict().keys()


@pytest.mark.parametrize("step_rule", ["fixed", "learned"])
def test_same_in_training_evaluation_and_without_grad(step_rule, backend):
    model, x = build(step_rule=step_rule), torch.randn(2, 5, 8)
    trained = model(x, return_energy=True)
    model.eval()
    torch.testing.assert_close(model(x, return_energy=True), trained)
    assert model(x).requires_grad
    with torch.no_grad():
        torch.testing.assert_close(model(x, return_energy=True), trained)
    with torch.inference_mode():
        torch.testing.assert_close(model(x), trained[0])


def test_non_contiguous_and_expanded_inputs(backend):
    model, x = build(), torch.randn(8, 5, 3)
    torch.testing.assert_close(model(x.permute(2, 1, 0)), model(x.permute(2, 1, 0).contiguous()))
    one = torch.randn(5, 8)
    y = model(one.expand(3, 5, 8), torch.ones(1, 5, dtype=torch.bool))
    torch.testing.assert_close(y, model(one).expand(3, 5, 8))


@pytest.mark.parametrize("step_rule", ["fixed", "certified", "backtracking"])
def test_bfloat16(step_rule):
    model = build(step_rule=step_rule, step_size=0.3)
    x = torch.randn(3, 6, 8)
    with torch.no_grad():
        y, e = model(x, return_energy=True)
        half = copy.deepcopy(model).bfloat16()
        z, f = half(x.bfloat16(), return_energy=True)
    assert z.dtype == torch.bfloat16
    assert f.dtype == torch.float32
    torch.testing.assert_close(z.float(), y, rtol=0.1, atol=0.1)
    torch.testing.assert_close(f, e, rtol=0.05, atol=0.3)
    if step_rule == "backtracking":
        assert f.diff(dim=0).max() <= 0
    half(x.bfloat16().requires_grad_()).float().square().sum().backward()


def test_autocast_keeps_the_parameters_type():
    model, x = build(), torch.randn(2, 5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        y = model(x.bfloat16())
        y.sum().backward()
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, model(x.bfloat16().float()))


def test_function_transforms(backend):
    model = build(step_rule="learned").double()
    x = torch.randn(3, 5, 8, dtype=torch.float64)

    def loss(x):
        y, e = model(x, return_energy=True)
        return y.sin().sum() + e.sum()

    a = x.clone().requires_grad_()
    loss(a).backward()
    torch.testing.assert_close(torch.func.grad(loss)(x), a.grad)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(x), a.grad)
    torch.testing.assert_close(torch.func.vmap(model)(x), model(x))
    state = dict(model.named_parameters())

    def of_state(state):
        return torch.func.functional_call(model, state, (x,)).square().sum()

    model.zero_grad()
    model(x).square().sum().backward()
    for name, g in torch.func.grad(of_state)(state).items():
        torch.testing.assert_close(g, model.get_parameter(name).grad)


def test_gradient_penalty_goes_through():
    model = build().double()
    x = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    (g,) = torch.autograd.grad(model(x).sin().sum(), x, create_graph=True)
    g.square().sum().backward()
    assert model.attention.query.grad.abs().max() > 0


@pytest.mark.parametrize(
    "compiler", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("options", [{}, {"activation": "softmax", "step_rule": "learned"}])
# Of the compiler's own: it still uses torch.jit inside.
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_compiles_whole(options, compiler):
    model = build(**options)
    x, mask = torch.randn(2, 5, 8), torch.rand(2, 5) > 0.3
    compiled = torch.compile(model, fullgraph=True, backend=compiler)
    for inputs in ((x,), (x, mask)):
        y, e = model(*inputs, return_energy=True)
        z, f = compiled(*inputs, return_energy=True)
        torch.testing.assert_close(z, y, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(f, e, rtol=1e-4, atol=1e-4)
        model.zero_grad()
        y.sum().backward()
        want = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        model.zero_grad()
        z.sum().backward()
        got = [p.grad for p in model.parameters() if p.grad is not None]
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)


def test_meta_and_reset():
    with torch.device("meta"):
        model = EnergyTransformer(8, 2, 3)
    model = model.to_empty(device="cpu")
    torch.manual_seed(0)
    for block in model.blocks:
        block.attention.allows_self.fill_(False)
    model.reset_parameters()
    torch.manual_seed(0)
    fresh = EnergyTransformer(8, 2, 3)
    fresh.reset_parameters()
    assert model(torch.randn(3, 8)).isfinite().all()
    assert model.norm.gamma == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m(torch.zeros(3, 7)), r"tokens: expected shape \(\.\.\., N, 8\), got \(3, 7\)"),
        (lambda m: m(torch.zeros(8)), "tokens: expected shape"),
        (lambda m: m([1.0]), "tokens: expected a tensor"),
        (lambda m: m(torch.zeros(3, 8, dtype=torch.long)), "tokens: expected floating-point"),
        (lambda m: m(torch.zeros(3, 8, dtype=torch.float64)), "tokens: expected torch.float32"),
        (lambda m: m(torch.zeros(3, 8), torch.ones(3)), "mask: expected a bool tensor"),
        (lambda m: m(torch.zeros(3, 8), torch.ones(4).bool()), "mask: expected a bool tensor of s"),
        (lambda m: m(torch.zeros(3, 8), None, torch.ones(2, 3)), "adjacency: expected a tensor br"),
        (lambda m: m(torch.zeros(3, 8), None, torch.ones(5, 3, 3)), "adjacency: expected"),
        (lambda m: m(torch.zeros(3, 8), None, torch.ones(1, 1, 3, 3)), "adjacency: expected"),
        (lambda m: m(torch.zeros(3, 8), None, torch.full((3, 3), torch.nan)), "finite weights"),
        (lambda m: m(torch.zeros(3, 8), steps=-1), "steps: expected an int >= 0, got -1"),
        (lambda m: m(torch.zeros(3, 8), step_size=0.0), "step_size: expected a finite number > 0"),
        (lambda m: m.settle(torch.zeros(3, 8), tolerance=-1.0), "tolerance: expected a finite"),
        (lambda m: EnergyTransformer(0), "dim: expected an int >= 1"),
        (lambda m: EnergyTransformer(8, heads=-1), "heads: expected"),
        (lambda m: EnergyTransformer(8, step_size=float("nan")), "step_size: expected"),
        (lambda m: EnergyTransformer(8, step_rule="best"), "step_rule: expected one of 'fixed'"),
        (lambda m: EnergyTransformer(8, activation="tanh"), "activation: expected 'relu', 'softm"),
        (lambda m: EnergyTransformer(8, adjacency_form="x"), "adjacency_form: expected one of"),
        (lambda m: EnergyTransformer(8, beta=0.0), "beta: expected a finite number > 0"),
        (lambda m: EnergyTransformer(8, heads=2, beta=[1.0]), "beta: expected one number or 2"),
        (lambda m: EnergyTransformer(8, terms=[nn.Identity()]), "terms: expected EnergyTerm"),
        (lambda m: EnergyAttention(8, head_dim=0), "head_dim: expected"),
        (lambda m: HopfieldNetwork(8, -1), "memories: expected"),
        (lambda m: EnergyLayerNorm(8, eps=0), "eps: expected a finite number > 0"),
    ],
)
def test_bad_input_is_refused_where_it_enters(call, message):
    with pytest.raises(InputError, match=message):
        call(build())


def test_adjacency_shapes_mean_the_same(backend):
    model, x = build(), torch.randn(2, 3, 5, 8)
    a = torch.rand(5, 5) > 0.4
    want = model(x, None, a)
    shapes = [(1, 1), (2, 1), (2, 3), (2, 3, 1), (1, 3, 2), (1, 1, 2)]
    for lead in shapes:
        torch.testing.assert_close(model(x, None, a.expand(*lead, 5, 5)), want)
    for same in (a.long(), a.float(), a.to(torch.uint8)):
        torch.testing.assert_close(model(x, None, same), want)
    per_head = torch.rand(2, 5, 5) > 0.4
    one = model(x[0, 0], None, per_head)
    torch.testing.assert_close(model(x, None, per_head.expand(2, 3, 2, 5, 5))[0, 0], one)


def test_threads_change_nothing_but_rounding(backend):
    model, x = EnergyTransformer(64, 4, 16, steps=3), torch.randn(8, 40, 64)
    one = model(x, return_energy=True)
    torch.set_num_threads(2)
    try:
        two = model(x, return_energy=True)
    finally:
        torch.set_num_threads(1)
    torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


def test_exports_and_doctests():
    assert sorted(lawful.energy.__all__) == [
        "ConvexPotential",
        "Edges",
        "EnergyAttention",
        "EnergyBlock",
        "EnergyLayerNorm",
        "EnergyTerm",
        "EnergyTransformer",
        "GRAPH_LAWS",
        "GraphEnergyAttention",
        "GraphEnergyTransformer",
        "HopfieldNetwork",
        "PublishedImageModel",
        "Settled",
        "TRANSFORMER_LAWS",
        "load_published",
    ]
    from lawful.energy import _transformer

    torch.manual_seed(0)
    assert doctest.testmod(_transformer).failed == 0
    assert "step_rule='fixed'" in repr(build())
