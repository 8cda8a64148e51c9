"""Energy layers on graphs: shapes, state dicts, copies, compilation, noise, refusals."""

import copy
import doctest
import pickle

import pytest
import torch

from lawful.energy import (
    Edges,
    EnergyTransformer,
    GraphEnergyAttention,
    GraphEnergyTransformer,
    _graph_transformer,
)
from lawful.errors import InputError


def build(**options):
    torch.manual_seed(0)
    return GraphEnergyTransformer(8, 2, 3, 10, **{"steps": 3, **options})


def network(nodes=7, edges=15, seed=1):
    torch.manual_seed(seed)
    return torch.randn(nodes, 8), torch.randint(nodes, (2, edges)).unique(dim=1)


@pytest.mark.parametrize("nodes", [0, 1, 2, 9])
@pytest.mark.parametrize("step_rule", ["fixed", "learned", "backtracking"])
@pytest.mark.parametrize("self_attention", [False, True])
def test_any_size(nodes, step_rule, self_attention, backend):
    model = build(step_rule=step_rule, self_attention=self_attention)
    x = torch.randn(nodes, 8, requires_grad=True)
    index = torch.empty(2, 0, dtype=torch.int64)
    y, e = model(x, index, return_energy=True)
    assert (y.shape, e.shape, model.energy(x, index).shape) == (x.shape, (4, 1), (1,))
    (y.sum() + e.sum()).backward()
    assert x.grad.isfinite().all()
    assert model(x, index, None, torch.zeros(nodes).long(), True, graphs=3)[1].shape == (4, 3)


@pytest.mark.parametrize("options", [{"heads": 0}, {"memories": 0}, {"dim": 1}, {"steps": 0}])
def test_smallest_sizes(options, backend):
    sizes = {"dim": 4, "heads": 2, "head_dim": 3, "memories": 5, "steps": 2, **options}
    model = GraphEnergyTransformer(**sizes)
    x, index = torch.randn(5, sizes["dim"], requires_grad=True), torch.tensor([[0, 1], [1, 2]])
    y, e = model(x, index, return_energy=True)
    (y.sum() + e.sum()).backward()
    assert e.shape == (sizes["steps"] + 1, 1)
    assert x.grad.isfinite().all()


def test_state_dict_is_that_of_the_dense_transformer():
    options = {"bias": True, "step_rule": "learned", "activation": "softmax", "blocks": 2}
    dense = EnergyTransformer(8, 2, 3, 10, self_attention=True, **options)
    graph = build(**options)
    assert list(graph.state_dict()) == list(dense.state_dict())
    graph.load_state_dict(dense.state_dict())
    with pytest.raises(RuntimeError, match="allows_self"):
        build(self_attention=False).load_state_dict(build().state_dict())


@pytest.mark.parametrize("self_loops", [False, True])
def test_prepared_edges_are_the_same(self_loops, backend):
    model, (x, index) = build(self_attention=self_loops), network()
    index = torch.cat([index, index[:, :4]], 1)  # duplicates
    weight = torch.rand(index.shape[1])
    weight[-4:] = weight[:4]
    edges = Edges.of(index, 7, self_loops)
    for w in (None, weight):
        assert torch.equal(model(x, index, w), model(x, edges, w))
    assert "7 nodes" in repr(edges)
    again = pickle.loads(pickle.dumps(edges)).to("cpu")
    assert torch.equal(model(x, again, weight), model(x, edges, weight))
    with pytest.raises(InputError, match="self_loops"):
        build(self_attention=not self_loops)(x, edges)
    with pytest.raises(InputError, match="Edges of 6 nodes"):
        model(x[:6], edges)


def test_edges_are_sorted_without_duplicates():
    index = torch.tensor([[2, 0, 1, 0, 1], [0, 1, 1, 1, 0]])
    with_loops, without = (Edges.of(index, 3, s).edge_index.tolist() for s in (True, False))
    assert with_loops == [[0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 2]]
    assert without == [[1, 2, 0], [0, 0, 1]]


def test_duplicates_share_their_gradient(backend):
    model, x = build(), torch.randn(3, 8)
    index = torch.tensor([[0, 0, 1], [1, 1, 2]])
    weight = torch.tensor([0.7, 0.7, 0.4], requires_grad=True)
    single = torch.tensor([0.7, 0.4], requires_grad=True)
    y, z = model(x, index, weight), model(x, index[:, 1:], single)
    assert torch.equal(y, z)
    (a,), (b,) = (torch.autograd.grad(t.square().sum(), w) for t, w in ((y, weight), (z, single)))
    torch.testing.assert_close(a, torch.stack([b[0] / 2, b[0] / 2, b[1]]))
    with pytest.raises(InputError, match="duplicates"):
        model(x, index, torch.tensor([0.7, 0.8, 0.4]))


def test_weight_of_no_edge(backend):
    """0, or -inf where weights are added, is no edge."""
    x, index = network()
    keep = torch.arange(index.shape[1]) % 3 > 0
    for form, none in (("multiply", 0.0), ("add", float("-inf"))):
        model = build(edge_form=form, self_attention=False)
        weight = torch.rand(index.shape[1]) + 0.1
        cut = weight.masked_fill(~keep, none)
        torch.testing.assert_close(model(x, index, cut), model(x, index[:, keep], weight[keep]))
        assert not model.attention.weights(x, index, cut)[~keep].any()


def test_copies_and_pickles(backend):
    model, (x, index) = build(learn_beta=True), network()
    want = model(x, index)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x, index), want)
    before = model.attention.query.clone()
    model.reset_parameters()
    assert not torch.equal(model.attention.query, before)


def test_recompute_changes_nothing(backend):
    x, index = network()
    found = []
    for recompute in (False, True):
        model = build(recompute=recompute, learn_beta=True)
        y, e = model(x, index, return_energy=True)
        found.append(torch.autograd.grad(y.square().sum() + e.sum(), list(model.parameters())))
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_trajectory_and_energies():
    model, (x, index) = build(blocks=2), network()
    found = model.settle(x, index, trajectory=True)
    assert found.trajectory.shape == (2, 4, 7, 8)
    assert found.energies.shape == (2, 4, 1)
    assert torch.equal(found.trajectory[0, 0], x)
    assert torch.equal(found.trajectory[1, -1], found.tokens)
    for s in range(2):
        for t in (0, 3):
            e = model.energy(found.trajectory[s, t], index, block=s)
            torch.testing.assert_close(e, found.energies[s, t])
    cheap = model.settle(x, index, energies=False)
    assert torch.equal(cheap.energies, found.energies[:, :-1])
    assert model.settle(x, index, energies=False, steps=0).energies.shape == (2, 0, 1)


def test_noise_and_dropout_follow_the_generator(backend):
    x, index = network()
    for options in ({"noise": 0.5}, {"dropout": 0.5}, {"noise": 0.1, "step_rule": "learned"}):
        model = build(**options)

        def run(seed, model=model):
            return model(x, index, generator=torch.Generator().manual_seed(seed))

        assert torch.equal(run(0), run(0))
        assert not torch.equal(run(0), run(1))
        run(0).sum().backward()
        model.eval()
        assert torch.equal(run(0), run(1))
        assert torch.equal(run(0), build(step_rule=options.get("step_rule", "fixed"))(x, index))


def test_dropout_is_inverted_and_drawn_once():
    """The mean of a step is that without dropout, and both forms of it agree."""
    torch.manual_seed(0)
    model, (x, index) = GraphEnergyTransformer(8, 2, 3, 4000, 2, dropout=0.25), network()
    found = []
    for backend in ("reference", "auto"):
        generator = torch.Generator().manual_seed(0)
        found.append(model.settle(x, index, generator=generator, backend=backend))
        y, e = found[-1].tokens, found[-1].energies
        (slope,) = torch.autograd.grad(y.square().sum() + e.sum(), model.hopfield.memories)
        found[-1] = (y, e, slope)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
    moved, plain = found[0][0] - x, model.eval()(x, index) - x
    assert 0 < (moved - plain).norm() / plain.norm() < 0.1


# torch's own tracer instantiates autograd functions.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("weighted", [False, True])
def test_compiles_whole(weighted, backend):
    model, (x, index) = build(learn_beta=True), network()
    edges = Edges.of(index, 7)
    weight = torch.rand(index.shape[1], requires_grad=True) if weighted else None
    whole = torch.compile(model, fullgraph=True, backend="aot_eager")
    inputs = [*model.parameters(), *([weight] if weighted else [])]
    found = []
    for run in (model, whole):
        y, e = run(x, edges, weight, return_energy=True)
        found.append((y, e, torch.autograd.grad(y.square().sum() + e.sum(), inputs)))
    torch.testing.assert_close(*found)


def test_vmap_and_func_grad(backend):
    model, (x, index) = build(), network()
    edges = Edges.of(index, 7)
    layer, many = model.attention, torch.stack([x, x.flip(0)])
    got = torch.func.vmap(lambda g: layer(g, edges))(many)
    torch.testing.assert_close(got, torch.stack([layer(g, edges) for g in many]))
    slope = torch.func.grad(lambda g: layer.energy(g, edges)[0])(x)
    torch.testing.assert_close(slope, -layer(x, edges))


def test_autocast_keeps_the_parameters_type(backend):
    model, (x, index) = build(), network()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(x.bfloat16(), index)
    assert y.dtype == torch.float32
    with pytest.raises(InputError, match="the parameters' type"):
        model(x.bfloat16(), index)


def test_threads_change_nothing(backend):
    model = GraphEnergyTransformer(64, 2, 40, steps=2)
    x, index = torch.randn(500, 64), torch.randint(500, (2, 6000))
    one = model.settle(x, index)
    torch.set_num_threads(2)
    try:
        two = model.settle(x, index)
    finally:
        torch.set_num_threads(1)
    torch.testing.assert_close(one.tokens, two.tokens, rtol=1e-5, atol=1e-5)


def test_doctests_and_repr():
    torch.manual_seed(0)
    assert doctest.testmod(_graph_transformer).failed == 0
    assert "edge_form='multiply'" in repr(build())


BAD = {
    "edge_index: expected an integer tensor": [
        {"edge_index": [[0], [1]]},
        {"edge_index": torch.zeros(2, 3)},
        {"edge_index": torch.zeros(3, 2).long()},
        {"edge_index": torch.tensor([[0], [7]])},
        {"edge_index": torch.tensor([[0], [-1]])},
        {"edge_index": torch.zeros(2, 3).bool()},
    ],
    "edge_weight": [
        {"edge_weight": [1.0]},
        {"edge_weight": torch.ones(2).long()},
        {"edge_weight": torch.ones(3)},
        {"edge_weight": torch.ones(2, 3)},
        {"edge_weight": torch.tensor([1.0, float("nan")])},
        {"edge_weight": torch.tensor([1.0, float("-inf")])},
    ],
    "batch": [
        {"batch": [0] * 7},
        {"batch": torch.zeros(6).long()},
        {"batch": torch.zeros(7)},
        {"batch": torch.arange(7) - 1},
        {"batch": torch.arange(7), "graphs": 3},
    ],
    "graphs": [{"graphs": 2}, {"batch": torch.zeros(7).long(), "graphs": -1}],
    "tokens": [
        {"tokens": torch.randn(7, 9)},
        {"tokens": torch.randn(2, 7, 8)},
        {"tokens": torch.randn(7, 8).double()},
        {"tokens": torch.randn(7, 8).long()},
        {"tokens": "x"},
    ],
    "steps": [{"steps": -1}],
    "step_size": [{"step_size": 0.0}],
}


@pytest.mark.parametrize(("words", "change"), [(w, c) for w, cs in BAD.items() for c in cs])
def test_bad_calls_are_refused(words, change):
    given = {"tokens": torch.randn(7, 8), "edge_index": torch.tensor([[0, 1], [1, 2]])}
    with pytest.raises(InputError, match=words):
        build()(**{**given, **change})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dim", {"dim": 0}),
        ("heads", {"heads": -1}),
        ("step_rule", {"step_rule": "certified"}),
        ("edge_form", {"edge_form": "divide"}),
        ("noise", {"noise": 0.1, "step_rule": "backtracking"}),
        ("dropout", {"dropout": 1.0}),
        ("dropout", {"dropout": 0.1, "activation": "softmax"}),
        ("beta", {"beta": [1.0]}),
        ("blocks", {"blocks": 0}),
    ],
)
def test_bad_options_are_refused(name, options):
    with pytest.raises(InputError, match=name):
        GraphEnergyTransformer(**{"dim": 8, "heads": 2, **options})


def test_bad_attention_calls_are_refused():
    layer = GraphEnergyAttention(8)
    with pytest.raises(InputError, match="g: expected"):
        layer(torch.randn(8), torch.zeros(2, 0).long())
    with pytest.raises(InputError, match="num_nodes"):
        Edges.of(torch.zeros(2, 0).long(), -1)
