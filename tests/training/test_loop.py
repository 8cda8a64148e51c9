import json
import os
import signal
from collections import Counter
from dataclasses import replace

import pytest
import torch

from lawful.errors import InputError, TrainingDivergedError
from lawful.training import RunFolder, TrainConfig, Trainer, read_metrics
from lawful.training._optim import lr_factor
from lawful.training._order import Share, training_batches, update_indices
from tests.training.toy import ToyConfig, ToyModel, ToySource, ToyTask

SMALL = TrainConfig(steps=23, batch_size=8, eval_every=5, checkpoint_every=3, log_every=1)


def make(tmp_path, config=SMALL, task_config=None, seed=0, name="run"):
    task = ToyTask(task_config or ToyConfig(), seed)
    task.load()
    torch.manual_seed(seed)
    model = task.build(ToyModel())
    path = tmp_path / name
    run = RunFolder.open(path) if path.exists() else RunFolder.create(path, {"task": "toy"})
    return Trainer(task, model, config, run, silent=True)


def stop_after(trainer, step):
    """Makes the process send itself Ctrl-C during an update."""
    original = trainer._update

    def update(stream):
        if trainer.at.step == step - 1:
            os.kill(os.getpid(), signal.SIGINT)
        return original(stream)

    trainer._update = update


def lines(run):
    return [{k: v for k, v in x.items() if k != "seconds"} for x in read_metrics(run.metrics)]


def weights(trainer):
    return [p.detach().clone() for p in trainer.model.parameters()]


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd", "adagrad"])
@pytest.mark.parametrize("schedule", ["cosine", "plateau", "halving", "staircase"])
def test_interrupted_and_resumed_equals_uninterrupted(tmp_path, optimizer, schedule):
    more = {"halve_every": 4} if schedule == "staircase" else {}
    config = replace(SMALL, optimizer=optimizer, schedule=schedule, lr=0.05, batch_size=7, **more)
    whole = make(tmp_path, config, name="whole")
    whole.conclude(whole.fit())

    first = make(tmp_path, config, name="parts")
    stop_after(first, 8)
    assert first.fit() == "interrupted"
    assert first.conclude("interrupted")["steps"] == 8
    torch.manual_seed(999)  # another process would not have our generator's state
    second = make(tmp_path, config, name="parts", seed=0)
    second.resume()
    assert second.at.step == 8
    second.conclude(second.fit())

    assert lines(second.run) == lines(whole.run)
    assert all(torch.equal(a, b) for a, b in zip(weights(second), weights(whole), strict=True))
    old, new = whole.run.result(), second.run.result()
    assert {k: v for k, v in old.items() if k != "seconds"} == {
        k: v for k, v in new.items() if k != "seconds"
    }


def test_killed_run_resumes_from_its_last_checkpoint(tmp_path):
    """Nothing runs after SIGKILL, so the log is ahead of the checkpoint and may be torn."""
    whole = make(tmp_path, name="whole")
    whole.conclude(whole.fit())

    killed = make(tmp_path, name="killed")
    original = killed._update

    def update(stream):
        if killed.at.step == 11:
            raise MemoryError("as good as SIGKILL: nothing is saved on the way out")
        return original(stream)

    killed._update = update
    with pytest.raises(MemoryError):
        killed.fit()
    with killed.run.metrics.open("a") as file:
        file.write('{"step": 12, "lo')
    resumed = make(tmp_path, name="killed")
    resumed.resume()
    assert resumed.at.step == 10
    resumed.conclude(resumed.fit())
    assert lines(resumed.run) == lines(whole.run)
    assert resumed.run.result()["test"] == whole.run.result()["test"]


def test_resume_without_checkpoint_starts_over(tmp_path):
    make(tmp_path)
    again = make(tmp_path)
    again.resume()
    assert again.at.step == 0
    assert again.fit() == "finished"


def test_nonfinite_loss_stops_names_the_step_and_keeps_the_last_checkpoint(tmp_path):
    config = replace(SMALL, batch_size=1, lr=0.01)
    source = ToySource(50, 0)
    bad = update_indices(source, 0, 9, 1)[0]
    trainer = make(tmp_path, config, ToyConfig(poison=bad))
    with pytest.raises(TrainingDivergedError, match=r"step 10: the loss is nan.*step-00000009"):
        trainer.fit()
    assert trainer.run.result()["status"] == "diverged"
    checkpoint = trainer.run.checkpoint("last")
    assert checkpoint.name == "step-00000009"
    again = make(tmp_path, config, ToyConfig(poison=bad))
    again.resume()
    assert all(p.isfinite().all() for p in again.model.parameters())


def test_best_checkpoint_is_the_one_with_the_best_validation_metric(tmp_path):
    trainer = make(tmp_path, replace(SMALL, lr=0.1, eval_every=1, steps=40))
    result = trainer.conclude(trainer.fit())
    valid = {x["step"]: x["mse"] for x in lines(trainer.run) if x["split"] == "valid"}
    assert result["best_step"] == min(valid, key=valid.get)
    assert result["best_valid"]["mse"] == min(valid.values())
    kept = {p.name for p in trainer.run.checkpoints.iterdir() if p.is_dir()}
    assert kept == {f"step-{result['best_step']:08d}", "step-00000040"}


def test_early_stopping(tmp_path):
    config = replace(SMALL, lr=1e-12, eval_every=1, patience=3, steps=50)
    trainer = make(tmp_path, config)
    assert trainer.fit() == "stopped early"
    assert trainer.at.step <= 50 - 1
    assert trainer.at.bad_evaluations == 3
    again = make(tmp_path, config)
    again.resume()
    assert again.fit() == "stopped early"
    assert again.at.step == trainer.at.step


def test_accumulation_gives_the_same_update(tmp_path):
    """Without dropout the mean over parts is the mean over the batch."""
    runs = []
    for accumulate in (1, 4):
        config = replace(SMALL, accumulate=accumulate, optimizer="sgd", lr=0.1)
        trainer = make(tmp_path, config, name=f"a{accumulate}")
        trainer.model[2].p = 0.0
        trainer.fit()
        runs.append(weights(trainer))
    for a, b in zip(*runs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_batch_that_cannot_be_split_is_refused(tmp_path):
    with pytest.raises(InputError, match="batch_size"):
        replace(SMALL, accumulate=3)


def test_clipping_bounds_the_gradient_that_is_applied(tmp_path):
    trainer = make(tmp_path, replace(SMALL, optimizer="sgd", lr=1.0, clip=0.01, steps=1))
    before = weights(trainer)
    trainer.fit()
    moved = sum(
        (a - b).square().sum() for a, b in zip(weights(trainer), before, strict=True)
    ).sqrt()
    assert 0.0099 < moved < 0.0101
    assert lines(trainer.run)[0]["grad_norm"] > 0.01  # the norm before clipping is what is logged


def test_epochs_take_the_place_of_steps(tmp_path):
    trainer = make(tmp_path, replace(SMALL, epochs=2.0, batch_size=10))
    trainer.fit()
    assert trainer.at.step == 10
    assert Counter(trainer.task.seen) == Counter(list(range(50)) * 2)


def test_every_epoch_sees_every_example_once_even_when_batches_straddle():
    source = ToySource(50, 0)
    stream = training_batches(source, seed=3, start=0, stop=50, size=8, share=Share(1))
    seen = torch.cat([b["index"] for b in stream]).tolist()
    for epoch in range(8):
        assert sorted(seen[epoch * 50 : (epoch + 1) * 50]) == list(range(50))
    assert seen[:50] != seen[50:100]


def test_processes_and_parts_share_the_same_examples():
    source = ToySource(50, 0)
    want = update_indices(source, 5, 7, 12)
    shares = [Share(3, rank, 2).of(want, part) for part in range(3) for rank in range(2)]
    assert [i for share in shares for i in share] == want


def test_data_workers_do_not_change_the_batches():
    source = ToySource(20, 0)
    options = {"seed": 1, "start": 2, "stop": 6, "size": 4, "share": Share(2)}
    plain = [b["index"].tolist() for b in training_batches(source, **options)]
    worked = [b["index"].tolist() for b in training_batches(source, **options, workers=1)]
    assert plain == worked


def test_an_existing_run_is_never_overwritten(tmp_path):
    make(tmp_path)
    with pytest.raises(InputError, match="holds a run already"):
        RunFolder.create(tmp_path / "run", {})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="not empty"):
        RunFolder.create(tmp_path / "other", {})
    assert (tmp_path / "other" / "thesis.tex").read_text() == "precious"


def test_damaged_checkpoint_is_named(tmp_path):
    trainer = make(tmp_path)
    trainer.fit()
    path = trainer.run.checkpoint("last") / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=r"cannot load .*model\.safetensors"):
        make(tmp_path).resume()


def test_logs_are_json_and_tensorboard(tmp_path):
    trainer = make(tmp_path)
    trainer.fit()
    for line in trainer.run.metrics.read_text().splitlines():
        json.loads(line)
    assert [x["step"] for x in lines(trainer.run) if x["split"] == "train"] == list(range(1, 24))
    assert list(trainer.run.tensorboard.glob("events.*"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("batch_size", 0),
        ("steps", 0),
        ("lr", 0.0),
        ("lr", float("nan")),
        ("clip", -1.0),
        ("epochs", 0.0),
        ("patience", -1),
        ("momentum", 0.9),
    ],
)
def test_impossible_settings_name_the_field(field, value):
    with pytest.raises(InputError, match=field):
        TrainConfig(**{field: value})


def test_the_staircase_halves_after_so_many_updates():
    config = TrainConfig(schedule="staircase", halve_every=3, lr=0.8, min_lr=0.15, warmup=2)
    rates = [lr_factor(step, 20, config) * config.lr for step in range(12)]
    assert rates == pytest.approx([0.4, 0.8] + [0.8] * 3 + [0.4] * 3 + [0.2] * 3 + [0.15])
    with pytest.raises(InputError, match="halve_every"):
        TrainConfig(schedule="staircase")
    assert TrainConfig(halve_every=3).schedule == "constant"
