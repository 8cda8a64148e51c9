import json
import math

import numpy as np
import pytest
from report_synthetic import write_run

from lawful.errors import InputError
from lawful.reports._run import read_run


def folder(tmp_path, lines, **files):
    (tmp_path / "config.json").write_text(json.dumps({"task": "t", "model": "m"}))
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text)
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(content)
    return tmp_path


def row(step, split="train", **values):
    return {"step": step, "split": split, **values}


def test_a_whole_run(tmp_path):
    run = read_run(write_run(tmp_path / "r", full=False))
    assert (run.task, run.model, run.metric, run.last_step) == ("pixels", "sab", "accuracy", 2000)
    assert run.notes == []
    assert run.metrics["train"]["loss"].steps.size == 400
    assert run.metrics["valid"]["accuracy"].steps.tolist() == list(range(100, 2001, 100))


def test_a_resumed_run_reads_like_one_that_was_never_stopped(tmp_path):
    whole = [row(s, loss=1.0 / s) for s in range(1, 21)]
    valid = [row(s, "valid", loss=2.0 / s) for s in (5, 10, 15, 20)]
    # killed at 14, resumed from the checkpoint of step 10; what came after it is logged anew
    lost = [row(s, loss=99.0) for s in range(11, 15)]
    lines = [*whole[:10], valid[0], valid[1], *lost, row(12, "valid", loss=99.0)]
    lines += [*whole[10:], *valid[2:], row(10, "test", loss=0.5)]
    run = read_run(folder(tmp_path, lines))
    train = run.metrics["train"]["loss"]
    assert train.steps.tolist() == list(range(1, 21))
    assert train.values.tolist() == [1.0 / s for s in range(1, 21)]
    assert run.metrics["valid"]["loss"].steps.tolist() == [5, 10, 15, 20]
    assert run.metrics["valid"]["loss"].values.tolist() == [2.0 / s for s in (5, 10, 15, 20)]
    assert run.metrics["test"]["loss"].values.tolist() == [0.5]


def test_records_of_one_step_are_merged(tmp_path):
    run = read_run(folder(tmp_path, [row(1, loss=1.0), row(1, lr=0.1), row(1, loss=2.0)]))
    assert run.metrics["train"]["loss"].values.tolist() == [2.0]
    assert run.metrics["train"]["lr"].values.tolist() == [0.1]


def test_a_cut_off_last_line_is_left_out_with_a_note(tmp_path):
    run = read_run(folder(tmp_path, [row(1, loss=1.0), '{"step": 2, "spl']))
    assert run.metrics["train"]["loss"].steps.tolist() == [1]
    assert "The last line of metrics.jsonl is cut off and was left out." in run.notes


@pytest.mark.parametrize(
    "bad",
    [
        "\n\nnonsense\n",
        "[1]\n",
        '{"loss": 1}\n',
        '{"step": "x"}\n',
        '{"step": NaN, "loss": 1}\n',
    ],
)
def test_other_bad_lines_are_left_out_with_their_number(tmp_path, bad):
    run = read_run(folder(tmp_path, [row(1, loss=1.0), bad, row(3, loss=3.0)]))
    assert run.metrics["train"]["loss"].steps.tolist() == [1, 3]
    assert any("Unreadable lines" in n and "line" in n for n in run.notes)


def test_values_that_are_not_finite_are_kept_as_such(tmp_path):
    values = [math.nan, math.inf, -math.inf, None, "NaN"]
    run = read_run(folder(tmp_path, [row(i, loss=v) for i, v in enumerate(values)]))
    got = run.metrics["train"]["loss"].values
    assert np.array_equal(got, [math.nan, math.inf, -math.inf, math.nan, math.nan], equal_nan=True)


def test_fields_that_are_no_numbers_are_ignored(tmp_path):
    lines = [row(1, loss=1.0, phase="warm", flag=True, list=[1])]
    assert set(read_run(folder(tmp_path, lines)).metrics["train"]) == {"loss"}


def test_missing_files_are_said(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    run = read_run(tmp_path)
    text = " ".join(run.notes)
    for part in ("environment.json", "result.json", "No metrics"):
        assert part in text
    assert "certificate" not in text  # optional
    assert (run.task, run.model, run.last_step) == ("unknown task", "unknown model", 0)


def test_damaged_optional_files_are_said(tmp_path):
    run = read_run(folder(tmp_path, [], result="{", environment="[]", certificate="nope"))
    text = " ".join(run.notes)
    assert "result.json could not be read" in text
    assert "environment.json was left out" in text
    assert "certificate.json could not be read" in text


def test_what_is_no_run_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"without config\.json"):
        read_run(tmp_path)
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(InputError, match="a file"):
        read_run(file)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="settings as JSON"):
        read_run(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(InputError, match="a JSON object"):
        read_run(tmp_path)
