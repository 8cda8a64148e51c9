"""Image completion: masks, losses, fills, pictures of the user, and whole runs."""

import doctest
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lawful.cli import main
from lawful.errors import InputError
from lawful.models import EnergyInpainterConfig, TiedViTInpainterConfig
from lawful.tasks import exhibits, get_task
from lawful.tasks.data import load_pictures
from lawful.tasks.exhibits import Curves, Heatmap, Images, Table
from lawful.tasks.inpaint import InpaintConfig, InpaintTask, draw_masks, harmonic_fill
from lawful.tasks.inpaint._task import objective
from lawful.training import RunFolder, TrainConfig, Trainer, certify, evaluate, read_metrics

SMALL = EnergyInpainterConfig(16, 2, head_dim=8, settle_steps=4, step_size=0.3)


def noise(batch, patches, seed=0):
    return torch.rand(batch, patches, generator=torch.Generator().manual_seed(seed))


def digits(seed=0, **options):
    task = InpaintTask(InpaintConfig(**options), seed)
    task.load()
    return task


def on_arrays(tmp_path, images, **options):
    np.savez(tmp_path / "data.npz", images=images)
    task = InpaintTask(InpaintConfig(**options), 0, tmp_path / "data.npz")
    task.load()
    return task


def random_pictures(n=30, height=4, width=6, colour=False, seed=0):
    shape = (n, height, width, 3) if colour else (n, height, width)
    return np.random.RandomState(seed).randint(0, 256, shape, dtype=np.uint8)


# Masks


@given(
    rows=st.integers(1, 7),
    columns=st.integers(2, 7),
    share=st.floats(0.01, 0.99),
    intact=st.floats(0, 0.99),
    seed=st.integers(0, 99),
)
def test_masks_have_the_counts_they_state(rows, columns, share, intact, seed):
    n = rows * columns
    drawn = noise(5, n, seed)
    count = min(max(round(share * n), 1), n - 1)
    hidden, scored = draw_masks(drawn, "scatter", rows, columns, share, intact)
    assert scored.sum(1).tolist() == [count] * 5
    assert hidden.sum(1).tolist() == [count - min(round(intact * count), count - 1)] * 5
    assert not (hidden & ~scored).any()
    hidden, scored = draw_masks(drawn, "random", rows, columns, share, intact)
    assert torch.equal(hidden, scored)
    assert hidden.sum(1).tolist() == [count] * 5
    hidden, scored = draw_masks(drawn, "block", rows, columns, share, intact)
    assert torch.equal(hidden, scored)
    assert 1 <= int(hidden.sum(1).min()) == int(hidden.sum(1).max()) < n
    for grid in hidden.reshape(5, rows, columns):
        where = grid.nonzero()
        low, high = where.amin(0), where.amax(0)
        assert grid[low[0] : high[0] + 1, low[1] : high[1] + 1].all()  # a full rectangle
        assert int(grid.sum()) == int((high - low + 1).prod())


def test_the_papers_mask():
    hidden, scored = draw_masks(noise(4000, 196), "scatter", 14, 14, 100 / 196, 0.1)
    assert (scored.sum(1) == 100).all()
    assert (hidden.sum(1) == 90).all()
    # Every patch is hidden equally often, the first one too.
    share = hidden.float().mean(0)
    assert (share - 90 / 196).abs().max() < 0.04


def test_a_block_can_be_anywhere():
    hidden, _ = draw_masks(noise(600, 16), "block", 4, 4, 0.25, 0)
    assert (hidden.sum(1) == 4).all()
    corners = {int(h.nonzero()[0]) for h in hidden}
    assert corners == {0, 1, 2, 4, 5, 6, 8, 9, 10}


def test_test_masks_follow_mask_seed_part_and_index_alone():
    task, other = digits(0), digits(7)
    batch = task.source("test").batch([3, 40])
    assert torch.equal(batch["hidden"], other.source("test").batch([3, 40])["hidden"])
    assert torch.equal(batch["hidden"][1:], task.source("test").batch([40])["hidden"])
    every = task.fixed_masks("test", range(50)).hidden
    assert not torch.equal(every, task.fixed_masks("valid", range(50)).hidden)
    assert not torch.equal(every, digits(mask_seed=1).fixed_masks("test", range(50)).hidden)
    assert "hidden" not in task.source("train").batch([0])


# Patches and errors


@pytest.mark.parametrize("colour", [False, True])
def test_patches_by_their_definition(tmp_path, colour):
    task = on_arrays(tmp_path, random_pictures(colour=colour))
    facts, images = task.facts, task.pictures.test
    x = task.source("test").batch([1])["x"]
    assert x.shape == (1, 6, 12 if colour else 4)
    train = task.pictures.train.reshape(-1, 3 if colour else 1) / 255
    mean, deviation = train.mean(0), train.std(0)
    for a in range(6):
        row, column = divmod(a, 3)
        piece = images[1][2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        piece = (piece.reshape(2, 2, -1) / 255 - mean) / deviation
        assert x[0, a].tolist() == pytest.approx(piece.transpose(2, 0, 1).ravel(), abs=1e-5)
    back = facts.to_pictures(facts.from_patches(x))
    assert np.allclose(back[0], images[1] / 255, atol=1e-6)
    flags = torch.zeros(1, 6, dtype=torch.bool)
    flags[0, 4] = True
    spread = facts.spread(flags)[0]
    assert spread.nonzero().tolist() == [[2, 2], [2, 3], [3, 2], [3, 3]]


def test_objectives_by_hand():
    error = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])
    scored = torch.tensor([[True, False, True], [False, True, False]])
    assert objective(error, scored, "mse").item() == pytest.approx((1 + 4 + 16) / 3)
    assert objective(error, scored, "rmse").item() == pytest.approx((21 / 6) ** 0.5)


def test_the_training_loss_scores_visible_patches_too(tmp_path):
    """One hidden and one intact patch of each picture's four, against the definition."""
    task = on_arrays(tmp_path, random_pictures(height=4, width=4), mask_share=0.5, intact_share=0.5)
    x = task.source("train").batch(range(5))["x"]
    seen = []

    def model(patches, hidden):
        seen.append(hidden)
        return torch.zeros_like(patches)

    torch.manual_seed(3)
    loss, logged = task.loss(model, {"x": x})
    torch.manual_seed(3)
    mask = task.masks(torch.rand(5, 4))
    assert torch.equal(seen[0], mask.hidden)
    assert mask.hidden.sum() == 5
    assert mask.scored.sum() == 10
    assert loss.item() == pytest.approx(x[mask.scored].square().mean().item(), rel=1e-5)
    hidden = x[mask.hidden].square().mean().item()
    assert logged["masked_mse"].item() == pytest.approx(hidden, rel=1e-5)


@pytest.mark.parametrize("colour", [False, True])
def test_metrics_by_hand(tmp_path, colour):
    task = on_arrays(tmp_path, random_pictures(60, colour=colour))
    source = task.source("test")
    values = evaluate(task, Zero(), source, 5)
    batch = source.batch(range(len(source)))
    inside = batch["x"][batch["hidden"]].double()
    assert values["masked_mse"] == pytest.approx(inside.square().mean().item())
    # A normalised 0 is the mean pixel: in 0..1 the error is the distance from it.
    facts = task.facts
    pixels = task.pictures.test.reshape(len(source), 4, 6, facts.channels) / 255
    away = facts.spread(batch["hidden"]).numpy()
    want = np.square(pixels - np.array(facts.mean))[away].mean()
    assert values["masked_mse_unit"] == pytest.approx(want, rel=1e-4)
    assert task.baselines()["mean"] == pytest.approx(values["masked_mse"])


class Zero(torch.nn.Module):
    def forward(self, patches, hidden):
        return torch.zeros_like(patches)


def test_mirrored_pictures(tmp_path):
    task = on_arrays(tmp_path, random_pictures(), flip=True)
    x = task.source("train").batch(range(20))["x"]
    torch.manual_seed(0)
    turned = task._flipped(x)
    pictures, others = (task.facts.from_patches(t) for t in (x, turned))
    same = (pictures == others).flatten(1).all(1)
    mirrored = (pictures.flip(-1) == others).flatten(1).all(1)
    assert (same ^ mirrored).all()
    assert 0 < int(mirrored.sum()) < 20


# Neighbour fill


def dense_fill(picture, hidden):
    """Solves for every hidden pixel = mean of its neighbours inside the picture, densely."""
    height, width = picture.shape
    unknown = [(y, x) for y in range(height) for x in range(width) if hidden[y, x]]
    index = {place: i for i, place in enumerate(unknown)}
    a, b = np.zeros((len(unknown), len(unknown))), np.zeros(len(unknown))
    for (y, x), i in index.items():
        for place in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
            if not (0 <= place[0] < height and 0 <= place[1] < width):
                continue
            a[i, i] += 1
            if place in index:
                a[i, index[place]] -= 1
            else:
                b[i] += picture[place]
    out = picture.copy()
    for (y, x), value in zip(unknown, np.linalg.solve(a, b), strict=True):
        out[y, x] = value
    return out


@given(
    height=st.integers(1, 7),
    width=st.integers(1, 7),
    channels=st.sampled_from([1, 3]),
    share=st.floats(0.0, 0.95),
    seed=st.integers(0, 999),
)
def test_neighbour_fill_against_a_dense_solve(height, width, channels, share, seed):
    random = np.random.RandomState(seed)
    pictures = random.randn(4, channels, height, width)
    hidden = random.rand(4, height, width) < share
    hidden[:, 0, 0] = False
    got = harmonic_fill(torch.tensor(pictures), torch.tensor(hidden), tolerance=1e-12).numpy()
    for p, h, g in zip(pictures, hidden, got, strict=True):
        for channel in range(channels):
            np.testing.assert_allclose(g[channel], dense_fill(p[channel], h), atol=1e-8)
        assert (g[:, ~h] == p[:, ~h]).all()


def test_neighbour_fill_reads_nothing_hidden():
    pictures = torch.randn(2, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    hidden = torch.zeros(2, 6, 6, dtype=torch.bool)
    hidden[0, 2:5, 1:4] = True
    hidden[1] = True
    want = harmonic_fill(pictures, hidden)
    got = harmonic_fill(pictures.masked_fill(hidden[:, None], float("nan")), hidden)
    assert torch.equal(got, want)
    assert (got[1] == 0).all()  # nothing visible: the mean
    assert harmonic_fill(pictures[:0], hidden[:0]).shape == (0, 1, 6, 6)


# Data


def save(folder, name, picture):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(path)


def test_a_folder_of_pictures_without_classes(tmp_path):
    for i, picture in enumerate(random_pictures(20)):
        save(tmp_path, f"{'deep/er/' if i % 2 else ''}{i}.png", picture)
    found = load_pictures(tmp_path)
    assert [len(p) for p in (found.train, found.valid, found.test)] == [16, 2, 2]
    together = np.concatenate([found.train, found.valid, found.test])
    rows = {x.tobytes() for x in together}
    assert rows == {x.tobytes() for x in random_pictures(20)}
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for file in sorted(tmp_path.rglob("*.png")):
            archive.write(file, str(file.relative_to(tmp_path)))
    again = load_pictures(tmp_path / "all.zip")
    assert np.array_equal(again.train, found.train)


def test_named_parts_and_mixed_colours(tmp_path):
    for part, n in (("train", 5), ("val", 3), ("test", 2)):
        for i in range(n):
            colour = part == "val"
            save(tmp_path, f"{part}/{i}.png", random_pictures(1, colour=colour, seed=i)[0])
    found = load_pictures(tmp_path)
    assert [p.shape for p in (found.train, found.valid, found.test)] == [
        (5, 4, 6, 3),
        (3, 4, 6, 3),
        (2, 4, 6, 3),
    ]
    grey = load_pictures(tmp_path, channels="grey")
    assert grey.valid.shape == (3, 4, 6)
    assert np.array_equal(grey.train, found.train[..., 0])


def test_pictures_of_several_sizes(tmp_path):
    save(tmp_path, "a.png", random_pictures(1)[0])
    save(tmp_path, "b.png", random_pictures(1, height=9)[0])
    with pytest.raises(InputError, match=r"b\.png: expected a picture of 6x4.*--image-size"):
        load_pictures(tmp_path)
    for i in range(10):
        save(tmp_path, f"c{i}.png", random_pictures(1, height=9 + i, width=12)[0])
    found = load_pictures(tmp_path, size=8)
    assert found.train.shape[1:] == (8, 8)


def test_scaling_cuts_the_middle_out(tmp_path):
    picture = np.zeros((30, 10), np.uint8)
    picture[6:24] = 200  # the middle, and what the filter reaches beyond it
    np.save(tmp_path / "x.npy", np.stack([picture] * 12))
    found = load_pictures(tmp_path / "x.npy", size=5)
    assert (found.train == 200).all()
    floats = (np.stack([picture] * 12) / 255).astype(np.float32)
    np.savez(tmp_path / "x.npz", train_images=floats, test_images=floats[:2])
    found = load_pictures(tmp_path / "x.npz", size=5)
    assert found.peak == 1.0
    assert found.test.shape == (2, 5, 5)
    assert np.allclose(found.train, 200 / 255, atol=1e-6)


def test_digits_by_default():
    task = digits()
    assert len(task.source("train")) == 1259
    assert task.facts.spec == (task.facts.spec.__class__)(4, 4, 4)
    base = task.baselines()
    assert base["mean picture"] < base["neighbour fill"] < base["mean"] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(
    ("images", "options", "words"),
    [
        (random_pictures(), {"patch": 4}, "divisor of the width and height of 6x4, got 4; one of"),
        (random_pictures(height=4, width=4), {"patch": 4}, "smaller than the picture"),
        (random_pictures()[..., None], {}, r"pictures \(n, height, width\[, 3\]\)"),
        (random_pictures().astype(np.float32), {}, r"floats in \[0, 1\]"),
        (np.full((30, 4, 4), np.nan), {}, "finite pixels, got NaN or infinity in picture 0"),
        (random_pictures(2), {}, "more pictures are needed"),
        (np.zeros((0, 4, 4), np.uint8), {}, "at least one picture"),
    ],
)
def test_data_that_cannot_be(tmp_path, images, options, words):
    with pytest.raises(InputError, match=words):
        on_arrays(tmp_path, images, **options)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"patch": 0}, "patch"),
        ({"mask_share": 1.0}, "mask_share"),
        ({"intact_share": -0.1}, "intact_share"),
        ({"valid_share": 0.5, "test_share": 0.5}, "sum below 1"),
        ({"image_size": -1}, "image_size"),
    ],
)
def test_impossible_settings(bad, words):
    with pytest.raises(InputError, match=words):
        InpaintConfig(**bad)


def test_paths_without_pictures(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    for path, words in (
        (tmp_path, "expected pictures"),
        (tmp_path / "no", "no such path"),
        (tmp_path / "notes.txt", r"\*\.txt"),
    ):
        with pytest.raises(InputError, match=words):
            load_pictures(path)


# Runs


def trainer(path, task, model=SMALL, **options):
    torch.manual_seed(0)
    network = task.build(model)
    settings = {"steps": 12, "batch_size": 8, "eval_every": 5, "checkpoint_every": 3, "lr": 5e-3}
    settings = {**settings, "log_every": 1, "ema": 0.9, "device": "cpu", **options}
    if (path / "config.json").is_file():
        run = RunFolder.open(path)
    else:
        run = RunFolder.create(path, {"task": "inpaint"})
    return Trainer(task, network, TrainConfig(**settings), run, silent=True)


def test_resuming_is_exact_with_average_and_random_steps(tmp_path):
    task = digits(flip=True)
    model = replace(SMALL, random_steps=(1, 5), noise=0.1)
    whole = trainer(tmp_path / "whole", task, model)
    whole.conclude(whole.fit())
    first = trainer(tmp_path / "parts", task, model)
    original = first._update

    def update(stream):
        first._stop = first.at.step == 6
        return original(stream)

    first._update = update
    assert first.fit() == "interrupted"
    torch.manual_seed(999)
    second = trainer(tmp_path / "parts", task, model)
    second.resume()
    assert second.at.step == 7
    second.conclude(second.fit())
    assert second.run.result()["test"] == whole.run.result()["test"]
    logs = [
        [{k: v for k, v in line.items() if k != "seconds"} for line in read_metrics(t.run.metrics)]
        for t in (whole, second)
    ]
    assert logs[0] == logs[1]


def test_a_short_training_beats_the_means_and_keeps_every_law(tmp_path):
    task = digits()
    model = EnergyInpainterConfig(32, 16, settle_steps=4)
    made = trainer(tmp_path, task, model, steps=200, batch_size=32, eval_every=200, lr=1e-2)
    result = made.conclude(made.fit())
    assert result["test"]["masked_mse"] < 0.95 * result["baselines"]["mean picture"]
    batch = task.source("test").batch(range(32))
    energies = made.model.course(batch["x"], batch["hidden"]).energies
    assert (energies.diff(dim=0) < 0).all()
    certificate = certify(task, made.model, task.source("test"))
    assert certificate.holds
    laws = {(r.layer, r.law) for r in certificate.rows if r.holds}
    assert {("body", "descent"), ("body", "step"), ("body.blocks.0.norm", "positive")} <= laws
    shown = task.exhibits(made.model)
    exhibits.save(shown, tmp_path / "shown")
    assert len(exhibits.load(tmp_path / "shown")) == len(shown)
    _check_exhibits({x.title: x for x in shown}, result)


def _check_exhibits(shown, result):
    assert {type(x) for x in shown.values()} == {Table, Images, Curves, Heatmap}
    table = shown["Error on hidden patches"].rows
    assert table[0][1] == pytest.approx(result["test"]["masked_mse"])
    assert table[3][:2] == ("neighbour fill", pytest.approx(result["baselines"]["neighbour fill"]))
    grid = shown["Completions"]
    original, masked, completed = grid.images[0], grid.images[1], grid.images[2]
    same = original == masked
    assert same.any()
    assert not same.all()
    assert (original == completed)[same].all()  # what was visible stays
    _, energies = shown["Energy while settling"].series["mean"]
    assert len(energies) == 5
    assert energies == sorted(energies, reverse=True)
    assert "rose in 0 of" in shown["Energy while settling"].note
    curve = shown["Error against the number of steps"].series["masked MSE"]
    assert len(curve[0]) == 21
    attention = shown["Attention"].values
    np.testing.assert_allclose(attention.sum(-1), 1, atol=1e-5)
    assert np.allclose(shown["Where a hidden patch looks"].values.sum((1, 2)), 1, atol=1e-5)
    assert shown["Memories"].images.shape == (24, 2, 2)


def test_several_blocks_each_with_its_energy(tmp_path):
    """The report and the rows of predict against the network's own course."""
    task = digits()
    torch.manual_seed(0)
    model = task.build(replace(SMALL, blocks=3, settle_steps=2)).eval()
    batch = task.source("test").batch(range(256))
    with torch.no_grad():
        energies = model.course(batch["x"], batch["hidden"]).energies
        after = [model(batch["x"], batch["hidden"], steps=n) for n in (0, 2, 7)]
    assert energies.shape == (3, 3, 256)
    shown = {x.title: x for x in task.exhibits(model)}
    curves = shown["Energy while settling"]
    assert [s[0] for s in curves.series.values()] == [[0, 1, 2], [2, 3, 4], [4, 5, 6]]
    for (_, y), block in zip(curves.series.values(), energies, strict=True):
        assert y == pytest.approx(block.double().mean(1).tolist(), rel=1e-5)
    assert "of 1536 steps" in curves.note
    captions = shown["Settling of one picture"].captions
    values = [*energies[0, :, 0], *energies[1, 1:, 0], *energies[2, 1:, 0]]
    assert captions == [f"step {i}, E {float(e):.1f}" for i, e in enumerate(values)]
    steps, errors = shown["Error against the number of steps"].series["masked MSE"]
    assert steps == list(range(11))
    for n, out in zip((0, 2, 7), after, strict=True):
        want = (out - batch["x"]).square()[batch["hidden"]].mean()
        assert errors[n] == pytest.approx(float(want), rel=1e-5)
    assert "last of 3 blocks" in shown["Attention"].note
    np.savez(tmp_path / "one.npz", images=random_pictures(1, 8, 8))
    (row,) = task.predict(model, tmp_path / "one.npz")
    assert row["energy"] < row["first_energy"]
    task.write_predictions(model, tmp_path / "one.npz", tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames >= 5


def test_exhibits_of_networks_without_energy():
    task = digits()
    torch.manual_seed(0)
    model = task.build(TiedViTInpainterConfig(16, 2, repeats=2))
    titles = [x.title for x in task.exhibits(model, "train")]
    assert titles == ["Error on hidden patches", "Completions", "Error against the number of steps"]


# The command line


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    args = ["--steps", "20", "--width", "16", "--heads", "2", "--settle-steps", "4", "--no-report"]
    args += ["--random-steps", "2", "5", "--no-progress", "--threads", "1"]
    assert main(["train", "inpaint", "--out", str(out), *args]) == 0
    return out


@pytest.fixture
def picture(tmp_path):
    image = (np.arange(64).reshape(8, 8) * 4).astype(np.uint8)
    save(tmp_path, "picture.png", image)
    mask = np.zeros((8, 8), np.uint8)
    mask[2:4, 3:6] = 255
    save(tmp_path, "mask.png", mask)
    return image, mask > 0, tmp_path


def read(path):
    return np.asarray(Image.open(path))


def test_predict_fills_in_what_the_mask_marks(run, picture, capsys):
    image, marked, folder = picture
    source, mask, out = folder / "picture.png", folder / "mask.png", folder / "out.png"
    strip = folder / "strip.png"
    args = ["predict", str(run), str(source), "--mask", str(mask), "--out", str(out)]
    assert main([*args, "--strip", str(strip)]) == 0
    done = read(out)
    assert done.shape == (8, 8)
    assert np.array_equal(done[~marked], image[~marked])
    assert not np.array_equal(done[marked], image[marked])
    assert read(strip).shape[1] > read(strip).shape[0]
    # What is hidden does not matter, nor does the rest of a patch with a marked pixel.
    touched = np.kron(marked.reshape(4, 2, 4, 2).any((1, 3)), np.ones((2, 2))) > 0
    save(folder, "other.png", np.where(touched, 255 - image, image).astype(np.uint8))
    args[2], args[-1] = str(folder / "other.png"), str(folder / "second.png")
    assert main(args) == 0
    assert np.array_equal(read(folder / "second.png")[marked], done[marked])
    assert {p.name for p in folder.iterdir()} == {
        "picture.png", "mask.png", "out.png", "strip.png", "other.png", "second.png",
    }  # fmt: skip
    assert capsys.readouterr().err == ""


def test_predict_as_rows_and_film(run, picture, capsys):
    folder = picture[2]
    source = folder / "picture.png"
    capsys.readouterr()
    assert main(["predict", str(run), str(source)]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["patches"] == 16
    assert row["hidden"] == 7
    assert row["energy"] < row["first_energy"]
    assert row["masked_mse_unit"] > 0
    film = folder / "film.gif"
    assert main(["predict", str(run), str(source), "--out", str(film)]) == 0
    with Image.open(film) as opened:
        assert opened.n_frames >= 4  # equal neighbours may be merged
        assert opened.size == (192, 192)
    longer = ["predict", str(run), str(source), "--settle-steps", "9"]
    capsys.readouterr()
    assert main(longer) == 0
    assert json.loads(capsys.readouterr().out)["energy"] < row["energy"]
    save(folder, "second.png", random_pictures(1, 8, 8)[0])
    assert main(["predict", str(run), str(folder), "--out", str(folder / "rows.csv")]) == 0
    rows = (folder / "rows.csv").read_text().splitlines()
    assert [Path(x.split(",")[0]).name for x in rows[1:]] == [
        "film.gif", "mask.png", "picture.png", "second.png",
    ]  # fmt: skip


def test_predict_brings_pictures_to_size(run, tmp_path, capsys):
    big = np.random.RandomState(0).randint(0, 256, (40, 80, 3), dtype=np.uint8)
    marked = np.zeros((40, 80), np.uint8)
    marked[17, 38] = 255  # one pixel, which scaling must not lose
    save(tmp_path, "mask.png", marked)
    results = []
    for value in (0, 255):  # what the marked pixel holds is nowhere in the result
        big[17, 38] = value
        save(tmp_path, "big.png", big)
        out = tmp_path / f"done{value}.png"
        args = [str(run), str(tmp_path / "big.png"), "--mask", str(tmp_path / "mask.png")]
        assert main(["predict", *args, "--out", str(out)]) == 0
        assert "80x40, scaled and cut to the network's 8x8" in capsys.readouterr().err
        results.append(read(out))
    assert results[0].shape == (8, 8)
    assert np.array_equal(*results)
    assert main(["predict", *args]) == 0
    assert 1 <= json.loads(capsys.readouterr().out)["hidden"] <= 4


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--mask", "wide.png"], "mask: expected the picture's size of 8x8, got 9x8"),
        (["--mask", "black.png"], "mask: expected white pixels"),
        (["--mask", "white.png"], "mask: expected a visible patch"),
        (["--mask", "none.png"], "mask: cannot read"),
        (["--strip", "x.jpg"], "ending in .png"),
        (["--strip", "no/x.png"], "strip: cannot write"),
        (["--settle-steps", "0"], "settle_steps"),
        (["--msk", "mask.png"], "did you mean --mask"),
    ],
)
def test_predict_says_what_is_wrong(run, picture, capsys, monkeypatch, more, words):
    folder = picture[2]
    monkeypatch.chdir(folder)
    save(folder, "wide.png", np.full((8, 9), 255, np.uint8))
    save(folder, "black.png", np.zeros((8, 8), np.uint8))
    save(folder, "white.png", np.full((8, 8), 255, np.uint8))
    assert main(["predict", str(run), "picture.png", "--out", "o.png", *more]) == 2
    assert words in capsys.readouterr().err
    assert not (folder / "o.png").exists()
    assert not [p for p in Path().iterdir() if ".tmp" in p.name]


def test_several_pictures_do_not_make_one(run, picture, capsys):
    folder = picture[2]
    assert main(["predict", str(run), str(folder), "--out", str(folder / "o.png")]) == 2
    assert "one picture for a .png file" in capsys.readouterr().err


def test_options_of_the_task_are_in_the_help(run, capsys):
    with pytest.raises(SystemExit):
        main(["predict", str(run), "--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("--mask", "--strip", "--settle-steps", "--out"))


def test_check_and_evaluate_elsewhere(run, tmp_path, capsys):
    assert main(["check", str(run)]) == 0
    assert "descent" in capsys.readouterr().out
    np.savez(tmp_path / "other.npz", images=random_pictures(40, 8, 8))
    args = ["evaluate", str(run), "--data", str(tmp_path / "other.npz")]
    assert main(args) == 0
    assert "test masked_mse:" in capsys.readouterr().out
    np.savez(tmp_path / "wide.npz", images=random_pictures(40, 8, 10))
    args[-1] = str(tmp_path / "wide.npz")
    assert main(args) == 2
    assert "expected pictures of 8x8 grey, as trained, got 10x8" in capsys.readouterr().err


def test_it_is_registered():
    assert get_task("inpaint") is InpaintTask


def test_the_guide():
    guide = Path(__file__).parents[2] / "docs" / "guide" / "inpainting.md"
    torch.manual_seed(0)
    outcome = doctest.testfile(str(guide), module_relative=False)
    assert outcome.attempted > 10
    assert outcome.failed == 0
