"""Character language modelling: texts, how they are read, the metric, views and predictions."""

import copy
import gzip
import hashlib
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from lawful.cli import main
from lawful.errors import InputError
from lawful.models import SABModelConfig, TransformerConfig
from lawful.tasks import batches
from lawful.tasks.charlm import Alphabet, CharLMConfig, CharLMTask, ptb_characters, read_texts
from lawful.tasks.charlm._grammar import NOUNS, probes, sample_text
from lawful.tasks.charlm._model import Carrier, LanguageModel, generate
from lawful.tasks.charlm._sources import Pieces, Streams, Windows
from lawful.tasks.charlm._text import cut, in_form, read_text
from lawful.tasks.exhibits import Curves, Heatmap, Table, Text, load, save
from lawful.training import certify, evaluate, read_metrics
from tests.published import published

SMALL = {
    "lstm": {"hidden": 8},
    "lstm-tbptt": {"hidden": 8, "k_trunc": 3},
    "lstm-attention": {"hidden": 8, "context": 7},
    "transformer": {
        "width": 8,
        "heads": 2,
        "feedforward": 8,
        "layers": 1,
        "context": 7,
        "dropout": 0.0,
    },
    "sab": {"hidden": 8, "k_top": 2, "max_memories": 5},
}


def task_of(text, tmp_path, seed=0, **options):
    path = tmp_path / "text.txt"
    path.write_text(text, encoding="utf-8")
    task = CharLMTask(CharLMConfig(**options), seed, path)
    task.load()
    return task


def net(task, name="lstm"):
    torch.manual_seed(0)
    return task.build(CharLMTask.models[name](**SMALL[name]))


# Texts


def test_alphabet():
    alphabet = Alphabet.of("abbc\nc\U0001f600", min_count=1)
    assert alphabet.characters == "\nabc\U0001f600"
    codes = alphabet.encode("cab?\U0001f600\n")
    assert codes.tolist() == [4, 2, 3, 0, 5, 1]
    assert codes.dtype == np.int64
    assert alphabet.decode(codes) == "cab\ufffd\U0001f600\n"
    assert Alphabet.of("abbc\nc", 2).characters == "bc"
    assert len(alphabet) == 6
    assert alphabet.encode("").tolist() == []
    assert Alphabet("").encode("ab").tolist() == [0, 0]


def test_one_file_is_cut_by_position(tmp_path):
    text = "".join(chr(97 + i % 26) for i in range(1000))
    (tmp_path / "a.txt").write_text(text)
    parts = read_texts(tmp_path / "a.txt")
    assert [len(parts[p]) for p in ("train", "valid", "test")] == [900, 50, 50]
    assert parts["train"] + parts["valid"] + parts["test"] == text
    (tmp_path / "b.gz").write_bytes(gzip.compress(text.encode()))
    assert read_texts(tmp_path / "b.gz", "plain", 0.2, 0.1)["test"] == text[-100:]
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "text8").write_text(text)
    assert read_texts(alone) == cut(text, 0.05, 0.05)


def test_line_ends_and_marks(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n")
    assert read_text(tmp_path / "a.txt") == "a\nb\nc\n"


def test_a_folder_has_a_file_for_each_part(tmp_path):
    for name, text in (("ptb.train.txt", "abc"), ("ptb.dev.txt", "d"), ("x-test.txt", "ef")):
        (tmp_path / name).write_text(text)
    assert read_texts(tmp_path) == {"train": "abc", "valid": "d", "test": "ef"}
    (tmp_path / "other_test.txt").write_text("g")
    with pytest.raises(InputError, match=r"'test' as a word of its name, got other_test.*x-test"):
        read_texts(tmp_path)
    (tmp_path / "other_test.txt").unlink()
    (tmp_path / "ptb.dev.txt").write_text("")
    with pytest.raises(InputError, match=r"ptb\.dev\.txt: expected a text, got an empty file"):
        read_texts(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such path"),
        (b"", "an empty file"),
        (b"ab\xff\xfe", "UTF-8 text, got byte 2 that is none"),
        ({}, "an empty folder"),
        ({"a.txt": "x", "b.txt": "y"}, "one file with 'train' as a word of its name, got a.txt"),
    ],
)
def test_what_cannot_be_read(tmp_path, content, words):
    path = tmp_path / "text"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.mkdir()
        for name, text in content.items():
            (path / name).write_text(text)
    with pytest.raises(InputError, match=words):
        read_texts(path)


def test_a_broken_archive(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"abc" * 100)[:-10])
    with pytest.raises(InputError, match="cannot be read"):
        read_text(tmp_path / "a.gz")


def test_forms_of_the_treebank():
    words = " no it was n't \n <unk> N \n"
    want = "no_it_was_n't\n<unk>_N\n"
    assert ptb_characters(words) == want
    assert ptb_characters(words.rstrip("\n")) == want
    ready = "".join(f"{c} " for c in want)
    assert in_form(ready, "ptb-characters", "x") == want
    with pytest.raises(InputError, match="x: expected single characters"):
        in_form("no it", "ptb-characters", "x")


PTB_SHA = {
    "train": "e313d91425e06c4f0a8fb6e881dcce0c291f2a0e9f4dda54833069b122f91da9",
    "valid": "21661f63ec355085879458b6524644d4add5573541b4be14fb52ab2e2e995eb8",
    "test": "1ef5607ac3c463b16e38bfe7900dd3bfc91de5a96e0f21e7eab5188b465b8ebe",
}


def test_penn_treebank_characters_are_those_that_others_publish():
    texts = read_texts(published("ptb"), "ptb-words")
    for part, text in texts.items():
        written = "".join(f"{c} " for c in text).encode()
        assert hashlib.sha256(written).hexdigest() == PTB_SHA[part]
    assert len(texts["train"]) == 5_017_482
    assert len(Alphabet.of(texts["train"])) == 51  # 50, and unknown


def test_embedded_text_is_fixed_and_its_parts_differ():
    text = sample_text("train", 5000)
    assert sample_text("train", 9000).startswith(text)
    assert 5000 <= len(text) < 6000
    assert text.endswith("\n")
    others = set(sample_text("valid", 20000).split("\n"))
    assert not {p for p in text.split("\n") if len(p) > 200} & others
    # Its words are the grammar's own, and never change.
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest == hashlib.sha256(sample_text("train", 5000).encode()).hexdigest()
    for paragraph in text.splitlines():
        assert paragraph.count('"') % 2 == 0
        assert paragraph.count("(") == paragraph.count(")")


def test_probes_ask_for_the_verb_of_their_subject():
    found = probes(200)
    for probe in found:
        words = probe.start.split()
        subject = words[1] if words[1].rstrip("s") in NOUNS else words[2]
        assert subject.rstrip("s") in NOUNS
        plural = subject.endswith("s")
        assert probe.right.endswith("s") != plural
        assert {probe.right, probe.wrong} == {
            probe.right.rstrip("s"),
            probe.right.rstrip("s") + "s",
        }
        assert probe.distance == len(words) - 1 - words.index(subject)
    assert len({p.distance for p in found}) > 4


# Reading


def test_windows_streams_and_pieces_by_their_definitions():
    codes = np.arange(1, 104)  # 103 characters, 102 to predict
    windows = Windows(codes, 10)
    assert len(windows) == 10
    batch = windows.batch([9, 0])
    assert batch["x"][0].tolist() == list(range(91, 101))
    assert batch["y"][1].tolist() == list(range(2, 12))

    streams = Streams(codes, 10, 4)  # rows of 25, two windows each
    assert len(streams) == 8
    first, second, third = (streams.batch(range(i, i + 4)) for i in (0, 4, 8))
    assert first["x"][:, 0].tolist() == [1, 26, 51, 76]
    assert second["x"][:, 0].tolist() == [11, 36, 61, 86]
    assert torch.equal(third["x"], first["x"])
    assert [b["first"].all().item() for b in (first, second, third)] == [True, False, True]
    assert [b["number"][0].item() for b in (first, second, third)] == [0, 1, 2]
    half = streams.batch([6, 7])
    assert half["row"].tolist() == [2, 3]
    assert half["x"][:, 0].tolist() == [61, 86]
    for bad in ([0, 1, 2], [1, 2], list(range(8))):
        with pytest.raises(InputError, match=r"batch_size: expected a divisor of streams \(4\)"):
            streams.batch(bad)

    pieces = Pieces(codes, 40, "test")
    assert len(pieces) == 3
    batch = pieces.batch([0, 1, 2])
    assert batch["lengths"].tolist() == [40, 40, 22]
    real = torch.arange(40) < batch["lengths"][:, None]
    assert batch["y"][real].tolist() == list(range(2, 104))  # each but the first, once
    assert batch["x"][real].tolist() == list(range(1, 103))
    assert not batch["x"][~real].any()


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("ab" * 20, {}, "training text: expected more than 3200 characters.*fewer --streams"),
        ("ab" * 20, {"carry": "never"}, "at least 101 characters, one window and one more, got 36"),
        ("ab" * 20, {"min_count": 99}, "a character that occurs at least 99 times, got none"),
        ("ab" * 10, {"window": 2, "streams": 2}, "valid text: expected at least 2 characters"),
    ],
)
def test_texts_that_are_too_short(tmp_path, text, options, words):
    def read_all():
        task = task_of(text, tmp_path, **options)
        return [task.source(split) for split in ("train", "valid", "test")]

    with pytest.raises(InputError, match=words):
        read_all()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"window": 0}, "window: expected a whole number of at least 1, got 0"),
        ({"streams": 0}, "streams"),
        ({"piece": 0}, "piece"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"sample_length": -1}, "sample_length"),
        ({"valid_share": 0.5, "test_share": 0.5}, "sum below 1"),
    ],
)
def test_impossible_settings(bad, words):
    with pytest.raises(InputError, match=words):
        CharLMConfig(**bad)


def test_a_transformer_must_be_causal(tmp_path):
    task = task_of("abcd" * 50, tmp_path)
    with pytest.raises(InputError, match="causal: expected True, got False; a language model must"):
        task.build(TransformerConfig(width=8))


# Metric


@pytest.mark.parametrize("name", list(SMALL))
@pytest.mark.parametrize("carry", ["never", "always"])
def test_bits_per_character_by_the_definition(tmp_path, name, carry):
    text = "".join(np.random.RandomState(0).choice(list("abc \n"), 400))
    task = task_of(
        text + "?" * 3 + "ab", tmp_path, window=10, carry=carry, piece=30, test_share=0.2
    )
    model = net(task, name).eval()
    codes = torch.from_numpy(task.codes["test"])
    assert (codes == 0).sum() == 3  # "?" is not in the training text
    found = evaluate(task, model, task.source("test"), 4)
    assert evaluate(task, model, task.source("test"), 1) == pytest.approx(found, rel=1e-5)
    span = 10 if carry == "never" else 30
    total = hits = 0.0
    with torch.no_grad():
        for start in range(0, len(codes) - 1, span):
            x = codes[start : start + span + 1]
            state = ()
            for a, b in zip(x[:-1].split(10), x[1:].split(10), strict=True):
                logits, state = model(a[None], *state)
                chances = logits[0].log_softmax(-1)
                total -= chances[range(len(b)), b].sum().item() / math.log(2)
                hits += (logits[0].argmax(-1) == b).sum().item()
    count = len(codes) - 1
    assert found["bpc"] == pytest.approx(total / count, rel=1e-5)
    assert found["loss"] == pytest.approx(total / count * math.log(2), rel=1e-5)
    assert found["accuracy"] == pytest.approx(hits / count)
    assert found["unknown"] == pytest.approx(3 / count)


def test_loss_is_the_mean_of_the_window(tmp_path):
    task = task_of("abcab" * 40, tmp_path, window=10, carry="never")
    model = net(task)
    batch = task.source("train").batch([0, 1])
    loss, logged = task.loss(model, batch)
    want = nn.functional.cross_entropy(model(batch["x"])[0].transpose(1, 2), batch["y"])
    torch.testing.assert_close(loss, want)
    assert float(logged["bpc"]) == pytest.approx(want.item() / math.log(2))


def test_baselines(tmp_path):
    task = task_of("ab" * 500, tmp_path, window=10, streams=4)
    base = task.baselines()
    assert base["uniform"] == pytest.approx(math.log2(3))
    assert base["frequencies"] == pytest.approx(1.0, abs=0.01)
    assert base["pairs"] < 0.01


# Carried state


@pytest.mark.parametrize("name", list(SMALL))
def test_windows_go_on_where_their_row_stopped(tmp_path, name):
    task = task_of("abcd e" * 60, tmp_path, window=8, streams=4)
    model = net(task, name)
    source = task.source("train")
    first, second = source.batch(range(4)), source.batch(range(4, 8))
    task.loss(model, first)
    got, _ = task.loss(model, second)
    _, state = model(first["x"])
    logits, _ = model(second["x"], *(t.detach() for t in state))
    want = nn.functional.cross_entropy(logits.transpose(1, 2), second["y"])
    torch.testing.assert_close(got, want)
    fresh, _ = model(second["x"])
    apart = nn.functional.cross_entropy(fresh.transpose(1, 2), second["y"])
    assert name == "transformer" or not torch.allclose(got, apart)


def test_halves_of_a_batch_carry_their_own_rows(tmp_path):
    whole, parts = (task_of("abcd e" * 60, tmp_path, window=8, streams=4) for _ in range(2))
    model = net(whole, "sab")
    source = whole.source("train")
    for step in range(3):
        a, _ = whole.loss(model, source.batch(range(step * 4, step * 4 + 4)))
        b = [
            parts.loss(model, source.batch(range(step * 4 + i, step * 4 + i + 2)))[0]
            for i in (0, 2)
        ]
        torch.testing.assert_close(a, (b[0] + b[1]) / 2)


def test_a_carrier_forgets_what_does_not_follow():
    carrier = Carrier()

    def batch(number, first=False):
        facts = {"row": [3, 4], "number": [number] * 2, "first": [first] * 2}
        return {"x": torch.zeros(2, 1)} | {k: torch.tensor(v) for k, v in facts.items()}

    kept = torch.ones(2, 5, requires_grad=True) * 2
    carrier.keep(batch(6), (kept,))
    (state,) = carrier.take(batch(7))
    assert torch.equal(state, kept)
    assert not state.requires_grad
    again = Carrier()
    again.load(copy.deepcopy(carrier.state()))
    assert torch.equal(again.take(batch(7))[0], kept)
    assert carrier.take(batch(7, first=True)) == ()
    assert carrier.take(batch(8)) == ()


def test_resuming_carries_on_exactly(tmp_path):
    def run(out, steps, *more):
        return main([
            "train", "charlm", "--window", "20", "--streams", "4", "--batch-size", "4",
            "--sample-size", "4000", "--hidden", "8", "--steps", str(steps), "--eval-every", "5",
            "--checkpoint-every", "5", "--log-every", "1", "--piece", "100", "--schedule",
            "constant", "--sample-length", "5", "--no-progress", "--no-report", "--out",
            str(tmp_path / out), *more,
        ])  # fmt: skip

    assert run("whole", 10) == 0
    assert run("parts", 5) == 0
    assert run("parts", 10, "--resume") == 0
    logs = [
        [
            {k: v for k, v in row.items() if k != "seconds"}
            for row in read_metrics(tmp_path / out / "metrics.jsonl")
        ]
        for out in ("whole", "parts")
    ]
    assert logs[0] == logs[1]


# Views and predictions


class Echo(nn.Module):
    """Says that each character is followed by the next code, a -> b -> c -> a."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.size = size

    def stream(self, x, state=()):
        follows = x % (self.size - 1) + 1
        return nn.functional.one_hot(follows, self.size).float() * 50, ()


def test_generation_follows_the_model():
    model = LanguageModel(Echo(4))
    prompt = torch.tensor([[1, 2, 3, 1], [3, 1, 2, 3]])
    for temperature in (0.0, 1.0):
        said = generate(model, prompt, 5, temperature, torch.Generator().manual_seed(0), 3)
        assert said.tolist() == [[2, 3, 1, 2, 3], [1, 2, 3, 1, 2]]
    assert generate(model, prompt, 0, 1.0, torch.Generator(), 3).shape == (2, 0)


class Flat(Echo):
    """Any character is as likely as any other."""

    def stream(self, x, state=()):
        return torch.zeros(*x.shape, self.size), ()


def test_drawing_is_random_by_seed_and_never_unknown():
    model = LanguageModel(Flat(5))
    prompt = torch.ones(1, 1, dtype=torch.int64)

    def draw(seed):
        return generate(model, prompt, 200, 1.0, torch.Generator().manual_seed(seed), 3)[0]

    assert torch.equal(draw(0), draw(0))
    assert not torch.equal(draw(0), draw(1))
    counts = draw(0).bincount(minlength=5)
    assert counts[0] == 0
    assert (counts[1:] > 20).all()


def test_predictions(tmp_path):
    task = task_of("abc" * 100, tmp_path, window=4, streams=2, sample_length=6, temperature=0.0)
    model = LanguageModel(Echo(4))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("abca\n")
    (tmp_path / "in" / "b.txt").write_text("b")
    (tmp_path / "in" / "c.txt").write_text("ab?c")
    rows = list(task.predict(model, tmp_path / "in"))
    assert json.dumps(rows)
    assert [r["continuation"] for r in rows] == ["bcabca", "cabcab", "abcabc"]
    assert [r["characters"] for r in rows] == [4, 1, 4]
    assert [r["unknown"] for r in rows] == [0, 0, 1]
    assert rows[0]["bits_per_character"] == pytest.approx(0.0, abs=1e-6)
    assert rows[1]["bits_per_character"] is None
    assert rows[2]["bits_per_character"] > 20
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(InputError, match="a text to go on from, got an empty file"):
        list(task.predict(model, tmp_path / "empty.txt"))
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match=r"expected texts \(.txt, .gz\), got none"):
        list(task.predict(model, tmp_path / "none"))


def test_prediction_in_the_form_of_the_treebank(tmp_path):
    words = " a b c\n a b c\n" * 60
    task = task_of(words, tmp_path, form="ptb-words", window=4, streams=2, sample_length=3)
    (tmp_path / "p.txt").write_text("a b")
    (row,) = task.predict(net(task), tmp_path / "p.txt")
    assert row["characters"] == 3
    assert row["unknown"] == 0
    assert "_" not in row["continuation"]


def test_state_serves_prediction_and_other_data(tmp_path):
    task = task_of("abc" * 100, tmp_path, window=4, streams=2)
    other = CharLMTask(CharLMConfig(window=4, streams=2), 0, tmp_path / "other.txt")
    other.load_state(json.loads(json.dumps(task.state())))
    assert other.inputs() == task.inputs()
    (tmp_path / "other.txt").write_text("xaxb" * 50)
    other.load()
    assert other.alphabet == task.alphabet
    assert (other.codes["train"] == 0).mean() == pytest.approx(0.5)
    with pytest.raises(InputError, match="task state"):
        CharLMTask(CharLMConfig()).load_state({})


@pytest.mark.parametrize("name", ["sab", "lstm"])
@pytest.mark.parametrize("embedded", [True, False])
def test_exhibits(tmp_path, name, embedded):
    if embedded:
        task = CharLMTask(CharLMConfig(sample_size=3000, window=20, streams=4, sample_length=40))
        task.load()
    else:
        task = task_of("abcde " * 100, tmp_path, window=20, streams=4, carry="never")
    shown = task.exhibits(net(task, name))
    titles = [e.title for e in shown]
    kinds = [Text, Curves, Table] + [Table] * embedded
    kinds += [Text, Heatmap, Heatmap, Heatmap] * (name == "sab")
    assert [type(e) for e in shown] == kinds
    assert titles[:3] == [
        "Written by the model", "Bits per character against context", "Where the bits go",
    ]  # fmt: skip
    x, y = shown[1].series["model"]
    assert x[0] == 1.0
    assert all(0 < v < 10 for v in y)
    assert sum(row[3] for row in shown[2].rows) <= 1 + 1e-6
    save(shown, tmp_path / "e")
    assert [e.title for e in load(tmp_path / "e")] == titles
    if name == "sab":
        recall = next(e for e in shown if e.title == "Recall, one sequence")
        assert len(recall.xticks) == 20
        stored = recall.values.sum(0) > 0
        assert not stored[[i for i in range(20) if i % 5 != 4]].any()  # k_att = 5


def test_bits_by_context_are_those_of_the_windows(tmp_path):
    task = task_of("abc" * 200, tmp_path, window=5, streams=2, carry="never", test_share=0.2)
    (_, curve, dearest, *_) = task.exhibits(LanguageModel(Flat(4)))
    assert curve.series["model"][1] == pytest.approx([2.0] * len(curve.series["model"][0]))
    assert {row[2] for row in dearest.rows} == {2.0}
    assert sum(row[1] for row in dearest.rows) == len(task.texts["test"]) - 1


@pytest.mark.parametrize("name", list(SMALL))
def test_every_model_learns_a_text(tmp_path, name):
    task = task_of("the cat sat on the mat. " * 40, tmp_path, window=16, streams=8)
    model = net(task, name)
    source = task.source("train")
    optimiser = torch.optim.Adam(model.parameters(), 2e-2)
    losses = []
    for step in range(30):
        loss, _ = task.loss(model, source.batch(range(step * 8, step * 8 + 8)))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_sab_carries_no_more_memories_than_it_may(tmp_path):
    task = task_of("abcde " * 100, tmp_path, window=20, streams=4)
    model = task.build(SABModelConfig(hidden=8, k_att=1, max_memories=6))
    batch = next(iter(batches(task.source("test"), 2)))
    state = ()
    for piece in batch["x"].split(20, 1):
        _, state = model(piece, *state)
    assert state[2].shape[1] <= 6


def test_laws_hold_with_a_carried_state(tmp_path):
    task = task_of("abcde " * 100, tmp_path, window=20, streams=4)
    certificate = certify(task, net(task, "sab"), task.source("test"), 2)
    assert not certificate.broken
    assert "float64" in {row.law for row in certificate.rows if row.holds}
