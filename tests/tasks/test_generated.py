"""Copying and adding: the generators against slow definitions, and what the tasks report."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from lawful.errors import InputError
from lawful.models import SEQUENCE_MODELS, LSTMConfig, SABModelConfig, TransformerConfig
from lawful.tasks import TASKS, _copying, batches, get_task
from lawful.tasks._adding import AddingConfig, AddingTask, adding_sequences
from lawful.tasks._copying import CopyingConfig, CopyingTask, copying_sequences
from lawful.tasks._random import words
from lawful.tasks._sequence import SequenceTask
from lawful.tasks.exhibits import Curves, Heatmap, Table, Text, load, save
from lawful.training import evaluate


def slow_copying(digits, blanks, layout):
    if layout == "released":
        x = [*digits, *[0] * (blanks - 1), 9, *[0] * 10]
        return x, [0] * (blanks + 10) + digits
    x = [*digits, *[0] * blanks, 9, *[0] * 10]
    return x, [0] * (blanks + 11) + digits


@pytest.mark.parametrize("blanks", [1, 2, 20])
@pytest.mark.parametrize(("layout", "extra"), [("released", 20), ("paper", 21)])
def test_copying_by_its_definition(blanks, layout, extra):
    task = CopyingTask(CopyingConfig(blanks=blanks, layout=layout), seed=3)
    task.load()
    batch = task.source("train").batch([0, 5, 2**40])
    assert batch["x"].shape == batch["y"].shape == (3, blanks + extra)
    for row, index in enumerate([0, 5, 2**40]):
        digits = [1 + (int(w) * 8 >> 32) for w in words(3, 0, [index], 10)[0]]
        x, y = slow_copying(digits, blanks, layout)
        assert batch["x"][row].tolist() == x
        assert batch["y"][row].tolist() == y
    assert task.inputs().length == blanks + extra


def slow_adding(seed, stream, index, length, target):
    w = [int(v) for v in words(seed, stream, [index], length + 2)[0]]
    first = length // 2
    a, b = w[0] * first >> 32, first + (w[1] * (length - first) >> 32)
    values = [(v >> 8) / 2**24 for v in w[2:]]
    total = values[a] + values[b]
    x = [(v, 1.0 if t in (a, b) else 0.0) for t, v in enumerate(values)]
    return x, total / 2 if target == "half" else total


@pytest.mark.parametrize("length", [2, 3, 50])
@pytest.mark.parametrize("target", ["half", "sum"])
def test_adding_by_its_definition(length, target):
    x, y = adding_sequences(7, 2, [0, 9], length, target)
    assert x.shape == (2, length, 2)
    assert y.shape == (2, 1)
    for row, index in enumerate([0, 9]):
        want_x, want_y = slow_adding(7, 2, index, length, target)
        assert x[row].tolist() == [list(p) for p in want_x]
        assert y[row].item() == pytest.approx(want_y, abs=1e-7)


def test_adding_marks_one_step_in_each_half_and_every_step_sometimes():
    x, _ = adding_sequences(0, 0, range(500), 11)
    assert (x[:, :5, 1].sum(1) == 1).all()
    assert (x[:, 5:, 1].sum(1) == 1).all()
    assert (x[..., 1].sum(0) > 0).all()


def test_adding_target_has_the_stated_variance():
    for target, want in (("half", 1 / 24), ("sum", 1 / 6)):
        _, y = adding_sequences(0, 0, range(20000), 4, target)
        assert float(y.var()) == pytest.approx(want, rel=0.03)


@pytest.mark.parametrize("name", ["copying", "adding"])
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_an_example_depends_on_seed_split_and_index_only(name, split):
    def source(seed=1):
        cls = get_task(name)
        task = cls(cls.Config(), seed)
        task.load()
        return task.source(split)

    whole = source().batch(range(20))
    for parts in ([7, 13], [1] * 20, [20]):
        start = 0
        for n in parts:
            part = source().batch(range(start, start + n))
            for key in whole:
                assert torch.equal(part[key], whole[key][start : start + n])
            start += n
    mixed = source().batch([19, 3, 3])
    assert torch.equal(mixed["x"], whole["x"][[19, 3, 3]])
    assert not torch.equal(source(2).batch(range(20))["x"], whole["x"])
    for other in {"train", "valid", "test"} - {split}:
        cls = get_task(name)
        task = cls(cls.Config(), 1)
        assert not torch.equal(task.source(other).batch(range(20))["y"], whole["y"])


@pytest.mark.parametrize("name", ["copying", "adding"])
def test_sizes_and_lengths(name):
    cls = get_task(name)
    own = "blanks" if name == "copying" else "length"
    other = "eval_blanks" if name == "copying" else "eval_length"
    task = cls(cls.Config(**{own: 12, other: 30}, valid_size=5, test_size=7))
    assert task.source("train").endless
    assert not task.source("valid").endless
    assert [len(task.source(s)) for s in ("valid", "test")] == [5, 7]
    steps = [task.source(s).batch([0])["x"].shape[1] for s in ("train", "valid", "test")]
    assert steps[0] == steps[1] == steps[2] - 18
    assert task.inputs().length is None  # two lengths: not fixed
    assert [len(b["y"]) for b in batches(task.source("test"), 3)] == [3, 3, 1]


def test_further_lengths_of_the_test():
    task = CopyingTask(CopyingConfig(blanks=4, also_blanks=(9, 2), also_size=3, test_size=5))
    source = task.source("test")
    assert len(source) == 11
    plain = CopyingTask(CopyingConfig(blanks=4, test_size=5)).source("test").batch(range(5))
    assert task.inputs().length is None
    own = source.batch(range(5))
    assert torch.equal(own["x"], plain["x"])
    assert own["also"].tolist() == [0] * 5
    assert source.batch([5, 6, 7])["x"].shape == (3, 29)
    mixed = source.batch(range(11))
    assert mixed["also"].tolist() == [0] * 5 + [9] * 3 + [2] * 3
    assert mixed["lengths"].tolist() == [24] * 5 + [29] * 3 + [22] * 3
    for row, length in enumerate(mixed["lengths"].tolist()):
        (alone,) = source.batch([row])["x"]
        assert torch.equal(mixed["x"][row, :length], alone)
        assert not mixed["y"][row, length:].any()


def test_copying_metrics_of_several_lengths(monkeypatch):
    task = CopyingTask(CopyingConfig(blanks=4, also_blanks=(9, 2), also_size=3, test_size=5))
    torch.manual_seed(0)
    model = task.build(LSTMConfig(hidden=8))
    source = task.source("test")
    want = {}
    for name, rows in {"": range(5), "_9": range(5, 8), "_2": range(8, 11)}.items():
        batch = source.batch(rows)
        said = model(batch["x"]).argmax(-1)
        want["accuracy" + name] = (said == batch["y"])[:, -10:].float().mean().item()
    alone = task.evaluation()
    with torch.no_grad():
        alone.update(model, source.batch(range(5)))
    want |= {k: v for k, v in alone.compute().items() if k != "accuracy"}
    for size in (1, 2, 4, 5, 11):  # 4 and 11 mix lengths in a batch
        assert evaluate(task, model, source, size) == pytest.approx(want, rel=1e-5)
    monkeypatch.setattr(_copying, "PASS", 60)  # two rows of 24 at a time
    rows = [len(p["y"]) for p in _copying.by_rows(source.batch(range(5)), 60)]
    assert rows == [2, 2, 1]
    curves = next(e for e in task.exhibits(model) if isinstance(e, Curves))
    assert curves.series["model"][0] == [2.0, 4.0, 8.0, 9.0, 12.0, 16.0]


def test_a_growing_silence():
    task = CopyingTask(CopyingConfig(blanks=8, start_blanks=2, grow_over=3 * 2048))
    source = task.source("train")
    steps = [source.batch([i])["y"].shape[1] for i in (0, 2047, 2048, 4096, 6143, 6144, 10**6)]
    assert steps == [22, 22, 24, 26, 26, 28, 28]
    mixed = source.batch([2047, 2048])  # a batch across the seam is padded
    assert mixed["lengths"].tolist() == [22, 24]
    assert task.source("valid").batch([0])["y"].shape[1] == 28
    model = task.build(LSTMConfig(hidden=8)).double()
    loss, logged = task.loss(model, mixed)
    parts = [task.loss(model, source.batch([i])) for i in (2047, 2048)]
    want = (parts[0][0] * 22 + parts[1][0] * 24) / 46
    torch.testing.assert_close(loss, want)
    hits = sum(p[1]["accuracy"].item() for p in parts) / 2
    assert logged["accuracy"].item() == pytest.approx(hits)


def test_scalar_encoding():
    tokens = CopyingTask(CopyingConfig())
    scalar = CopyingTask(CopyingConfig(encoding="scalar"))
    a, b = (t.source("train").batch(range(4))["x"] for t in (tokens, scalar))
    assert b.shape == (4, 40, 1)
    assert torch.equal(b[..., 0].long(), a)
    assert scalar.inputs().kind == "values"
    assert scalar.inputs().size == 1
    assert tokens.inputs().kind == "tokens"
    assert tokens.inputs().size == 10


@pytest.mark.parametrize("name", ["copying", "adding"])
def test_a_data_path_is_refused(name, tmp_path):
    cls = get_task(name)
    with pytest.raises(InputError, match="data: expected nothing"):
        cls(cls.Config(), 0, tmp_path).load()


@pytest.mark.parametrize(
    ("config", "bad", "words"),
    [
        (CopyingConfig, {"blanks": 0}, "blanks: expected a whole number of at least 1, got 0"),
        (CopyingConfig, {"eval_blanks": -1}, "eval_blanks"),
        (CopyingConfig, {"valid_size": 0}, "valid_size"),
        (CopyingConfig, {"also_blanks": (3, 0)}, "also_blanks: expected different whole numbers"),
        (CopyingConfig, {"also_blanks": (3, 3)}, "also_blanks"),
        (CopyingConfig, {"also_size": 0}, "also_size"),
        (CopyingConfig, {"start_blanks": 21}, r"start_blanks: expected at most blanks \(20\)"),
        (CopyingConfig, {"start_blanks": -1}, "start_blanks"),
        (CopyingConfig, {"grow_over": 0}, "grow_over"),
        (AddingConfig, {"length": 1}, "length: expected a whole number of at least 2, got 1"),
        (AddingConfig, {"eval_length": 1}, "two steps are marked"),
        (AddingConfig, {"test_size": -3}, "test_size"),
    ],
)
def test_impossible_settings(config, bad, words):
    with pytest.raises(InputError, match=words):
        config(**bad)


class Oracle(nn.Module):
    """Answers a batch from what the task itself made, wrong on chosen digits."""

    def __init__(self, answers):
        super().__init__()
        self.answers = answers
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x, lengths=None):
        return self.answers


def test_copying_metrics():
    task = CopyingTask(CopyingConfig(blanks=3))
    batch = task.source("test").batch(range(4))
    logits = nn.functional.one_hot(batch["y"], 10).float() * 2
    logits[0, -1] = logits[0, -1].roll(1, -1)  # one wrong digit
    logits[1, 0] = logits[1, 0].roll(1, -1)  # and one wrong blank, which accuracy ignores
    evaluation = task.evaluation()
    evaluation.update(Oracle(logits), batch)
    got = evaluation.compute()
    right, wrong = (-math.log(math.exp(v) / (math.exp(2) + 9)) for v in (2, 0))
    assert got["accuracy"] == pytest.approx(39 / 40)
    assert got["recall_loss"] == pytest.approx((39 * right + wrong) / 40, rel=1e-5)
    assert got["loss"] == pytest.approx((90 * right + 2 * wrong) / 92, rel=1e-5)
    loss, logs = task.loss(Oracle(logits), batch)
    assert float(loss) == pytest.approx(got["loss"], rel=1e-5)
    assert float(logs["accuracy"]) == pytest.approx(39 / 40)


def test_adding_metrics_over_unequal_batches():
    task = AddingTask(AddingConfig(test_size=5))
    evaluation = task.evaluation()
    for batch in batches(task.source("test"), 3):
        evaluation.update(Oracle(batch["y"] + 0.5), batch)
    assert evaluation.compute() == pytest.approx({"loss": 0.25, "mse": 0.25})
    guess = task.evaluation()
    for batch in batches(AddingTask(AddingConfig(test_size=4096)).source("test"), 512):
        guess.update(Oracle(torch.full_like(batch["y"], 0.5)), batch)
    assert guess.compute()["mse"] == pytest.approx(1 / 24, rel=0.05)


@pytest.mark.parametrize("name", list(TASKS))
def test_contract_of_the_class(name):
    cls = TASKS[name]
    assert cls.name == name
    assert cls.summary
    assert cls.data_help
    assert cls.default_model in cls.models
    if issubclass(cls, SequenceTask):
        # Text is read in pieces, which the lattice models do not do.
        known = [m for m in SEQUENCE_MODELS if name != "charlm" or not m.startswith("conv-")]
        assert list(cls.models) == known
    for kind, config in cls.models.items():
        if issubclass(cls, SequenceTask):
            assert issubclass(config, SEQUENCE_MODELS[kind])
        config()  # the defaults are legal
    assert json.dumps(dict(cls.train_defaults))


@pytest.mark.parametrize("model", list(SEQUENCE_MODELS))
@pytest.mark.parametrize("name", ["copying", "adding"])
def test_every_model_learns_a_step(name, model):
    cls = get_task(name)
    task = cls(cls.Config())
    task.load()
    torch.manual_seed(0)
    kwargs = {"width": 16} if model == "transformer" else {"hidden": 16}
    if model.startswith("conv-"):
        kwargs = {"sites": 32, "readout": 8}
    net = task.build(SEQUENCE_MODELS[model](**kwargs))
    batch = task.source("train").batch(range(32))
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    first = None
    for _ in range(8):
        loss, _ = task.loss(net, batch)
        first = first or loss.item()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert task.loss(net, batch)[0].item() < 0.95 * first


def kinds(exhibits):
    return [(type(e), e.title) for e in exhibits]


@pytest.mark.parametrize("name", ["copying", "adding"])
def test_exhibits_of_sab_and_their_storage(name, tmp_path):
    cls = get_task(name)
    task = cls(cls.Config(valid_size=8, test_size=16))
    torch.manual_seed(0)
    shown = task.exhibits(task.build(SABModelConfig(hidden=8, k_att=2)))
    titles = [e.title for e in shown]
    assert {"Sequences", "Recall, one sequence", "Credit"} <= set(titles)
    maps = {e.title: e for e in shown if isinstance(e, Heatmap)}
    recall = maps["Recall, one sequence"]
    steps = task.source("test").batch([0])["x"].shape[1]
    assert recall.values.shape == (steps, steps)
    assert np.triu(recall.values).max() == 0  # nothing recalls itself or the future
    assert (recall.values.sum(1) < 1 + 1e-5).all()
    stored = recall.values.sum(0) > 0
    assert not stored[0::2].any()  # k_att = 2 keeps every second step
    assert len(recall.xticks) == steps
    credit = maps["Credit"].values
    assert np.triu(credit, 1).max() == 0
    assert credit.max() == 1
    assert (np.diag(credit) > 0).all()
    save(shown, tmp_path)
    assert kinds(load(tmp_path)) == kinds(shown)


def test_exhibits_of_a_model_without_memory():
    task = CopyingTask(CopyingConfig(blanks=5, test_size=300))
    shown = task.exhibits(task.build(LSTMConfig(hidden=8)))
    assert [type(e) for e in shown] == [Text, Table, Curves]
    table, curves = shown[1], shown[2]
    assert [row[0] for row in table.rows] == [*range(1, 11), "all"]
    mean = sum(row[1] for row in table.rows[:-1]) / 10
    assert table.rows[-1][1] == pytest.approx(mean)
    assert curves.series["model"][0] == [2.0, 5.0, 10.0, 15.0, 20.0]


@pytest.mark.parametrize("name", ["copying", "adding"])
@pytest.mark.parametrize("model", ["conv-unitary", "conv-orthogonal"])
def test_exhibits_of_a_lattice(name, model, tmp_path):
    cls = get_task(name)
    task = cls(cls.Config(valid_size=8, test_size=16))
    torch.manual_seed(0)
    shown = task.exhibits(task.build(SEQUENCE_MODELS[model](sites=16)))
    views = {e.title: e for e in shown}
    points = np.array(views["Spectrum"].series["eigenvalues"])
    assert points.shape == (2, 16 if model == "conv-unitary" else 32)
    assert np.abs(np.hypot(*points) - 1).max() < 1e-5
    assert {"Kernel", "Norm over time"} <= set(views)
    assert views["Norm over time"].series["norm of the state"][1] == pytest.approx(
        [1.0] * 201, abs=1e-4
    )
    save(shown, tmp_path)
    assert kinds(load(tmp_path)) == kinds(shown)


def test_exhibits_stop_where_learned_positions_end():
    task = CopyingTask(CopyingConfig(blanks=5))
    model = task.build(TransformerConfig(width=8, positions="learned"))
    curves = task.exhibits(model)[2]
    assert curves.series["model"][0] == [2.0, 5.0]


def test_exhibits_are_those_of_the_model():
    task = CopyingTask(CopyingConfig(blanks=5, test_size=8))
    batch = task.source("test").batch(range(64))
    logits = nn.functional.one_hot(batch["y"], 10).float()
    logits[0, -10] = logits[0, -10].roll(1)
    asked = "".join(map(str, batch["y"][0, -10:].tolist()))

    class Right(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, x, lengths=None):
            _, y = copying_sequences(x[:, :10], x.shape[1] - 20)
            out = nn.functional.one_hot(y, 10).float()
            out[:, -10] = out[:, -10].roll(1, -1)
            return out

    text, table, curves = task.exhibits(Right())
    assert text.lines[0].endswith(asked)
    assert text.lines[2] == " " * 10 + "^" + " " * 9
    assert [row[1] for row in table.rows] == [0.0] + [1.0] * 9 + [0.9]
    assert curves.series["model"][1] == pytest.approx([0.9] * 5)


def test_copying_predicts_lines(tmp_path):
    task = CopyingTask(CopyingConfig(blanks=4))
    model = task.build(LSTMConfig(hidden=8))
    file = tmp_path / "digits.txt"
    file.write_text("1234567812\n\n1 1 1 1 1 1 1 1 1 8\n")
    rows = list(task.predict(model, file))
    assert [(r["line"], r["input"]) for r in rows] == [(1, "1234567812"), (3, "1111111118")]
    assert all(len(r["output"]) == 10 for r in rows)
    right = [sum(a == b for a, b in zip(r["input"], r["output"], strict=True)) for r in rows]
    assert right == [r["right"] for r in rows]
    assert json.dumps(rows)
    for text, message in [
        ("123", r"digits.txt:1: expected 10 digits of 1\.\.8"),
        ("1234567890", "expected 10 digits"),
        ("\n", "empty file"),
    ]:
        file.write_text(text)
        with pytest.raises(InputError, match=message):
            list(task.predict(model, file))
    with pytest.raises(InputError, match="nowhere"):
        list(task.predict(model, tmp_path / "nowhere"))


def test_adding_predicts_arrays(tmp_path):
    task = AddingTask(AddingConfig(length=6))
    torch.manual_seed(0)
    model = task.build(LSTMConfig(hidden=8))
    x, _ = adding_sequences(0, 0, range(3), 6)
    np.save(tmp_path / "x.npy", x.numpy())
    rows = list(task.predict(model, tmp_path / "x.npy"))
    with torch.no_grad():
        want = model(x)[:, 0].tolist()
    assert [r["answer"] for r in rows] == pytest.approx(want, abs=1e-6)
    np.savetxt(tmp_path / "x.csv", x[1].numpy(), delimiter=",")
    assert next(task.predict(model, tmp_path / "x.csv"))["answer"] == pytest.approx(
        want[1], abs=1e-6
    )
    bad = x.numpy().copy()
    bad[0, 0, 0] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    np.save(tmp_path / "wide.npy", np.zeros((3, 5)))
    (tmp_path / "text.csv").write_text("a,b\n")
    for name, message in [
        ("bad.npy", "NaN"),
        ("wide.npy", r"shape \(T, 2\)"),
        ("text.csv", "text.csv"),
        ("no.npy", "no.npy"),
    ]:
        with pytest.raises(InputError, match=message):
            list(task.predict(model, tmp_path / name))


def test_names_and_their_neighbours():
    assert get_task("copying") is CopyingTask
    assert list(TASKS) == [
        "pixels", "copying", "adding", "fields", "charlm", "tagging", "parsing", "transduction",
        "translation", "qa", "nli", "inpaint", "anomaly", "graphs",
    ]  # fmt: skip
    assert len(TASKS) == 14
    with pytest.raises(
        InputError, match=r"one of pixels, copying, adding, .*got 'copyng'; did you mean copying"
    ):
        get_task("copyng")
    with pytest.raises(InputError, match="lawful tasks"):
        get_task("zzz")
    with pytest.raises(KeyError):
        TASKS["zzz"]
