"""Pictures as sequences: the layout, the metrics, the views and predictions."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from lawful.errors import InputError
from lawful.models import SEQUENCE_MODELS, LSTMConfig, SABModelConfig
from lawful.tasks import batches, get_task
from lawful.tasks._random import permutation
from lawful.tasks._sequence import credit_scale
from lawful.tasks.exhibits import Heatmap, Images, Table, load, save
from lawful.tasks.pixels import PixelsConfig, PixelsTask


def pictures(n=60, height=4, width=6, colour=False, seed=0):
    shape = (n, height, width, 3) if colour else (n, height, width)
    return np.random.RandomState(seed).randint(0, 256, shape, dtype=np.uint8)


def task_on(tmp_path, images=None, classes=3, **options):
    images = pictures() if images is None else images
    np.savez(tmp_path / "data.npz", images=images, labels=np.arange(len(images)) % classes)
    task = PixelsTask(PixelsConfig(**options), 0, tmp_path / "data.npz")
    task.load()
    return task


def digits(**options):
    task = PixelsTask(PixelsConfig(**options))
    task.load()
    return task


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("chunk", [1, 2, 8, 0])
@pytest.mark.parametrize("order", ["plain", "permuted"])
def test_layout_by_its_definition(tmp_path, colour, chunk, order):
    task = task_on(tmp_path, pictures(colour=colour), chunk=chunk, order=order)
    size = chunk or 6
    place = permutation(0, 24).tolist() if order == "permuted" else list(range(24))
    batch = task.source("train").batch([2, 0])
    assert batch["x"].dtype == torch.float32
    assert task.inputs().length == 24 // size
    assert task.inputs().size == size * (3 if colour else 1)
    assert batch["x"].shape == (2, 24 // size, task.inputs().size)
    for row, index in enumerate([2, 0]):
        image = task.images.train.images[index].reshape(24, -1)
        for t in range(24 // size):
            want = [image[place[t * size + j]] / 255 for j in range(size)]
            assert batch["x"][row, t].tolist() == pytest.approx(np.concatenate(want).tolist())
        assert batch["y"][row] == task.images.train.labels[index]


def test_digits_are_pixels_of_0_to_1():
    task = digits()
    x = task.source("test").batch(range(359))["x"]
    assert x.shape == (359, 64, 1)
    assert x.min() == 0
    assert x.max() == 1
    assert task.outputs().size == 10


def test_permutation_does_not_follow_the_run_seed(tmp_path):
    one, two = (PixelsTask(PixelsConfig(order="permuted"), seed) for seed in (0, 1))
    other = PixelsTask(PixelsConfig(order="permuted", permutation_seed=1))
    for task in (one, two, other):
        task.load()
    assert np.array_equal(one.order, two.order)
    assert not np.array_equal(one.order, other.order)
    assert np.array_equal(one.images.test.images, two.images.test.images)


@pytest.mark.parametrize("colour", [False, True])
def test_standard_scaling(tmp_path, colour):
    task = task_on(tmp_path, pictures(colour=colour), scaling="standard")
    x = task.source("train").batch(range(len(task.source("train"))))["x"]
    channels = x.reshape(-1, 3 if colour else 1)
    torch.testing.assert_close(channels.mean(0), torch.zeros(channels.shape[1]), atol=1e-5, rtol=0)
    torch.testing.assert_close(channels.std(0, unbiased=False), torch.ones(channels.shape[1]))
    flat = task_on(tmp_path, np.full_like(pictures(), 7), scaling="standard")
    assert flat.source("train").batch([0])["x"].isfinite().all()


@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize("order", ["plain", "permuted"])
def test_numbers_of_steps_go_back_to_their_pixels(tmp_path, chunk, order):
    task = task_on(tmp_path, chunk=chunk, order=order)
    images = task.images.train.images[:5]
    means = task.sequences(images).mean(-1).numpy()
    picture = task.to_picture(means)
    assert picture.shape == (5, 4, 6)
    if chunk == 1:
        assert np.allclose(picture, images / 255)
    # Every pixel of a chunk shows the chunk's number.
    places = task.order.reshape(-1, chunk)
    for t, members in enumerate(places):
        assert np.allclose(picture.reshape(5, -1)[:, members], means[:, t : t + 1])


def test_max_train_is_balanced(tmp_path):
    task = task_on(tmp_path, pictures(300), max_train=9)
    assert np.bincount(task.images.train.labels).tolist() == [3, 3, 3]
    assert len(task.images.test) == 60
    more = task_on(tmp_path, pictures(300), max_train=10_000)
    assert len(more.images.train) == 210


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"chunk": -1}, "chunk"),
        ({"max_train": -5}, "max_train"),
        ({"valid_share": 0.0}, "valid_share and test_share"),
        ({"valid_share": 0.6, "test_share": 0.4}, "sum below 1"),
    ],
)
def test_impossible_settings(bad, words):
    with pytest.raises(InputError, match=words):
        PixelsConfig(**bad)


def test_chunk_must_divide(tmp_path):
    with pytest.raises(InputError, match=r"divisor of the 24 pixels of 6x4, got 7; one of 1, 2, 3"):
        task_on(tmp_path, chunk=7)


def test_download_beside_data(tmp_path):
    task = PixelsTask(PixelsConfig(download="mnist"), 0, tmp_path)
    with pytest.raises(InputError, match="no --data beside it"):
        task.load()


def test_download_uses_what_was_fetched(tmp_path, monkeypatch):
    folder = tmp_path / "got"
    folder.mkdir()
    for label in ("a", "b"):
        (folder / label).mkdir()
        for i in range(20):
            Image.fromarray(pictures(1, seed=i)[0]).save(folder / label / f"{i}.png")
    monkeypatch.setattr("lawful.tasks.pixels._task.fetch_dataset", lambda name: folder)
    task = PixelsTask(PixelsConfig(download="mnist"))
    task.load()
    assert task.facts.classes == ("a", "b")


class Says(nn.Module):
    """Always answers class 1, with three times the chance of each other."""

    def __init__(self, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.classes = classes

    def forward(self, x, lengths=None):
        logits = torch.zeros(len(x), self.classes)
        logits[:, 1] = np.log(3.0)
        return logits


def test_metrics(tmp_path):
    task = task_on(tmp_path)
    evaluation = task.evaluation()
    for batch in batches(task.source("test"), 5):
        evaluation.update(Says(3), batch)
    got = evaluation.compute()
    assert got["accuracy"] == pytest.approx(1 / 3)
    assert got["loss"] == pytest.approx(np.log(5) - np.log(3) / 3, rel=1e-5)
    loss, logs = task.loss(Says(3), task.source("test").batch(range(12)))
    assert loss.item() == pytest.approx(np.log(5) - np.log(3) / 3, rel=1e-5)
    assert logs["accuracy"].item() == pytest.approx(1 / 3)


def test_views_of_a_plain_model(tmp_path):
    task = task_on(tmp_path)
    shown = task.exhibits(Says(3))
    assert [type(e) for e in shown] == [Table, Heatmap, Images, Images]
    table, confusion, right, wrong = shown
    assert table.rows[0] == ("0", 4, 0.0)
    assert table.rows[1] == ("1", 4, 1.0)
    assert table.rows[3] == ("all", 12, pytest.approx(1 / 3))
    assert confusion.values.tolist() == [[0, 4, 0]] * 3
    assert right.good == [True] * 4
    assert wrong.good == [False] * 8
    assert right.captions[0] == "1 (60%)"
    assert wrong.captions[0] == "1 (60%), is 0"
    assert right.images.max() <= 1


@pytest.mark.parametrize("colour", [False, True])
def test_views_of_sab(tmp_path, colour):
    task = task_on(tmp_path, pictures(colour=colour), order="permuted")
    torch.manual_seed(0)
    model = task.build(SABModelConfig(hidden=8, k_att=3, k_trunc=4))
    shown = {e.title: e for e in task.exhibits(model)}
    mean = shown["Recall, mean of 12 sequences"].values
    assert mean.shape == (24, 24)
    assert np.triu(mean).max() == 0
    over = shown["Recalled pixels"].images
    assert over.shape == (12, 4, 6, 3)
    plain = task.images.test.images / 255
    plain = plain if colour else np.repeat(plain[..., None], 3, -1)
    change = np.abs(over - plain).max(-1)
    received = model.recalled(task.sequences(task.images.test.images)).sum(1).numpy()
    strength = task.to_picture(received / received.max(1, keepdims=True))
    assert change[strength == 0].max() < 1e-6
    assert change[strength > 1e-3].min() > 1e-6
    credit = shown["Pixels that get credit"].images
    assert credit.min() >= 0
    assert credit.max() <= 1
    save(list(shown.values()), tmp_path / "shown")
    assert [e.title for e in load(tmp_path / "shown")] == list(shown)


def test_long_pictures_get_no_credit_map(tmp_path):
    task = task_on(tmp_path, pictures(30, 14, 14))
    shown = [e.title for e in task.exhibits(task.build(SABModelConfig(hidden=4, k_att=7)))]
    assert "Recall, one sequence" in shown
    assert "Credit" not in shown


def test_credit_scale():
    credit = np.array([0.0, 1e-30, 1e-4, 1.0]) * 5
    assert credit_scale(credit).tolist() == pytest.approx([0, 0.05, 0.5, 1])
    assert credit_scale(np.zeros((2, 2))).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("name", list(SEQUENCE_MODELS))
def test_every_model_fits_a_few_digits(name):
    task = digits(chunk=8, max_train=20)
    torch.manual_seed(0)
    kwargs = {"transformer": {"width": 32, "dropout": 0.0}}
    kwargs = {} if name.startswith("conv-") else kwargs.get(name, {"hidden": 32})
    model = task.build((task.models if not kwargs else SEQUENCE_MODELS)[name](**kwargs))
    batch = task.source("train").batch(range(20))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        loss, logs = task.loss(model, batch)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    assert logs["accuracy"] > 0.9


def save_pictures(folder, images):
    folder.mkdir()
    for i, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{i:03d}.png")
    return folder


@pytest.mark.parametrize("colour", [False, True])
def test_predictions_of_every_kind_of_input(tmp_path, colour):
    images = pictures(300, colour=colour)
    trained = task_on(tmp_path, images, scaling="standard", order="permuted")
    torch.manual_seed(0)
    model = trained.build(LSTMConfig(hidden=8))
    state = json.loads(json.dumps(trained.state()))
    task = PixelsTask(trained.config)
    task.load_state(state)  # as `predict` does, without the data
    assert task.facts == trained.facts
    with torch.no_grad():
        chances, labels = model(trained.sequences(images)).softmax(-1).max(-1)
    folder = save_pictures(tmp_path / "own", images)
    rows = list(task.predict(model, folder))
    assert [r["label"] for r in rows] == [str(i) for i in labels.tolist()]
    assert [r["probability"] for r in rows] == pytest.approx(chances.tolist(), abs=1e-6)
    assert rows[7]["file"].endswith("007.png")
    assert json.dumps(rows)
    assert next(task.predict(model, folder / "007.png")) == rows[7] | {
        "probability": pytest.approx(rows[7]["probability"])
    }
    np.save(tmp_path / "x.npy", images[:9])
    array = list(task.predict(model, tmp_path / "x.npy"))
    assert [r["label"] for r in array] == [r["label"] for r in rows[:9]]
    assert array[3]["file"].endswith("x.npy[3]")
    np.save(tmp_path / "one.npy", images[4])
    assert [r["label"] for r in task.predict(model, tmp_path / "one.npy")] == [rows[4]["label"]]


def test_digits_predict_from_ordinary_pictures(tmp_path):
    task = digits()
    torch.manual_seed(0)
    model = task.build(LSTMConfig(hidden=8))
    image = task.images.test.images[0]
    Image.fromarray((image * 15.9375).astype(np.uint8)).save(tmp_path / "x.png")
    seen = task.sequences(image[None])
    with torch.no_grad():
        want = float(model(seen).softmax(-1).max())
    got = next(task.predict(model, tmp_path / "x.png"))["probability"]
    assert got == pytest.approx(want, abs=1e-3)


def class_folders(folder, names, seed=0):
    """A few pictures (4, 6) of each class, as class folders; the brighter, the later the class."""
    rng = np.random.default_rng(seed)
    for name in names:
        (folder / name).mkdir(parents=True)
        for i in range(10):
            pixels = rng.integers(40 * ord(name) % 200, 255, (4, 6)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


def test_other_data_are_read_by_the_classes_of_training(tmp_path):
    trained = PixelsTask(PixelsConfig(scaling="standard"), 0, class_folders(tmp_path / "a", "abc"))
    trained.load()
    other = PixelsTask(PixelsConfig(scaling="standard"), 0, class_folders(tmp_path / "b", "bc", 1))
    other.load_state(trained.state())
    other.load()
    assert other.facts == trained.facts
    assert set(other.source("test").batch(range(4))["y"].tolist()) == {1, 2}
    unknown = PixelsTask(PixelsConfig(), 0, class_folders(tmp_path / "c", "bd"))
    unknown.load_state(trained.state())
    with pytest.raises(InputError, match=r"data: .* \(a, b, c\), got 'd'|got d"):
        unknown.load()
    wider = PixelsTask(PixelsConfig(), 0, None)
    wider.load_state(trained.state())
    with pytest.raises(InputError, match="pictures of height 4, as in training, got 8"):
        wider.load()


def predict_fault(fault, folder):
    file = folder / "x.npy"
    if fault == "size":
        Image.fromarray(pictures(1, 5, 5)[0]).save(folder / "x.png")
        return folder / "x.png", r"x\.png: expected a picture of 6x4, .* got 5x5; resize"
    if fault == "missing":
        return folder / "nowhere.png", "nowhere.png: .*no such path"
    if fault == "empty":
        (folder / "empty").mkdir()
        return folder / "empty", "expected pictures"
    if fault == "kind":
        (folder / "x.txt").write_text("hi")
        return folder / "x.txt", r"one of \.bmp.*, got \*\.txt"
    if fault == "nan":
        np.save(file, np.full((2, 4, 6), np.nan))
        return file, "NaN or infinity in picture 0"
    if fault == "range":
        np.save(file, np.full((2, 4, 6), 300))
        return file, r"pixels in 0\.\.255, the scale trained on, got 300\.\.300"
    np.save(file, np.zeros((2, 4, 7)))
    return file, r"shape \(n, 4, 6\)"


@pytest.mark.parametrize("fault", ["size", "missing", "empty", "kind", "nan", "range", "shape"])
def test_prediction_faults(tmp_path, fault):
    task = task_on(tmp_path)
    folder = tmp_path / "own"
    folder.mkdir()
    path, words = predict_fault(fault, folder)
    with pytest.raises(InputError, match=words):
        list(task.predict(Says(3), path))


@pytest.mark.parametrize(
    "state", [{}, {"height": 3}, {"classes": 3, "mean": [1], "deviation": [1]}]
)
def test_bad_state(state):
    with pytest.raises(InputError, match="task state"):
        PixelsTask(PixelsConfig()).load_state(state)


def test_name():
    assert get_task("pixels") is PixelsTask
    with pytest.raises(InputError, match="did you mean pixels"):
        get_task("pixel")
