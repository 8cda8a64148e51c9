"""The task of anomalous nodes: splits, metrics, networks, sampling, predictions, reports."""

import copy
import csv
import json
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful import cli
from lawful.errors import InputError
from lawful.laws import check
from lawful.models import (
    BetaWavelets,
    EnergyNodeConfig,
    GATNodeConfig,
    GCNNodeConfig,
    MLPNodeConfig,
    NodeSpec,
    PublishedEnergyNodeConfig,
    SAGENodeConfig,
    WaveletNodeConfig,
    build_node_scorer,
)
from lawful.models._graph_layers import LastGraph, normalised_adjacency
from lawful.tasks import batches
from lawful.tasks.anomaly import AnomalyConfig, AnomalyTask
from lawful.tasks.anomaly._measure import best_threshold, intervals, measure
from lawful.tasks.anomaly._splits import split_nodes
from lawful.tasks.anomaly._surroundings import around
from lawful.tasks.anomaly._trees import boosted_trees, neighbour_means
from lawful.tasks.exhibits import Graphs, load, save
from lawful.tasks.graphdata import RawGraph, camouflaged_rings, connect, write_tables
from lawful.training import evaluate

SMALL = {
    "energy": EnergyNodeConfig(width=8, heads=2, head_dim=4, dropout=0.0, blocks=1),
    "energy-published": PublishedEnergyNodeConfig(width=8, head_dim=8, dropout=0.0),
    "mlp": MLPNodeConfig(width=8, dropout=0.0),
    "gcn": GCNNodeConfig(width=8, layers=1, dropout=0.0),
    "gat": GATNodeConfig(width=8, layers=1, heads=2, dropout=0.0),
    "sage": SAGENodeConfig(width=8, layers=1, dropout=0.0),
    "bwgnn": WaveletNodeConfig(width=8, order=1, dropout=0.0),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("network")
    write_tables(camouflaged_rings(600, rings=12, seed=1), path)
    return path


def made(path=None, model="energy", seed=0, **config):
    task = AnomalyTask(AnomalyConfig(**({"trees": False, "bootstrap": 0} | config)), seed, path)
    task.load()
    torch.manual_seed(0)
    return task, task.build(SMALL[model]).eval()


# Metrics


def macro_f1(labels, flagged):
    def f1(y, z):
        return 2 * (y & z).sum() / max(y.sum() + z.sum(), 1)

    return (f1(labels > 0, flagged) + f1(labels == 0, ~flagged)) / 2


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), min_size=2, max_size=20))
def test_the_threshold_is_the_best_of_all(rows):
    labels = np.array([label for label, _ in rows], int)
    # Neighbours in single precision, with hardly a number between them
    scores = np.float32(1) + np.array([score for _, score in rows], np.float32) * 2.0**-23
    cut = best_threshold(labels, scores)
    every = [macro_f1(labels, scores >= t) for t in [*scores, 2.0]]
    assert macro_f1(labels, scores >= np.float32(cut)) == pytest.approx(max(every), abs=1e-12)


def test_the_threshold_is_half_way():
    assert best_threshold(np.array([0, 0, 1]), np.array([-1.0, 0.0, 2.0])) == 1.0
    assert best_threshold(np.array([1, 1]), np.array([3.0, 2.0])) < 2
    assert best_threshold(np.array([0, 0]), np.array([3.0, 2.0])) > 3


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 9)), min_size=2, max_size=30).filter(
        lambda rows: len({label for label, _ in rows}) == 2
    ),
    st.integers(-1, 10),
)
def test_metrics_are_those_of_scikit_learn(rows, cut):
    from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

    labels = np.array([label for label, _ in rows], int)
    scores = np.array([score / 9 for _, score in rows])
    found = measure(labels, scores, cut / 9)
    flagged = scores >= cut / 9
    assert found["average_precision"] == pytest.approx(average_precision_score(labels, scores))
    assert found["auroc"] == pytest.approx(roc_auc_score(labels, scores))
    assert found["macro_f1"] == pytest.approx(
        f1_score(labels, flagged, average="macro", zero_division=0)
    )


def test_metrics_by_hand():
    labels, scores = np.array([1, 0, 1, 0, 0]), np.array([0.9, 0.8, 0.7, 0.2, 0.1])
    found = measure(labels, scores, 0.75)
    assert found["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["auroc"] == pytest.approx(5 / 6)
    assert found["recall_at_k"] == 0.5
    # anomalous: 1 of 2 found with 1 false alarm; normal: 2 of 3 with 1 wrong
    assert found["macro_f1"] == pytest.approx((2 / 4 + 4 / 6) / 2)


def test_intervals_cover_and_repeat():
    random = np.random.default_rng(0)
    labels = (random.random(300) < 0.1).astype(int)
    scores = random.random(300) / 2 + labels / 4
    point = measure(labels, scores, 0.5)
    found = intervals(labels, scores, 0.5, 200, seed=3)
    assert found == intervals(labels, scores, 0.5, 200, seed=3)
    for name, (low, high) in found.items():
        assert low < point[name] < high
    # Standard errors by a normal approximation of the AUROC are near a quarter of the width.
    width = found["auroc"][1] - found["auroc"][0]
    assert 0.02 < width < 0.25
    assert intervals(labels, scores, 0.5, 0, seed=3) == {}
    # Few anomalous nodes: resamples without any are drawn again
    few = np.array([1] + [0] * 9)
    assert intervals(few, np.arange(10.0), 0.5, 20, seed=0)["auroc"][0] == 0


# Parts


def raw(labels, masks=None):
    n = len(labels)
    return RawGraph(
        "g",
        n,
        np.arange(n, dtype=np.float32)[:, None],
        ("x",),
        {"e": np.stack([np.arange(n - 1), np.arange(1, n)])},
        labels=np.array(labels, np.int8),
        masks=masks,
    )


@pytest.mark.parametrize("share", [0.01, 0.4, 0.9])
def test_parts_are_stratified_and_disjoint(share):
    graph = raw([0] * 700 + [1] * 200 + [-1] * 100)
    parts = split_nodes(graph, AnomalyConfig(train_share=share), 0)
    every = np.concatenate(list(parts.values()))
    assert sorted(every.tolist()) == list(range(900))
    for label, count in ((0, 700), (1, 200)):
        own = {k: int((graph.labels[v] == label).sum()) for k, v in parts.items()}
        assert own["train"] == max(round(share * count), 1)
        assert abs(own["valid"] - (count - own["train"]) / 3) <= 1
    other = split_nodes(graph, AnomalyConfig(train_share=share), 1)
    assert not np.array_equal(other["test"], parts["test"])
    few = split_nodes(graph, AnomalyConfig(train_share=share, max_valid=10), 0)
    assert len(few["valid"]) == 10
    assert set(graph.labels[few["valid"]]) == {0, 1}
    np.testing.assert_array_equal(few["test"], parts["test"])


def test_given_masks():
    eye = np.eye(6, dtype=bool)
    masks = {
        "train": np.stack([eye[0] | eye[1], eye[0]]),
        "valid": np.stack([eye[2] | eye[3], eye[2]]),
        "test": np.stack([eye[4] | eye[5], eye[0]]),
    }
    graph = raw([0, 1, 0, 1, 0, 1], masks)
    parts = split_nodes(graph, AnomalyConfig(split="given"), 0)
    assert [parts[k].tolist() for k in ("train", "valid", "test")] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(InputError, match="1 nodes are in both train and test"):
        split_nodes(graph, AnomalyConfig(split="given", split_index=1), 0)
    with pytest.raises(InputError, match=r"split_index: expected 0\.\.1, got 2"):
        split_nodes(graph, AnomalyConfig(split="given", split_index=2), 0)
    graph = raw([0, 0, 0, 1, 0, 1], masks)
    with pytest.raises(InputError, match=r"train part.*none of them anomalous"):
        split_nodes(graph, AnomalyConfig(split="given"), 0)


def test_labels_that_do_not_suffice():
    with pytest.raises(InputError, match="labels of some nodes, got none"):
        split_nodes(raw([-1, -1]), AnomalyConfig(), 0)
    with pytest.raises(InputError, match=r"at least 3 nodes of each class.*2 anomalous"):
        split_nodes(raw([0] * 9 + [1] * 2), AnomalyConfig(), 0)
    with pytest.raises(InputError, match="random: the file holds no masks"):
        split_nodes(raw([0, 1]), AnomalyConfig(split="given"), 0)


@pytest.mark.parametrize(
    "bad",
    [
        {"train_share": 0.0},
        {"split_index": -1},
        {"sample_neighbours": (5, -1)},
        {"transaction_links": 0},
    ],
)
def test_impossible_settings(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        AnomalyConfig(**bad)


# Networks


def test_wavelets_are_functions_of_the_laplacian():
    network, _ = connect(raw([0] * 9))
    edges, x = torch.from_numpy(network.edge_index), torch.randn(9, 3, dtype=torch.float64)
    adjacency = normalised_adjacency(edges, 9, torch.float64).to_dense()
    degree = torch.bincount(edges[1], minlength=9).double()
    dense = torch.zeros(9, 9, dtype=torch.float64)
    dense[edges[1], edges[0]] = 1
    torch.testing.assert_close(adjacency, dense / (degree[:, None] * degree).sqrt())
    values, vectors = torch.linalg.eigh(torch.eye(9, dtype=torch.float64) - adjacency)
    for order in (1, 2, 4):
        found = BetaWavelets(order)(x, edges).split(3, -1)
        half = values.clamp(0, 2) / 2
        for p, part in enumerate(found):
            # The density of Beta(p + 1, C - p + 1) at half the eigenvalue, over 2.
            scale = math.gamma(order + 2) / (math.gamma(p + 1) * math.gamma(order - p + 1))
            density = scale * half**p * (1 - half) ** (order - p)
            want = vectors @ torch.diag(density / 2) @ vectors.T @ x
            torch.testing.assert_close(part, want, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(sum(found), x * (order + 1) / 2)


def test_the_last_graph_is_kept_until_it_changes():
    made_times, kept = [], LastGraph()
    edges = torch.tensor([[0], [1]])

    def make():
        made_times.append(1)
        return len(made_times)

    assert [kept(edges, 2, make), kept(edges, 2, make)] == [1, 1]
    assert kept(edges, 3, make) == 2
    edges.add_(0)
    assert kept(edges, 3, make) == 3
    assert kept(edges.clone(), 3, make) == 4
    assert copy.deepcopy(kept)(edges, 3, make) == 5
    assert pickle.loads(pickle.dumps(kept))(edges, 3, make) == 6


@pytest.mark.parametrize("model", SMALL)
def test_networks_learn_and_commute_with_renumbering(model, folder):
    task, net = made(folder, model)
    x, edges, member = task.whole(task.graph, torch.device("cpu"))
    logits = net(x, edges, member)
    assert logits.shape == (600,)
    order = torch.randperm(600, generator=torch.Generator().manual_seed(0))
    back = torch.argsort(order)
    moved = back[edges]
    sort = torch.argsort(moved[1] * 600 + moved[0])
    again = net(x[order], moved[:, sort], member[sort])
    torch.testing.assert_close(again, logits[order], rtol=1e-4, atol=1e-4)
    optimizer = torch.optim.Adam(net.parameters(), 0.03)
    losses = []
    for _ in range(25):
        loss, _ = task.loss(net, task.source("train").batch([0]))
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None for p in net.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert copy.deepcopy(net)(x, edges, member).shape == (600,)


@pytest.mark.parametrize("model", SMALL)
def test_lone_nodes_and_empty_graphs(model):
    net = build_node_scorer(SMALL[model], NodeSpec(2, 1)).eval()
    none = torch.zeros(2, 0, dtype=torch.int64)
    alone = net(torch.ones(3, 2), none)
    assert alone.isfinite().all()
    assert torch.equal(alone[0], alone[1])
    pair = net(torch.tensor([[1.0, 1.0], [2.0, -1.0], [1.0, 1.0]]), torch.tensor([[1, 0], [0, 1]]))
    torch.testing.assert_close(pair[2], alone[0])
    changed = torch.equal(pair[0], pair[2])
    assert changed == (model == "mlp")


def test_relations_are_told_apart():
    net = build_node_scorer(SMALL["energy"], NodeSpec(2, 2)).eval()
    x = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    edges = torch.tensor([[1, 2, 0, 0], [0, 0, 1, 2]])
    one = torch.tensor([[1.0, 0], [0, 1], [1, 0], [0, 1]])
    with torch.no_grad():
        assert torch.allclose(net(x, edges, one), net(x, edges, one.flip(1)))
        net.relations[0] = 3.0
        assert not torch.allclose(net(x, edges, one), net(x, edges, one.flip(1)), atol=1e-4)


def test_reasons_are_the_energy_and_attention_of_the_last_state(folder):
    task, net = made(folder)
    x, edges, member = task.whole(task.graph, torch.device("cpu"))
    with torch.no_grad():
        net.relations.normal_()
        found = net.reasons(x, edges, member)
        total = torch.zeros(600).index_add(0, found.edge_index[1], found.weights)
        alone = torch.bincount(edges[1], minlength=600) == 0
        torch.testing.assert_close(total, 1 - alone.float())
        bias = member @ net.relations
        settled = net.transformer.settle(net.encoder(x), net._prepared(edges, 600), bias)
        torch.testing.assert_close(
            found.energy.sum()[None], settled.energies[-1], rtol=1e-5, atol=0
        )
    plain = build_node_scorer(SMALL["mlp"], NodeSpec(task.features.size, 2))
    with pytest.raises(InputError, match="train with --model energy"):
        plain.reasons(x, edges, member)


def test_the_laws_hold(folder):
    task, net = made(folder)
    certificate = check(net, run=lambda: task.logits(net, task.source("valid").batch([0])))
    assert certificate.rows
    assert not certificate.broken


def test_impossible_networks():
    with pytest.raises(InputError, match="a multiple of heads"):
        GATNodeConfig(width=10, heads=4)
    with pytest.raises(InputError, match="features: expected at least one"):
        build_node_scorer(SMALL["mlp"], NodeSpec(0))
    with pytest.raises(InputError, match="model config"):
        build_node_scorer(object(), NodeSpec(1))
    for bad in ({"width": 0}, {"dropout": 1.5}, {"settle_steps": 0}, {"blocks": 0}):
        with pytest.raises(InputError, match=next(iter(bad))):
            EnergyNodeConfig(**bad)


# The task


@pytest.mark.parametrize("model", SMALL)
def test_all_neighbours_sampled_give_the_whole_graph(model, folder):
    """An energy step reaches two hops: the neighbours' own softmaxes are over theirs."""
    task, net = made(folder, model)
    whole, _ = made(folder, model, sample_neighbours=(0, 0, 0))
    batch = whole.source("valid").batch(range(5))
    assert len(batch["x"]) < 600 or model  # a part of the graph, where it is not small
    with torch.no_grad():
        sampled = whole.logits(net, batch)
        full = task.logits(net, task.source("valid").batch([0]))
    torch.testing.assert_close(sampled, full[:5], rtol=1e-4, atol=1e-5)


def test_samples_repeat_and_hold_what_is_asked(folder):
    task, _ = made(folder, sample_neighbours=(3, 2))
    source = task.source("train")
    one, two = source.batch([5, 3, 5]), source.batch([5, 3, 5])
    for name, value in one.items():
        assert torch.equal(value, two[name]), name
    rows = task.parts["train"][[5, 3, 5]]
    assert one["node"].tolist() == rows.tolist()
    assert one["nodes"][one["at"]].tolist() == rows.tolist()
    assert torch.equal(one["x"], torch.from_numpy(task.graph.x[one["nodes"].numpy()]))
    assert one["y"].tolist() == task.graph.labels[rows].tolist()
    member = task.graph.network.member
    assert one["member"].shape == (one["edge_index"].shape[1], member.shape[1])


def test_a_whole_graph_is_one_batch(folder):
    task, _ = made(folder)
    source = task.source("train")
    found = list(batches(source, 7))
    assert len(found) == 1
    assert len(found[0]["node"]) == len(source) == 240


def test_the_threshold_comes_from_validation_alone(folder):
    task, net = made(folder)
    evaluate(task, net, task.source("valid"), 64)
    cut = float(net.cut)
    before = evaluate(task, net, task.source("test"), 64)
    task.graph.labels[task.parts["test"]] = 1 - task.graph.labels[task.parts["test"]]
    after = evaluate(task, net, task.source("test"), 64)
    assert cut != 0
    assert float(net.cut) == cut
    assert before["threshold"] == after["threshold"] == pytest.approx(1 / (1 + np.exp(-cut)))
    assert before["auroc"] == pytest.approx(1 - after["auroc"])


@pytest.mark.parametrize(("weight", "want"), [("none", 1.0), ("balanced", 9.0), ("root", 3.0)])
def test_class_weights(weight, want, tmp_path):
    graph = raw([0] * 90 + [1] * 10)
    write_tables(graph, tmp_path)
    task, _ = made(tmp_path, "mlp", class_weight=weight)
    assert task.weight == pytest.approx(want)
    y = torch.tensor([0.0, 1.0])
    logits = torch.tensor([0.5, 0.5])
    each = torch.nn.functional.binary_cross_entropy_with_logits(logits, y, reduction="none")
    found = task._cross_entropy(logits, y)
    assert float(found) == pytest.approx(float((each[0] + want * each[1]) / (1 + want)))


def test_neighbour_means_and_trees(folder):
    task, _ = made(folder)
    network, x = task.graph.network, task.graph.x
    means = neighbour_means(x, network, 2)
    width = x.shape[1]
    for node in (0, 17):
        near = network.neighbours(node)
        np.testing.assert_allclose(
            means[node, width : 2 * width], x[near].mean(0), rtol=1e-5, atol=1e-6
        )
        twice = np.stack([x[network.neighbours(n)].mean(0) for n in near]).mean(0)
        np.testing.assert_allclose(means[node, 2 * width :], twice, rtol=1e-5, atol=1e-6)
    parts = task.parts
    shown = np.where(task.graph.labels > 0, 1.0, 0.0)[:, None] + 0.1 * x[:, :1]
    found = boosted_trees(shown, task.graph.labels, parts, 0)
    assert found.test["average_precision"] > 0.95
    assert found.scores.shape == parts["test"].shape


def test_neighbourhoods_to_draw():
    star, _ = connect(
        RawGraph(
            "g",
            40,
            np.zeros((40, 0), np.float32),
            (),
            {"e": np.array([[0] * 20 + [1] * 19, [*range(1, 21), *range(21, 40)]])},
        )
    )
    nodes = around(star, 0, [7])
    assert nodes[:2].tolist() == [0, 7]
    assert len(nodes) == 13
    assert 1 not in nodes  # a hub gives way to nodes with few edges
    nodes = around(star, 39, [])
    assert nodes[:2].tolist() == [39, 1]
    assert len(nodes) == 14
    assert len(set(nodes.tolist())) == 14


def train(folder, out, *more):
    args = ["train", "anomaly", "--data", str(folder), "--out", str(out), "--no-progress"]
    small = ["--width", "8", "--bootstrap", "20", "--steps", "20", "--warmup", "2"]
    assert cli.main([*args, *small, *more]) == 0


def rows_of(path):
    with path.open() as stream:
        return list(csv.DictReader(stream))


def test_from_tables_to_scores_and_report(folder, tmp_path, capsys):
    run = tmp_path / "run"
    train(folder, run, "--heads", "2", "--head-dim", "4")
    result = json.loads((run / "result.json").read_text())
    test = result["test"]
    assert test["average_precision_low"] <= test["average_precision"]
    assert set(result["baselines"]) == {"chance", "trees", "trees, 1 hop", "trees, 2 hops"}
    kinds = [type(e).__name__ for e in load(run / "exhibits")]
    assert kinds == ["Table", "Curves", "Curves", "Curves", "Heatmap", "Table", "Graphs", "Table"]
    page = (run / "report.html").read_text()
    assert "Neighbourhoods of the most anomalous nodes" in page
    # Other columns' order, a new kind, no labels, another order of nodes
    new = tmp_path / "new"
    new.mkdir()
    table = rows_of(folder / "nodes.csv")[::-1]
    names = [n for n in table[0] if n != "label"][::-1]
    table[0]["kind"] = "embassy"
    with (new / "nodes.csv").open("w") as stream:
        writer = csv.DictWriter(stream, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(table)
    (new / "edges.csv").write_text((folder / "edges.csv").read_text())
    capsys.readouterr()
    assert cli.main(["predict", str(run), str(new), "--out", str(tmp_path / "s.csv")]) == 0
    assert "(first 'embassy' at node" in capsys.readouterr().err
    found = rows_of(tmp_path / "s.csv")
    assert [r["id"] for r in found] == [r["id"] for r in table]
    assert list(found[0]) == ["id", "score", "flag"]
    # The run's own test scores come again
    assert cli.main(["predict", str(run), str(folder), "--out", str(tmp_path / "e.csv"),
                     "--explain", "--neighbours", "2"]) == 0  # fmt: skip
    again = rows_of(tmp_path / "e.csv")
    assert [float(r["score"]) for r in again][:-1] == pytest.approx(
        [float(r["score"]) for r in found[::-1]][:-1], abs=2e-2
    )
    flagged = [int(r["flag"]) == (float(r["score"]) >= test["threshold"]) for r in again]
    assert all(flagged)
    first = again[0]["neighbours"].split()
    assert len(first) == 2
    weights = [float(w.rpartition(":")[2]) for w in first]
    assert weights == sorted(weights, reverse=True)
    assert sum(weights) + float(again[0]["itself"]) <= 1.002
    assert cli.main(["evaluate", str(run)]) == 0


def test_sampled_training_and_prediction(folder, tmp_path, capsys):
    run = tmp_path / "run"
    sampled = ("--sample-neighbours", "4", "3", "--batch-size", "32", "--no-trees")
    train(folder, run, "--model", "sage", *sampled, "--steps", "8")
    assert cli.main(["predict", str(run), str(folder), "--out", str(tmp_path / "s.jsonl")]) == 0
    lines = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert len(lines) == 600
    assert all(0 <= row["score"] <= 1 for row in lines)
    capsys.readouterr()
    assert cli.main(["predict", str(run), str(folder), "--explain"]) != 0
    assert "train with --model energy" in capsys.readouterr().err


def test_runs_resume_exactly(folder, tmp_path):
    for sampled in ((), ("--sample-neighbours", "3", "2", "--batch-size", "16")):
        name = f"s{len(sampled)}"
        more = ("--model", "sage", "--no-trees", "--no-report", "--checkpoint-every", "4", *sampled)
        train(folder, tmp_path / f"{name}-a", *more, "--steps", "8", "--schedule", "constant")
        train(folder, tmp_path / f"{name}-b", *more, "--steps", "4", "--schedule", "constant")
        again = ("--resume", "--steps", "8", "--schedule", "constant")
        train(folder, tmp_path / f"{name}-b", *more, *again)
        results = [
            json.loads((tmp_path / f"{name}-{k}" / "result.json").read_text())["test"] for k in "ab"
        ]
        assert results[0] == results[1]


def test_transactions_from_file_to_result(tmp_path):
    random = np.random.default_rng(0)
    rows = ["Time,Source,Target,Amount,Location,Type,Labels"]
    for i in range(300):
        fraud = random.random() < 0.1
        amount = random.gamma(2) * (30 if fraud else 3)
        label = 2 if random.random() < 0.3 else int(fraud)
        ends = f"s{random.integers(40)},t{random.integers(20)}"
        rows.append(f"{i},{ends},{amount:.2f},l{random.integers(9)},k{random.integers(5)},{label}")
    (tmp_path / "s.csv").write_text("\n".join(rows) + "\n")
    train(tmp_path / "s.csv", tmp_path / "run", "--no-trees", "--no-report")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["test"]["auroc"] > 0.8


def test_drawings_are_saved_and_drawn(tmp_path):
    from lawful.reports._blocks import Press
    from lawful.reports._files import Folder

    drawn = Graphs(
        "Some $graphs$",
        ["one", "two"],
        [["a", "b<c"], ["x"]],
        [[[0.0, 0.0], [1.0, 1.0]], [[0.5, 0.5]]],
        [[0.1, 1.0], [0.5]],
        [["odd", "even"], ["odd"]],
        [[[0, 1]], []],
        [[0.7], []],
    )
    save([drawn], tmp_path)
    again = load(tmp_path)[0]
    assert again == drawn
    press = Press(Folder(tmp_path / "plots"))
    block = press.block(again)
    assert [f.caption for f in block.figures] == ["one", "two"]
    assert block.figures[0].alt.startswith("Graph of 2 nodes and 1 edges about a (odd, 0.10); b<c")
    assert "b&lt;c" in block.figures[0].markup
    tables = sorted((tmp_path / "plots").glob("*.csv"))
    assert len(tables) == 2
    assert rows_of(tables[0])[0] == {
        "node": "a", "kind": "odd", "value": "0.1", "other": "b<c", "other kind": "even",
        "other value": "1.0", "weight": "0.7",
    }  # fmt: skip
    empty = press.block(Graphs("None", [], [], [], [], [], []))
    assert empty.notes == ["There are no graphs to draw."]
