"""Inference: the formats, words and their vectors, trees of a trained parser, what is shown."""

import json
import random
import zipfile

import numpy as np
import pytest
import torch

import lawful.cli as cli
from lawful.errors import InputError
from lawful.models import EntailmentConfig, SimpleEntailmentConfig, TreeEntailmentConfig
from lawful.tasks.exhibits import Arcs, Heatmap, Table, load, save
from lawful.tasks.nli import LABELS, NLIConfig, NLITask, Pair, read_pairs
from lawful.tasks.nli._ours import our_pairs
from lawful.tasks.nli._pairs import read_parts, words_of
from lawful.tasks.nli._parser import TrainedParser
from lawful.tasks.nli._task import pair_of
from lawful.tasks.nli._vocabulary import BUCKETS, ROOT, Vocabulary, read_vectors

PAIR = Pair(("A", "man", "sleeps", "."), ("He", "rests", "."), "entailment")
SMALL = {"width": 6, "embedding": 5}
MODELS = {
    "none": EntailmentConfig(**SMALL),
    "simple": SimpleEntailmentConfig(score_units=3, **SMALL),
    "structured": TreeEntailmentConfig(score_units=3, **SMALL),
}


@pytest.fixture(scope="module")
def task():
    made = NLITask(NLIConfig(), seed=1)
    made.load()
    return made


# ---- formats -------------------------------------------------------------------------------------


def snli(**more):
    item = {"gold_label": "entailment", "sentence1": "A man sleeps.", "sentence2": "He rests."}
    return json.dumps(item | more)


@pytest.mark.parametrize(
    "text",
    [
        snli(),
        snli(sentence1_binary_parse="( ( A man ) ( sleeps . ) )", sentence1="junk here"),
        "entailment\tA man sleeps.\tHe rests.",
        "2\t2\tA man sleeps.\tHe rests.",
        "ENTAILMENT\tA man sleeps .\tHe rests .\n-\tA\tB\n",
        "gold_label\tx\tsentence1\tsentence2\nentailment\tq\tA man sleeps.\tHe rests.\textra",
        snli() + "\n" + snli(gold_label="-"),
    ],
)
def test_formats(text):
    names = ("neutral", "entailment", "contradiction")
    assert read_pairs(text, "f", names) == [PAIR]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f: expected pairs of sentences"),
        ("{oops", "f:1: expected a JSON object"),
        ("[1]\tx", "f:1: expected label, premise and hypothesis"),
        (json.dumps({"sentence1": "a"}), "f:1: expected a field sentence2"),
        ("maybe\tA\tB", "f:1: expected a label"),
        ("1\tA\tB", "label-names"),
        ("neutral\tA b\t \n", "f:1: expected two sentences with words"),
    ],
)
def test_malformed(text, message):
    with pytest.raises(InputError, match=message):
        read_pairs(text, "f")


def test_numbered_labels_out_of_range():
    with pytest.raises(InputError, match=r"f:1: expected a label in 1\.\.3"):
        read_pairs("4\tA\tB", "f", LABELS)
    with pytest.raises(InputError, match="label_names"):
        NLIConfig(label_names="yes,no")


def test_pairs_without_labels():
    found = read_pairs("A man sleeps.\tHe rests.", "f", labelled=False)
    assert found == [Pair(PAIR.premise, PAIR.hypothesis, "")]
    assert read_pairs(snli(gold_label="-"), "f", labelled=False) == found


def test_words():
    assert words_of("The boy's dog can't, and won\u2019t.") == (
        "The", "boy", "'s", "dog", "ca", "n't", ",", "and", "wo", "n't", "."
    )  # fmt: skip


def test_parts_of_folders_and_archives(tmp_path):
    (tmp_path / "x_train.jsonl").write_text(snli() + "\n")
    (tmp_path / "README.txt").write_text("not data")
    (tmp_path / "s1.dev").write_text("A man sleeps .\n")
    (tmp_path / "s2.dev").write_text("He rests .\n")
    (tmp_path / "labels.dev").write_text("entailment\n")
    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as z:
        for p in tmp_path.iterdir():
            if p != archive:
                z.write(p, f"data/{p.name}")
    for place in (tmp_path, archive):
        assert read_parts(place, ()) == {"train": [PAIR], "valid": [PAIR]}
    assert read_parts(tmp_path / "x_train.jsonl", ()) == {"train": [PAIR]}
    (tmp_path / "labels.dev").write_text("entailment\nneutral\n")
    with pytest.raises(InputError, match="as many lines"):
        read_parts(tmp_path, ())
    (tmp_path / "labels.dev").unlink()
    with pytest.raises(InputError, match=r"labels\.dev beside it"):
        read_parts(tmp_path, ())
    with pytest.raises(InputError, match="does not exist"):
        read_parts(tmp_path / "no", ())


def test_parts_of_the_task(tmp_path):
    rows = ["\t".join((c, a, b)) for a, b, c in our_pairs(random.Random(0), 100)]
    whole, other = tmp_path / "pairs.tsv", tmp_path / "other"
    whole.write_text("\n".join(rows))
    other.mkdir()
    (other / "dev.tsv").write_text(rows[0])
    (other / "test.tsv").write_text("\n".join(rows[1:3]))
    made = NLITask(NLIConfig(), 0, whole)
    made.load()
    assert [len(made.parts[s]) for s in ("train", "valid", "test")] == [81, 9, 10]
    assert {p for part in made.parts.values() for p in part} == set(
        read_pairs("\n".join(rows), "f")
    )
    made = NLITask(NLIConfig(test_data=str(other), max_train=50), 0, whole)
    made.load()
    assert [len(made.parts[s]) for s in ("train", "valid", "test")] == [50, 1, 2]
    longest = max(len(p.premise) for p in made.parts["train"])
    made = NLITask(NLIConfig(test_data=str(other), max_words=longest - 1), 0, whole)
    made.load()
    assert 0 < len(made.parts["train"]) < 100
    with pytest.raises(InputError, match="test_data"):
        NLITask(NLIConfig(test_data="x")).load()


# ---- words ---------------------------------------------------------------------------------------


def test_unknown_words_share_by_hash():
    known = Vocabulary.of([("A", "b", "b"), ("a", "c")], lowercase=True, least=2)
    assert known.words == ["a", "b"]
    assert len(known) == 2 + BUCKETS + 2
    ids = known.encode(("A", "c", "zebra", "ZEBRA"))
    assert ids[:2] == [ROOT, 2 + BUCKETS]
    assert ids[3] == ids[4]
    assert all(2 <= i < 2 + BUCKETS for i in ids[2:])
    again = Vocabulary.from_state(json.loads(json.dumps(known.state())))
    assert again.encode(("A", "c", "zebra", "ZEBRA")) == ids
    assert len({known.encode((f"w{i}",))[1] for i in range(500)}) > 80


def test_vectors_from_a_file(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("3 2\nman 3 4\nof of 1 0\nsleeps 0 2\nother 9 9\n")
    found = read_vectors(path, {"man", "sleeps", "of of"})
    assert {w: v.tolist() for w, v in found.items()} == {
        "man": [3, 4], "of of": [1, 0], "sleeps": [0, 2]
    }  # fmt: skip
    known = Vocabulary(["man", "sleeps"], True)
    table = known.table(found)
    assert table[-2:] == pytest.approx(np.array([[0.6, 0.8], [0, 1]]))
    assert np.linalg.norm(table, axis=1) == pytest.approx([0] + [1] * (len(known) - 1), abs=1e-6)
    for text, message in (
        ("man 3 x\n", "v.txt:1: expected a word and 2 finite numbers"),
        ("man 1 2 3\nsleeps 1\n", "v.txt:2: expected a word and 3 numbers"),
        ("other 1 2 3\n", "vectors of words"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_vectors(path, {"man", "sleeps"})


def test_a_task_with_vectors(tmp_path, task):
    path = tmp_path / "v.txt"
    path.write_text("".join(f"{w} {i} 1 -1\n" for i, w in enumerate(task.known.words[:20])))
    made = NLITask(NLIConfig(vectors=str(path)), seed=1)
    made.load()
    model = made.build(MODELS["none"])
    assert model.table is None
    assert model.vectors.shape == (2 + BUCKETS + 20, 3)
    other = NLITask(NLIConfig(vectors="gone.txt"), seed=1)
    other.load_state(json.loads(json.dumps(made.state())))
    loaded = other.build(MODELS["none"])
    loaded.load_state_dict(model.state_dict())
    batch = made.source("test").batch(range(4))
    assert torch.equal(loaded.eval()(pair_of(batch)), model.eval()(pair_of(batch)))


# ---- data of our own, batches --------------------------------------------------------------------


def test_our_pairs(task):
    every = [p for s in ("train", "valid", "test") for p in task.parts[s]]
    assert len(every) == len(set(every)) == 1200
    for split in ("train", "valid", "test"):
        labels = [p.label for p in task.parts[split]]
        assert all(labels.count(name) == len(labels) // 3 for name in LABELS)
    again = NLITask(NLIConfig(), seed=1)
    again.load()
    assert again.parts == task.parts


def test_batches(task):
    source = task.source("test")
    batch = source.batch([3, 0, 7])
    for row, i in enumerate([3, 0, 7]):
        for name in ("premise", "hypothesis"):
            words = getattr(source.pairs[i], name)
            n = int(batch[f"{name}_lengths"][row])
            assert n == len(words) + 1
            assert batch[name][row, :n].tolist() == task.known.encode(words)
            assert (batch[name][row, n:] == 0).all()
        assert LABELS[batch["label"][row]] == source.pairs[i].label


# ---- a trained parser ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parser_run(tmp_path_factory):
    run = tmp_path_factory.mktemp("parser") / "run"
    options = (
        "--epochs 1 --hidden-size 12 --layers 1 --word-size 8 --char-features 0 --arc-size 8 "
        "--label-size 4 --max-train 60 --no-progress --no-report"
    )
    assert cli.main(["train", "parsing", *options.split(), "--out", str(run)]) == 0
    return run


def test_parents_of_a_parser(parser_run, tmp_path, capsys):
    parser = TrainedParser(parser_run)
    sentences = [("the", "dog", "runs", "home", "."), ("yes",), ("a", "b", "c")]
    soft = list(parser.parents(sentences, hard=False))
    hard = list(parser.parents(sentences, hard=True))
    for words, s, h in zip(sentences, soft, hard, strict=True):
        n = len(words) + 1
        assert s.shape == h.shape == (n, n)
        assert (s[0] == 0).all()
        assert s[1:].sum(1) == pytest.approx(np.ones(n - 1), abs=1e-4)
        assert set(np.unique(h)) <= {0, 1}
        assert h[1:].sum(1).tolist() == [1] * (n - 1)
        assert h[:, 0].sum() == 1  # a single root
    # The same trees as the run itself predicts.
    text = "".join(
        "".join(f"{i}\t{w}" + "\t_" * 4 + "\t0\troot\t_\t_\n" for i, w in enumerate(s, 1)) + "\n"
        for s in sentences
    )
    (tmp_path / "s.conllu").write_text(text)
    capsys.readouterr()
    assert cli.main(["predict", str(parser_run), str(tmp_path / "s.conllu")]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [h[1:].argmax(1).tolist() for h in hard] == [r["heads"] for r in rows]


def test_no_parser(tmp_path, task):
    with pytest.raises(InputError, match=r"config\.json"):
        TrainedParser(tmp_path)
    (tmp_path / "config.json").write_text('{"task": "qa"}')
    with pytest.raises(InputError, match="a run of the task parsing"):
        TrainedParser(tmp_path)
    with pytest.raises(InputError, match="parser"):
        task.build(NLITask.models["parsed"]())


@pytest.mark.parametrize("name", ["hard-parent", "parsed"])
def test_models_on_a_parser(parser_run, name, tmp_path, capsys):
    run = tmp_path / "run"
    options = ["--parser", str(parser_run), "--epochs", "1", "--width", "8", "--no-progress"]
    command = ["train", "nli", "--model", name, *options, "--out", str(run)]
    assert cli.main(command) == 0
    (tmp_path / "p.tsv").write_text("A boy is running.\tA zebra is asleep.\n")
    capsys.readouterr()
    assert cli.main(["predict", str(run), str(tmp_path / "p.tsv")]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["label"] in LABELS
    assert sum(row[k] for k in LABELS) == pytest.approx(1, abs=1e-5)
    assert row["hypothesis"] == "A zebra is asleep ."
    assert "right" not in row
    shown = load(run / "exhibits")
    assert sum(isinstance(v, Arcs) for v in shown) == 6


# ---- what is shown -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_exhibits(task, name, tmp_path):
    torch.manual_seed(0)
    model = task.build(MODELS[name])
    views = task.exhibits(model)
    save(views, tmp_path)
    assert len(load(tmp_path)) == len(views)
    confusions = next(v for v in views if v.title == "Confusions")
    assert confusions.values.sum() == 150
    evaluation = task.evaluation()
    with torch.no_grad():
        evaluation.update(model.eval(), task.source("test").batch(range(150)))
    accuracy = evaluation.compute()["accuracy"]
    assert confusions.values.trace() / 150 == pytest.approx(accuracy)
    results = next(v for v in views if isinstance(v, Table) and v.title == "Results")
    ours = {row[0]: row[1] for row in results.rows if row[1] is not None}
    assert ours == {name: pytest.approx(100 * accuracy)}
    assert "do not compare" in results.note
    assert sum(isinstance(v, Arcs) for v in views) == (6 if name == "structured" else 0)
    looks = [v for v in views if isinstance(v, Heatmap) and v.title.startswith("Alignment")]
    assert len(looks) == 3
    for view in looks:
        assert view.values.shape == (len(view.yticks), len(view.xticks))
        assert view.values.sum(1) == pytest.approx(np.ones(len(view.yticks)), abs=1e-5)


def test_it_learns(tmp_path, capsys):
    run = tmp_path / "run"
    options = "--model none --epochs 6 --width 32 --dropout 0 --lr 0.004 --no-progress --seed 1"
    assert cli.main(["train", "nli", *options.split(), "--out", str(run)]) == 0
    test = json.loads((run / "result.json").read_text())["test"]
    assert test["accuracy"] > 0.6
