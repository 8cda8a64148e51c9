"""The running average of the weights: its formula, and what of a run goes by it."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from lawful.errors import InputError
from lawful.training import RunFolder, TrainConfig, Trainer, load_weights
from lawful.training._average import WeightAverage

from .toy import ToyConfig, ToyModel, ToyTask

CONFIG = TrainConfig(
    steps=20, batch_size=7, eval_every=5, checkpoint_every=3, log_every=1, lr=0.05, ema=0.9,
    device="cpu", schedule="cosine",
)  # fmt: skip


def make(path, config=CONFIG):
    task = ToyTask(ToyConfig(), 0)
    task.load()
    torch.manual_seed(0)
    model = task.build(ToyModel())
    run = RunFolder(path)
    if not (path / "config.json").is_file():
        run = RunFolder.create(path, {"task": "toy"})
    return Trainer(task, model, config, run, silent=True)


def test_the_average_by_its_formula():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    average = WeightAverage(model, 0.7)
    want = None
    for n in range(30):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p))
        model(torch.randn(4, 2))
        now = [p.detach().clone() for p in model.parameters()]
        d = min(0.7, n / (n + 9))
        want = (
            now if want is None else [d * a + (1 - d) * b for a, b in zip(want, now, strict=True)]
        )
        average.update(model)
    for got, expected in zip(average.model.parameters(), want, strict=True):
        torch.testing.assert_close(got, expected)
    assert average.count == 30
    for got, expected in zip(average.model.buffers(), model.buffers(), strict=True):
        assert torch.equal(got, expected)


def test_the_average_is_evaluated_and_kept(tmp_path):
    trainer = make(tmp_path)
    trainer.fit()
    trained = [p.detach().clone() for p in trainer.model.parameters()]
    averaged = list(trainer.average.model.parameters())
    assert any(not torch.allclose(a, b) for a, b in zip(trained, averaged, strict=True))
    kept = ToyTask(ToyConfig(), 0).build(ToyModel())
    load_weights(kept, trainer.run.checkpoint("last"))
    assert all(torch.equal(a, b) for a, b in zip(kept.parameters(), averaged, strict=True))
    last = [json.loads(x) for x in trainer.run.metrics.read_text().splitlines()]
    last = [x for x in last if x["split"] == "valid"][-1]["mse"]
    batch = trainer.task.source("valid").batch(range(20))
    with torch.no_grad():
        error = (kept.eval()(batch["x"]) - batch["y"]).square().mean()
    assert last == pytest.approx(float(error), rel=1e-5)


def test_interrupted_and_resumed_equals_uninterrupted(tmp_path):
    whole = make(tmp_path / "whole")
    whole.conclude(whole.fit())
    first = make(tmp_path / "parts")
    original = first._update

    def update(stream):
        first._stop = first.at.step == 7
        return original(stream)

    first._update = update
    assert first.fit() == "interrupted"
    torch.manual_seed(999)
    second = make(tmp_path / "parts")
    second.resume()
    assert second.at.step == 8
    assert second.average.count == 8
    second.conclude(second.fit())
    assert all(
        torch.equal(a, b)
        for a, b in zip(second.model.parameters(), whole.model.parameters(), strict=True)
    )
    assert second.run.result()["test"] == whole.run.result()["test"]


def test_impossible_decay():
    for bad in (-0.1, 1.0, float("nan")):
        with pytest.raises(InputError, match=r"ema: expected a number in \[0, 1\)"):
            replace(CONFIG, ema=bad)
