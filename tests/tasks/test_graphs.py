"""The task of graph classification: folds, features, batches, networks, kernel, predictions."""

import csv
import itertools
import json
import math

import numpy as np
import pytest
import torch

from lawful import cli
from lawful.energy import Edges
from lawful.errors import InputError
from lawful.models import (
    EnergyGraphConfig,
    GCNConfig,
    GINConfig,
    Graphs,
    GraphSpec,
    WLConfig,
    build_graph_model,
    refine,
)
from lawful.models._graph_readout import settled
from lawful.tasks import batches
from lawful.tasks.exhibits import Heatmap, Images, Table, load, save
from lawful.tasks.graphdata._graphs import GraphSet, tidy
from lawful.tasks.graphdata.layout import layout
from lawful.tasks.graphdata.tu import read_tu
from lawful.tasks.graphs import GraphsConfig, GraphsTask
from lawful.tasks.graphs._draw import SIDE, picture
from lawful.tasks.graphs._features import facts_of
from lawful.tasks.graphs._folds import divided, folds_of
from lawful.tasks.graphs._store import Encoding, Store, graphs_of
from lawful.tasks.graphs._task import run
from tests.published import published
from tests.tasks.graphdata.test_tu import write

SMALL = {
    "energy": EnergyGraphConfig(width=16, heads=2, head_dim=8, blocks=2, eigenvectors=3, walks=2),
    "gin": GINConfig(width=16, layers=2),
    "gcn": GCNConfig(width=16, layers=2, eigenvectors=2),
    "wl": WLConfig(depth=2, penalties=(1.0, 10.0)),
}


def made(model="energy", seed=0, **config):
    task = GraphsTask(GraphsConfig(**({"generated": 60, "folds": 3} | config)), seed)
    task.load()
    torch.manual_seed(0)
    return task, task.build(SMALL[model]).eval()


# Folds


@pytest.mark.parametrize("counts", [(63, 125), (100,) * 6, (7, 1, 30)])
@pytest.mark.parametrize("folds", [2, 3, 10])
def test_folds_are_stratified(counts, folds):
    classes = np.repeat(np.arange(len(counts)), counts)
    classes = classes[np.random.default_rng(0).permutation(len(classes))]
    found = folds_of(classes, folds, 5)
    sizes = np.bincount(found, minlength=folds)
    assert sizes.max() - sizes.min() <= 1
    for c in range(len(counts)):
        own = np.bincount(found[classes == c], minlength=folds)
        assert own.max() - own.min() <= 1
    assert np.array_equal(found, folds_of(classes, folds, 5))
    assert not np.array_equal(found, folds_of(classes, folds, 6))


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_the_parts_of_a_fold(share):
    classes = np.repeat(np.arange(3), (40, 60, 100))
    tested = []
    for fold in range(5):
        parts = divided(classes, 5, fold, 1, share)
        together = np.concatenate(list(parts.values()))
        assert sorted(together.tolist()) == list(range(200))
        for c, count in enumerate((32, 48, 80)):
            chosen = (classes[parts["valid"]] == c).sum()
            assert abs(chosen - share * count) <= 1
        tested += parts["test"].tolist()
    assert sorted(tested) == list(range(200))


def test_impossible_divisions():
    rare = np.array([0] * 19 + [1])
    fold = int(folds_of(rare, 2, 0)[-1])
    with pytest.raises(InputError, match="graphs of every class in the training part"):
        divided(rare, 2, fold, 0, 0.2)
    with pytest.raises(InputError, match="enough graphs for 10 folds"):
        divided(np.array([0, 1, 0]), 10, 9, 0, 0.1)
    for bad in ({"folds": 1}, {"fold": 10}, {"valid_share": 0.0}, {"split_seed": -1},
                {"degree_cap": 0}, {"label_smoothing": 1.0}):  # fmt: skip
        with pytest.raises(InputError, match=next(iter(bad))):
            GraphsConfig(**bad)


def test_seeds_stand_for_folds():
    tests = [made(seed=s)[0] for s in range(6)]
    assert [(t.fold, t.split_seed) for t in tests] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (0, 1),
        (1, 1),
        (2, 1),
    ]
    for first in (0, 3):
        parts = [t.parts["test"].tolist() for t in tests[first : first + 3]]
        assert sorted(itertools.chain(*parts)) == list(range(60))
    assert tests[0].parts["test"].tolist() != tests[3].parts["test"].tolist()
    fixed, _ = made(seed=7, fold=2, split_seed=0)
    assert fixed.parts["test"].tolist() == tests[2].parts["test"].tolist()


# Features


def toy(tmp_path, **changed):
    return read_tu(write(tmp_path, **changed))


def facts(graphs, train, **changed):
    usual = {"attributes": True, "edge_features": True, "degrees": "auto", "degree_cap": 63}
    return facts_of(graphs, np.array(train), **(usual | changed))


def test_features_by_the_training_graphs_alone(tmp_path):
    graphs = toy(tmp_path)
    found = facts(graphs, [0, 2])
    assert found.classes == (-1, 1)
    assert found.nodes.known == ((0, 1, 2),)  # 5 occurs in graph 2 only
    x = found.node_features(graphs)
    assert x.shape == (7, found.features) == (7, 5)
    assert x[:, :3].argmax(1)[[0, 1, 2, 3, 6]].tolist() == [0, 1, 0, 2, 0]
    assert not x[4:6, :3].any()
    rows = [0, 1, 2, 3, 6]
    np.testing.assert_allclose(x[rows, 3:].mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(x[rows, 3:].std(0), 1, atol=1e-6)
    assert found.edges.known == ((7, 8, 9),)
    assert found.edge_features(graphs).sum(1).tolist() == [1.0] * 8
    assert facts(graphs, [0], attributes=False).features == 3
    assert facts(graphs, [0], edge_features=False).edges.size == 0
    again = type(found).from_json(json.loads(json.dumps(found.as_json())))
    assert again == found


def test_degrees_where_nothing_else_is_known(tmp_path):
    graphs = toy(tmp_path, node_labels=None, node_attributes=None)
    found = facts(graphs, [0, 1])
    assert found.degrees == found.features == 3
    assert found.node_features(graphs).argmax(1).tolist() == graphs.degrees.tolist()
    capped = facts(graphs, [0, 1], degree_cap=1)
    assert capped.node_features(graphs).argmax(1).tolist() == [1, 1, 1, 0, 1, 1, 0]
    constant = facts(graphs, [0, 1], degrees="never")
    assert constant.node_features(graphs).tolist() == [[1.0]] * 7
    both = facts(toy(tmp_path / "b"), [0, 1], degrees="always")
    assert both.features == 4 + 2 + 3


def test_columns_that_training_had_not(tmp_path):
    found = facts(toy(tmp_path / "a"), [0])
    other = toy(tmp_path / "b", node_attributes=None)
    with pytest.raises(InputError, match="2 columns of node attributes, as in training, got 0"):
        found.node_features(other)


# Batches


def test_a_batch_is_its_graphs_one_after_another():
    task, _ = made()
    source = task.source("train")
    batch = source.batch([4, 0, 4])
    at = 0
    for row, index in enumerate([4, 0, 4]):
        (alone,) = (source.batch([index]),)
        size = len(alone["x"])
        assert (batch["batch"][at : at + size] == row).all()
        for name in ("x", "positions"):
            assert torch.equal(batch[name][at : at + size], alone[name])
        own = batch["batch"][batch["edge_index"][1]] == row
        assert torch.equal(batch["edge_index"][:, own] - at, alone["edge_index"])
        assert batch["y"][row] == alone["y"][0]
        at += size
    assert at == len(batch["x"])


def shuffled(g, seed=0):
    """The same graphs, nodes of each in another order."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.cat([
        nodes[torch.randperm(len(nodes), generator=generator)]
        for nodes in (torch.nonzero(g.batch == i)[:, 0] for i in range(g.total))
    ])  # fmt: skip
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    mix = torch.randperm(g.edge_index.shape[1], generator=generator)
    return Graphs(g.x[order], place[g.edge_index][:, mix], g.edge_attr[mix], g.batch[order],
                  g.positions[order], g.total)  # fmt: skip


@pytest.mark.parametrize("name", ["energy", "gin", "gcn"])
def test_networks_do_not_see_the_order_of_nodes_or_other_graphs(name):
    task, model = made(name)
    model = model.double()
    batch = task.source("train").batch(range(8))
    g = Graphs(*(t.double() if t.is_floating_point() else t for t in graphs_of(batch)[:-1]), 8)
    for p in model.parameters():  # so that edge weights, which start at a constant, matter
        torch.nn.init.normal_(p, std=0.3, generator=torch.Generator().manual_seed(p.numel()))
    with torch.no_grad():
        whole = model(g)
        torch.testing.assert_close(model(shuffled(g)), whole)
        for i in (0, 5):
            one = graphs_of(task.source("train").batch([i]))
            one = Graphs(*(t.double() if t.is_floating_point() else t for t in one[:-1]), 1)
            torch.testing.assert_close(model(one), whole[i : i + 1])


@pytest.mark.parametrize("readout", ["energies", "nodes", "energies+nodes", "cls"])
@pytest.mark.parametrize("weights", ["learned", "none"])
@pytest.mark.parametrize("form", ["multiply", "add"])
def test_every_parameter_of_the_energy_network_gets_a_gradient(readout, weights, form):
    torch.manual_seed(0)
    config = EnergyGraphConfig(
        width=8, heads=2, head_dim=4, blocks=2, eigenvectors=2, walks=1, readout=readout,
        edge_weights=weights, edge_form=form, settle_steps=2,
    )  # fmt: skip
    model = build_graph_model(config, GraphSpec(3, 2, 4))
    edges = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
    batch = torch.tensor([0, 0, 0, 1, 1, 2])  # of two graphs, features would all be 1 and -1
    g = Graphs(torch.randn(6, 3), edges, torch.randn(6, 2), batch, torch.randn(6, 3), 3)
    out = model(g)
    assert out.shape == (3, 4)
    (out.sin().sum()).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name
        assert p.grad.abs().sum() > 0, name


def test_learned_weights_give_no_edge_to_what_has_none():
    """Two graphs apart, and two components: what is learned cannot link them."""
    torch.manual_seed(0)
    config = EnergyGraphConfig(width=8, heads=2, head_dim=4, blocks=3, eigenvectors=0,
                               readout="energies+nodes")  # fmt: skip
    model = build_graph_model(config, GraphSpec(2, 0, 2)).double().eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.5)
    edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    x = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    batch = torch.tensor([0, 0, 1, 1])
    none = torch.zeros(4, 0, dtype=torch.float64)
    out = model(Graphs(x, edges, none, batch, none, 2))
    (grad,) = torch.autograd.grad(out[0].sum(), x)
    assert grad[:2].abs().min() > 0
    assert not grad[2:].any()


def course_of(model, g):
    """How a batch settles, and the edges and weights it does so with."""
    x, edge_index, features, batch = model._laid_out(g)
    weights = model.weights(x, edge_index, features)
    edges = Edges.of(edge_index, len(x))
    return settled(model.settle, x, edges, weights, batch, g.total), edges, weights, batch


def small_graphs(*sizes):
    """Rings with random features."""
    torch.manual_seed(1)
    ring = [torch.stack([torch.arange(n), (torch.arange(n) + 1) % n]) for n in sizes]
    starts = np.cumsum([0, *sizes[:-1]])
    one_way = torch.cat([r + int(s) for r, s in zip(ring, starts, strict=True)], 1)
    edges = torch.cat([one_way, one_way.flip(0)], 1)
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    none = torch.zeros(len(batch), 0, dtype=torch.float64)
    x = torch.randn(len(batch), 3, dtype=torch.float64)
    return Graphs(x, edges, none.new_zeros(edges.shape[1], 0), batch, none, len(sizes))


def energy_model(**changed):
    config = EnergyGraphConfig(width=8, heads=2, head_dim=4, memories=5, **changed)
    torch.manual_seed(0)
    return build_graph_model(config, GraphSpec(3, 0, 2)).double()


def test_the_energies_that_are_read_are_those_of_the_layer():
    model, g = energy_model(blocks=2, settle_steps=3), small_graphs(3, 5, 4)
    with torch.no_grad():
        course, edges, weights, batch = course_of(model, g)
        assert course.energies.shape == (3, 6)
        path = model.settle.settle(
            torch.cat([model.encoder(g), model.cls.expand(3, -1)]), edges, weights, batch,
            graphs=3, trajectory=True,
        ).trajectory  # fmt: skip
        for block, step in itertools.product(range(2), range(3)):
            want = model.settle.energy(
                path[block, step], edges, weights, batch, graphs=3, block=block
            )
            torch.testing.assert_close(course.energies[:, 3 * block + step], want)
        read = model.readout._memories(model.settle, course)
        torch.testing.assert_close(read[0], -course.energies)
        for number, block in enumerate(model.settle.blocks):
            at = block.norm(path[number, -1][: len(g.x)])
            for graph in range(3):
                want = -block.hopfield.energy(at[g.batch == graph])
                torch.testing.assert_close(read[1 + number][graph].sum(), want)


def test_what_is_read_counts():
    """Two copies of a graph, as one graph, call each memory about twice as much: sums, no means.

    Not exactly so, since the extra node's attention is shared out among twice as many.
    """
    model, g = energy_model(blocks=2), small_graphs(4)
    twice = Graphs(torch.cat([g.x, g.x]), torch.cat([g.edge_index, g.edge_index + 4], 1),
                   g.edge_attr.repeat(2, 1), torch.zeros(8, dtype=torch.int64),
                   g.positions.repeat(2, 1), 1)  # fmt: skip
    with torch.no_grad():
        once, double = (
            model.readout._memories(model.settle, course_of(model, one)[0])[1] for one in (g, twice)
        )
    called = once > 1e-6
    assert called.any()
    assert (double[called] / once[called]).sub(2).abs().max() < 0.5


def test_a_last_batch_of_one_graph_trains():
    model = energy_model(blocks=1)
    model(small_graphs(3, 5, 4))
    out = model.train()(small_graphs(4))
    model.eval()
    model.readout.dropout.p = 0.0
    model.train()
    torch.testing.assert_close(model(small_graphs(4)), model.eval()(small_graphs(4)))
    out.sum().backward()
    assert model.encoder.features.weight.grad.abs().sum() > 0


def test_signs_are_drawn_in_training_only():
    task, model = made()
    g = graphs_of(task.source("train").batch(range(8)))
    encoder = model.encoder
    flipped = g._replace(positions=g.positions * torch.tensor([-1.0, 1, 1, 1, 1]))
    with torch.no_grad():
        assert torch.equal(encoder(g), encoder(g))
        assert not torch.equal(encoder(flipped), encoder(g))
        encoder.train()
        vectors = encoder.features(g.x)
        seen = set()
        for _ in range(40):
            moved = (encoder(g) - vectors)[g.batch == 0]
            matches = [
                signs
                for signs in np.ndindex(2, 2, 2)
                if torch.allclose(moved, encoder.positions(
                    g.positions * (torch.tensor([*signs, 1, 1]) * 2.0 - 1)
                )[g.batch == 0], atol=1e-5)
            ]  # fmt: skip
            assert len(matches) == 1  # one sign a graph and vector, and walks as they are
            seen |= set(matches)
        assert len(seen) > 3
    absolute = build_graph_model(
        EnergyGraphConfig(width=8, eigenvectors=3, eigen_signs="absolute"),
        GraphSpec(g.x.shape[1], 0, 4),
    ).encoder
    no_walks = g._replace(positions=g.positions[:, :3])
    with torch.no_grad():
        torch.testing.assert_close(
            absolute(no_walks._replace(positions=-no_walks.positions)), absolute(no_walks)
        )


def test_what_the_network_looks_at():
    task, model = made()
    g = graphs_of(task.source("train").batch(range(5)))
    attention, energy = model.explain(g)
    assert attention.shape == energy.shape == (len(g.x),)
    assert energy.isfinite().all()
    sums = torch.zeros(5).index_add(0, g.batch, attention)
    assert (attention > 0).all()
    assert (sums < 1).all()  # the rest goes to the extra node itself


# The kernel


def subtrees(graphs, index, depth):
    """Colours by their definition: nested tuples."""
    nodes = np.flatnonzero(graphs.graph == index)
    edges = graphs.edges[:, graphs.graph[graphs.edges[1]] == index]
    colour = {n: (int(graphs.node_labels[n, 0]),) for n in nodes.tolist()}
    levels = [dict(colour)]
    for _ in range(depth):
        heard = {n: [] for n in colour}
        for a, b in edges.T.tolist():
            heard[b].append(colour[a])
        colour = {n: (colour[n], tuple(sorted(heard[n], key=repr))) for n in colour}
        levels.append(dict(colour))
    return levels


def test_colours_are_those_of_subtrees():
    random = np.random.default_rng(0)
    size, count = 12, 6
    pairs = random.integers(0, size, (2, 16 * count)) + np.repeat(np.arange(count), 16) * size
    both = np.concatenate([pairs, pairs[::-1]], 1)
    labels = random.integers(0, 2, (size * count, 1))
    graphs = tidy(GraphSet("g", both, np.repeat(np.arange(count), size), count,
                           np.zeros(count, np.int64), labels))  # fmt: skip
    edges = torch.from_numpy(graphs.edges)
    found = refine(torch.from_numpy(labels[:, 0]), torch.zeros(edges.shape[1], dtype=torch.int64),
                   edges, 3)  # fmt: skip
    want = [{}, {}, {}, {}]
    for i in range(count):
        for level, colours in enumerate(subtrees(graphs, i, 3)):
            want[level] |= colours
    for level in range(4):
        by_hash, by_tree = {}, {}
        for node in range(size * count):
            by_hash.setdefault(int(found[level][node]), []).append(node)
            by_tree.setdefault(want[level][node], []).append(node)
        assert sorted(by_hash.values()) == sorted(by_tree.values())
        assert len(by_tree) >= 2
    assert len(set(torch.cat(found).tolist())) == sum(len(set(w.values())) for w in want)


def test_labels_of_edges_colour_too():
    edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    same = refine(torch.zeros(4, dtype=torch.int64), torch.tensor([1, 1, 1, 1]), edges, 1)[1]
    assert len(set(same.tolist())) == 1
    other = refine(torch.zeros(4, dtype=torch.int64), torch.tensor([1, 1, 2, 2]), edges, 1)[1]
    assert len(set(other.tolist())) == 2


def test_the_kernel_machine_is_that_of_the_normalised_kernel():
    task, model = made("wl")
    batch = task.source("train").batch(range(len(task.parts["train"])))
    levels = refine(batch["colours"], batch["edge_colours"], batch["edge_index"], int(model.rounds))
    counts = {}
    for level in levels:
        for g, c in zip(batch["batch"].tolist(), level.tolist(), strict=True):
            counts[g, c] = counts.get((g, c), 0) + 1
    known = {c: i for i, c in enumerate(model.vocabulary.tolist())}
    phi = np.zeros((len(batch["y"]), len(known)))
    for (g, c), n in counts.items():
        phi[g, known[c]] = n
    phi /= np.linalg.norm(phi, axis=1, keepdims=True)
    want = phi @ model.weight.double().numpy() + model.bias.double().numpy()
    with torch.no_grad():
        got = run(model, batch)
    scale = model.scale.item()
    np.testing.assert_allclose(got.numpy(), scale * want, atol=1e-5 * max(scale, 1))


def test_margins_are_scaled_by_the_validation_part():
    task, model = made("wl")
    valid = task.source("valid").batch(range(len(task.parts["valid"])))

    def loss_at(scale):
        model.scale.data.mul_(scale)
        loss = task.loss(model, valid)[0].item()
        model.scale.data.div_(scale)
        return loss

    now, best = model.scale.item(), loss_at(1.0)
    for exponent in range(-8, 5):
        assert best <= loss_at(2.0**exponent / now) + 1e-6
    task.loss(model, valid)[0].backward()
    assert model.scale.grad.isfinite()


# The task


def test_scores_by_their_definitions():
    task, _ = made()
    batch = task.source("train").batch(range(4))
    batch["y"] = torch.tensor([0, 0, 1, 3])
    logits = torch.tensor([[2.0, 0, 0, 0], [0, 2, 0, 0], [0, 2, 0, 0], [2, 0, 0, 0]])
    evaluation = task.evaluation()
    evaluation.update(lambda g: logits, batch)
    found = evaluation.compute()
    right, wrong = (-math.log(math.exp(v) / (math.exp(2) + 3)) for v in (2, 0))
    assert found["loss"] == pytest.approx((2 * right + 2 * wrong) / 4, rel=1e-6)
    assert found["accuracy"] == 0.5
    # F1 of 0: 1/2, of 1: 2/3, of 3: 0; 2 neither occurs nor is named.
    assert found["macro_f1"] == pytest.approx((0.5 + 2 / 3 + 0) / 3)


@pytest.mark.parametrize("name", ["energy", "gin", "gcn"])
def test_every_model_learns(name):
    task, model = made(name)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    source = task.source("train")
    batch = source.batch(range(len(source)))
    model.train()
    losses = []
    for _ in range(30):
        loss, logs = task.loss(model, batch)
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert 0 <= logs["accuracy"] <= 1
    assert losses[-1] < 0.95 * losses[0]


def test_exhibits(tmp_path):
    for name in SMALL:
        task, model = made(name)
        shown = task.exhibits(model)
        titles = [e.title for e in shown]
        assert titles[:3] == ["Scores by class", "Confusion", "Data: motifs"]
        scores, confusion, data = shown[:3]
        assert isinstance(scores, Table)
        assert isinstance(confusion, Heatmap)
        assert confusion.values.sum() == len(task.parts["test"])
        assert [row[1] for row in data.rows] == [60, *(len(p) for p in task.parts.values())]
        drawn = [e for e in shown if isinstance(e, Images)]
        assert len(drawn) == (2 if name == "energy" else 1)
        assert drawn[0].images.shape[1:] == (SIDE, SIDE, 3)
        save(shown, tmp_path / name)
        assert [e.title for e in load(tmp_path / name)] == titles


def test_drawings_keep_neighbours_near():
    ring = np.array([[i, (i + 1) % 8] for i in range(8)]).T
    place = layout(8, ring)
    assert (place >= 0).all()
    assert (place <= 1).all()
    near = np.linalg.norm(place[ring[0]] - place[ring[1]], axis=1)
    assert near.max() < 1.2 * near.min()
    assert near.max() < 0.5 * np.linalg.norm(place[:4] - place[4:], axis=1).min()
    dark, light = (picture(8, ring, np.full(8, s)).mean() for s in (1.0, 0.0))
    assert dark < light < 1
    assert picture(1, np.zeros((2, 0), np.int64), np.zeros(1)).min() < 1
    assert np.isfinite(layout(5, np.zeros((2, 0), np.int64))).all()


def bigger(tmp_path, name="MINE"):
    """Forty stars and paths with labels, in TU files."""
    edges, graph, labels, nodes, first = [], [], [], [], 1
    for i in range(40):
        size = 5 + i % 4
        for k in range(1, size):
            a, b = first + (0 if i % 2 else k - 1), first + k
            edges += [f"{a}, {b}", f"{b}, {a}"]
        graph += [str(i + 1)] * size
        nodes += [str(k % 2) for k in range(size)]
        labels.append(str(3 + 4 * (i % 2)))
        first += size
    parts = {"A": edges, "graph_indicator": graph, "graph_labels": labels, "node_labels": nodes}
    text = {k: "\n".join(v) + "\n" for k, v in parts.items()}
    return write(tmp_path, name, edge_labels=None, node_attributes=None, **text)


@pytest.mark.parametrize("name", list(SMALL))
def test_from_files_to_predictions(tmp_path, name, capsys):
    data, out = bigger(tmp_path / "data"), tmp_path / "run"
    sizes = {"energy": ["--width", "16", "--heads", "2", "--head-dim", "8", "--blocks", "2"],
             "wl": ["--depth", "3"]}.get(name, ["--width", "16", "--layers", "2"])  # fmt: skip
    command = ["train", "graphs", "--data", str(data), "--model", name, "--folds", "4", *sizes,
               "--steps", "60", "--eval-every", "20", "--no-progress", "--out", str(out),
               "--lr", "1e-2", "--threads", "1"]  # fmt: skip
    assert cli.main(command) == 0
    result = json.loads((out / "result.json").read_text())
    assert result["test"]["accuracy"] >= 0.9
    assert result["baselines"]["commonest class"] == pytest.approx(0.5, abs=0.11)
    new = bigger(tmp_path / "new", "OTHER")
    (new / "OTHER_graph_labels.txt").unlink()
    (new / "OTHER_node_labels.txt").write_text(
        (new / "OTHER_node_labels.txt").read_text().replace("0", "77", 1)  # unknown in training
    )
    table = tmp_path / "found.csv"
    assert cli.main(["predict", str(out), str(new), "--out", str(table)]) == 0
    with table.open() as stream:
        rows = list(csv.DictReader(stream))
    assert [r["id"] for r in rows] == [str(i + 1) for i in range(40)]
    assert list(rows[0]) == ["id", "label", "probability_3", "probability_7"]
    right = [r["label"] == str(3 + 4 * (i % 2)) for i, r in enumerate(rows)]
    assert np.mean(right) >= 0.9
    for row in rows:
        both = float(row["probability_3"]), float(row["probability_7"])
        assert sum(both) == pytest.approx(1, abs=1e-5)
        assert (both[1] > both[0]) == (row["label"] == "7")
    assert cli.main(["evaluate", str(out), "--data", str(data)]) == 0
    (data / "MINE_graph_labels.txt").write_text("5\n" + "3\n" * 39)
    capsys.readouterr()
    assert cli.main(["evaluate", str(out), "--data", str(data)]) == 2
    assert "only classes of the training data (3, 7), got 5" in capsys.readouterr().err


def test_one_class_is_refused(tmp_path):
    write(tmp_path, graph_labels="1\n1\n1\n")
    with pytest.raises(InputError, match="graphs of at least two classes, got 1"):
        GraphsTask(GraphsConfig(), 0, tmp_path).load()


def test_positions_are_those_the_model_wants():
    task, _ = made("gin")
    assert task.source("train").batch([0])["positions"].shape[1] == 0
    task.build(SMALL["energy"])
    assert task.source("train").batch([0])["positions"].shape[1] == 5
    store = Store(task.graphs, task.facts, Encoding())
    assert store.batch(np.array([3]))["y"].tolist() == [-1]


def test_a_published_set_without_node_labels():
    task = GraphsTask(GraphsConfig(dataset="IMDB-BINARY"), 0, published("tudataset"))
    task.load()
    assert task.facts.degrees == task.facts.features == 64
    model = task.build(SMALL["energy"]).eval()
    batch = next(iter(batches(task.source("test"), 8)))
    with torch.no_grad():
        assert run(model, batch).isfinite().all()
