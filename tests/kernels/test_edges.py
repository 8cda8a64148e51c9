"""The compiled attention over edges against the plain torch one."""

import itertools

import pytest
import torch
from torch.library import opcheck

from lawful.energy import Edges
from lawful.kernels import native_status
from lawful.kernels.edges import Stage, _ops, activations
from lawful.kernels.energy import Plan

pytestmark = pytest.mark.native
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


@pytest.fixture(autouse=True)
def _live():
    if not native_status().live:
        pytest.skip(native_status().describe())


def case(nodes, edges, width, memories, *, form, columns, activation, keep, dtype, heads=2):
    """Pre-activations, plan, stage and graph; some weights say that there is no edge."""
    torch.manual_seed(0)
    index = torch.randint(max(nodes - 1, 1), (2, edges)) if nodes else torch.zeros(2, 0).long()
    graph = Edges.of(index, nodes, self_loops=False).graph
    plan = Plan(heads, width, memories, edge_form=form, activation=activation)
    weight = None
    if columns:
        weight = torch.rand(len(graph.source), columns, dtype=dtype) + 0.2
        none = 0.0 if form == "multiply" else float("-inf")
        weight = weight.masked_fill(torch.rand_like(weight) < 0.2, none).requires_grad_()
    beta = (torch.rand(heads, dtype=dtype) + 0.3).requires_grad_()
    memory_beta = torch.tensor(0.7, dtype=dtype, requires_grad=True)
    memory_beta = memory_beta if activation == "softmax" else None
    kept = torch.rand(nodes, memories, dtype=dtype).round() / 0.5 if keep else None
    z = torch.randn(nodes, 2 * heads * width + memories, dtype=dtype) / width**0.25
    return z.requires_grad_(), plan, Stage(beta, memory_beta, weight, kept), graph


def compare(z, plan, p, graph):
    inputs = [t for t in (z, *p[:3]) if t is not None]
    found = []
    for backend in ("reference", "native"):
        energy, out = activations(z, plan, p, graph, backend)
        torch.manual_seed(1)
        c, e = torch.randn_like(out), torch.randn_like(energy)
        rows = [(out * c).sum(), (energy * e).sum(), (out * c).sum() + (energy * e).sum()]
        slopes = [torch.autograd.grad(r, inputs, retain_graph=True) for r in rows]
        found.append((energy, out, *(s for each in slopes for s in each)))
    limit = TOLERANCE[z.dtype]
    for a, b in zip(*found, strict=True):
        scale = a.detach().abs().max().clamp_min(1.0) if a.numel() else 1.0
        torch.testing.assert_close(b / scale, a / scale, rtol=0, atol=limit)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 3, 8, 16, 17, 33, 64, 130, 150])
def test_native_equals_reference(width, dtype):
    for form, columns in itertools.product(("multiply", "add"), (0, 1, 2)):
        options = {"form": form, "columns": columns, "activation": "relu", "keep": False}
        compare(*case(12, 50, width, 9, **options, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", ["none", "relu", "softmax"])
@pytest.mark.parametrize("keep", [False, True])
def test_memories(activation, keep, dtype):
    if keep and activation != "relu":
        pytest.skip("memories are left out in the ReLU form alone")
    for memories in (1, 7, 40):
        m = 0 if activation == "none" else memories
        options = {"form": "multiply", "columns": 1, "activation": activation, "keep": keep}
        compare(*case(9, 30, 5, m, **options, dtype=dtype))


@pytest.mark.parametrize(
    ("nodes", "edges"), [(0, 0), (1, 0), (1, 1), (5, 0), (2, 4), (400, 3), (40, 1500), (2000, 9000)]
)
@pytest.mark.parametrize("threads", [1, 2])
def test_shapes_of_graphs(nodes, edges, threads):
    options = {"form": "multiply", "columns": 2, "activation": "relu", "keep": False}
    torch.set_num_threads(threads)
    try:
        compare(*case(nodes, edges, 20, 6, **options, dtype=torch.float64))
    finally:
        torch.set_num_threads(1)


def test_no_heads():
    options = {"form": "multiply", "columns": 0, "activation": "relu", "keep": False}
    compare(*case(6, 9, 4, 5, **options, dtype=torch.float64, heads=0))


def test_threads_change_no_bit():
    options = {"form": "add", "columns": 1, "activation": "softmax", "keep": False}
    z, plan, p, graph = case(3000, 20000, 24, 30, **options, dtype=torch.float32)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        energy, out = activations(z, plan, p, graph, "native")
        slopes = torch.autograd.grad(out.sin().sum() + energy.sum(), (z, p.beta, p.weight))
        found.append((energy, out, *slopes))
    torch.set_num_threads(1)
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_a_node_with_very_many_edges():
    options = {"form": "multiply", "columns": 0, "activation": "none", "keep": False}
    z, plan, p, _ = case(5000, 0, 16, 0, **options, dtype=torch.float32)
    hub = torch.stack([torch.arange(1, 5000), torch.zeros(4999, dtype=torch.int64)])
    compare(z, plan, p, Edges.of(hub, 5000).graph)


def test_nan_is_not_hidden():
    options = {"form": "multiply", "columns": 0, "activation": "relu", "keep": False}
    z, plan, p, graph = case(6, 20, 4, 3, **options, dtype=torch.float32)
    with torch.no_grad():
        z[0, 8] = float("nan")  # a key of the first head
    for backend in ("reference", "native"):
        energy, out = activations(z, plan, p, graph, backend)
        touched = graph.target[graph.source == 0]
        assert energy[touched].isnan().all()
        assert out[touched, :4].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_operators_are_registered_well(dtype):
    _ops._register()
    options = {"form": "multiply", "columns": 2, "activation": "softmax", "keep": False}
    z, plan, p, graph = case(6, 14, 3, 4, **options, dtype=dtype)
    z, p = z.detach(), Stage(*(None if t is None else t.detach() for t in p))
    made = _ops._constants(plan, p, graph)
    out, energy = torch.empty_like(z), z.new_empty(6, dtype=torch.float64)
    prob, lse = z.new_empty(2, len(graph.source)), z.new_empty(2, 6)
    opcheck(torch.ops.lawful.edges_push.default, (z, out, energy, prob, lse, *made))
    torch.ops.lawful.edges_push(z, out, energy, prob, lse, *made)
    dz, by_node = torch.empty_like(z), z.new_empty(6, dtype=torch.float64)
    dbeta, dweight = z.new_empty(2, 6, dtype=torch.float64), torch.zeros_like(p.weight)
    given = (z, torch.randn_like(z), torch.randn_like(z[:, 0]), prob, lse)
    opcheck(
        torch.ops.lawful.edges_pull.default,
        (*given, dz, dbeta, by_node, dweight, True, *made),
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )
