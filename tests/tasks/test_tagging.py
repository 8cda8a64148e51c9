import json
from dataclasses import replace

import pytest
import torch

from lawful.cli import main
from lawful.errors import InputError
from lawful.models import CRFTaggerConfig, SoftmaxTaggerConfig
from lawful.tasks import batches, exhibits, get_task
from lawful.tasks.tagging import TaggingConfig, TaggingTask
from lawful.tasks.tagging._task import TaggingEvaluation
from lawful.tasks.treebank import EMBEDDED, File, read_sentences
from lawful.training import RunFolder, TrainConfig, Trainer, evaluate

TINY = {"word_size": 16, "char_size": 8, "char_features": 16, "hidden_size": 16, "layers": 1}
SMALL = ["--word-size", "16", "--char-size", "8", "--char-features", "16", "--hidden-size", "16",
         "--layers", "1", "--no-progress", "--no-report"]  # fmt: skip


def make(data=None, seed=0, **config):
    task = TaggingTask(TaggingConfig(**config), seed, data)
    task.load()
    return task


def fit(task, model, path, steps=120):
    torch.manual_seed(0)
    config = TrainConfig(steps=steps, batch_size=16, lr=0.01, eval_every=steps, clip=5.0)
    run = RunFolder.create(path, {"task": task.name})
    trainer = Trainer(task, task.build(model), config, run, silent=True)
    return trainer, trainer.conclude(trainer.fit())


@pytest.mark.parametrize("config", [CRFTaggerConfig(**TINY), SoftmaxTaggerConfig(**TINY)])
def test_learns_the_embedded_treebank(tmp_path, config):
    trainer, result = fit(make(), config, tmp_path / "run")
    train = evaluate(trainer.task, trainer.model, trainer.task.source("train"), 32)
    assert train["accuracy"] > 0.85
    assert result["test"]["accuracy"] > 0.6
    assert result["test"]["loss"] > train["loss"]


def test_chain_learns_what_words_alone_cannot_tell(tmp_path):
    """A word's tag is the opposite of the tag before it: only transitions know."""
    rows = ["u A", "u B"] * 5
    text = "".join("\n".join(rows[i % 2 :][: 3 + i % 4]) + "\n\n" for i in range(60))
    path = tmp_path / "x.tsv"
    path.write_text(text)
    task = make(path)
    scores = {}
    for name, config in (
        ("crf", CRFTaggerConfig(**TINY)),
        ("softmax", SoftmaxTaggerConfig(**TINY)),
    ):
        model = task.build(config).eval()
        with torch.no_grad():
            for p in model.encoder.parameters():
                p.zero_()  # the encoder says nothing
        optimizer = torch.optim.Adam(
            [p for n, p in model.named_parameters() if "enc" not in n], 0.1
        )
        for _ in range(60):
            loss, _ = task.loss(model, task.source("train").batch(range(30)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scores[name] = float(loss.detach())
    assert scores["softmax"] == pytest.approx(0.69, abs=0.01)
    assert scores["crf"] < 0.3


def test_loss_is_the_mean_over_words():
    task = make()
    model = task.build(CRFTaggerConfig(**TINY)).eval()
    batch = task.source("train").batch([3, 0, 9])
    loss, _ = task.loss(model, batch)
    total = 0.0
    for i in (3, 0, 9):
        one = task.source("train").batch([i])
        total += float(task.loss(model, one)[0].detach()) * int(one["lengths"])
    assert float(loss.detach()) == pytest.approx(total / int(batch["lengths"].sum()), rel=1e-5)


class Fixed(torch.nn.Module):
    """A tagger that knows its answers."""

    def __init__(self, answers, tags):
        super().__init__()
        self.answers, self.tags = answers, tags

    def forward(self, words, chars, spelling, lengths):
        from lawful.models import TagScores

        unary = 9.0 * torch.nn.functional.one_hot(self.answers, self.tags).float()
        zero = torch.zeros(self.tags)
        return TagScores(unary, torch.zeros(self.tags, self.tags), zero, zero)


def test_accuracy_counts_words_unknown_words_and_new_tags():
    batch = {
        "words": torch.tensor([[5, 1, 6], [1, 0, 0]]),
        "chars": torch.tensor([[2, 3]]),
        "spelling": torch.zeros(2, 3, dtype=torch.long),
        "lengths": torch.tensor([3, 1]),
        "tags": torch.tensor([[0, 1, 2], [-1, -1, -1]]),  # the second has a tag of its own
    }
    evaluation = TaggingEvaluation(["A", "B", "C"])
    evaluation.update(Fixed(torch.tensor([[0, 1, 1], [0, 0, 0]]), 3), batch)
    got = evaluation.compute()
    assert got["accuracy"] == 2 / 4
    assert got["unknown_accuracy"] == 1 / 2
    want = torch.tensor([9.0, 0.0, 0.0]).log_softmax(0)
    assert got["loss"] == pytest.approx(-float(2 * want[0] + want[1]) / 3, rel=1e-5)
    assert "span_f1" not in got


def test_span_scores():
    tags = ["O", "B-X", "I-X", "B-Y"]
    batch = {
        "words": torch.full((2, 4), 5),
        "chars": torch.tensor([[2, 3]]),
        "spelling": torch.zeros(2, 4, dtype=torch.long),
        "lengths": torch.tensor([4, 3]),
        "tags": torch.tensor([[1, 2, 0, 3], [1, 0, -1, -1]]),
    }
    evaluation = TaggingEvaluation(tags)
    evaluation.update(Fixed(torch.tensor([[1, 2, 0, 1], [1, 0, 3, 3]]), 4), batch)
    got = evaluation.compute()
    # right: X at 0-2 and at 0-1; found besides: X for Y, and Y where a new tag is
    assert (got["span_precision"], got["span_recall"]) == (2 / 4, 2 / 4)
    assert got["span_f1"] == 2 / 4


@pytest.mark.parametrize("column", ["xpos", "feats", "deprel", "feats:Number", "misc:SpaceAfter"])
def test_other_columns(column, tmp_path):
    text = EMBEDDED.read_text(encoding="utf-8").replace(
        "\tNOUN\t_\t_\t", "\tNOUN\tNN\tNumber=Sing\t"
    )
    path = tmp_path / "x.conllu"
    path.write_text(text)
    task = make(path, column=column)
    assert len(task.tags) >= 2
    model = task.build(CRFTaggerConfig(**TINY)).eval()
    task.write_predictions(model, path, tmp_path / "out.conllu")
    before = read_sentences(File(path))
    after = read_sentences(File(tmp_path / "out.conllu"))
    index = task.column.index(next(read_sentences(File(path))))
    changed = 0
    for a, b in zip(before, after, strict=True):
        assert set(task.column.tags(b)) <= set(task.tags)
        changed += task.column.tags(a) != task.column.tags(b)
        assert b.replaced({index: a.column(index)}).text() == a.text()
    assert changed > 10  # untrained


def test_a_single_tag_is_refused(tmp_path):
    with pytest.raises(InputError, match="column xpos holds a single tag, '_'"):
        make(column="xpos")


def test_predictions_keep_order_and_do_not_depend_on_the_company(tmp_path):
    task = make()
    torch.manual_seed(0)
    model = task.build(CRFTaggerConfig(**TINY)).eval()
    rows = list(task.predict(model, EMBEDDED))
    sentences = list(read_sentences(File(EMBEDDED)))
    assert [r["words"] for r in rows] == [s.forms for s in sentences]
    (tmp_path / "one.conllu").write_text(sentences[7].text())
    assert list(task.predict(model, tmp_path / "one.conllu")) == [rows[7]]


def test_state_is_enough_for_prediction(tmp_path):
    task = make()
    torch.manual_seed(0)
    model = task.build(CRFTaggerConfig(**TINY)).eval()
    state = json.loads(json.dumps(task.state()))
    other = TaggingTask(TaggingConfig())
    other.load_state(state)
    twin = other.build(CRFTaggerConfig(**TINY)).eval()
    twin.load_state_dict(model.state_dict())
    assert list(other.predict(twin, EMBEDDED)) == list(task.predict(model, EMBEDDED))
    with pytest.raises(InputError, match="task state"):
        other.load_state({})


def test_max_train_takes_some_sentences_and_leaves_the_rest():
    whole, part = make(), make(max_train=20)
    assert len(part.source("train")) == 20
    assert len(part.source("valid")) == len(whole.source("valid"))
    forms = {" ".join(s) for s in whole.sentences("train")}
    assert {" ".join(s) for s in part.sentences("train")} < forms


def test_exhibits_can_be_stored(tmp_path):
    task = make()
    model = task.build(CRFTaggerConfig(**TINY)).eval()
    shown = task.exhibits(model, "valid")
    exhibits.save(shown, tmp_path)
    titles = [e.title for e in exhibits.load(tmp_path)]
    assert "Transitions" in titles
    table = next(e for e in shown if e.title == "Scores by tag")
    words = sum(row[1] for row in table.rows)
    assert words == int(task.source("valid").lengths.sum())
    confusion = next(e for e in shown if e.title == "Confusions").values
    sums = confusion.sum(1)
    assert ((abs(sums - 1) < 1e-9) | (sums == 0)).all()


def test_from_the_command_line(tmp_path, capsys):
    run, out = tmp_path / "run", tmp_path / "out.conllu"
    data = tmp_path / "mine.conllu"
    data.write_bytes(EMBEDDED.read_bytes())
    args = ["train", "tagging", "--data", str(data), "--out", str(run), "--epochs", "2", *SMALL]
    assert main(args) == 0
    assert RunFolder.open(run).config()["data"] == str(data)
    assert main(["evaluate", str(run), "--data", str(data), "--out", str(tmp_path / "e.json")]) == 0
    measured = json.loads((tmp_path / "e.json").read_text())
    assert main(["predict", str(run), str(data), "--out", str(out)]) == 0
    gold = [s.column(3) for s in read_sentences(File(data))]
    found = [s.column(3) for s in read_sentences(File(out))]
    pairs = [(a, b) for g, f in zip(gold, found, strict=True) for a, b in zip(g, f, strict=True)]
    # Measured on the whole of the other data, words and tags as in training.
    assert measured["accuracy"] == pytest.approx(sum(a == b for a, b in pairs) / len(pairs))
    capsys.readouterr()
    assert main(["predict", str(run), str(data)]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["words"][:2] == ["The", "keeper"]
    assert main(["predict", str(run), str(data), "--out", str(tmp_path / "x.pdf")]) == 2
    assert ".conllu" in capsys.readouterr().err
    bad = tmp_path / "bad.conllu"
    bad.write_text("1\tx\n")
    assert main(["predict", str(run), str(bad), "--out", str(out)]) == 2
    assert "bad.conllu, line 1: expected 10 columns" in capsys.readouterr().err
    assert not list(tmp_path.glob(".*"))  # no scratch file left
    assert main(["train", "tagging", "--data", str(data), "--column", "head"]) == 2
    assert "column" in capsys.readouterr().err


def test_resumed_run_equals_an_uninterrupted_one(tmp_path):
    task = make()
    config = TrainConfig(steps=14, batch_size=9, lr=0.01, eval_every=50, checkpoint_every=5)
    results = []
    for name, stops in (("whole", [14]), ("parts", [7, 14])):
        for steps in stops:
            torch.manual_seed(0)
            path = tmp_path / name
            run = RunFolder.open(path) if path.exists() else RunFolder.create(path, {})
            model = task.build(CRFTaggerConfig(**TINY))
            trainer = Trainer(task, model, replace(config, steps=steps), run, silent=True)
            trainer.resume()
            trainer.fit()
        results.append(trainer.model.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(*(r.values() for r in results), strict=True))


def test_baseline_gives_each_word_its_usual_tag(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("a X\nb Y\nc Y\nd Y\n\n" * 8)
    assert make(path).baselines() == {"most frequent tag": 1.0}
    path.write_text("a X\na X\na Y\nb Y\n\n" * 8)
    assert make(path).baselines() == {"most frequent tag": 3 / 4}


def test_is_registered():
    assert get_task("tagging") is TaggingTask


def test_tags_of_a_batch_fill_no_padding():
    task = make()
    for batch in batches(task.source("train"), 16):
        inside = torch.arange(batch["tags"].shape[1]) < batch["lengths"][:, None]
        assert ((batch["tags"] >= 0) == inside).all()
        model = task.build(CRFTaggerConfig(**TINY))
        scores = model(*(batch[k] for k in ("words", "chars", "spelling", "lengths")))
        assert scores.chain(batch["lengths"]).argmax.shape == batch["tags"].shape
