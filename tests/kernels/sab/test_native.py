"""The compiled path against the plain loop: values, gradients, states, and torch's own checks."""

import pytest
import torch

from lawful.errors import InputError
from lawful.kernels import force_backend, native_status
from lawful.memory import SAB

pytestmark = pytest.mark.skipif(not native_status().live, reason=native_status().describe())

STEPS, ROWS = 17, 5
LENGTHS = torch.tensor([17, 3, 0, 9, 16])
RESET = torch.zeros(ROWS, STEPS, dtype=torch.bool)
RESET[0, 4] = RESET[1, 0] = RESET[3, 8] = RESET[4, 16] = True
OPTIONS = [
    {},
    {"k_att": 1},
    {"k_att": 3, "k_trunc": 3, "phase": "end"},
    {"k_att": 1, "k_trunc": 1},
    {"k_trunc": None},
    {"heads": 2},
    {"k_top": 12},
    {"k_top": 40, "k_att": 1},
    {"score_grad": "params_only"},
    {"mental_updates": 0, "k_att": 1},
    {"normaliser": "softmax"},
    {"small_memory": "softmax", "k_top": 4, "k_att": 1},
    {"small_memory": "raw", "init_memory": "zero"},
    {"threshold": "k"},
    {"margin": 0.1, "k_att": 1, "k_top": 2},
    {"recall_scale": 0.5},
    {"max_memories": 4, "k_att": 1},
    {"max_memories": 2, "k_att": 1, "margin": 1.0},
    {"bias": False, "num_layers": 2, "bidirectional": True},
]


def make(options, n=20, dtype=torch.float64):
    torch.manual_seed(0)
    options = {"k_top": 3, "k_att": 2, "k_trunc": 4, "output": "concat", **options}
    return SAB(3, n, dtype=dtype, **options)


def results(layer, x, backend, lengths=None, reset=None, last=False):
    """Outputs and state of two calls in a row, and the gradients of a loss over all of them."""
    with force_backend(backend):
        output, state = layer(x, lengths=lengths, reset=reset)
        loss = _weigh(output[:, -1:] if last else output)
        values = [output]
        if not layer.bidirectional:
            second, after = layer(x[:, :5], state)
            valid = torch.arange(after.memory.shape[1]) < after.counts[:, None]
            memory = torch.where(valid[..., None], after.memory, 0.0)
            keys = torch.where(valid[..., None], after.keys, 0.0)
            stamps = torch.where(valid, after.stamps, -1)
            values += [second, after.h, after.c, memory, keys, stamps, after.counts, after.steps]
            if not last:
                loss = loss + sum(map(_weigh, (second, after.h, after.c, memory, keys)))
    return values, torch.autograd.grad(loss, [x, *layer.parameters()], allow_unused=True)


def _weigh(x):
    generator = torch.Generator().manual_seed(x.numel())
    return (x * torch.randn(x.shape, dtype=x.dtype, generator=generator)).sum()


def assert_equal(ours, plain, tolerance):
    for group, other in zip(ours, plain, strict=True):
        for a, b in zip(group, other, strict=True):
            if a is None or b is None:
                assert a is b
                continue
            size = b.abs().max().item() if b.numel() else 0
            torch.testing.assert_close(a, b, rtol=0, atol=tolerance * (1 + size))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("shape", ["plain", "ragged", "reset", "last"])
def test_equals_the_reference(options, shape):
    if shape == "reset" and options.get("init_memory") == "zero":
        pytest.skip("served by the reference")
    layer = make(options)
    x = torch.randn(ROWS, STEPS, 3, dtype=torch.float64, requires_grad=True)
    given = {"lengths": LENGTHS} if shape in ("ragged", "reset") else {}
    given |= {"reset": RESET} if shape == "reset" else {}
    given |= {"last": True} if shape == "last" else {}
    assert_equal(
        results(layer, x, "native", **given), results(layer, x, "reference", **given), 1e-10
    )


def test_equals_the_reference_at_full_width():
    layer = make({"k_att": 1, "k_top": 5, "k_trunc": 5}, n=128)
    x = torch.randn(18, 40, 3, dtype=torch.float64, requires_grad=True)
    assert_equal(results(layer, x, "native"), results(layer, x, "reference"), 1e-10)


@pytest.mark.parametrize("score_grad", ["full", "params_only"])
def test_single_precision_is_near_the_double_reference(score_grad):
    single = make({"k_att": 1, "score_grad": score_grad}, n=64, dtype=torch.float32)
    double = make({"k_att": 1, "score_grad": score_grad}, n=64)
    double.load_state_dict(single.state_dict())
    x = torch.randn(4, 30, 3, requires_grad=True)
    with force_backend("native"):
        ours = single(x)[0]
    plain = double(x.double())[0]
    torch.testing.assert_close(ours.double(), plain, rtol=1e-5, atol=1e-5)
    grads = torch.autograd.grad(ours.sum(), list(single.parameters()))
    wanted = torch.autograd.grad(plain.sum(), list(double.parameters()))
    for g, w in zip(grads, wanted, strict=True):
        assert (g - w).norm() < 1e-3 * w.norm()


def test_first_recall_is_exact_in_single_precision():
    """One memory has weight margin / margin; a compiler that reassociates makes that 0 / 0."""
    layer = make({"k_att": 1, "k_trunc": None}, n=16, dtype=torch.float32)
    layer.layers[0].score.data.mul_(10)
    x = torch.randn(4000, 2, 3)
    with torch.no_grad(), force_backend("native"):
        output, _ = layer(x)
    torch.testing.assert_close(output[:, 1, 16:], output[:, 0, :16], rtol=0, atol=0)


@pytest.mark.parametrize("k_att", [1, 3])
def test_equal_memories_share(k_att):
    """Without input and recurrence all states are equal: every score ties, and none is lost."""
    layer = make({"k_att": k_att, "k_top": 2})
    with torch.no_grad():
        layer.layers[0].cell.weight_hh.zero_()
        layer.layers[0].cell.bias_ih[20:40] = -1000  # forget everything
        layer.layers[0].query.zero_()
        layer.layers[0].score.zero_()
    x = torch.zeros(2, 12, 3, dtype=torch.float64, requires_grad=True)
    assert_equal(results(layer, x, "native"), results(layer, x, "reference"), 1e-9)


def test_saturated_scores_stay_finite():
    layer = make({"k_att": 1}, dtype=torch.float32)
    with torch.no_grad():
        layer.layers[0].key.mul_(1e4)
        layer.layers[0].query.mul_(-1e4)
    x = torch.randn(3, 9, 3, requires_grad=True)
    values, grads = results(layer, x, "native")
    assert all(v.isfinite().all() for v in (*values, *grads))


def test_pieces_equal_the_whole_bit_for_bit():
    layer = make({"k_att": 2}, dtype=torch.float32)
    x = torch.randn(3, 23, 3)
    with force_backend("native"):
        whole, end = layer(x)
        state, parts = None, []
        for piece in x.split([4, 1, 9, 9], 1):
            output, state = layer(piece, state)
            parts.append(output)
    assert torch.equal(torch.cat(parts, 1), whole)
    assert torch.equal(state.memory, end.memory)


def test_threads_change_nothing():
    layer = make({"k_att": 1}, n=32)
    x = torch.randn(40, 12, 3, dtype=torch.float64, requires_grad=True)
    one = results(layer, x, "native")
    torch.set_num_threads(2)
    try:
        two = results(layer, x, "native")
    finally:
        torch.set_num_threads(1)
    assert_equal(two, one, 1e-12)


def test_long_bounded_inference_equals_the_reference():
    layer = make({"max_memories": 6, "k_att": 1, "recall_scale": 0.5}, n=8)
    x = torch.randn(1, 2300, 3, dtype=torch.float64)
    with torch.no_grad():
        with force_backend("native"):
            ours, state = layer(x)
        with force_backend("reference"):
            plain, other = layer(x)
    torch.testing.assert_close(ours, plain, rtol=1e-7, atol=1e-7)
    assert state.memory.shape == other.memory.shape == (1, 6, 8)
    assert torch.equal(state.stamps, other.stamps)
    assert torch.equal(state.steps, other.steps)


def test_denormals_are_flushed_inside_only():
    layer = make({"k_att": 1}, dtype=torch.float32)
    with force_backend("native"):
        layer(torch.randn(9, 6, 3))[0].sum().backward()
    assert (torch.tensor([1e-40]) + torch.tensor([1e-40])).item() > 0


def test_retained_graph_gives_the_same_again():
    layer = make({"k_att": 1})
    with force_backend("native"):
        loss = layer(torch.randn(2, 9, 3, dtype=torch.float64))[0].square().sum()
    grads = [torch.autograd.grad(loss, list(layer.parameters()), retain_graph=True) for _ in "12"]
    for g, h in zip(*grads, strict=True):
        torch.testing.assert_close(g, h, rtol=0, atol=0)


def test_second_derivatives_are_refused_not_wrong():
    layer = make({"k_att": 1})
    x = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    with force_backend("native"):
        (g,) = torch.autograd.grad(layer(x)[0].sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"once_differentiable|require grad"):
        torch.autograd.grad(g.sum(), x)


def test_unserved_options_fall_back_or_are_refused():
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    for options, reason in (
        ({"cell": "gru"}, "cells other than lstm"),
        ({"truncation": "window"}, "window"),
        ({"score": "dot"}, "dot"),
        ({"hops": 1}, "hops"),
    ):
        make(options)(x)
        with pytest.raises(InputError, match=reason):
            make({**options, "backend": "native"})(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_opcheck(dtype):
    from lawful.kernels.sab import _ops

    def rand(*shape):
        return torch.randn(*shape, dtype=dtype)

    n, slots = 16, 2
    inputs = [rand(64, 3), rand(64, n), rand(64), rand(n, n), rand(n, n), rand(n), rand(2, 5, 3)]
    inputs += [rand(2, n), rand(2, n), rand(2, slots, n), rand(2, slots, n)]
    counts, stamps = torch.full((2,), slots), torch.zeros(2, slots, dtype=torch.int64)
    marks = torch.ones(4, 2, 5, dtype=torch.uint8)
    marks[1:3] = 0
    steps = torch.arange(5).expand(2, 5)
    rules = (2, 1, 49, 0, 1, 1e-7, 1.0)
    torch.library.opcheck(
        torch.ops.lawful.sab_lstm, (*inputs, counts, stamps, marks, steps, *rules, True)
    )
    out = _ops.forward(*inputs, counts, stamps, marks, steps, *rules, True)
    grads = [torch.randn_like(t) for t in out[:6]]
    torch.library.opcheck(
        torch.ops.lawful.sab_lstm_backward, (grads, inputs, marks, steps, list(out), *rules)
    )


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 3)
        self.memory = make({}, n=16, dtype=torch.float32)
        self.outer = torch.nn.Linear(32, 5)

    def forward(self, x, state=None):
        output, state = self.memory(torch.relu(self.inner(x)), state)
        return self.outer(output), state


# The compiler instantiates the Function itself, which torch has deprecated.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_compiled_as_one_graph_with_any_length():
    torch.manual_seed(0)
    net = Net()
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager", dynamic=True)
    for steps in (6, 9, 13):
        x = torch.randn(3, steps, 4)
        with force_backend("native"):
            (a, _), (b, state) = net(x), compiled(x)
        torch.testing.assert_close(a, b)
        grads = [torch.autograd.grad(y.square().sum(), list(net.parameters())) for y in (a, b)]
        for g, h in zip(*grads, strict=True):
            torch.testing.assert_close(g, h)
    again, _ = net(x, state)
    torch.testing.assert_close(again, net(x, net(x)[1])[0])


def test_functional_gradients():
    layer = make({"k_att": 1})
    x = torch.randn(2, 7, 3, dtype=torch.float64)
    weights = dict(layer.named_parameters())

    def loss(w):
        return torch.func.functional_call(layer, w, (x,))[0].square().sum()

    with force_backend("native"):
        ours = torch.func.grad(loss)(weights)
    wanted = torch.autograd.grad(loss(weights), list(weights.values()))
    for name, w in zip(weights, wanted, strict=True):
        torch.testing.assert_close(ours[name], w)
