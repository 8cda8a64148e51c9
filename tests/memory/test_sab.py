import copy
import dataclasses
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sab_oracle import plain_sab
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

from lawful.errors import InputError, NumericalWarning
from lawful.memory import SAB, SABCell, SABConfig, StackedState

DOUBLE = {"dtype": torch.float64}
VARIANTS = [
    {},
    {"cell": "gru"},
    {"score": "dot", "heads": 2},
    {"score": "additive_release", "init_memory": "zero", "small_memory": "raw", "threshold": "k"},
    {"truncation": "window"},
    {"hops": 1, "mental_updates": 1},
    {"max_memories": 3},
    {"max_memories": 4, "policy": "uniform"},
    {"max_memories": 4, "policy": "saliency", "normaliser": "softmax"},
    {"score_grad": "params_only", "recall_scale": 0.5, "small_memory": "softmax"},
    {"num_layers": 2},
]


def make(options=(), k_top=2, k_att=2, k_trunc=3, **more):
    torch.manual_seed(1)
    return SAB(3, 6, k_top, k_att, k_trunc, **{**DOUBLE, **dict(options), **more})


def fields(state):
    if isinstance(state, StackedState):
        return [t for part in state for t in fields(part)]
    found = []
    state.map(lambda t: found.append(t) or t)
    return found


def assert_same_state(a, b, **tolerance):
    for u, v in zip(fields(a), fields(b), strict=True):
        torch.testing.assert_close(u, v, **tolerance)


@pytest.mark.parametrize("k_top", [2, 5])
@pytest.mark.parametrize("k_att", [1, 2, 3])
@pytest.mark.parametrize("k_trunc", [1, 3, 5, 99])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("blind", [False, True])
def test_equals_the_plain_algorithm(backend, k_top, k_att, k_trunc, late, blind):
    layer = make(
        k_top=k_top,
        k_att=k_att,
        k_trunc=k_trunc,
        phase="end" if late else "start",
        score_grad="params_only" if blind else "full",
        output="concat",
    )
    x = torch.randn(3, 11, 3, **DOUBLE, requires_grad=True)
    direction = torch.randn(3, 11, 12, **DOUBLE)
    ours, _ = layer(x)
    options = {"late": late, "blind_scores": blind}
    rows = [plain_sab(layer.layers[0], row, k_top, k_att, k_trunc, **options) for row in x]
    plain = torch.stack([torch.cat(hs, -1) for hs in rows])
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-10)
    wanted = [x, *layer.parameters()]
    grads = [torch.autograd.grad((o * direction).sum(), wanted) for o in (ours, plain)]
    for g, h in zip(*grads, strict=True):
        torch.testing.assert_close(g, h, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_pieces_equal_the_whole(backend, options):
    layer = make(options)
    x = torch.randn(2, 12, 3, **DOUBLE)
    whole, end = layer(x)
    state, parts = None, []
    for piece in x.split([1, 0, 5, 4, 2], dim=1):
        output, state = layer(piece, state)
        parts.append(output)
    assert torch.equal(torch.cat(parts, 1), whole)
    assert_same_state(state, end, rtol=0, atol=0)


@pytest.mark.parametrize(
    "options", [{}, {"cell": "gru", "num_layers": 2}, {"score": "dot"}], ids=str
)
def test_credit_passes_the_seam_unless_detached(backend, options):
    layer = make(options)
    x = torch.randn(2, 12, 3, **DOUBLE, requires_grad=True)
    whole, _ = layer(x)
    (g,) = torch.autograd.grad(whole[:, -1].sum(), x)
    _, state = layer(x[:, :7])
    second, _ = layer(x[:, 7:], state)
    (h,) = torch.autograd.grad(second[:, -1].sum(), x, retain_graph=True)
    torch.testing.assert_close(h, g, rtol=1e-9, atol=1e-12)
    cut, _ = layer(x[:, 7:], state.detach())
    (h,) = torch.autograd.grad(cut[:, -1].sum(), x)
    assert (h[:, :7] == 0).all()
    assert (h[:, 7:] != 0).any()


@pytest.mark.parametrize("options", [*VARIANTS, {"bidirectional": True, "num_layers": 2}], ids=str)
def test_padded_row_equals_the_row_alone(backend, options):
    layer = make(options)
    x = torch.randn(4, 9, 3, **DOUBLE)
    lengths = torch.tensor([9, 4, 0, 7])
    garbage = torch.where(torch.arange(9)[None, :, None] < lengths[:, None, None], x, torch.nan)
    output, state = layer(garbage, lengths=lengths)
    for row, length in enumerate(lengths.tolist()):
        alone, end = layer(x[row : row + 1, :length])
        torch.testing.assert_close(output[row, :length], alone[0])
        assert (output[row, length:] == 0).all()
        if not layer.bidirectional:
            states = zip(_parts(state), _parts(end), strict=True)
            for mine, own in states:
                torch.testing.assert_close(mine.h[row], own.h[0])
                assert mine.counts[row] == own.counts[0]
                assert mine.steps[row] == own.steps[0] == length
                kept = own.counts[0]
                torch.testing.assert_close(mine.memory[row, :kept], own.memory[0, :kept])


def _parts(state):
    return state if isinstance(state, StackedState) else (state,)


@pytest.mark.parametrize("options", [*VARIANTS, {"bidirectional": True}], ids=str)
def test_reset_equals_separate_sequences(backend, options):
    layer = make(options)
    x = torch.randn(2, 10, 3, **DOUBLE)
    reset = torch.zeros(2, 10, dtype=torch.bool)
    reset[0, 4] = reset[1, 0] = reset[1, 7] = True
    output, _ = layer(x, reset=reset)
    for row, at in ((0, 4), (1, 7)):
        first, _ = layer(x[row : row + 1, :at])
        second, _ = layer(x[row : row + 1, at:])
        torch.testing.assert_close(output[row], torch.cat([first, second], 1)[0])


def test_ragged_gradients_equal_each_row_alone(backend):
    layer = make(k_att=1)
    x = torch.randn(3, 8, 3, **DOUBLE, requires_grad=True)
    lengths = torch.tensor([8, 3, 5])
    output, _ = layer(x, lengths=lengths)
    grads = torch.autograd.grad(output.square().sum(), list(layer.parameters()))
    alone = [layer(x[i : i + 1, :n])[0].square().sum() for i, n in enumerate(lengths.tolist())]
    own = torch.autograd.grad(sum(alone), list(layer.parameters()))
    for g, h in zip(grads, own, strict=True):
        torch.testing.assert_close(g, h, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("enforce", [True, False])
def test_packed_sequences(enforce):
    layer = make(output="concat")
    sizes = [7, 5, 2] if enforce else [2, 7, 5]
    rows = [torch.randn(n, 3, **DOUBLE) for n in sizes]
    packed, state = layer(pack_sequence(rows, enforce_sorted=enforce))
    output, lengths = pad_packed_sequence(packed, batch_first=True)
    assert lengths.tolist() == sizes
    for i, row in enumerate(rows):
        alone, end = layer(row[None])
        torch.testing.assert_close(output[i, : len(row)], alone[0])
        torch.testing.assert_close(state.h[i], end.h[0])
    timewise = copy.deepcopy(layer)
    timewise.batch_first = False
    padded = nn.utils.rnn.pad_sequence(rows)
    again, _ = timewise(pack_padded_sequence(padded, torch.tensor(sizes), enforce_sorted=enforce))
    torch.testing.assert_close(again.data, packed.data)


@given(
    st.integers(0, 3), st.integers(0, 6), st.integers(1, 7), st.integers(1, 9), st.integers(1, 9)
)
def test_every_shape_is_legal_and_finite(batch, steps, k_top, k_att, k_trunc):
    layer = SAB(2, 4, k_top + 1, k_att, k_trunc)
    x = torch.zeros(batch, steps, 2, requires_grad=True)
    output, state = layer(x)
    assert output.shape == (batch, steps, 4)
    assert state.counts.tolist() == [steps // k_att] * batch
    output.sum().backward()
    for p in layer.parameters():
        assert p.grad is None or p.grad.isfinite().all()


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_gradcheck(options):
    layer = make(options, k_trunc=4, k_att=1, margin=0.1)
    free = {"truncation": "window", "hops": None, "mental_updates": None, "score_grad": "full"}
    if any(k in free for k in dict(options)):
        pytest.skip("its gradient is not that of its value, by definition")
    layer = make(options, k_trunc=None, k_att=1, margin=0.1)
    x = torch.randn(2, 5, 3, **DOUBLE, requires_grad=True)
    names = [n for n, _ in layer.named_parameters()]

    def fn(x, *weights):
        return torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), (x,))[0]

    weights = [p.detach().requires_grad_() for p in layer.parameters()]
    assert torch.autograd.gradcheck(fn, (x, *weights))


def test_concat_output_and_sizes():
    layer = make(output="concat")
    x = torch.randn(2, 5, 3, **DOUBLE)
    output, state = layer(x)
    assert layer.output_size == 12 == output.shape[-1]
    hidden, _ = make(output="hidden")(x)
    torch.testing.assert_close(output[..., :6], hidden)
    torch.testing.assert_close(output[:, -1, :6], state.h)
    assert (output[:, :2, 6:] == 0).all()
    assert (output[:, 2:, 6:] != 0).any()
    assert make(bidirectional=True).output_size == 12


def test_time_first_and_non_contiguous():
    layer, other = make(), make(batch_first=False)
    x = torch.randn(2, 3, 5, **DOUBLE).transpose(1, 2)
    a, b = layer(x)[0], other(x.transpose(0, 1))[0]
    torch.testing.assert_close(a, b.transpose(0, 1), rtol=0, atol=0)


def test_steps_equal_the_sequence():
    layer = make({"num_layers": 2, "cell": "gru"})
    x = torch.randn(2, 7, 3, **DOUBLE)
    whole, end = layer(x)
    state, outputs = None, []
    for t in range(7):
        output, state = layer.step(x[:, t], state)
        outputs.append(output)
    assert torch.equal(torch.stack(outputs, 1), whole)
    assert_same_state(state, end, rtol=0, atol=0)
    cell = layer.layers[0]
    own, state = cell(x[:, 0])
    assert torch.equal(own, cell.scan(x[:, :1])[0][:, 0])


def test_state_travels(tmp_path):
    layer = make({"num_layers": 2})
    x = torch.randn(3, 6, 3, **DOUBLE)
    _, state = layer(x)
    loaded = pickle.loads(pickle.dumps(state.detach()))
    assert_same_state(loaded, state.detach())
    picked = state.index_select(torch.tensor([2, 0, 0]))
    more = torch.randn(3, 4, 3, **DOUBLE)
    output, _ = layer(more[[2, 0, 0]], picked)
    torch.testing.assert_close(output[0], layer(more, state)[0][2])
    single = state.to(dtype=torch.float32)
    assert single[0].h.dtype == torch.float32
    assert single[0].counts.dtype == torch.int64
    with pytest.raises(InputError, match="cell with a second state"):
        make({"cell": "gru"})(x)[1].c  # noqa: B018


def test_no_growth_with_bounded_memory():
    layer = make(max_memories=4, k_att=1)
    state = None
    with torch.no_grad():
        for _ in range(5):
            _, state = layer(torch.randn(2, 7, 3, **DOUBLE), state)
            assert state.memory.shape == (2, 4, 6)
    assert state.stamps.tolist() == [[31, 32, 33, 34]] * 2


def test_uniform_policy_spreads():
    layer = make(max_memories=5, policy="uniform", k_att=1)
    with torch.no_grad():
        _, state = layer(torch.randn(1, 64, 3, **DOUBLE))
    stamps = state.stamps[0]
    assert stamps[0] == 0
    assert stamps[-1] == 63
    assert (stamps.diff() >= 4).all()


def test_saliency_policy_keeps_what_is_recalled():
    layer = make(max_memories=4, policy="saliency", k_att=1, k_top=1, straight_through=True)
    x = torch.randn(1, 12, 3, **DOUBLE)
    _, state, (recall,) = layer(x, return_recall=True)
    used = recall.dense(12)[0].sum(0)
    kept = state.stamps[0, :-1]
    gone = torch.ones(11, dtype=torch.bool)
    gone[kept] = False
    assert used[kept].sum() > used[:11][gone].sum()


def above(hidden, step):
    return hidden[:, 0] > hidden[:, 1]


def test_stored_by_content():
    layer = make(k_att=above)
    x = torch.randn(3, 9, 3, **DOUBLE)
    output, state = layer(x)
    expected = (output[..., 0] > output[..., 1]).sum(1)
    assert torch.equal(state.counts, expected)
    assert len(set(expected.tolist())) > 1
    row, own = layer(x[1:2])
    torch.testing.assert_close(output[1], row[0])
    assert own.stamps[0].tolist() == state.stamps[1, : own.counts[0]].tolist()


def test_recall_tells_what_was_read():
    layer = make(heads=2, k_att=1)
    x = torch.randn(2, 6, 3, **DOUBLE)
    output, state, (recall,) = layer(x, return_recall=True)
    torch.testing.assert_close(output, layer(x)[0])
    torch.testing.assert_close(recall.weights[:, 1:].sum(-1), torch.ones(2, 5, 2, **DOUBLE))
    assert (recall.weights[:, 0] == 0).all()
    assert not recall.weights.requires_grad
    stored = state.memory.unflatten(-1, (2, 3))
    joined = make(heads=2, k_att=1, output="concat")(x)[0][..., 6:].unflatten(-1, (2, 3))
    at = recall.steps.clamp(min=0)
    for b in range(2):
        for head in range(2):
            values = stored[b, :, head][at[b, 5, head]]
            read = (recall.weights[b, 5, head][:, None] * values).sum(0)
            torch.testing.assert_close(read, joined[b, 5, head])
    assert recall.dense(6).shape == (2, 6, 6)
    assert (recall.dense(6).triu() == 0).all()


def test_rekey_brings_keys_up_to_date():
    layer = make(k_att=1)
    _, state = layer(torch.randn(2, 4, 3, **DOUBLE))
    torch.testing.assert_close(layer.rekey(state).keys, state.keys)
    with torch.no_grad():
        layer.layers[0].key.mul_(2)
    torch.testing.assert_close(layer.rekey(state).keys, 2 * state.keys)


class Leaky(nn.Module):
    state_count = 1

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.mix = nn.Linear(input_size + hidden_size, hidden_size)

    def forward(self, x, states):
        return (0.5 * states[0] + 0.5 * torch.tanh(self.mix(torch.cat([x, states[0]], -1))),)


@pytest.mark.parametrize("cell", [Leaky, nn.RNNCell, nn.LSTMCell])
def test_any_cell_can_remember(cell):
    layer = make(cell=cell)
    output, state = layer(torch.randn(2, 5, 3, **DOUBLE))
    output.sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    assert len(state.recurrent) == (2 if cell is nn.LSTMCell else 1)


def test_state_dict_keys_are_stable():
    names = set(SAB(3, 6).state_dict())
    cell = {f"layers.0.cell.{k}" for k in nn.LSTMCell(3, 6).state_dict()}
    assert names == cell | {"layers.0.key", "layers.0.query", "layers.0.score"}
    released = SAB(3, 6, preset="release")
    assert released.layers[0].score.shape == (12,)
    assert "layers.0.key" not in released.state_dict()


def test_copies_pickle_and_print():
    layer = make(k_top=3)
    x = torch.randn(1, 6, 3, **DOUBLE)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x)[0], layer(x)[0])
    assert "k_top=3, k_att=2, k_trunc=3" in repr(layer)
    layer.reset_parameters()
    assert dataclasses.is_dataclass(layer.config)


def test_released_scores_ignore_the_query():
    layer = SAB(3, 6, 3, 1, 99, preset="release", **DOUBLE)
    x = torch.randn(2, 9, 3, **DOUBLE)
    _, state, (recall,) = layer(x, return_recall=True)
    cell = layer.layers[0]
    rank = (cell.score[6:] * state.memory.tanh()).sum(-1)[:, :9]
    for b in range(2):
        best = rank[b].topk(3).indices - 1
        assert set(recall.steps[b, 8, 0][recall.weights[b, 8, 0] > 0].tolist()) <= set(
            best.tolist()
        )


@pytest.mark.parametrize("name", ["paper", "authors", "release", "stable"])
def test_presets_run(name):
    layer = SAB(3, 6, preset=name)
    output, _ = layer(torch.randn(2, 12, 3))
    output.sum().backward()
    assert output.isfinite().all()
    assert SAB.preset(name) == SABConfig.preset(name) == layer.config


def test_one_memory_warns():
    with pytest.warns(NumericalWarning, match="k_top=1"):
        SAB(3, 6, k_top=1)
    SAB(3, 6, k_top=1, straight_through=True)


def test_autocast_keeps_scores_apart():
    layer = SAB(3, 8, k_top=2, k_att=1)
    x = torch.randn(2, 10, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, state = layer(x)
    assert state.h.dtype == torch.float32
    torch.testing.assert_close(output.float(), layer(x)[0], atol=0.1, rtol=0.1)
    output.float().sum().backward()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k_top": 0}, "k_top: expected an integer of at least 1, got 0"),
        ({"k_att": 0}, "k_att"),
        ({"k_trunc": 0}, "k_trunc"),
        ({"k_top": -3}, "k_top"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"heads": 4}, "heads: expected a divisor"),
        ({"cell": "lst"}, 'did you mean "lstm"'),
        ({"preset": "papr"}, 'did you mean "paper"'),
        ({"truncaton": "window"}, "did you mean truncation"),
        ({"mental_updates": -1}, "mental_updates"),
        ({"num_layers": 0}, "num_layers"),
        ({"dropout": 1.0}, "dropout"),
        ({"cell": lambda d, n: nn.Linear(d, n)}, "cell: expected a function"),
        ({"truncation": "window", "k_trunc": None}, "k_trunc"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        SAB(**{"input_size": 3, "hidden_size": 6, **options})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, x: m(x[0]), r"x: expected shape \(B, T, 3\)"),
        (lambda m, x: m(x[..., :2]), "x: expected shape"),
        (lambda m, x: m(torch.full_like(x, torch.nan)), "finite"),
        (lambda m, x: m(x.long()), "floating"),
        (lambda m, x: m(x, lengths=torch.tensor([5, 6])), "lengths: expected values in 0..5"),
        (lambda m, x: m(x, lengths=torch.tensor([1.0, 2.0])), "lengths: expected integers"),
        (lambda m, x: m(x, m(x[:1])[1]), "state: expected 2 rows, got 1"),
        (lambda m, x: m(x, SAB(3, 5)(x.float())[1]), "state: expected 2 tensors of shape"),
        (lambda m, x: m(x, (x, x)), "state"),
        (lambda m, x: m(x, reset=torch.zeros(2, 4, dtype=torch.bool)), "reset"),
        (lambda m, x: SAB(3, 6, bidirectional=True, **DOUBLE)(x, m(x)[1]), "bidirectional"),
        (lambda m, x: m.step(x), "x: expected shape"),
        (lambda m, x: SABCell(3, 6)(x), "x: expected shape"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call(make(), torch.randn(2, 5, 3, **DOUBLE))
