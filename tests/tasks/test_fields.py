"""The forecasting task: exact films, readers, metrics, and what a run of it writes."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from lawful.cli import main
from lawful.errors import InputError
from lawful.models import FIELD_MODELS
from lawful.tasks import get_task
from lawful.tasks.exhibits import Curves, Heatmap, Images, Table, load, save
from lawful.tasks.fields import FieldsConfig, FieldsTask, moving_digits, read_recordings, solutions
from lawful.tasks.fields._arrays import split_recordings
from lawful.tasks.fields._measure import RolloutEvaluation, energy_drift, similarity
from lawful.tasks.fields._pictures import digit_pictures, flashes

EQUATIONS = ("wave", "schroedinger", "advection")
LATTICES = [(33,), (32,), (16, 15), (9, 8, 10)]


def made(equation, size, steps=4, speed=0.5, modes=3, indices=(0, 1), seed=0, stream=0):
    return solutions(equation, size, steps, speed, modes, seed, stream, indices)


def task_of(seed=0, data=None, **settings):
    task = FieldsTask(FieldsConfig(**settings), seed, data)
    task.load()
    return task


def slope(field, axis):
    """Spectral derivative along one axis of real fields."""
    n = field.shape[axis]
    k = 2j * np.pi * np.fft.fftfreq(n)
    shape = [1] * field.ndim
    shape[axis] = n
    return np.fft.ifft(np.fft.fft(field, axis=axis) * k.reshape(shape), axis=axis).real


@pytest.mark.parametrize("size", LATTICES)
@pytest.mark.parametrize("equation", EQUATIONS)
def test_films_solve_their_equation(equation, size):
    """Central differences in time against spectral derivatives in space."""
    dims, dt = len(size), 1e-3
    # Frames dt apart are frames a unit apart of an equation slower by dt.
    film = made(equation, size, 3, 0.7 * dt)
    rate = (film[:, 2] - film[:, 0]) / (2 * dt)
    now = film[:, 1]
    axes = [a + 2 for a in range(dims)]
    if equation == "wave":
        grad = [slope(now[:, :1], a)[:, 0] for a in axes]
        div = sum(slope(now[:, 1 + i : 2 + i], a)[:, 0] for i, a in enumerate(axes))
        want = np.stack([-0.7 * div, *(-0.7 * g for g in grad)], 1)
    elif equation == "schroedinger":
        laplace = sum(slope(slope(now, a), a) for a in axes)
        want = 0.35 * np.stack([-laplace[:, 1], laplace[:, 0]], 1)  # psi_t = (i c / 2) laplacian
    else:
        want = -sum(0.7 * 0.5**i * slope(now, a) for i, a in enumerate(axes))
    assert np.abs(want).max() > 0.05
    assert np.abs(rate - want).max() < 1e-5


def test_advection_by_whole_sites_is_a_shift():
    film = made("advection", (31,), 5, speed=1.0)
    for t in range(5):
        np.testing.assert_allclose(film[:, t, 0], np.roll(film[:, 0, 0], t, -1), atol=1e-12)


def test_a_wave_in_one_dimension_is_two_travelling_halves():
    film = made("wave", (31,), 5, speed=1.0)
    right, left = film[:, :, 0] + film[:, :, 1], film[:, :, 0] - film[:, :, 1]
    for t in range(5):
        np.testing.assert_allclose(right[:, t], np.roll(right[:, 0], t, -1), atol=1e-12)
        np.testing.assert_allclose(left[:, t], np.roll(left[:, 0], -t, -1), atol=1e-12)


@pytest.mark.parametrize("size", LATTICES)
@pytest.mark.parametrize("equation", EQUATIONS)
def test_films_keep_their_energy_and_band(equation, size):
    film = made(equation, size, 40)
    energy = (film**2).sum(2).mean(tuple(range(2, film.ndim - 1)))
    np.testing.assert_allclose(energy, 1.0, atol=1e-12)
    spectrum = np.abs(np.fft.fftn(film[:, -1], axes=range(2, film.ndim - 1)))
    for axis, n in enumerate(size, 2):
        counts = np.abs(np.fft.fftfreq(n) * n)
        assert spectrum.take(np.flatnonzero(counts > 3), axis).max() < 1e-9
    assert spectrum[(slice(None), slice(None), *[0] * len(size))].max() < 1e-9


def test_films_are_addressed_by_seed_part_and_index():
    whole = made("wave", (16,), indices=(5, 2, 7))
    np.testing.assert_array_equal(whole[1:2], made("wave", (16,), indices=(2,)))
    for other in ({"seed": 1}, {"stream": 1}):
        assert np.abs(whole - made("wave", (16,), indices=(5, 2, 7), **other)).max() > 0.1
    task = task_of()
    train, test = (task.source(s).batch([0])["x"] for s in ("train", "test"))
    assert (train - test).abs().max() > 0.1


def test_digits_bounce_between_the_walls():
    pictures = np.ones((1, 8, 8))
    film = moving_digits(pictures, 12, 200, 0.9, 1, True, 0, 0, [0, 1])
    assert film.shape == (2, 200, 1, 12, 12)
    np.testing.assert_allclose(film.sum((2, 3, 4)), 64.0, rtol=1e-6)  # never leaves the canvas
    rows = np.arange(12)
    centre = (film[:, :, 0].sum(3) * rows).sum(2) / 64
    steps = np.diff(centre, axis=1)
    assert centre.min() >= 3.5 - 1e-6
    assert centre.max() <= 7.5 + 1e-6
    usual = np.abs(steps).max(1, keepdims=True)
    straight = np.isclose(np.abs(steps), usual, rtol=1e-4)
    assert 0.5 < straight.mean() < 1  # straight on, but for the bounces
    assert (steps > 0).any()
    assert (steps < 0).any()


def test_digits_on_a_periodic_canvas_and_at_rest_in_a_tight_one():
    picture = digit_pictures("train")[:1]
    film = moving_digits(picture, 16, 30, 1.3, 1, False, 3, 0, [4])
    np.testing.assert_allclose(film.sum((2, 3, 4)), picture.sum(), rtol=1e-6)
    tight = moving_digits(picture, 8, 3, 1.3, 1, True, 3, 0, [4])
    np.testing.assert_allclose(tight[0, :, 0], np.repeat(picture, 3, 0))
    two = moving_digits(np.ones((1, 8, 8)), 16, 5, 1.0, 3, True, 0, 0, range(4))
    assert two.max() <= 1 + 1e-12  # overlaps do not add up


def test_recall_is_a_picture_blanks_and_the_picture():
    task = task_of(generate="recall", blanks=5)
    batch = task.source("test").batch([0, 3])
    assert batch["x"].shape == (2, 6, 1, 8, 8)
    assert torch.equal(batch["x"][:, 0], batch["y"][:, 0])
    assert batch["x"][:, 1:].abs().max() == 0
    pictures = digit_pictures("test")
    assert flashes(pictures, 0, 0, 2, [0]).shape == (1, 2, 1, 8, 8)
    for split in ("train", "valid", "test"):
        assert task.source(split).batch([0])["y"].min() >= 0
    train = {p.tobytes() for p in digit_pictures("train")}
    assert not train & {p.tobytes() for p in pictures[:5]}


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"observe": -1}, "observe"),
        ({"horizon": -1}, "horizon"),
        ({"modes": 0}, "modes"),
        ({"speed": 0.0}, "speed"),
        ({"speed": float("nan")}, "speed"),
        ({"digits": 0}, "digits"),
        ({"blanks": -1}, "blanks"),
        ({"test_size": 0}, "test_size"),
        ({"lattice": 16, "modes": 8}, "modes"),
        ({"generate": "moving-digits", "lattice": 7}, "lattice"),
        ({"generate": "recall", "horizon": 3}, "horizon"),
    ],
)
def test_impossible_settings_are_refused(settings, word):
    with pytest.raises(InputError, match=word):
        FieldsTask(FieldsConfig(**settings))


def stored(tmp_path, array, name="frames.npy"):
    path = tmp_path / name
    if isinstance(array, dict):
        np.savez(path, **array)
    else:
        np.save(path, array)
    return path


@pytest.mark.parametrize(
    ("shape", "layout", "want"),
    [
        ((7, 2, 5), "auto", (1, 7, 2, 5)),
        ((7, 2, 5, 6), "auto", (1, 7, 2, 5, 6)),
        ((3, 7, 2, 5), "samples", (3, 7, 2, 5)),
        ((3, 7, 2, 5, 6), "auto", (3, 7, 2, 5, 6)),
        ((7, 2, 4, 5, 6), "time", (1, 7, 2, 4, 5, 6)),
        ((3, 7, 2, 4, 5, 6), "auto", (3, 7, 2, 4, 5, 6)),
    ],
)
def test_axes_of_arrays(tmp_path, shape, layout, want):
    found = read_recordings(stored(tmp_path, np.zeros(shape, np.int16)), layout)
    assert found["frames"].shape == want
    assert found["frames"].dtype == np.float64


def broken(shape, at):
    array = np.zeros(shape)
    array[at] = np.nan
    return array


@pytest.mark.parametrize(
    ("array", "layout", "message"),
    [
        (np.zeros((4, 5)), "auto", "1 to 3 axes of space, got shape"),
        (np.zeros((4, 5, 3)), "samples", "1 to 3 axes of space"),
        (np.zeros((2, 2, 2, 2, 2, 2, 2)), "auto", "1 to 3 axes of space"),
        (np.zeros((4, 0, 3)), "auto", "no empty axis"),
        (np.zeros((4, 1, 3), complex), "auto", "real numbers, got complex128"),
        (np.array([["a"]]), "auto", "real numbers"),
        (broken((4, 1, 3), (2, 0, 1)), "auto", "NaN or infinity in frame 2"),
        (broken((2, 4, 1, 3), (1, 3, 0, 1)), "samples", "NaN or infinity in frame 3 of sample 1"),
        ({"a": np.zeros((4, 1, 3)), "b": np.zeros(3)}, "auto", "an array named frames"),
        ({"train": np.zeros((4, 1, 3)), "test": np.zeros(3)}, "auto", "no valid"),
    ],
)
def test_wrong_arrays_are_refused(tmp_path, array, layout, message):
    name = "x.npz" if isinstance(array, dict) else "x.npy"
    with pytest.raises(InputError, match=message):
        read_recordings(stored(tmp_path, array, name), layout)


def test_wrong_files_are_refused(tmp_path):
    for name, content, message in (
        ("x.txt", b"1", r"got \*\.txt"),
        ("x.npy", b"not an array", "array file"),
        ("x.npz", b"PK\x03\x04 broken", "array file"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_recordings(tmp_path / name)
    with pytest.raises(InputError, match="no such file"):
        read_recordings(tmp_path / "absent.npy")
    with pytest.raises(InputError, match="no such file"):
        read_recordings(tmp_path / "absent.zarr")
    np.save(tmp_path / "pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="array file"):
        read_recordings(tmp_path / "pickled.npy")


def test_zarr_is_read_or_asked_for(tmp_path):
    path = tmp_path / "x.zarr"
    try:
        import zarr
    except ImportError:
        path.mkdir()
        with pytest.raises(InputError, match="pip install zarr"):
            read_recordings(path)
        return
    array = np.arange(24.0).reshape(4, 2, 3)
    zarr.save(str(path), array)
    np.testing.assert_array_equal(read_recordings(path)["frames"][0], array)


def test_recordings_are_split_by_time_or_samples():
    one = split_recordings(np.arange(100.0).reshape(1, 100, 1, 1), 10, "x")
    assert [one[s].shape[1] for s in ("train", "valid", "test")] == [70, 15, 15]
    assert np.concatenate([one[s] for s in one], 1).ravel().tolist() == list(range(100))
    many = split_recordings(np.zeros((20, 12, 1, 1)), 10, "x")
    assert [len(many[s]) for s in ("train", "valid", "test")] == [14, 3, 3]
    with pytest.raises(InputError, match="at least 30 frames"):
        split_recordings(np.zeros((1, 29, 1, 1)), 10, "x")
    with pytest.raises(InputError, match="at least 10 frames"):
        split_recordings(np.zeros((20, 9, 1, 1)), 10, "x")


def test_windows_of_a_file_and_their_scale(tmp_path):
    frames = 5 + 3 * np.random.default_rng(0).standard_normal((60, 2, 4))
    frames[:, 1] = 7.0  # a constant field stays finite
    frames[:, 0, 0] = np.arange(60)
    task = task_of(data=stored(tmp_path, frames), observe=3, horizon=4, train_horizon=2)
    source = task.source("train")
    assert len(source) == 42 - 5 + 1
    batch = source.batch([0, 37])
    assert batch["x"].shape == (2, 3, 2, 4)
    assert batch["y"].shape == (2, 2, 2, 4)
    both = torch.cat([batch["x"], batch["y"]], 1)
    np.testing.assert_allclose(task.restored(both)[1], frames[37:42], rtol=1e-5)
    assert len(task.source("test")) == 9 // 7  # windows that do not overlap
    held = torch.cat([source.batch(range(len(source)))[k] for k in "xy"], 1)
    assert held.isfinite().all()
    assert abs(float(held[:, :, 0].mean())) < 0.2
    other = FieldsTask(task.config, 0, task.data)
    other.load_state(json.loads(json.dumps(task.state())))
    assert other.facts == task.facts
    with pytest.raises(InputError, match="facts of fields"):
        other.load_state({"size": 3})
    with pytest.raises(InputError, match="frames"):
        task_of(data=stored(tmp_path, frames[:20]), observe=5, horizon=5)


class Known(nn.Module):
    """Says what it was told to."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, x, steps):
        return self.answer[: len(x)]


def test_metrics_by_hand():
    truth = torch.tensor([[1.0, 2.0], [2.0, 1.0]]).view(1, 2, 1, 2)  # energies 5 and 5
    said = torch.tensor([[1.0, 1.0], [3.0, 1.0]]).view(1, 2, 1, 2)  # energies 2 and 10
    evaluation = RolloutEvaluation(True, 0.0, True)
    evaluation.update(Known(said), {"x": truth, "y": truth})
    got = evaluation.compute()
    assert got["relative_mse"] == pytest.approx(2 / 10)
    assert got["loss"] == got["relative_mse"]
    assert got["relative_mse_last"] == pytest.approx(1 / 5)
    assert got["mse"] == pytest.approx(2 / 4)
    assert got["energy_drift"] == pytest.approx(8 / 5)
    assert got["pixels_right"] == pytest.approx(2 / 4)
    evaluation.update(Known(truth), {"x": truth, "y": truth})
    got = evaluation.compute()
    assert got["relative_mse"] == pytest.approx(1 / 10)
    assert got["energy_drift"] == pytest.approx(4 / 5)
    assert energy_drift(2 * truth, truth).item() == 0.0  # an offset is no drift


def test_similarity_is_that_of_the_library():
    assert similarity(torch.zeros(1, 1, 9), torch.zeros(1, 1, 9), 1.0) is None
    assert similarity(torch.zeros(1, 1, 8, 8), torch.zeros(1, 1, 8, 8), 1.0) is None
    pytest.importorskip("torchmetrics")
    truth = torch.rand(3, 2, 16, 16)
    assert similarity(truth, truth, 1.0).item() == pytest.approx(1.0)
    constant = similarity(torch.full_like(truth, 0.2), torch.full_like(truth, 0.6), 1.0)
    c1 = 0.01**2  # of two constants only the luminance term is left
    assert constant.item() == pytest.approx((0.24 + c1) / (0.04 + 0.36 + c1), rel=1e-3)


def test_baselines_are_errors_of_what_they_say():
    task = task_of(generate="advection", horizon=3, test_size=5)
    batch = task.source("test").batch(range(5))
    evaluation = task.evaluation()
    evaluation.update(Known(batch["x"][:, -1:].expand(-1, 3, -1, -1)), batch)
    assert task.baselines()["persistence"] == pytest.approx(evaluation.compute()["loss"], rel=1e-5)
    assert task.baselines()["mean frame"] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("name", list(FIELD_MODELS))
def test_a_short_training_lowers_the_loss(name):
    task = task_of(generate="advection", lattice=16, modes=3, train_horizon=5, observe=4)
    torch.manual_seed(0)
    model = task.build(FIELD_MODELS[name](taps=5))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    source, losses = task.source("train"), []
    for step in range(60):
        loss, logged = task.loss(model, source.batch(range(8 * step, 8 * step + 8)))
        assert logged["mse"].isfinite()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("conv-unitary", {"lattice": 12, "modes": 2}),
        ("conv-orthogonal", {"lattice": 8, "modes": 2, "space": 2}),
        ("conv-rnn", {"lattice": 6, "modes": 2, "space": 3}),
        ("convlstm", {"generate": "moving-digits", "lattice": 12}),
        ("conv-orthogonal", {"generate": "recall", "blanks": 4}),
    ],
)
def test_exhibits_and_their_storage(name, settings, tmp_path):
    task = task_of(**{"horizon": 0 if "blanks" in settings else 9, "test_size": 3, **settings})
    torch.manual_seed(0)
    shown = task.exhibits(task.build(FIELD_MODELS[name](taps=3)))
    views = {e.title: e for e in shown}
    assert isinstance(views["Error by step"], Table)
    if name != "convlstm":
        kernel = views.get("Kernel")
        assert isinstance(kernel, Curves | Heatmap) or settings.get("space") == 3
        radius = np.hypot(*np.array(views["Spectrum"].series["eigenvalues"]))
        held = np.abs(radius - 1).max() < 1e-5
        assert held == (name != "conv-rnn")
        norms = views["Norm over time"].series["norm of the state"][1]
        assert (np.abs(np.array(norms) - 1).max() < 1e-4) == held
    films = [e for e in shown if isinstance(e, Images)]
    assert len(films) == 2
    assert ("Energy" in views) == ("generate" not in settings)
    dims = 2 if "generate" in settings else settings.get("space", 1)
    assert len(films[0].images) == (3 if dims == 1 else 3 * films[0].columns)
    assert 0 <= films[0].images.min() <= films[0].images.max() <= 1
    save(shown, tmp_path)
    assert [type(e) for e in load(tmp_path)] == [type(e) for e in shown]


def cli(*args):
    assert main([str(a) for a in args]) == 0


def test_train_resume_predict_and_film(tmp_path, capsys):
    """A file of travelling waves through the command line, once stopped and resumed."""
    frames = made("advection", (12,), 90, modes=2, indices=[0])[0] * 4 + 10
    data = stored(tmp_path, frames)
    common = ["--data", data, "--model", "conv-orthogonal", "--taps", "5", "--steps", "30"]
    common += ["--observe", "4", "--horizon", "6", "--train-horizon", "3", "--seed", "3"]
    common += ["--eval-every", "10", "--checkpoint-every", "10", "--device", "cpu"]
    cli("train", "fields", *common, "--out", tmp_path / "whole")
    result = json.loads((tmp_path / "whole" / "result.json").read_text())
    assert result["test"]["relative_mse"] < result["baselines"]["persistence"]
    assert "energy_drift" not in result["test"]
    parts = tmp_path / "parts"
    cli("train", "fields", *common, "--steps", "20", "--schedule", "constant", "--out", parts)
    again = ["train", "fields", *common, "--schedule", "constant", "--out"]
    cli(*again, tmp_path / "straight")
    cli(*again, parts, "--resume")
    ends = [
        json.loads((tmp_path / name / "result.json").read_text()) for name in ("straight", "parts")
    ]
    assert ends[0]["test"] == ends[1]["test"]
    data.rename(tmp_path / "moved.npy")  # prediction needs no training data
    recent = stored(tmp_path, frames[:20], "recent.npy")
    out = tmp_path / "forecast.npy"
    cli("predict", tmp_path / "whole", recent, "--out", out)
    forecast = np.load(out)
    assert forecast.shape == (6, 1, 12)
    wrong = ((forecast - frames[20:26]) ** 2).mean()
    assert wrong < ((frames[19] - frames[20:26]) ** 2).mean()
    capsys.readouterr()
    cli("predict", tmp_path / "whole", recent)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [r["step"] for r in rows] == [1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose([r["frame"] for r in rows], forecast, rtol=1e-6)
    cli("predict", tmp_path / "whole", recent, "--out", tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames > 6  # equal frames are merged by the format
    for bad, message in ((frames[:3], "at least the 4 frames"), (frames[:, :, :5], "trained on")):
        assert main(["predict", str(tmp_path / "whole"), str(stored(tmp_path, bad, "bad.npy"))])
        assert message in capsys.readouterr().err


def test_samples_are_forecast_one_by_one(tmp_path):
    task = task_of(lattice=12, modes=2, observe=3, horizon=2)
    torch.manual_seed(0)
    model = task.build(FIELD_MODELS["conv-unitary"](taps=3))
    films = made("wave", (12,), 5, modes=2, indices=range(3))
    path = stored(tmp_path, films, "films.npy")
    task.settled = FieldsConfig(layout="samples").filled(from_file=False)
    object.__setattr__(task.settled, "observe", 3)
    object.__setattr__(task.settled, "horizon", 2)
    out = tmp_path / "out.npy"
    task.write_predictions(model, path, out)
    assert np.load(out).shape == (3, 2, 2, 12)
    rows = list(task.predict(model, path))
    assert [(r["sample"], r["step"]) for r in rows] == [(s, n) for s in range(3) for n in (1, 2)]


def test_the_task_is_registered():
    assert get_task("fields") is FieldsTask
