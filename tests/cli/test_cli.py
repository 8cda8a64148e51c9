import ast
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from lawful.cli import _COMMANDS, main
from lawful.cli._settings import resolve
from lawful.errors import InputError
from lawful.laws import Law, Measurement, _check
from lawful.memory import SAB
from lawful.tasks import TASKS, get_task
from lawful.training import TrainConfig, read_metrics

QUICK = [
    "--blanks", "3", "--hidden", "8", "--steps", "12", "--batch-size", "4", "--eval-every", "4",
    "--checkpoint-every", "2", "--valid-size", "8", "--test-size", "8", "--log-every", "1",
    "--no-progress", "--no-report",
]  # fmt: skip


QUIET = QUICK[-2:]


def train(*args):
    return main(["train", "copying", *QUICK, *map(str, args)])


def lines(run):
    return [
        {k: v for k, v in x.items() if k != "seconds"} for x in read_metrics(run / "metrics.jsonl")
    ]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = tmp_path_factory.mktemp("cli") / "run"
    assert train("--out", run, "--report") == 0
    return run


def test_a_run_leaves_everything_behind(finished):
    for name in (
        "config.json", "environment.json", "metrics.jsonl", "result.json", "report.html",
        "exhibits/exhibits.json", "checkpoints/index.json", "task_state.json",
    ):  # fmt: skip
        assert (finished / name).is_file(), name
    result = json.loads((finished / "result.json").read_text())
    assert result["status"] == "finished"
    assert result["steps"] == 12
    assert 0 <= result["test"]["accuracy"] <= 1
    assert not list(finished.rglob("*.tmp*"))


def test_evaluate_and_predict_with_other_settings_of_the_task(finished, tmp_path, capsys):
    out = tmp_path / "far.json"
    args = ["evaluate", str(finished), "--set", "eval_blanks=7", "also-blanks=2,9", "--out"]
    assert main([*args, str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["set"] == ["eval_blanks=7", "also-blanks=2,9"]
    assert {"accuracy", "accuracy_2", "accuracy_9"} <= set(found)
    (tmp_path / "digits.txt").write_text("1234567812\n")
    capsys.readouterr()
    said = [str(finished), str(tmp_path / "digits.txt"), "--set", "blanks=6"]
    assert main(["predict", *said]) == 0
    assert json.loads(capsys.readouterr().out)["input"] == "1234567812"
    for bad in ("nothing=3", "blanks", "hidden=9"):
        assert main(["evaluate", str(finished), "--set", bad]) == 2
        assert "set: expected name=value with one of blanks" in capsys.readouterr().err
    assert main(["evaluate", str(finished), "--set", "eval_blanks=x"]) == 2
    assert "eval-blanks" in capsys.readouterr().err.replace("_", "-")


def test_evaluate_gives_the_numbers_of_the_run(finished, tmp_path, capsys):
    out = tmp_path / "again.json"
    assert main(["evaluate", str(finished), "--out", str(out)]) == 0
    test = json.loads((finished / "result.json").read_text())["test"]
    again = json.loads(out.read_text())
    assert {k: again[k] for k in test} == test
    assert f"test accuracy: {test['accuracy']:.6g}" in capsys.readouterr().out


def test_check_certifies_the_trained_layers(finished, capsys):
    assert main(["check", str(finished), "--examples", "4"]) == 0
    shown = capsys.readouterr().out
    assert "few are recalled" in shown
    assert "0 broken" in shown
    stored = json.loads((finished / "certificate.json").read_text())
    assert stored["holds"] is True
    assert {"few are recalled", "credit goes only there", "deterministic"} <= {
        row["law"] for row in stored["rows"] if row["holds"]
    }


def test_check_exits_with_1_when_a_law_is_broken(finished, monkeypatch, capsys):
    impossible = Law("tiny", "weights are tiny", "test", lambda call: Measurement(3.0, 1, "w"), 1.0)
    monkeypatch.setitem(_check._declared, SAB, (*_check._declared[SAB], impossible))
    assert main(["check", str(finished), "--examples", "2"]) == 1
    assert "weights are tiny" in capsys.readouterr().out
    assert main(["check", str(finished), "--examples", "0"]) == 2


def test_laws_are_logged_as_curves_while_training(tmp_path):
    assert train("--out", tmp_path / "run", "--steps", "4", "--check-every", "2") == 0
    logged = [x for x in lines(tmp_path / "run") if x["split"] == "laws"]
    assert [x["step"] for x in logged] == [2, 4]
    assert all(any("few are recalled" in name for name in x) for x in logged)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["trian"], "got 'trian'; did you mean train?"),
        (["train", "copyng"], "did you mean copying?"),
        (["train", "--lr", "3"], "name a task first"),
        (["train", "copying", "--hiden", "3"], "--hiden, 3; did you mean --hidden?"),
        (["train", "copying", "--lr", "fast"], "--lr: could not convert string to float: 'fast'"),
        (["train", "copying", "--lr", "-1"], "lr: expected a finite number >= 0, got -1.0"),
        (["train", "copying", "--optimizer", "adem"], "Expected one of ('adamw', 'adam'"),
        (["train", "copying", "--model", "sabb"], "'sabb' is not one of the models of copying"),
        (["train", "copying", "--k-att", "0"], "k_att: expected"),
        (["train", "copying", "--k-trunc", "0"], "k_trunc: expected"),
        (["train", "copying", "--resume"], "name the run folder to continue with --out"),
        (["train", "pixels", "--data", "/nowhere"], "/nowhere: expected a folder or file"),
        (["train", "copying", "--config", "/nowhere.yaml"], "cannot read /nowhere.yaml"),
        (["evaluate", "/nowhere"], "/nowhere is not a run folder"),
        (["predict", "/nowhere", "/nowhere"], "input: /nowhere does not exist"),
        (["report"], "name at least one run folder"),
        (["doctor", "please"], "takes no arguments"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(args, message, capsys):
    assert main(args) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("lawful: ")
    assert error.count("\n") == 1


def test_a_run_is_not_overwritten(finished, capsys):
    before = (finished / "metrics.jsonl").read_text()
    assert train("--out", finished) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert (finished / "metrics.jsonl").read_text() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [(["--lr", "9"], "lr=0.001, not 9.0"), (["--model", "lstm"], "model=sab, not lstm")],
)
def test_resume_under_other_settings_is_refused(finished, change, message, capsys):
    assert main(["train", "copying", "--out", str(finished), "--resume", *change]) == 2
    assert message in capsys.readouterr().err


def test_a_run_from_before_a_setting_existed_is_resumed_with_its_default(finished, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(finished, old)
    config = json.loads((old / "config.json").read_text())
    del config["train_config"]["ema"]
    (old / "config.json").write_text(json.dumps(config))
    arguments = ["--out", str(old), "--resume"]
    assert resolve("copying", arguments).train_config.ema == TrainConfig().ema
    with pytest.raises(InputError, match="started with ema=0"):
        resolve("copying", [*arguments, "--ema", "0.5"])


def test_resume_of_another_task_is_refused(finished, capsys):
    assert main(["train", "adding", "--out", str(finished), "--resume"]) == 2
    assert "holds a run of task 'copying'" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_named(tmp_path, capsys):
    (tmp_path / "file").write_text("not a folder")
    assert train("--out", tmp_path / "file" / "run") == 2
    assert "cannot write to" in capsys.readouterr().err


def test_config_files_set_what_options_set_and_options_win(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("lr: 0.25\nhidden: 7\nmodel: lstm\nout: null\nprogress: false\n")
    settings = resolve("copying", ["--config", str(path), "--hidden", "9"])
    assert settings.model == "lstm"
    assert settings.train_config.lr == 0.25
    assert settings.model_config.hidden == 9
    path = tmp_path / "settings.json"
    path.write_text('{"blanks": 77}')
    assert resolve("copying", ["--config", str(path)]).task_config.blanks == 77


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lerning_rate: 1", "--lerning-rate"),
        ("lr: much", "--lr"),
        ("- 1", "must map names to values"),
        ("lr: [", "is not valid"),
        ("lr: {a: 1}", "must be a plain value"),
    ],
)
def test_bad_config_files_are_refused(tmp_path, text, message, capsys):
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    assert main(["train", "copying", "--config", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_divergence_is_a_failure_of_ours(tmp_path, capsys):
    out = tmp_path / "run"
    assert train("--out", out, "--lr", "1e30", "--optimizer", "sgd", "--clip", "0") == 1
    assert "lawful: step" in capsys.readouterr().err
    assert json.loads((out / "result.json").read_text())["status"] == "diverged"


@pytest.mark.parametrize("command", list(_COMMANDS))
def test_every_command_has_help(command, capsys):
    try:
        code = main([command, "--help"])
    except SystemExit as stop:
        code = stop.code
    assert code == 0
    assert "usage: lawful" in capsys.readouterr().out


def undocumented(config):
    """Fields of a config class without a docstring below them, which is their text in --help."""
    body = ast.parse(inspect.cleandoc(inspect.getsource(config))).body[0].body
    fields = [(i, n.target.id) for i, n in enumerate(body) if isinstance(n, ast.AnnAssign)]
    described = {i for i, n in enumerate(body) if isinstance(n, ast.Expr)}
    return [name for i, name in fields if i + 1 not in described]


@pytest.mark.parametrize("task", list(TASKS))
def test_every_option_of_every_task_and_model_has_a_meaning(task, capsys):
    for model in get_task(task).models:
        with pytest.raises(SystemExit) as stop:
            main(["train", task, "--model", model, "--help"])
        assert stop.value.code == 0
    for config in (get_task(task).Config, TrainConfig, *get_task(task).models.values()):
        assert undocumented(config) == []
    assert "(default:" in capsys.readouterr().out


def test_tasks_lists_all(capsys):
    assert main(["tasks"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in TASKS)


def run_cli(*args, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "lawful.cli", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )


@pytest.mark.slow
@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGKILL])
def test_killing_and_resuming_gives_the_numbers_of_no_kill(tmp_path, kill):
    long = [*QUICK, "--steps", "60", "--checkpoint-every", "7", "--dropout", "0.1"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["train", "copying", *long, "--out", str(whole)]) == 0
    process = run_cli("train", "copying", *long, "--out", parts)
    deadline = time.monotonic() + 120
    while len(lines(parts) if (parts / "metrics.jsonl").exists() else []) < 15:
        assert time.monotonic() < deadline, "the run never started"
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.05)
    process.send_signal(kill)
    output, _ = process.communicate(timeout=120)
    if kill == signal.SIGINT:
        assert process.returncode == 130, output
        assert "continue with --out" in output
        assert json.loads((parts / "result.json").read_text())["status"] == "interrupted"
    assert main(["train", "copying", "--out", str(parts), "--resume", *QUIET]) == 0
    assert lines(parts) == lines(whole)
    old, new = (json.loads((r / "result.json").read_text()) for r in (whole, parts))
    assert old["test"] == new["test"]


@pytest.mark.slow
def test_two_processes_compute_what_one_does(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    assert train("--out", one) == 0
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    command += ["-m", "lawful.cli", "train", "copying", *QUICK, "--out", str(two)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    for a, b in zip(lines(one), lines(two), strict=True):
        assert (a["step"], a["split"]) == (b["step"], b["split"])
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
