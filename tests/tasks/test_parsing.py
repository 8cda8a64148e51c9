import itertools
import json
from dataclasses import replace

import pytest
import torch

from lawful.cli import main
from lawful.errors import InputError
from lawful.models import BiaffineParser, LocalParserConfig, TreeParserConfig
from lawful.structures import ProjectiveTree
from lawful.tasks import exhibits, get_task
from lawful.tasks.parsing import ParsingConfig, ParsingTask
from lawful.tasks.parsing._decode import best_heads, best_labels, head_loss, marginals
from lawful.tasks.parsing._task import ParsingEvaluation
from lawful.tasks.treebank import EMBEDDED, File, gold_tree, read_sentences
from lawful.training import RunFolder, TrainConfig, Trainer, evaluate
from tests.tasks.treebank.test_trees import crosses, trees

TINY = {
    "word_size": 24, "char_size": 8, "char_features": 16, "hidden_size": 32, "layers": 1,
    "arc_size": 24, "label_size": 12,
}  # fmt: skip


def make(data=None, **config):
    task = ParsingTask(ParsingConfig(**config), 0, data)
    task.load()
    return task


def build(task, config=None, seed=0):
    """A parser with random scores (a fresh one finds all trees alike)."""
    torch.manual_seed(seed)
    model = task.build(config or TreeParserConfig(**TINY)).eval()
    with torch.no_grad():
        for p in (model.arc, model.arc_head, model.label):
            p.normal_()
    return model


@pytest.fixture(scope="module")
def loaded():
    return make()


@pytest.mark.parametrize("structure", ["spanning", "projective"])
@pytest.mark.parametrize("kind", [TreeParserConfig, LocalParserConfig])
def test_learns_the_embedded_treebank(tmp_path, loaded, structure, kind):
    config = kind(**TINY, structure=structure, dropout=0.1, word_dropout=0.0)
    torch.manual_seed(0)
    train = TrainConfig(steps=70, batch_size=16, lr=0.01, eval_every=70, clip=5.0)
    run = RunFolder.create(tmp_path / "run", {})
    trainer = Trainer(loaded, loaded.build(config), train, run, silent=True)
    result = trainer.conclude(trainer.fit())
    known = evaluate(loaded, trainer.model, loaded.source("train"), 32)
    assert known["uas"] > 0.85
    assert known["las"] > 0.65
    assert result["test"]["uas"] > result["baselines"]["previous word"]


def scores(n, lengths, seed=0):
    g = torch.Generator().manual_seed(seed)
    arcs = torch.randn(len(lengths), n, n, generator=g, dtype=torch.double)
    root = torch.randn(len(lengths), n, generator=g, dtype=torch.double)
    return arcs, root, torch.tensor(lengths)


def score(heads, arcs, root):
    return sum(root[m] if h < 0 else arcs[h, m] for m, h in enumerate(heads))


def padded(heads, n):
    return torch.tensor([h + [-2] * (n - len(h)) for h in heads])


@pytest.mark.parametrize("structure", ["spanning", "projective"])
def test_tree_loss_and_decoding_by_brute_force(loaded, structure):
    lengths = [4, 2, 3]
    arcs, root, tensor = scores(4, lengths)
    gold = [[1, -1, 3, 1], [-1, 0], [2, 0, -1]]
    batch = {"lengths": tensor, "heads": padded(gold, 4), "lifted": padded(gold, 4)}
    loss = head_loss(False, structure, arcs, root, batch)
    model = build(loaded, TreeParserConfig(**TINY, structure=structure))
    best = best_heads(model, arcs, root, tensor)
    chances = marginals(model, arcs, root, tensor)
    model.decode = "mbr"
    safest = best_heads(model, arcs, root, tensor)
    for b, n in enumerate(lengths):
        some = [t for t in trees(n) if structure == "spanning" or not crosses(t)]
        values = torch.stack([score(t, arcs[b], root[b]) for t in some])
        p = values.softmax(0)
        want = values.logsumexp(0) - score(gold[b], arcs[b], root[b])
        torch.testing.assert_close(loss[b], want)
        assert best[b, :n].tolist() == some[int(values.argmax())]
        for h, m in itertools.product(range(-1, n), range(n)):
            want = sum(q for t, q in zip(some, p, strict=True) if t[m] == h)
            got = chances[1][b, m] if h < 0 else chances[0][b, h, m]
            if h != m:
                assert float(got) == pytest.approx(float(want), abs=1e-9)
        expected = [score(t, chances[0][b], chances[1][b]) for t in some]
        assert safest[b, :n].tolist() == some[int(torch.stack(expected).argmax())]
    assert (best[1, 2:] == -2).all()


def test_local_loss_by_brute_force(loaded):
    lengths = [4, 2, 1]
    arcs, root, tensor = scores(4, lengths)
    gold = [[1, -1, 3, 1], [-1, 0], [-1]]
    loss = head_loss(True, "spanning", arcs, root, {"lengths": tensor, "heads": padded(gold, 4)})
    for b, n in enumerate(lengths):
        want = 0.0
        for m, h in enumerate(gold[b]):
            options = [arcs[b, k, m] for k in range(n) if k != m] + [root[b, m]]
            right = root[b, m] if h < 0 else arcs[b, h, m]
            want += float(torch.stack(options).logsumexp(0) - right)
        assert float(loss[b]) == pytest.approx(want)
    model = build(loaded, LocalParserConfig(**TINY))
    chances = marginals(model, arcs, root, tensor)
    sums = chances[0].sum(1) + chances[1]
    inside = torch.arange(4) < tensor[:, None]
    torch.testing.assert_close(sums[inside], torch.ones(7, dtype=torch.double))


def test_projective_training_uses_lifted_trees_and_scores_the_true_ones(loaded):
    part = next(s for s in ("train", "valid", "test") if _crossing(loaded.source(s)) is not None)
    source = loaded.source(part)
    batch = source.batch([_crossing(source)])
    assert (batch["heads"] != batch["lifted"]).any()
    model = build(loaded, TreeParserConfig(**TINY, structure="projective"))
    arcs, root = model.arcs(
        model.states(*(batch[k] for k in ("words", "chars", "spelling", "lengths")))
    )
    trees = ProjectiveTree(arcs, root, batch["lengths"], single_root=True, validate_args=True)
    want = -trees.log_prob(batch["lifted"])
    torch.testing.assert_close(head_loss(False, "projective", arcs, root, batch), want)
    with pytest.raises(InputError, match="not a valid structure"):
        trees.log_prob(batch["heads"])
    assert head_loss(False, "spanning", arcs, root, batch).isfinite().all()


def _crossing(source):
    flat, lifted = source.columns["heads"].flat, source.columns["lifted"].flat
    ends = source.lengths.cumsum()
    for i, (n, end) in enumerate(zip(source.lengths, ends, strict=True)):
        if (flat[end - n : end] != lifted[end - n : end]).any():
            return i
    return None


def test_root_label_goes_to_the_root_and_nowhere_else(loaded):
    assert loaded.labels[loaded.root_label] == "root"
    logits = torch.randn(2, 3, len(loaded.labels))
    heads = torch.tensor([[1, -1, 1], [-1, 0, -2]])
    labels = best_labels(logits, heads, loaded.root_label)
    assert ((labels == loaded.root_label) == (heads == -1)).all()
    free = best_labels(logits, heads, -1)
    assert torch.equal(free, logits.argmax(-1))


ROWS = """\
1\tShe\t_\tPRON\t_\t_\t2\tnsubj:pass\t_\t_
2\twas\t_\tVERB\t_\t_\t0\troot\t_\t_
3\tred\t_\tADJ\t_\t_\t2\txcomp\t_\t_
4\t,\t_\tPUNCT\t_\t_\t2\tpunct\t_\t_

"""


@pytest.mark.parametrize("punctuation", [True, False])
def test_attachment_scores_by_hand(tmp_path, punctuation):
    path = tmp_path / "x.conllu"
    path.write_text(ROWS * 10)
    task = make(path, punctuation=punctuation)
    batch = task.source("train").batch([0, 1])
    labels = {name: task.labels.index(name) for name in task.labels}
    right = [labels[x] for x in ("nsubj:pass", "root", "xcomp", "punct")]
    evaluation = ParsingEvaluation(task.coarse(), task.root_label)
    heads = torch.tensor([[1, -1, 1, 1], [1, -1, 0, 2]])
    found = torch.tensor([right, [right[0], right[1], right[2], right[3]]])
    found[0, 2] = labels["punct"]
    evaluation.count(heads, found, batch)
    got = evaluation.compute()
    total = 8 if punctuation else 6
    wrong = 2 if punctuation else 1
    assert got["uas"] == (total - wrong) / total
    assert got["las"] == got["las_subtypes"] == (total - wrong - 1) / total
    assert got["exact"] == 1 / 2


def test_subtypes_count_in_their_own_score_only(tmp_path):
    path = tmp_path / "x.conllu"
    path.write_text(ROWS * 5 + ROWS.replace("nsubj:pass", "nsubj") * 5)
    task = make(path)
    source = task.source("train")
    gold = source.batch([0])["labels"][0]
    evaluation = ParsingEvaluation(task.coarse(), task.root_label)
    other = gold.clone()
    subtype, plain = task.labels.index("nsubj:pass"), task.labels.index("nsubj")
    other[0] = plain if int(gold[0]) == subtype else subtype
    evaluation.count(torch.tensor([[1, -1, 1, 1]]), other[None], source.batch([0]))
    got = evaluation.compute()
    assert (got["uas"], got["las"], got["las_subtypes"]) == (1.0, 1.0, 0.75)


def test_labels_new_to_the_run_are_wrong_unless_the_universal_part_is_right(tmp_path):
    path = tmp_path / "x.conllu"
    path.write_text(ROWS.replace("nsubj:pass", "nsubj:outer").replace("xcomp", "quirk"))
    trained = make()
    task = ParsingTask(ParsingConfig(), 0, path)
    task.load_state(json.loads(json.dumps(trained.state())))
    task.load()
    batch = task.source("test").batch([0])
    assert batch["labels"][0, 0] == batch["labels"][0, 2] == -1
    labels = [task.labels.index(x) for x in ("nsubj", "root", "obj", "punct")]
    evaluation = ParsingEvaluation(task.coarse(), task.root_label)
    evaluation.count(torch.tensor([[1, -1, 1, 1]]), torch.tensor([labels]), batch)
    got = evaluation.compute()
    assert (got["uas"], got["las"], got["las_subtypes"]) == (1.0, 0.75, 0.5)
    model = build(task)
    assert all(v == v for v in evaluate(task, model, task.source("test"), 8).values())


def test_loss_is_the_mean_over_words_and_has_gradients_everywhere(loaded):
    model = build(loaded)
    source = loaded.source("train")
    batch = source.batch([3, 0, 9])
    loss, parts = loaded.loss(model, batch)
    assert float(sum(parts.values())) == pytest.approx(float(loss.detach()), rel=1e-5)
    total = 0.0
    for i in (3, 0, 9):
        one = source.batch([i])
        total += float(loaded.loss(model, one)[0].detach()) * int(one["lengths"])
    assert float(loss.detach()) == pytest.approx(total / int(batch["lengths"].sum()), rel=1e-4)
    loss.backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name
        assert p.grad.any(), name


@pytest.mark.parametrize("structure", ["spanning", "projective"])
def test_predictions_are_trees_and_everything_else_stays(tmp_path, loaded, structure):
    model = build(loaded, TreeParserConfig(**TINY, structure=structure))
    bare = tmp_path / "bare.conllu"
    sentences = list(read_sentences(File(EMBEDDED)))
    bare.write_text(
        "".join(s.replaced({6: ["_"] * len(s), 7: ["_"] * len(s)}).text() for s in sentences)
    )
    out = tmp_path / "out.conllu"
    loaded.write_predictions(model, bare, out)
    rows = list(loaded.predict(model, bare))
    after = list(read_sentences(File(out)))
    assert len(after) == len(sentences)
    for row, s, gold in zip(rows, after, sentences, strict=True):
        heads = gold_tree(s)  # raises unless it is a tree with one root
        assert [h + 1 for h in heads] == row["heads"]
        assert structure == "spanning" or not crosses(heads)
        assert s.column(7) == row["labels"]
        assert [h == 0 for h in row["heads"]] == [x == "root" for x in row["labels"]]
        assert s.replaced({6: gold.column(6), 7: gold.column(7)}).text() == gold.text()
    one = tmp_path / "one.conllu"
    one.write_text(sentences[11].text())
    assert list(loaded.predict(model, one)) == [rows[11]]


def test_malformed_trees_are_refused_with_file_and_line(tmp_path):
    path = tmp_path / "x.conllu"
    path.write_text(ROWS * 3 + ROWS.replace("2\txcomp", "0\txcomp"))
    with pytest.raises(InputError, match=r"x.conllu, line 18: expected exactly one root"):
        make(path)
    path.write_text("a B\n\nc D\n")
    with pytest.raises(InputError, match="10 columns"):
        make(path)
    path.with_suffix(".tsv").write_text("a B\n\nc D\n")
    with pytest.raises(InputError, match=r"x.tsv, line 1: expected CoNLL-U"):
        make(path.with_suffix(".tsv"))


def test_sentences_beyond_the_limit_are_refused(tmp_path):
    path = tmp_path / "x.conllu"
    path.write_text(ROWS * 4)
    with pytest.raises(InputError, match=r"line 4: a sentence of 4 words; see --max-length"):
        make(path, max_length=3)
    trained = make()
    trained.config = replace(trained.config, max_length=3)
    with pytest.raises(InputError, match="max-length"):
        list(trained.predict(build(trained), path))
    with pytest.raises(InputError, match="max_length"):
        ParsingConfig(max_length=0)


def test_exhibits_show_trees_and_scores(tmp_path, loaded):
    shown = loaded.exhibits(build(loaded), "train")
    exhibits.save(shown, tmp_path)
    kinds = [type(e).__name__ for e in exhibits.load(tmp_path)]
    assert kinds.count("Arcs") == 6
    table = next(e for e in shown if isinstance(e, exhibits.Table))
    total = sum(row[1] for row in table.rows)
    assert total == int(loaded.source("train").lengths.sum())
    right = sum(row[1] * row[2] for row in table.rows)
    measured = evaluate(loaded, build(loaded), loaded.source("train"), 32)
    assert right / total == pytest.approx(measured["uas"])
    heat = next(e for e in shown if isinstance(e, exhibits.Heatmap))
    assert heat.values.sum(0) == pytest.approx(1, abs=1e-5)


def test_baseline_by_hand(tmp_path):
    path = tmp_path / "x.conllu"
    path.write_text(ROWS * 10)
    # Hung on the word before it, only "red" is right; on the one after, only "She".
    assert make(path).baselines() == {"previous word": 1 / 4, "next word": 1 / 4}


def test_from_the_command_line(tmp_path, capsys):
    run, out = tmp_path / "run", tmp_path / "out.conllu"
    size = [x for k, v in TINY.items() for x in (f"--{k.replace('_', '-')}", str(v))]
    args = ["train", "parsing", "--out", str(run), "--epochs", "1", "--no-progress", "--no-report"]
    assert main([*args, *size, "--structure", "projective", "--decode", "mbr"]) == 0
    assert main(["predict", str(run), str(EMBEDDED), "--out", str(out)]) == 0
    assert [len(s) for s in read_sentences(File(out))] == [
        len(s) for s in read_sentences(File(EMBEDDED))
    ]
    assert main(["evaluate", str(run)]) == 0
    assert "test uas:" in capsys.readouterr().out


def test_is_registered():
    assert get_task("parsing") is ParsingTask
    assert ParsingTask.metric == "las"
    assert isinstance(make().build(TreeParserConfig(**TINY)), BiaffineParser)
