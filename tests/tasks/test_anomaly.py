"""The anomaly task: splits, metrics against slow definitions, training, sampling, prediction."""

import csv
import json

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from lawful.cli import main
from lawful.errors import InputError
from lawful.models import NODE_MODELS, BetaWavelets
from lawful.tasks import batches, get_task
from lawful.tasks.anomaly import AnomalyConfig, AnomalyTask
from lawful.tasks.anomaly._measure import best_threshold, intervals, measure
from lawful.tasks.anomaly._trees import neighbour_means
from lawful.tasks.exhibits import Graph, Table, load, save
from lawful.tasks.graphdata import camouflaged_rings, connect, write_tables
from lawful.training import evaluate


@pytest.fixture
def folder(tmp_path):
    write_tables(camouflaged_rings(400, rings=8, known=0.9), tmp_path / "graph")
    return tmp_path / "graph"


def made(folder, model="sage", **kwargs):
    task = AnomalyTask(AnomalyConfig(bootstrap=20, trees=False, **kwargs), 0, folder)
    task.load()
    torch.manual_seed(0)
    return task, task.build(NODE_MODELS[model](width=8, dropout=0.0))


def test_parts_are_stratified_and_apart(folder):
    task, _ = made(folder, train_share=0.4)
    labels, parts = task.graph.labels, task.parts
    every = np.concatenate(list(parts.values()))
    assert sorted(every.tolist()) == np.flatnonzero(labels >= 0).tolist()
    for value in (0, 1):
        total = (labels == value).sum()
        sizes = [(labels[parts[p]] == value).sum() for p in ("train", "valid", "test")]
        assert np.abs(np.array(sizes) - total * np.array([0.4, 0.2, 0.4])).max() <= 1
    other = AnomalyTask(AnomalyConfig(), 1, folder)
    other.load()
    assert other.parts["train"].tolist() != parts["train"].tolist()


def test_given_parts_and_lacking_classes(tmp_path):
    y, masks = np.array([0, 1] * 6), np.zeros((2, 12), bool)
    x, edges = np.random.default_rng(0).normal(size=(12, 2)), np.array([[0, 1], [2, 3]])
    train, valid, test = masks.copy(), masks.copy(), masks.copy()
    train[:, :4] = valid[:, 4:8] = test[:, 8:] = True
    train[1, [1, 3]] = False
    np.savez(
        tmp_path / "g.npz", x=x, y=y, edge_index=edges,
        train_masks=train, val_masks=valid, test_masks=test,
    )  # fmt: skip
    task = AnomalyTask(AnomalyConfig(split="given"), 0, tmp_path / "g.npz")
    task.load()
    assert task.parts["valid"].tolist() == [4, 5, 6, 7]
    for index, words in ((1, "train part: expected nodes of both classes"), (2, "split_index")):
        with pytest.raises(InputError, match=words):
            AnomalyTask(AnomalyConfig(split="given", split_index=index), 0, task.data).load()
    np.savez(tmp_path / "h.npz", x=x, y=np.zeros(12), edge_index=edges)
    with pytest.raises(InputError, match="at least 3 nodes of each class"):
        AnomalyTask(AnomalyConfig(), 0, tmp_path / "h.npz").load()
    with pytest.raises(InputError, match="holds no masks"):
        AnomalyTask(AnomalyConfig(split="given"), 0, tmp_path / "h.npz").load()


@pytest.mark.parametrize("seed", range(5))
def test_threshold_by_trying_all(seed):
    random = np.random.default_rng(seed)
    labels = (random.random(60) < 0.2).astype(int)
    labels[:2] = 0, 1
    scores = np.round(random.random(60) * 0.6 + 0.4 * labels * random.random(60), 2)
    tried = [*np.unique(scores), 1.1]
    best = max(f1_score(labels, scores >= t, average="macro", zero_division=0) for t in tried)
    assert measure(labels, scores, best_threshold(labels, scores))["macro_f1"] == pytest.approx(
        best
    )


def test_metrics_and_their_intervals():
    labels, scores = np.array([1, 0, 1, 0, 0]), np.array([0.9, 0.8, 0.7, 0.2, 0.1])
    found = measure(labels, scores, 0.5)
    assert found["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["auroc"] == pytest.approx(5 / 6)
    assert found["recall_at_k"] == 0.5
    big = np.random.default_rng(0)
    y = (big.random(2000) < 0.3).astype(int)
    low, high = intervals(y, y * 0.3 + big.random(2000), 0.5, 200, 0)["auroc"]
    assert 0.01 < high - low < 0.06


def test_validation_sets_the_threshold_and_test_does_not(folder):
    task, model = made(folder)
    evaluate(task, model, task.source("valid"), 8)
    chosen = float(model.threshold)
    found = evaluate(task, model, task.source("test"), 8)
    assert found["threshold"] == float(model.threshold) == chosen != 0.5
    assert found["average_precision_low"] <= found["average_precision"]
    assert found["average_precision"] <= found["average_precision_high"]


def test_a_batch_is_the_whole_graph_or_a_sample_that_agrees(folder):
    task, model = made(folder)
    (whole,) = batches(task.source("test"), 8)
    want = task.logits(model.eval(), whole)
    sampled, _ = made(folder, sample_neighbours=(0, 0, 0))  # all neighbours, one hop to spare
    source = sampled.source("test")
    got = torch.cat([sampled.logits(model, b) for b in batches(source, 16)])
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    few, _ = made(folder, sample_neighbours=(2, 2))
    first, second = (few.source("test").batch([3, 1, 3]) for _ in range(2))
    assert all(torch.equal(first[k], second[k]) for k in first)
    assert first["node"].tolist() == few.parts["test"][[3, 1, 3]].tolist()
    assert len(few.logits(model, first)) == 3


@pytest.mark.parametrize("name", list(NODE_MODELS))
def test_every_model_learns(folder, name):
    task, model = made(folder, name)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(15):
        loss, _ = task.loss(model, task.source("train").batch([0]))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


def test_wavelets_by_dense_matrices():
    graph = camouflaged_rings(100, rings=3)
    network, _ = connect(graph)
    edges = torch.from_numpy(network.edge_index)
    a = torch.zeros(100, 100, dtype=torch.float64)
    a[edges[1], edges[0]] = 1
    scale = a.sum(1).clamp_min(1).rsqrt()
    half = (torch.eye(100).double() - scale[:, None] * a * scale) / 2
    x = torch.randn(100, 3, dtype=torch.float64)
    for order, factors in ((1, (1, 1)), (2, (1.5, 3, 1.5))):
        want = [
            f * torch.matrix_power(half, p)
            @ torch.matrix_power(torch.eye(100).double() - half, order - p) @ x
            for p, f in enumerate(factors)
        ]  # fmt: skip
        got = BetaWavelets(order)(x, edges)
        torch.testing.assert_close(got, torch.cat(want, -1))


def test_means_over_neighbours_by_hand():
    network, _ = connect(camouflaged_rings(100, rings=3))
    x = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    means = neighbour_means(x, network, 2)
    for node in range(0, 100, 7):
        near = network.neighbours(node)
        want = x[near].mean(0) if len(near) else np.zeros(2)
        assert np.allclose(means[node, 2:4], want, atol=1e-5)
        twice = means[near, 2:4].mean(0) if len(near) else np.zeros(2)
        assert np.allclose(means[node, 4:], twice, atol=1e-5)


def test_from_files_to_scores(folder, tmp_path, capsys):
    pytest.importorskip("tyro")
    run = tmp_path / "run"
    settings = ["--steps", "4", "--eval-every", "2", "--width", "8", "--bootstrap", "5"]
    assert main(["train", "anomaly", "--data", str(folder), "--out", str(run), *settings]) == 0
    result = json.loads((run / "result.json").read_text())
    assert set(result["baselines"]) == {"chance", "trees", "trees, 1 hop", "trees, 2 hops"}
    assert (run / "report.html").is_file()
    kinds = [type(e) for e in load(run / "exhibits")]
    assert kinds.count(Graph) == 4
    assert kinds[0] is Table
    new = tmp_path / "new"
    write_tables(camouflaged_rings(300, rings=5, seed=9), new, with_labels=False)
    out = tmp_path / "scores.csv"
    assert main(["predict", str(run), str(new), "--out", str(out), "--explain"]) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [r["id"] for r in rows] == [f"a{i:05d}" for i in range(300)]
    assert all(0 <= float(r["score"]) <= 1 for r in rows)
    flagged = [float(r["score"]) >= result["test"]["threshold"] for r in rows]
    assert [r["flag"] == "1" for r in rows] == flagged
    for row in rows:
        near = [float(p.split(":")[1]) for p in row["neighbours"].split()]
        assert near == sorted(near, reverse=True)
        assert sum(near) + float(row["itself"]) < 1.01
        assert float(row["energy"]) < 100
    capsys.readouterr()


def test_exhibits_are_stored(folder, tmp_path):
    task, model = made(folder)
    shown = task.exhibits(model)
    save(shown, tmp_path)
    assert [(type(e), e.title) for e in load(tmp_path)] == [(type(e), e.title) for e in shown]


@pytest.mark.parametrize(
    "bad",
    [
        {"train_share": 1.0}, {"split_index": -1}, {"sample_neighbours": (5, -1)},
        {"bootstrap": -1}, {"categories": 0},
    ],
)  # fmt: skip
def test_impossible_settings(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        AnomalyConfig(**bad)


def test_by_name():
    assert get_task("anomaly") is AnomalyTask
