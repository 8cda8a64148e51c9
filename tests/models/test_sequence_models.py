"""Every sequence model: shapes, padding, credit, settings, and its own definition."""

import copy
import pickle
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lawful.errors import InputError
from lawful.kernels import force_backend
from lawful.models import (
    SEQUENCE_MODELS,
    InputSpec,
    OutputSpec,
    Recalling,
    SABModelConfig,
    Streaming,
    build_sequence_model,
)
from lawful.models._recurrent import truncation_blocks
from lawful.models._transformer import sinusoidal_positions

VALUES = InputSpec("values", 3)
TOKENS = InputSpec("tokens", 7)
SMALL = {
    "lstm": {"hidden": 8},
    "lstm-tbptt": {"hidden": 8, "k_trunc": 3},
    "lstm-attention": {"hidden": 8},
    "transformer": {"width": 8, "heads": 2, "feedforward": 16, "dropout": 0.0},
    "sab": {"hidden": 8, "k_top": 2, "k_att": 1, "k_trunc": 3},
    "conv-unitary": {"sites": 12},
    "conv-orthogonal": {"sites": 12},
}
VARIANTS = [
    ("lstm", {}),
    ("lstm", {"layers": 2, "dropout": 0.3}),
    ("lstm-tbptt", {}),
    ("lstm-tbptt", {"phase": "end", "layers": 2}),
    ("lstm-attention", {}),
    ("lstm-attention", {"feedback": True}),
    ("sab", {}),
    ("sab", {"k_att": 2, "layers": 2, "preset": "stable", "cell": "gru"}),
    ("conv-unitary", {}),
    ("conv-unitary", {"channels": 2, "activation": "fold", "features": 6, "readout": 5}),
    ("conv-orthogonal", {}),
    ("conv-orthogonal", {"channels": 4, "form": "full", "reverse": True}),
    ("transformer", {}),
    ("transformer", {"causal": True, "positions": "learned", "max_length": 16}),
]
variants = pytest.mark.parametrize(
    ("name", "extra"),
    VARIANTS,
    ids=[f"{n}-{'-'.join(map(str, e)) or 'plain'}" for n, e in VARIANTS],
)


def make(name, extra, inputs=VALUES, per_step=True, size=4, **kwargs):
    torch.manual_seed(0)
    config = SEQUENCE_MODELS[name](**{**SMALL.get(name, {}), **extra})
    return build_sequence_model(config, inputs, OutputSpec(size, per_step), **kwargs)


def sample(inputs, rows=5, steps=9, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    if inputs.kind == "tokens":
        return torch.randint(inputs.size, (rows, steps), generator=generator)
    return torch.randn(rows, steps, inputs.size, generator=generator, dtype=dtype)


@variants
@pytest.mark.parametrize("inputs", [VALUES, TOKENS], ids=["values", "tokens"])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_shapes(name, extra, inputs, rows):
    x = sample(inputs, rows)
    assert make(name, extra, inputs, per_step=True)(x).shape == (rows, 9, 4)
    assert make(name, extra, inputs, per_step=False)(x).shape == (rows, 4)


@variants
@pytest.mark.parametrize("inputs", [VALUES, TOKENS], ids=["values", "tokens"])
@pytest.mark.parametrize("per_step", [True, False])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_padding_changes_nothing(name, extra, inputs, per_step, training):
    model = make(name, {k: v for k, v in extra.items() if k != "dropout"}, inputs, per_step)
    model.train(training)
    x, lengths = sample(inputs), torch.tensor([9, 1, 4, 7, 2])
    padded = x.clone()
    for row, length in enumerate(lengths):
        padded[row, length:] = -1 if inputs.kind == "tokens" else torch.nan
    out = model(padded, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = model(x[row : row + 1, :length])[0]
        together = out[row, :length] if per_step else out[row]
        torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)


@variants
def test_padding_has_no_gradient(name, extra):
    model = make(name, extra, per_step=False).double()
    x = sample(VALUES, dtype=torch.float64)
    lengths = torch.tensor([9, 1, 4, 7, 2])
    x[1, 1:] = torch.nan
    x.requires_grad_()
    model(x, lengths).square().sum().backward()
    for row, length in enumerate(lengths.tolist()):
        assert (x.grad[row, length:] == 0).all()
        assert x.grad[row, :length].isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@variants
def test_every_parameter_learns(name, extra):
    model = make(name, extra, TOKENS)
    model(sample(TOKENS)).square().sum().backward()
    for key, value in model.named_parameters():
        if key == "positions.weight":
            continue  # only the first rows of the table are read
        assert value.grad is not None, key
        assert value.grad.abs().max() > 0, key


@variants
def test_same_seed_same_model_and_same_output(name, extra):
    one, two = make(name, extra), make(name, extra)
    assert one.state_dict().keys() == two.state_dict().keys()
    one.eval(), two.eval()
    assert torch.equal(one(sample(VALUES)), two(sample(VALUES)))


@variants
def test_copies_and_pickles(name, extra):
    model = make(name, extra).eval()
    x = sample(VALUES)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x), model(x))


@variants
def test_dtype_and_non_contiguous(name, extra):
    model = make(name, extra, dtype=torch.float64).eval()
    x = sample(VALUES, dtype=torch.float64)
    assert model(x).dtype == torch.float64
    strided = x.transpose(0, 1).contiguous().transpose(0, 1)
    torch.testing.assert_close(model(strided), model(x))
    tokens = make(name, extra, TOKENS).double()
    assert tokens(sample(TOKENS)).dtype == torch.float64


def reach(model, steps):
    """reach[t, tau]: does the output at step t depend on the input at step tau."""
    x = sample(VALUES, 1, steps, torch.float64).requires_grad_()
    out = model.double()(x)
    rows = []
    for t in range(steps):
        (grad,) = torch.autograd.grad(out[0, t].sum(), x, retain_graph=True)
        rows.append(grad[0].abs().amax(-1) > 0)
    return torch.stack(rows)


@pytest.mark.parametrize("phase", ["start", "end"])
@pytest.mark.parametrize("k_trunc", [1, 2, 3, 5, 9, 20])
@pytest.mark.parametrize("layers", [1, 2])
def test_truncation_cuts_exactly_at_the_block(phase, k_trunc, layers):
    model = make("lstm-tbptt", {"k_trunc": k_trunc, "phase": phase, "layers": layers})
    shift = 0 if phase == "start" else 1
    block = torch.tensor([(t + shift) // k_trunc for t in range(9)])
    t = torch.arange(9)
    want = (block[:, None] == block[None, :]) & (t[None, :] <= t[:, None])
    assert torch.equal(reach(model, 9), want)


def test_full_backpropagation_reaches_all_of_the_past():
    past = torch.ones(9, 9, dtype=torch.bool).tril()
    for name, extra in VARIANTS:
        extra = {k: v for k, v in extra.items() if k != "dropout"}
        if name == "lstm" or name == "lstm-attention" or extra.get("causal"):
            assert torch.equal(reach(make(name, extra), 9), past)
    assert reach(make("transformer", {}), 9).all()


@pytest.mark.parametrize("phase", ["start", "end"])
@pytest.mark.parametrize("k_trunc", [1, 2, 4, 9, 100])
def test_truncation_leaves_the_forward_pass_alone(phase, k_trunc):
    full = make("lstm", {"layers": 2})
    cut = make("lstm-tbptt", {"layers": 2, "k_trunc": k_trunc, "phase": phase})
    cut.load_state_dict(full.state_dict())
    torch.testing.assert_close(cut(sample(VALUES)), full(sample(VALUES)))


def test_truncation_longer_than_the_sequence_is_full_backpropagation():
    full, cut = make("lstm", {}), make("lstm-tbptt", {"k_trunc": 100})
    cut.load_state_dict(full.state_dict())
    for model in (full, cut):
        model(sample(VALUES)).square().sum().backward()
    for a, b in zip(full.parameters(), cut.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@given(steps=st.integers(1, 40), k=st.integers(1, 12), phase=st.sampled_from(["start", "end"]))
def test_blocks_tile_the_sequence(steps, k, phase):
    blocks = list(truncation_blocks(steps, k, phase))
    assert [t for start, stop in blocks for t in range(start, stop)] == list(range(steps))
    cuts = {start for start, _ in blocks[1:]}
    shift = 0 if phase == "start" else 1
    assert cuts == {t for t in range(1, steps) if (t + shift) % k == 0}


def test_attention_reads_the_softmax_of_earlier_states():
    model = make("lstm-attention", {}).double()
    x = sample(VALUES, 2, 6, torch.float64)
    h = model.rnn(x)[0]
    want = []
    for t in range(6):
        memory = torch.stack([torch.zeros_like(h[:, 0]), *(h[:, j] for j in range(t))], dim=1)
        query, keys = model.query(h[:, t]), model.key(memory)
        weights = torch.softmax((keys @ query[..., None])[..., 0] / 8**0.5, dim=-1)
        s = (weights[..., None] * memory).sum(1)
        want.append(model.readout.linear(torch.cat([h[:, t], s], -1)))
    torch.testing.assert_close(model(x), torch.stack(want, 1))


def test_attention_feedback_by_its_definition():
    model = make("lstm-attention", {"feedback": True}).double()
    cell = torch.nn.LSTMCell(3, 8, dtype=torch.float64)
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in model.rnn.state_dict().items()})
    x = sample(VALUES, 2, 6, torch.float64)
    h = c = torch.zeros(2, 8, dtype=torch.float64)
    memory, want = [h], []
    for t in range(6):
        h, c = cell(x[:, t], (h, c))
        scores = torch.stack([(model.query(h) * model.key(m)).sum(-1) for m in memory], -1)
        weights = torch.softmax(scores / 8**0.5, dim=-1)
        s = sum(weights[:, j, None] * m for j, m in enumerate(memory))
        h = h + s
        memory.append(h)
        want.append(model.readout.linear(torch.cat([h, s], -1)))
    torch.testing.assert_close(model(x), torch.stack(want, 1))


def test_embedding_of_tokens():
    model = make("lstm", {"embedding": 5}, TOKENS)
    assert model.encoder.table.weight.shape == (7, 5)
    assert model.rnn.input_size == 5
    x = sample(TOKENS)
    one_hot = make("lstm", {}, TOKENS)
    values = make("lstm", {}, InputSpec("values", 7))
    values.load_state_dict(one_hot.state_dict())
    torch.testing.assert_close(one_hot(x), values(torch.nn.functional.one_hot(x, 7).float()))


def test_transformer_blocks_start_apart():
    model = make("transformer", {"layers": 2})
    first, second = model.blocks.layers
    assert not torch.equal(first.linear1.weight, second.linear1.weight)
    assert not torch.equal(first.self_attn.in_proj_weight, second.self_attn.in_proj_weight)


def test_sinusoidal_positions_by_the_formula():
    table = sinusoidal_positions(50, 7)
    for t, i in [(0, 0), (3, 0), (3, 1), (49, 4), (49, 5), (20, 6)]:
        angle = torch.tensor(t / 10000 ** ((i - i % 2) / 7))
        want = angle.sin() if i % 2 == 0 else angle.cos()
        torch.testing.assert_close(table[t, i], want, rtol=1e-4, atol=1e-5)


def test_transformer_knows_the_order():
    model = make("transformer", {}, per_step=False).eval()
    x = sample(VALUES)
    swapped = x[:, [1, 0, *range(2, 9)]]
    assert (model(x) - model(swapped)).abs().max() > 1e-4


def test_sab_is_the_layer_with_a_readout_of_both():
    config = SABModelConfig(
        hidden=8, k_top=2, k_att=2, k_trunc=3, score_grad="params_only", mental_updates=1, hops=2,
        recall_scale=0.5, max_memories=3, phase="end", truncation="window", normaliser="softmax",
        margin=0.01, small_memory="softmax", init_memory="zero",
    )  # fmt: skip
    model = build_sequence_model(config, VALUES, OutputSpec(4, True))
    layer = model.rnn.config
    for name in ("k_top", "k_att", "k_trunc", *config.knobs()):
        assert getattr(layer, name) == getattr(config, name), name
    assert len(config.knobs()) == 11
    x = sample(VALUES)
    output, _ = model.rnn(x)
    assert output.shape[-1] == 16
    torch.testing.assert_close(model(x), model.readout.linear(output))


def stream_all(model, x, sizes):
    state, outputs = (), []
    for piece in x.split(sizes, dim=1):
        out, state = model.stream(piece, state)
        assert all(isinstance(t, torch.Tensor) for t in state)
        outputs.append(out)
    return torch.cat(outputs, 1), state


CAUSAL = [
    ("lstm", {"layers": 2}),
    ("lstm-attention", {}),
    ("lstm-attention", {"feedback": True}),
    ("transformer", {"causal": True}),
    ("sab", {"k_att": 2}),
    ("sab", {"preset": "authors", "layers": 2, "max_memories": 3}),
    ("sab", {"cell": "gru", "small_memory": "softmax"}),
]


@pytest.mark.parametrize(("name", "extra"), CAUSAL)
@pytest.mark.parametrize("inputs", [VALUES, TOKENS], ids=["values", "tokens"])
@pytest.mark.parametrize("training", [True, False])
def test_pieces_equal_the_whole_and_credit_crosses_the_seam(name, extra, inputs, training):
    model = make(name, extra, inputs).double().train(training)
    assert isinstance(model, Streaming)
    x = sample(inputs, dtype=torch.float64)
    whole = model(x)
    for sizes in ([9], [4, 5], [1] * 9, [2, 6, 1]):
        torch.testing.assert_close(stream_all(model, x, sizes)[0], whole)
    (together,) = torch.autograd.grad(whole.square().sum(), model.readout.linear.weight)
    out, _ = stream_all(model, x, [4, 5])
    (apart,) = torch.autograd.grad(out.square().sum(), model.readout.linear.weight)
    torch.testing.assert_close(apart, together)


def test_truncated_pieces_cut_at_their_seams():
    model = make("lstm-tbptt", {"k_trunc": 3}).double()
    x = sample(VALUES, 1, dtype=torch.float64).requires_grad_()
    out, _ = stream_all(model, x, [3, 3, 3])
    torch.testing.assert_close(out, model(x))
    (grad,) = torch.autograd.grad(out[0, 5].sum(), x)
    assert (grad[0].abs().amax(-1) > 0).tolist() == [False] * 3 + [True] * 3 + [False] * 3


@pytest.mark.parametrize(
    ("name", "extra"), [("lstm-attention", {}), ("transformer", {"causal": True})]
)
def test_context_bounds_what_is_kept(name, extra):
    model = make(name, {**extra, "context": 2})
    x = sample(VALUES)
    _, state = stream_all(model, x, [4, 5])
    assert state[-1].shape[1] == 2
    if name == "transformer":  # the last piece saw two steps before it, and no more
        out, _ = stream_all(model, x, [4, 5])
        torch.testing.assert_close(out[:, 4:], model(x[:, 2:])[:, 2:])


def test_only_a_causal_transformer_reads_in_pieces():
    with pytest.raises(InputError, match="causal: expected True, to read in pieces"):
        make("transformer", {}).stream(sample(VALUES))


def test_carried_keys_follow_the_weights_in_training():
    model = make("sab", {}).double()
    x = sample(VALUES, dtype=torch.float64)
    h, c, memory, keys, *rest = (t.detach() for t in model.stream(x[:, :5])[1])
    with torch.no_grad():
        model.rnn.layers[0].key.mul_(-1)
    made_anew = memory @ model.rnn.layers[0].key.T
    fresh, _ = model.eval().stream(x[:, 5:], (h, c, memory, made_anew, *rest))
    stale, _ = model.stream(x[:, 5:], (h, c, memory, keys, *rest))
    assert not torch.allclose(stale, fresh)
    model.train()
    torch.testing.assert_close(model.stream(x[:, 5:], (h, c, memory, keys, *rest))[0], fresh)


def test_dense_sab_reads_a_softmax_of_all_memories():
    dense = make("sab", {"k_top": 0, "small_memory": "softmax", "k_trunc": 2}).double()
    x = sample(VALUES, 2, 9, torch.float64)
    weights = dense.recalled(x)
    for t in range(1, 9):
        assert (weights[:, t, :t] > 0).all()
    torch.testing.assert_close(weights.sum(-1)[:, 1:], torch.ones(2, 8, dtype=torch.float64))
    out = dense(x)
    out.square().sum().backward()
    grads = [p.grad.clone() for p in dense.parameters()]
    dense.zero_grad()
    with force_backend("reference"):
        plain = dense(x)
        plain.square().sum().backward()
    torch.testing.assert_close(out, plain)
    for a, p in zip(grads, dense.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad)


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_without_mental_updates_no_credit_enters_a_memory(backend):
    """The ablation: the output is the same, the recurrence is the only path of credit."""
    full = make("sab", {"k_att": 1, "k_trunc": 3}).double()
    cut = make("sab", {"k_att": 1, "k_trunc": 3, "mental_updates": 0}).double()
    cut.load_state_dict(full.state_dict())
    x = sample(VALUES, 1, dtype=torch.float64).requires_grad_()
    with force_backend(backend):
        torch.testing.assert_close(cut(x), full(x))
        for model, reaches in ((full, True), (cut, False)):
            (grad,) = torch.autograd.grad(model(x)[0, 8].sum(), x)
            assert bool((grad[0, :6] != 0).any()) is reaches
            assert (grad[0, 6:] != 0).all()


def test_sab_preset_holds_where_nothing_else_is_said():
    model = build_sequence_model(
        SABModelConfig(hidden=8, preset="release", k_att=2), VALUES, OutputSpec(4, True)
    )
    assert model.rnn.config.score == "additive_release"
    assert model.rnn.config.phase == "end"


def test_sab_credit_goes_beyond_the_cut_only_through_memories():
    model = make("sab", {"k_att": 3, "k_trunc": 3, "mental_updates": 0})
    assert isinstance(model, Recalling)
    assert not isinstance(make("lstm", {}), Recalling)
    x = sample(VALUES)
    credit = model.credit(x) > 0
    block = torch.arange(9) // 3
    within = (block[:, None] == block[None]) & torch.ones(9, 9, dtype=torch.bool).tril()
    assert (credit & within).equal(within)
    assert not credit.triu(1).any()
    full = make("sab", {"k_att": 3, "k_trunc": 3})
    beyond = (full.credit(x) > 0) & ~within
    assert beyond[6:, :3].any()


def test_sab_recall_is_causal_and_from_what_was_stored():
    weights = make("sab", {"k_att": 2}).recalled(sample(VALUES))
    assert weights.shape == (5, 9, 9)
    assert weights.triu().abs().max() == 0
    assert (weights[:, :, 0::2] == 0).all()  # stored after steps 1, 3, 5, 7
    torch.testing.assert_close(weights.sum(-1)[:, 2:], torch.ones(5, 7))
    assert ((weights > 1e-6).sum(-1) <= 2).all()


@pytest.mark.parametrize(
    ("name", "bad", "words"),
    [
        ("lstm", {"hidden": 0}, "hidden: expected a whole number of at least 1, got 0"),
        ("lstm", {"layers": -1}, "layers"),
        ("lstm", {"dropout": 1.0}, "dropout: expected a number in"),
        ("lstm", {"embedding": -2}, "embedding"),
        ("lstm-tbptt", {"k_trunc": 0}, "k_trunc: expected a whole number of at least 1, got 0"),
        ("lstm-attention", {"hidden": -4}, "hidden"),
        ("transformer", {"width": 10, "heads": 4}, r"width: expected a multiple of heads \(4\)"),
        ("transformer", {"heads": 0}, "heads"),
        ("sab", {"k_top": -3}, "k_top: expected a whole number of at least 0, got -3"),
        ("transformer", {"context": -1}, "context"),
        ("lstm-attention", {"context": -1}, "context"),
        ("sab", {"k_trunc": 0}, "k_trunc"),
        ("sab", {"k_att": 0}, "k_att"),
        ("sab", {"hops": 0}, "hops"),
        ("sab", {"max_memories": 0}, "max_memories"),
        ("sab", {"mental_updates": -1}, "mental_updates"),
    ],
)
def test_impossible_settings(name, bad, words):
    with pytest.raises(InputError, match=words):
        SEQUENCE_MODELS[name](**bad)


@pytest.mark.parametrize(
    ("inputs", "x", "lengths", "words"),
    [
        (VALUES, torch.zeros(2, 3, 4), None, r"shape \(batch, steps, 3\), got \(2, 3, 4\)"),
        (VALUES, torch.zeros(2, 3), None, "inputs"),
        (VALUES, torch.zeros(2, 0, 3), None, "at least one step"),
        (VALUES, torch.zeros(2, 4, 3), torch.tensor([1]), "2 whole numbers"),
        (VALUES, torch.zeros(2, 4, 3), torch.tensor([1.0, 2.0]), "lengths"),
        (VALUES, torch.zeros(2, 4, 3), torch.tensor([0, 4]), r"values in 1\.\.4"),
        (VALUES, torch.zeros(2, 4, 3), torch.tensor([5, 4]), r"values in 1\.\.4"),
        (TOKENS, torch.zeros(2, 4), None, "integer tokens"),
        (TOKENS, torch.full((2, 4), 7), None, r"tokens in 0\.\.6, got 7\.\.7"),
        (TOKENS, torch.full((2, 4), -1), None, r"tokens in 0\.\.6"),
    ],
)
def test_refuses_bad_input(inputs, x, lengths, words):
    with pytest.raises(InputError, match=words):
        make("lstm", {}, inputs)(x, lengths)


def test_legal_extremes_of_sab():
    x = sample(VALUES)
    for extra in ({"k_trunc": 100}, {"k_att": 100}, {"k_top": 100}, {"mental_updates": 0}):
        out = make("sab", extra)(x)
        assert out.isfinite().all()


def test_learned_positions_have_an_end():
    model = make("transformer", {"positions": "learned", "max_length": 8})
    with pytest.raises(InputError, match="at most 8 steps"):
        model(sample(VALUES))
    fixed = make("transformer", {"positions": "learned"}, replace(VALUES, length=9))
    assert fixed.positions.num_embeddings == 9
    assert fixed(sample(VALUES)).shape == (5, 9, 4)


def test_unknown_config():
    with pytest.raises(InputError, match="lstm-tbptt"):
        build_sequence_model(object(), VALUES, OutputSpec(1, True))


def test_a_subclass_of_a_config_builds_its_model():
    class Wide(SEQUENCE_MODELS["lstm-tbptt"]):
        pass

    model = build_sequence_model(Wide(hidden=4), VALUES, OutputSpec(1, True))
    assert type(model).__name__ == "TruncatedLSTMModel"
