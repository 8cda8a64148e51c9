"""Parallel text, vocabularies, BLEU, and the translator on them."""

import json
import zipfile

import pytest
import sacrebleu
import torch

from lawful.errors import InputError
from lawful.models import (
    SegmentationTranslatorConfig,
    SigmoidTranslatorConfig,
    TranslatorConfig,
    TranslatorModel,
)
from lawful.tasks.translation import TranslationConfig, TranslationTask, Vocabulary, read_corpus
from lawful.tasks.translation._numbers import english, french, pairs
from lawful.tasks.translation._task import corpus_bleu, units
from lawful.tasks.translation._vocabulary import END, PAD, START, UNKNOWN
from tests.published import published

SMALL = {"width": 12, "layers": 2, "dropout": 0.0}


def folder(path, **files):
    path.mkdir(exist_ok=True)
    for name, text in files.items():
        (path / name.replace("_", ".")).write_text(text, encoding="utf-8")
    return path


def parallel(path):
    return folder(
        path,
        train_xx="ab c\nb a\nab b\n\n", train_yy="one two\ntwo\none one\nthree\n",
        dev_xx="ab\n", dev_yy="one\n", test_xx="c zz\n", test_yy="two four\n",
    )  # fmt: skip


def task_on(path=None, **options):
    task = TranslationTask(TranslationConfig(**options), 0, path)
    task.load()
    return task


@pytest.mark.parametrize(
    ("n", "left", "right"),
    [
        (0, "zero", "zéro"),
        (21, "twentyone", "vingt et un"),
        (71, "seventyone", "soixante et onze"),
        (80, "eighty", "quatre vingt"),
        (81, "eightyone", "quatre vingt un"),
        (99, "ninetynine", "quatre vingt dix neuf"),
        (200, "twohundred", "deux cent"),
        (1000, "onethousand", "mille"),
        (1117, "onethousandonehundredseventeen", "mille cent dix sept"),
        (95_061, "ninetyfivethousandsixtyone", "quatre vingt quinze mille soixante et un"),
    ],
)
def test_names_of_numbers(n, left, right):
    assert (english(n), " ".join(french(n))) == (left, right)


def test_numbers_are_different_and_follow_the_seed():
    made = pairs(300, 1)
    assert len(set(made)) == 300
    assert len({t for _, t in made}) == 300
    assert made == pairs(300, 1) != pairs(300, 2)


def test_the_embedded_parts_do_not_overlap():
    task = task_on()
    seen = [{tuple(t) for _, t in task.source(s).pairs} for s in ("train", "valid", "test")]
    assert not seen[0] & seen[2]
    assert not seen[0] & seen[1]
    assert [len(task.source(s)) for s in ("train", "valid", "test")] == [4000, 200, 400]


def test_vocabulary_by_frequency_then_letters():
    words = Vocabulary.count([["b", "a"], ["a", "b", "c"], ["<s>", "<s>"]], 2)
    assert words.tokens[4:] == ["a", "b"]
    assert words.encode(["b", "c", "a"]) == (5, UNKNOWN, 4)
    assert words.decode([START, 5, PAD, 4, END, 5]) == ["b", "a"]
    assert words.unknown([["a", "c"], ["b", "d"]]) == 0.5
    with pytest.raises(InputError, match="min_count: no token occurs 9 times"):
        Vocabulary.count([["a"]], 9)


def test_units():
    assert units(" ab  c ", "char") == ["a", "b", "c"]
    assert units(" ab  c ", "word") == ["ab", "c"]


@pytest.mark.parametrize("packed", [False, True])
def test_two_files_a_part(tmp_path, packed):
    path = parallel(tmp_path / "d")
    if packed:
        archive = tmp_path / "d.zip"
        with zipfile.ZipFile(archive, "w") as z:
            for p in path.iterdir():
                z.write(p, f"inner/{p.name}")
        path = archive
    corpus = read_corpus(path, "xx", "yy")
    assert corpus.parts["train"] == [("ab c", "one two"), ("b a", "two"), ("ab b", "one one")]
    assert corpus.parts["valid"] == [("ab", "one")]
    assert corpus.dropped == 1
    back = read_corpus(path, "yy", "xx")
    assert back.parts["test"] == [("two four", "c zz")]


def test_one_table_is_split_the_same_way_each_time(tmp_path):
    path = tmp_path / "all.tsv"
    path.write_text("".join(f"s{i}\tt{i}\n" for i in range(60)), encoding="utf-8")
    corpus = read_corpus(path, "", "")
    assert [len(corpus.parts[s]) for s in ("train", "valid", "test")] == [54, 3, 3]
    together = {p for part in corpus.parts.values() for p in part}
    assert len(together) == 60
    assert read_corpus(path, "", "").parts == corpus.parts


@pytest.mark.parametrize(
    ("files", "languages", "words"),
    [
        ({}, ("xx", "yy"), "expected train.tsv, or train.SOURCE and train.TARGET"),
        ({"train_xx": "a\n", "train_yy": "b\nc\n"}, ("xx", "yy"), "1 and 2"),
        ({"train_xx": "a\n", "train_yy": "b\n"}, ("", ""), "--source and --target, of xx and yy"),
        ({"train_xx": "a\n", "train_yy": "b\n"}, ("xx", "zz"), "files ending in .zz"),
        ({"train_xx": "a\n", "train_yy": "b\n"}, ("xx", "xx"), "two different languages"),
        ({"train_tsv": "a b\n"}, ("", ""), "train.tsv:1: expected two columns"),
        (
            {"train_tsv": "a\tb\n", "dev_tsv": "\tb\n", "test_tsv": "a\tb\n"},
            ("", ""),
            "at least one sentence pair for valid",
        ),
    ],
)  # fmt: skip
def test_faults_of_files(tmp_path, files, languages, words):
    with pytest.raises(InputError, match=words.replace(".", r"\.")):
        read_corpus(folder(tmp_path / "d", **files), *languages)


def test_other_faults_of_data(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_corpus(tmp_path / "none", "", "")
    (tmp_path / "x.bin").write_bytes(b"1")
    with pytest.raises(InputError, match="is none of them"):
        read_corpus(tmp_path / "x.bin", "", "")
    path = folder(tmp_path / "d", train_yy="a\n")
    (path / "train.xx").write_bytes(b"\xff\xfe\xfa\n")
    with pytest.raises(InputError, match="UTF-8"):
        read_corpus(path, "xx", "yy")


def test_batches_by_hand(tmp_path):
    task = task_on(parallel(tmp_path / "d"), source="xx", target="yy", min_count=1)
    batch = task.source("train").batch([1, 0])
    s, t = task.source_words, task.target_words
    assert s.decode(batch["source"][0].tolist()) == ["b", "a"]
    assert batch["source"].shape == (2, 3)
    assert batch["source"][0, 2] == PAD
    assert batch["lengths"].tolist() == [2, 3]
    assert batch["target"][0].tolist() == [START, t.number["two"], END, PAD]
    assert [task.every[i] for i in batch["pair"].tolist()] == task.source("train").pairs[1::-1]
    test = task.source("test").batch([0])
    assert task.every[test["pair"][0]][1] == ["two", "four"]
    assert test["target"].tolist() == [[START, t.number["two"], UNKNOWN, END]]


def test_length_limits(tmp_path):
    path = parallel(tmp_path / "d")
    with pytest.raises(InputError, match="test sentences within them"):
        task_on(path, source="xx", target="yy", min_count=1, max_target=1)
    task = task_on(path, source="xx", target="yy", min_count=1, max_train=2)
    assert len(task.source("train")) == 2


def test_bleu_is_that_of_the_library_and_unknown_words_do_not_match(tmp_path):
    said, wanted = ["a b c d e", "a b x"], ["a b c d f", "a b c"]
    got = corpus_bleu(said, wanted)
    assert got == pytest.approx(sacrebleu.corpus_bleu(said, [wanted], tokenize="none").score)
    assert 0 < got < 100
    assert corpus_bleu(wanted, wanted) == pytest.approx(100)

    task = task_on(parallel(tmp_path / "d"), source="xx", target="yy", min_count=1)

    class Echo(TranslatorModel):
        def generate(self, source, lengths, **_):
            return task.source("test").batch([0])["target"][:, 1:], torch.zeros(1)

    model = Echo(TranslatorConfig(**SMALL), len(task.source_words), len(task.target_words))
    found = task.evaluation()
    with torch.no_grad():
        found.update(model.eval(), task.source("test").batch([0]))
    values = found.compute()
    assert found.said == ["two <unk>"]
    assert found.wanted == ["two four"]
    assert values["exact"] == 0
    assert values["perplexity"] == pytest.approx(torch.tensor(values["loss"]).exp().item())


@pytest.mark.parametrize(
    "config",
    [
        TranslatorConfig(**SMALL),
        TranslatorConfig(**SMALL, bridge=True),
        TranslatorConfig(**SMALL, bidirectional=True),
        SigmoidTranslatorConfig(**SMALL),
        SegmentationTranslatorConfig(**SMALL),
        SegmentationTranslatorConfig(**SMALL, total=0.0, ends=False),
    ],
    ids=lambda c: f"{type(c).__name__}-{c.bridge}-{c.bidirectional}-{getattr(c, 'total', '')}",
)
def test_padding_changes_nothing_and_search_agrees_with_the_model(config):
    torch.manual_seed(0)
    model = TranslatorModel(config, 9, 8, dtype=torch.float64).eval()
    with torch.no_grad():  # weights large enough for a choice
        for p in model.parameters():
            p.mul_(12)
    source = torch.tensor([[4, 5, 6, 7, 8], [5, 4, 4, 0, 0]])
    lengths = torch.tensor([5, 3])
    target = torch.tensor([[2, 4, 5], [2, 6, 7]])
    both = model(source, lengths, target)
    alone = model(source[1:, :3], lengths[1:], target[1:])
    torch.testing.assert_close(both[1:], alone, rtol=0, atol=1e-12)
    weights = model.alignment(source, lengths, target)
    assert weights.shape == (2, 3, 5)
    assert (weights[1, :, 3:] == 0).all()
    total = getattr(config, "total", None)
    if total:
        torch.testing.assert_close(weights.sum(-1), torch.full((2, 3), total).double())
    said, score = model.generate(source, lengths, start=2, end=3, limit=6, width=3)
    for i in range(2):
        row = said[i].tolist()
        row = row[: row.index(3) + 1] if 3 in row else row
        fed = torch.tensor([[2, *row[:-1]]])
        logits = model(source[i : i + 1], lengths[i : i + 1], fed).log_softmax(-1)[0]
        want = sum(logits[j, t] for j, t in enumerate(row))
        torch.testing.assert_close(score[i], want, rtol=0, atol=1e-9)


def test_attended_and_saturated_by_hand():
    task = task_on(max_train=4, min_count=1)
    found = task.evaluation()
    chances = torch.tensor([[[0.995, 0.5, 0.7], [0.005, 0.2, 0.9]], [[1.0, 0.5, 0.5], [0, 0, 0]]])
    real = torch.tensor([[True, True], [True, False]])
    found._weigh(chances, real, torch.tensor([2, 1]))
    assert found.places == 5
    assert found.settled == 3
    assert found.mass == pytest.approx(0.995 + 0.5 + 0.005 + 0.2 + 1.0)


def test_chances_are_the_weights_before_division():
    torch.manual_seed(0)
    plain = TranslatorModel(SegmentationTranslatorConfig(**SMALL, total=0.0), 9, 8).eval()
    scaled = TranslatorModel(SegmentationTranslatorConfig(**SMALL), 9, 8).eval()
    scaled.load_state_dict(plain.state_dict())
    inputs = (torch.tensor([[4, 5, 6]]), torch.tensor([3]), torch.tensor([[2, 4]]))
    chances = scaled.marginals(*inputs)
    torch.testing.assert_close(chances, plain.alignment(*inputs))
    torch.testing.assert_close(
        scaled.alignment(*inputs), 2 * chances / chances.sum(-1, keepdim=True)
    )
    assert TranslatorModel(TranslatorConfig(**SMALL), 9, 8).marginals(*inputs) is None


def test_the_penalty_is_on_the_table_of_neighbours_alone():
    config = SegmentationTranslatorConfig(**SMALL, transition_decay=0.5)
    model = TranslatorModel(config, 6, 6)
    with torch.no_grad():
        model.attention.transition.copy_(torch.tensor([[1.0, 2.0], [0.0, 2.0]]))
    assert model.penalty().item() == pytest.approx(0.25 * 9)
    assert TranslatorModel(TranslatorConfig(**SMALL), 6, 6).penalty().item() == 0


@pytest.mark.parametrize(
    ("kind", "bad", "words"),
    [
        (TranslatorConfig, {"width": 0}, "width"),
        (TranslatorConfig, {"dropout": 1.0}, "dropout"),
        (TranslatorConfig, {"init": 0.0}, "init"),
        (TranslatorConfig, {"width": 5, "bidirectional": True}, "even"),
        (TranslatorConfig, {"bridge": True, "bidirectional": True}, "one direction"),
        (SegmentationTranslatorConfig, {"total": -1.0}, "total"),
        (TranslationConfig, {"beam": 0}, "beam"),
        (TranslationConfig, {"max_source": -1}, "max_source"),
    ],
)
def test_impossible_settings(kind, bad, words):
    with pytest.raises(InputError, match=words):
        kind(**bad)


@pytest.mark.parametrize("name", ["simple", "sigmoid", "segmentation"])
def test_every_model_learns_a_few_names(name):
    task = task_on(max_train=40, min_count=1)
    torch.manual_seed(0)
    model = task.build(task.models[name](width=32, layers=1, dropout=0.0))
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    batch = task.source("train").batch(range(40))
    first = None
    for _ in range(60):
        loss, logs = task.loss(model, batch)
        first = first or loss.item()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.5 * first
    assert logs["perplexity"] < 5


def test_prediction_and_views(tmp_path):
    task = task_on(max_train=60, min_count=1)
    torch.manual_seed(0)
    model = task.build(SegmentationTranslatorConfig(width=16, layers=1)).eval()
    own = tmp_path / "own.txt"
    own.write_text("twelve\n\nsix%ty\n", encoding="utf-8")
    again = TranslationTask(task.config)
    again.load_state(json.loads(json.dumps(task.state())))  # as `predict` does
    rows = list(again.predict(model, own))
    assert [r["line"] for r in rows] == [1, 3]
    assert rows[1]["unknown"] == ["%"]
    assert rows[0]["output"] == task.join(task.translate(model, [list("twelve")])[0][0])
    own.write_text("\n")
    with pytest.raises(InputError, match="lines of sentences"):
        list(again.predict(model, own))
    with pytest.raises(InputError, match="two vocabularies"):
        again.load_state({})
    views = {v.title: v for v in task.exhibits(model)}
    assert views["Data"].rows[0][1] == 60
    assert views["Alignment 1"].values.sum(1) == pytest.approx(2.0)
    assert views["Scores of neighbours"].values.shape == (2, 2)
    lengths = views["Quality by length of the source"]
    assert lengths.rows[-1][1] == 400
    assert sum(r[1] for r in lengths.rows[:-1]) == 400


def test_a_run_on_other_data_keeps_its_vocabulary(tmp_path):
    trained = task_on(parallel(tmp_path / "d"), source="xx", target="yy", min_count=1)
    other = TranslationTask(TranslationConfig(min_count=1), 0, None)
    other.load_state(trained.state())
    other.load()
    assert other.source_words.tokens == trained.source_words.tokens


def test_the_published_pairs():
    path = published("enja") / "small_parallel_enja.zip"
    corpus = read_corpus(path, "ja", "en")
    assert {k: len(v) for k, v in corpus.parts.items()} == {
        "train": 50_000, "valid": 500, "test": 500,
    }  # fmt: skip
    assert sum(len(t.split()) for _, t in corpus.parts["train"]) == 391_047
    assert sum(len(s.split()) for s, _ in corpus.parts["train"]) == 565_618
