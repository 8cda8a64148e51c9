import pickle

import pytest
import torch

import lawful
from lawful.errors import InputError
from lawful.models import (
    BiaffineParser,
    CRFTaggerConfig,
    LocalParserConfig,
    SoftmaxTaggerConfig,
    Tagger,
    TreeParserConfig,
    WordEncoder,
    WordEncoderConfig,
)
from lawful.models._words import BiLSTM, CharacterFeatures, SharedDropout, reverse
from lawful.structures import STRUCTURE_LAWS, LinearChain, ProjectiveTree

SMALL = {
    "word_size": 5, "char_size": 4, "char_features": 6, "hidden_size": 7, "dropout": 0.3,
    "word_dropout": 0.3,
}  # fmt: skip


def batch(lengths=(4, 2, 1), n=None, seed=0):
    g = torch.Generator().manual_seed(seed)
    n = n or max(lengths)
    words = torch.randint(1, 12, (len(lengths), n), generator=g)
    chars = torch.randint(1, 9, (5, 6), generator=g)
    chars[2, 3:] = 0
    spelling = torch.randint(0, 5, words.shape, generator=g)
    return words, chars, spelling, torch.tensor(lengths)


def encoder(**change):
    torch.manual_seed(1)
    return WordEncoder(WordEncoderConfig(**{**SMALL, **change}), 12, 9).eval()


def test_reverse_turns_each_row_within_its_length():
    x = torch.arange(10.0).reshape(2, 5, 1)
    out = reverse(x, torch.tensor([3, 5]))[..., 0]
    assert out.tolist() == [[2, 1, 0, 3, 4], [9, 8, 7, 6, 5]]
    assert torch.equal(reverse(reverse(x, torch.tensor([3, 5])), torch.tensor([3, 5])), x)


def test_bilstm_equals_packed_sequences():
    torch.manual_seed(0)
    layer = BiLSTM(3, 4).double()
    twin = torch.nn.LSTM(3, 4, bidirectional=True, batch_first=True).double()
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    with torch.no_grad():
        for name in names:
            getattr(twin, name).copy_(getattr(layer.ahead, name))
            getattr(twin, f"{name}_reverse").copy_(getattr(layer.back, name))
    x, lengths = torch.randn(3, 6, 3, dtype=torch.double), torch.tensor([6, 1, 3])
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        x, lengths, batch_first=True, enforce_sorted=False
    )
    want, _ = torch.nn.utils.rnn.pad_packed_sequence(twin(packed)[0], batch_first=True)
    inside = (torch.arange(6) < lengths[:, None])[..., None]
    torch.testing.assert_close(layer(x, lengths) * inside, want * inside)


@pytest.mark.parametrize("change", [{}, {"char_features": 0}, {"layers": 1}, {"layers": 3}])
def test_padding_and_other_rows_change_nothing(change):
    model = encoder(**change)
    words, chars, spelling, lengths = batch()
    out = model(words, chars, spelling, lengths)
    assert out.shape == (3, 4, model.size)
    wide = batch(n=9)
    wide[0][:, :4], wide[2][:, :4] = words, spelling
    more = model(wide[0], chars, spelling=wide[2], lengths=lengths)
    for i, n in enumerate(lengths.tolist()):
        alone = model(words[i : i + 1, :n], chars, spelling[i : i + 1, :n], lengths[i : i + 1])
        torch.testing.assert_close(alone[0], out[i, :n], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(more[i, :n], out[i, :n], atol=1e-5, rtol=1e-5)


def test_spelling_does_not_depend_on_the_longest_word():
    torch.manual_seed(0)
    features = CharacterFeatures(9, 4, 6)
    chars = torch.tensor([[2, 5, 3]])
    wide = torch.tensor([[2, 5, 3, 0, 0, 0, 0]])
    torch.testing.assert_close(features(chars), features(wide))
    assert features(chars).isfinite().all()


def test_word_dropout_hides_words_and_not_their_spelling():
    model = encoder(word_dropout=0.9, dropout=0.0)
    words, chars, spelling, lengths = batch()
    model.train()
    torch.manual_seed(0)
    outs = {model(words, chars, spelling, lengths).sum().item() for _ in range(4)}
    assert len(outs) > 1
    bare = encoder(word_dropout=0.9, dropout=0.0, char_features=0).train()
    bare.word_dropout = 1.0
    hidden = bare(words, chars, spelling, lengths)
    other = bare(words.roll(1, 1), chars, spelling, lengths)
    torch.testing.assert_close(hidden, other)


def test_dropout_is_shared_over_steps_and_keeps_the_mean():
    torch.manual_seed(0)
    drop = SharedDropout(0.4)
    out = drop(torch.ones(50, 7, 400))
    assert (out == out[:, :1]).all()
    assert out.unique().tolist() == pytest.approx([0, 1 / 0.6])
    assert out.mean().item() == pytest.approx(1, abs=0.02)
    assert drop.eval()(torch.ones(2, 3, 4)).eq(1).all()


@pytest.mark.parametrize("field", ["word_size", "char_size", "hidden_size", "layers"])
def test_impossible_sizes_name_the_field(field):
    with pytest.raises(InputError, match=field):
        WordEncoderConfig(**{field: 0})
    with pytest.raises(InputError, match="dropout"):
        CRFTaggerConfig(dropout=1.0)
    with pytest.raises(InputError, match="arc_size"):
        TreeParserConfig(arc_size=0)


def tagger(chained=True):
    torch.manual_seed(2)
    config = CRFTaggerConfig(**SMALL) if chained else SoftmaxTaggerConfig(**SMALL)
    return Tagger(config, 12, 9, 5, chained=chained)


def test_tagger_scores():
    model = tagger().eval()
    scores = model(*batch())
    assert scores.unary.shape == (3, 4, 5)
    assert scores.transition.shape == (5, 5)
    assert {n for n, _ in model.named_parameters()} >= {"transition", "start", "end"}
    plain = tagger(chained=False)
    assert "transition" not in plain.state_dict()
    assert not plain(*batch()).transition.any()


def parser(config=None):
    torch.manual_seed(3)
    model = BiaffineParser(config or TreeParserConfig(**SMALL, arc_size=6, label_size=4), 12, 9, 3)
    with torch.no_grad():
        for p in (model.arc, model.arc_head, model.label):
            p.normal_()
    return model.eval()


def test_parser_scores_follow_their_formula():
    model = parser()
    words, chars, spelling, lengths = batch()
    heads = torch.tensor([[-1, 0, 1, 0], [1, -1, -2, -2], [-1, -2, -2, -2]])
    scores = model(words, chars, spelling, lengths, heads)
    s = model.states(words, chars, spelling, lengths)
    for b, h, m in [(0, 0, 1), (0, 3, 2), (1, 1, 0)]:
        want = s.arc_head[b, h] @ model.arc @ s.arc_dep[b, m] + s.arc_head[b, h] @ model.arc_head
        torch.testing.assert_close(scores.arcs[b, h, m], want)
    root = s.arc_head[0, 4] @ model.arc @ s.arc_dep[0, 2] + s.arc_head[0, 4] @ model.arc_head
    torch.testing.assert_close(scores.root[0, 2], root)
    for b, m in [(0, 0), (0, 2), (1, 0)]:
        head = s.label_head[b, heads[b, m] if heads[b, m] >= 0 else 4]
        dep = s.label_dep[b, m]
        both = torch.cat([head, dep])
        want = torch.stack([head @ u @ dep for u in model.label]) + model.label_linear(both)
        torch.testing.assert_close(scores.labels[b, m], want)


def test_fresh_parser_finds_all_trees_equally_likely():
    torch.manual_seed(0)
    model = BiaffineParser(TreeParserConfig(**SMALL, arc_size=6, label_size=4), 12, 9, 3)
    arcs, root = model.arcs(model.states(*batch()))
    assert not arcs.any()
    assert not root.any()


@pytest.mark.parametrize("make", [encoder, tagger, parser])
def test_pickles_and_takes_dtype(make):
    model = make().eval()
    args = batch()
    extra = (torch.full((3, 4), -1),) if make is parser else ()
    first = lambda out: out[0] if isinstance(out, tuple) else out  # noqa: E731
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(first(again(*args, *extra)), first(model(*args, *extra)))
    assert first(model.double()(*args, *extra)).dtype == torch.double


def test_local_and_tree_parsers_differ_only_in_training():
    tree, local = parser(), parser(LocalParserConfig(**SMALL, arc_size=6, label_size=4))
    assert (tree.local, local.local) == (False, True)
    assert tree.state_dict().keys() == local.state_dict().keys()


def heads_for(model):
    return (torch.full((3, 4), -1),) if isinstance(model, BiaffineParser) else ()


def small(structure):
    sizes = {**SMALL, "arc_size": 6, "label_size": 4}
    return parser(TreeParserConfig(**sizes, structure=structure))


NETWORKS = {
    "crf": tagger,
    "softmax": lambda: tagger(chained=False),
    "spanning": lambda: small("spanning"),
    "projective": lambda: small("projective"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_keep_the_laws_of_their_distribution(name):
    model = NETWORKS[name]().eval()
    certificate = lawful.check(model, *batch(), *heads_for(model))
    rows = [r for r in certificate.rows if r.law in {law.name for law in STRUCTURE_LAWS}]
    assert {r.law for r in rows} == {law.name for law in STRUCTURE_LAWS}
    assert all(r.holds for r in rows), certificate
    assert all(r.cases for r in rows)


@pytest.mark.parametrize(("name", "family"), [("crf", LinearChain), ("projective", ProjectiveTree)])
def test_a_broken_distribution_breaks_the_laws_of_the_network(monkeypatch, name, family):
    right = family._marginals
    monkeypatch.setattr(family, "_marginals", lambda d: tuple(1.01 * m for m in right(d)))
    model = NETWORKS[name]().eval()
    certificate = lawful.check(model, *batch(), *heads_for(model))
    broken = {r.law for r in certificate.rows if r.holds is False}
    assert {"sum", "gradient"} <= broken
