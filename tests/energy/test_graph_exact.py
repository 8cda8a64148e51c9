"""On graphs: the update is minus the gradient of the energy, as in the dense layer, and exact."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import energy as oracle
from torch.autograd import gradcheck, gradgradcheck

from lawful.energy import (
    ConvexPotential,
    Edges,
    EnergyAttention,
    EnergyTransformer,
    GraphEnergyAttention,
    GraphEnergyTransformer,
)
from lawful.kernels import force_backend, native_status

D, H, Y, M = 6, 2, 3, 7
SOFTPLUS = ConvexPotential(F.softplus, torch.sigmoid)
BACKENDS = ["reference"] + ["native"] * native_status().live


def shake(model):
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "log" not in name:
                value.add_(0.3 * torch.randn_like(value))
    return model


def pair(seed=0, edge_form="multiply", **options):
    """A transformer on graphs and the dense one with its state dict."""
    torch.manual_seed(seed)
    options = {"steps": 3, "memory_beta": 0.8, "dtype": torch.float64, **options}
    options.setdefault("self_attention", True)
    graph = shake(GraphEnergyTransformer(D, H, Y, M, edge_form=edge_form, **options))
    dense = EnergyTransformer(D, H, Y, M, adjacency_form=edge_form, **options)
    dense.load_state_dict(graph.state_dict())
    return graph, dense


def network(nodes=6, edges=14, seed=1):
    """Distinct directed edges, some loops among them; the last node has none."""
    torch.manual_seed(seed)
    every = torch.cartesian_prod(torch.arange(nodes - 1), torch.arange(nodes - 1))
    index = every[torch.randperm(len(every))[:edges]].T
    weight = torch.rand(index.shape[1], H, dtype=torch.float64) + 0.3
    return torch.randn(nodes, D, dtype=torch.float64), index, weight


def adjacency(nodes, index, weight, model):
    """The dense form (H, N, N) of edges, [query, key]."""
    multiply = model.attention.edge_form == "multiply"
    loops = torch.zeros(nodes, dtype=torch.bool)
    loops[index[0, index[0] == index[1]]] = True
    a = torch.full((H, nodes, nodes), 0.0 if multiply else float("-inf"), dtype=weight.dtype)
    if model.attention.self_attention:
        own = torch.arange(nodes)[~loops]
        a[:, own, own] = 1.0 if multiply else 0.0
    spread = weight.reshape(index.shape[1], -1).expand(-1, H)
    return a.index_put((torch.arange(H)[:, None], index[1], index[0]), spread.T)


CASES = [
    {},
    {"self_attention": False},
    {"edge_form": "add"},
    {"edge_form": "add", "self_attention": False, "bias": True},
    {"bias": True, "activation": "softmax", "learn_beta": True, "beta": [0.4, 1.9]},
    {"activation": SOFTPLUS, "blocks": 2},
    {"step_rule": "backtracking", "step_size": 30.0},
    {"step_rule": "learned", "recompute": True},
    {"steps": 0},
]


@pytest.mark.parametrize("options", CASES, ids=[str(i) for i in range(len(CASES))])
@pytest.mark.parametrize("columns", [0, 1, H])
def test_agrees_with_the_dense_transformer(options, columns, backend):
    graph, dense = pair(**options)
    x, index, weight = network()
    weight = weight[:, :columns] if columns else torch.ones(index.shape[1], 1).double()
    if graph.attention.edge_form == "add" and not columns:
        weight = weight * 0
    weight.requires_grad_(bool(columns))
    x.requires_grad_()
    got = graph(x, index, weight if columns else None, return_energy=True)
    want = dense(x, adjacency=adjacency(len(x), index, weight, graph), return_energy=True)
    want = (want[0], want[1][..., None])
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    inputs = [x, *([weight] if columns else [])]
    rows = []
    for model, (y, e) in ((graph, got), (dense, want)):
        loss = (y.cos() * torch.arange(D)).sum() + (e * e).sum() * 1e-2
        all_of = [*inputs, *model.parameters()]
        rows.append(torch.autograd.grad(loss, all_of, allow_unused=True))
    for a, b in zip(*rows, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            scale = b.abs().max().clamp_min(1e-9)
            torch.testing.assert_close(a / scale, b / scale, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("self_attention", [False, True])
@pytest.mark.parametrize("edge_form", ["multiply", "add"])
def test_attention_agrees_with_dense_and_with_the_oracle(self_attention, edge_form, backend):
    graph, dense = pair(edge_form=edge_form, self_attention=self_attention, bias=True)
    layer, (g, index, weight) = graph.attention, network()
    a = adjacency(len(g), index, weight, graph)
    assert isinstance(dense.attention, EnergyAttention)
    close = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(layer(g, index, weight), dense.attention(g, adjacency=a), **close)
    energy = layer.energy(g, index, weight)
    torch.testing.assert_close(energy[0], dense.attention.energy(g, adjacency=a), **close)
    allowed = (a != 0) & (a != float("-inf")) if edge_form == "multiply" else a != float("-inf")
    want = oracle.attention_energy(
        g, layer.query, layer.key, layer.beta, self_attention=self_attention, allowed=allowed,
        weight=a, form=edge_form, query_bias=layer.query_bias, key_bias=layer.key_bias,
    )  # fmt: skip
    torch.testing.assert_close(energy[0], want, **close)
    torch.testing.assert_close(layer.node_energy(g, index, weight).sum(), want, **close)
    prob = dense.attention.weights(g, adjacency=a)
    torch.testing.assert_close(
        layer.weights(g, index, weight),
        prob[:, index[1], index[0]].T * (self_attention | (index[0] != index[1]))[:, None],
        **close,
    )
    edges = Edges.of(index, len(g), self_attention)
    source, target = edges.edge_index
    torch.testing.assert_close(layer.weights(g, edges, weight), prob[:, target, source].T, **close)
    v = torch.randn_like(g)
    bend = dense.attention.hvp(g, v, None, a)
    torch.testing.assert_close(layer.hvp(g, v, index, weight), bend, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("options", CASES[:5], ids=[str(i) for i in range(5)])
def test_gradcheck(options, backend):
    graph, _ = pair(**{"steps": 2, **options})
    x, index, weight = network(nodes=4, edges=5)
    names = [n for n, _ in graph.named_parameters()]

    def run(x, weight, *values):
        inputs = (x, index, weight, None, True)
        y, e = torch.func.functional_call(graph, dict(zip(names, values, strict=True)), inputs)
        return y, e

    values = [p.detach().clone().requires_grad_() for p in graph.parameters()]
    assert gradcheck(run, (x.requires_grad_(), weight.requires_grad_(), *values))


@pytest.mark.parametrize("edge_form", ["multiply", "add"])
def test_second_derivative(edge_form, backend):
    layer = pair(edge_form=edge_form)[0].attention
    x, index, weight = network(nodes=3, edges=3)
    both = (x.requires_grad_(), weight.requires_grad_())
    assert gradgradcheck(lambda x, w: layer(x, index, w), both)


@st.composite
def graphs(draw):
    nodes = draw(st.integers(0, 7))
    ids = st.integers(0, max(nodes - 1, 0))
    pairs = draw(st.lists(st.tuples(ids, ids), max_size=20 if nodes else 0))
    return nodes, torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T


@pytest.mark.parametrize("backend", BACKENDS)
@given(graph=graphs(), self_attention=st.booleans(), seed=st.integers(0, 3))
def test_any_graph(backend, graph, self_attention, seed):
    """Directed, with isolated nodes, loops, duplicates, no edges, one node or none."""
    nodes, index = graph
    layer, dense = (m.attention for m in pair(seed, self_attention=self_attention))
    torch.manual_seed(seed)
    g = torch.randn(nodes, D, dtype=torch.float64, requires_grad=True)
    allowed = torch.zeros(nodes, nodes, dtype=torch.bool)
    allowed[index[1], index[0]] = True
    if self_attention:
        allowed |= torch.eye(nodes, dtype=torch.bool)
    with force_backend(backend):
        got = layer(g, index)
        energy = layer.energy(g, index)
        (slope,) = torch.autograd.grad(energy.sum(), g)
    torch.testing.assert_close(got, dense(g, adjacency=allowed), rtol=1e-11, atol=1e-12)
    want = dense.energy(g, adjacency=allowed)
    torch.testing.assert_close(energy[0], want, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(got, -slope, rtol=1e-11, atol=1e-12)
    if not self_attention:
        off = allowed & ~torch.eye(nodes, dtype=torch.bool)
        assert not got[~(off.any(0) | off.any(1))].any()


def test_undirected_graph_needs_both_directions(backend):
    layer = pair()[0].attention
    g, index, _ = network()
    both = torch.cat([index, index.flip(0)], 1)
    assert not torch.allclose(layer(g, index), layer(g, both))
    torch.testing.assert_close(layer(g, both), layer(g, both.flip(0)))


@pytest.mark.parametrize("options", [{}, {"step_rule": "backtracking", "step_size": 50.0}])
def test_a_batch_is_its_graphs_one_by_one(options, backend):
    graph, _ = pair(self_attention=False, **options)
    parts = [network(5, 9, 1), network(4, 4, 2), network(1, 0, 3), network(7, 20, 4)]
    sizes = torch.tensor([len(x) for x, _, _ in parts])
    x = torch.cat([p[0] for p in parts])
    starts = sizes.cumsum(0) - sizes
    index = torch.cat([p[1] + s for p, s in zip(parts, starts, strict=True)], 1)
    weight = torch.cat([p[2] for p in parts])
    batch = torch.arange(4).repeat_interleave(sizes)
    y, e = graph(x, index, weight, batch, True, graphs=5)
    assert e.shape == (4, 5)
    assert not e[:, 4].any()
    for i, (own, edges, w) in enumerate(parts):
        z, f = graph(own, edges, w, return_energy=True)
        torch.testing.assert_close(y[batch == i], z, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(e[:, i], f[:, 0], rtol=1e-12, atol=1e-12)


def test_numbering_does_not_matter(backend):
    graph, _ = pair(seed=4)
    x, index, weight = network(7, 20)
    order, place = torch.randperm(7), torch.empty(7, dtype=torch.int64)
    place[order] = torch.arange(7)
    shuffle = torch.randperm(index.shape[1])
    y = graph(x, index, weight)
    z = graph(x[order], place[index][:, shuffle], weight[shuffle])
    torch.testing.assert_close(z, y[order], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision_is_close(backend, dtype):
    if backend == "native" and dtype == torch.bfloat16:
        backend = "auto"
    exact, _ = pair(learn_beta=True)
    rough = GraphEnergyTransformer(D, H, Y, M, 3, learn_beta=True, dtype=dtype)
    rough.load_state_dict(exact.state_dict())
    x, index, weight = network()
    with force_backend(backend):
        y, e = rough(x.to(dtype), index, weight, return_energy=True)
        (y.sum() + e.sum()).backward()
    assert y.dtype == dtype
    limit = {torch.float32: 1e-5, torch.bfloat16: 0.1}[dtype]
    torch.testing.assert_close(y.double(), exact(x, index, weight), rtol=limit, atol=limit)
    assert all(p.grad.isfinite().all() for p in rough.parameters())


def test_large_scores_stay_finite(backend):
    layer = GraphEnergyAttention(D, H, Y, beta=1e4)
    x, index, _ = network()
    x = 100 * x.float().requires_grad_()
    out = layer(x, index)
    (out.sum() + layer.energy(x, index).sum()).backward()
    assert out.isfinite().all()
    assert layer.query.grad.isfinite().all()
