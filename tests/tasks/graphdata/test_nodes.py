"""Node graphs from files: what is read, what is said, what is refused; sampling against sets."""

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch

from lawful.errors import InputError
from lawful.tasks.graphdata import (
    Features,
    RawGraph,
    ReadOptions,
    camouflaged_rings,
    connect,
    load_graph,
    sample_neighbourhood,
    write_tables,
)

NODES = "id,age,kind,label\na,1,x,0\nb,,y,1\nc,3,x,\n"


def tables(folder, nodes=NODES, edges="source,target\na,b\nb,c\n"):
    folder.mkdir(exist_ok=True)
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return folder


def test_tables_as_written(tmp_path):
    graph = load_graph(tables(tmp_path))
    assert list(graph.ids) == ["a", "b", "c"]
    assert graph.numeric_names == ("age",)
    assert np.array_equal(graph.numeric[:, 0], [1, np.nan, 3], equal_nan=True)
    assert graph.texts["kind"].tolist() == ["x", "y", "x"]
    assert graph.labels.tolist() == [0, 1, -1]
    assert graph.relations["edges"].tolist() == [[0, 1], [1, 2]]


def test_relations_by_column_and_by_file(tmp_path):
    folder = tables(tmp_path, edges="source,target,relation\na,b,pays\nb,c,knows\n")
    (folder / "edges-knows.csv").write_text("from,to,since\nc,a,2020\n")
    graph = load_graph(folder)
    assert graph.relations["knows"].tolist() == [[2, 1], [0, 2]]
    assert graph.relations["pays"].tolist() == [[0], [1]]
    assert any("since" in r for r in graph.remarks)
    network, _ = connect(graph)
    assert network.relations == tuple(graph.relations)
    for edge, (source, target) in enumerate(network.edge_index.T.tolist()):
        for number, name in enumerate(network.relations):
            both = {frozenset(e) for e in graph.relations[name].T.tolist()}
            assert network.member[edge, number] == (frozenset((source, target)) in both)


def test_generated_graph_survives_its_tables(tmp_path):
    graph = camouflaged_rings(600, rings=10, known=0.5, seed=3)
    write_tables(graph, tmp_path)
    again = load_graph(tmp_path)
    assert np.allclose(again.numeric, graph.numeric, rtol=1e-4, equal_nan=True)
    assert np.array_equal(again.labels, graph.labels)
    assert (again.labels == -1).any()
    ours, theirs = connect(graph)[0], connect(again, tuple(graph.relations))[0]
    assert np.array_equal(ours.edge_index, theirs.edge_index)
    assert np.array_equal(ours.member, theirs.member)


@pytest.mark.parametrize(
    ("nodes", "edges", "words"),
    [
        (NODES, "source,target\na,z\n", r"edges.csv:2, column target: expected the id of a node"),
        ("id,age\na,1\na,2\n", "s,t\n", r"nodes.csv:3, column id: .*'a' again \(first in line 2\)"),
        ("id,age\na,inf\n", "s,t\n", r"nodes.csv:2, column age: expected a finite number"),
        ("id,age\na\n", "s,t\n", r"nodes.csv:2: expected 2 cells"),
        ("id,age,age\n", "s,t\n", "'age' twice"),
        ("", "s,t\n", "empty file"),
        ("id,age\n", "s,t\n", "at least one node"),
        ("id,label\na,odd\n", "s,t\n", "nodes.csv:2, column label.*--anomalous"),
        (NODES, "source\na\n", "columns source and target"),
    ],
)
def test_bad_tables_are_refused_with_their_place(tmp_path, nodes, edges, words):
    with pytest.raises(InputError, match=words):
        load_graph(tables(tmp_path, nodes, edges))


def test_words_for_anomalous_nodes(tmp_path):
    folder = tables(tmp_path, "id,state\na,good\nb,spam\nc,unknown\n")
    options = ReadOptions(label_column="state", anomalous=("Spam",))
    assert load_graph(folder, options).labels.tolist() == [0, 1, -1]
    with pytest.raises(InputError, match="label_column"):
        load_graph(folder, ReadOptions(label_column="nothing"))
    with pytest.raises(InputError, match="anomalous: expected words"):
        load_graph(folder, ReadOptions(label_column="state", anomalous=("bot",)))


def test_edges_are_cleaned_and_told(tmp_path):
    raw = RawGraph(
        "here", 4, np.zeros((4, 0), np.float32), (),
        {"edges": np.array([[0, 0, 1, 2, 0], [1, 1, 0, 2, 3]])},
    )  # fmt: skip
    network, said = connect(raw)
    assert network.edge_index.T.tolist() == [[1, 0], [3, 0], [0, 1], [0, 3]]
    assert network.degrees()[:, 0].tolist() == [2, 1, 0, 1]
    words = " ".join(said)
    assert "1 self-loops" in words
    assert "1 repeated" in words
    assert "1 had no edge back" in words
    empty, said = connect(RawGraph("here", 2, np.zeros((2, 0), np.float32), (), {}))
    assert len(empty.source) == 0
    assert "no edges" in said[-1]
    with pytest.raises(InputError, match="relation"):
        connect(raw, ("other",))
    with pytest.raises(InputError, match=r"node numbers in 0\.\.3"):
        RawGraph("here", 4, raw.numeric, (), {"edges": np.array([[0], [4]])})


def test_arrays_in_their_forms(tmp_path):
    x, y = np.ones((4, 2), np.float32), np.array([0, 1, np.nan, 2])
    edges = np.array([[0, 1, 2], [1, 2, 3]])
    masks = np.eye(3, 4, dtype=bool)
    named = {"train_masks": masks[[0]], "val_masks": masks[[1]], "test_masks": masks[[2]]}
    np.savez(tmp_path / "a.npz", x=x, edge_index=edges, y=y)
    np.savez(tmp_path / "b.npz", node_features=x, edges=edges.T, node_labels=y, **named)
    scipy.io.savemat(
        tmp_path / "c.mat",
        {
            "Network": scipy.sparse.coo_matrix((np.ones(3), edges), (4, 4)),
            "Attributes": scipy.sparse.csr_matrix(x),
            "Label": np.array([[0, 1, 0, 2]]),
        },
    )
    torch.save({"x": torch.tensor(x), "edge_index": torch.tensor(edges)}, tmp_path / "d.pt")
    for name in ("a.npz", "b.npz", "c.mat", "d.pt"):
        graph = load_graph(tmp_path / name)
        found = next(iter(graph.relations.values()))
        assert {tuple(e) for e in found.T.tolist()} == {(0, 1), (1, 2), (2, 3)}, name
        assert np.array_equal(graph.numeric, x)
    assert load_graph(tmp_path / "a.npz").labels.tolist() == [0, 1, -1, 1]
    assert load_graph(tmp_path / "b.npz").masks["valid"].tolist() == masks[[1]].tolist()
    assert load_graph(tmp_path / "c.mat").labels.tolist() == [0, 1, 0, 1]


def test_data_objects_of_torch_geometric(tmp_path):
    pytest.importorskip("torch_geometric")
    from lawful.models import geometric

    data = geometric("data", "test")
    edges = torch.tensor([[0, 1], [1, 2]])
    torch.save(
        data.Data(x=torch.ones(3, 2), edge_index=edges, y=torch.tensor([0, 1, 0])),
        tmp_path / "one.pt",
    )
    assert load_graph(tmp_path / "one.pt").labels.tolist() == [0, 1, 0]
    hetero = data.HeteroData()
    hetero["user"].x = torch.ones(3, 2)
    hetero["user", "pays", "user"].edge_index = edges
    hetero["user", "knows", "user"].edge_index = edges.flip(0)
    torch.save(hetero, tmp_path / "two.pt")
    assert set(load_graph(tmp_path / "two.pt").relations) == {"pays", "knows"}


class Evil:
    def __reduce__(self):
        return print, ("a file must not run code",)


def test_a_pickle_is_not_run(tmp_path, capsys):
    pytest.importorskip("torch_geometric")
    torch.save({"x": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(InputError, match="safely"):
        load_graph(tmp_path / "evil.pt")
    np.savez(tmp_path / "evil.npz", x=np.array([Evil()], dtype=object))
    with pytest.raises(InputError, match="without pickle"):
        load_graph(tmp_path / "evil.npz")
    assert capsys.readouterr().out == ""


def test_published_relations_and_unlabelled_users(tmp_path):
    n = 3310
    net = scipy.sparse.coo_matrix(([1.0], ([0], [n - 1])), (n, n))
    relations = dict.fromkeys(("net_upu", "net_usu", "net_uvu", "homo"), net)
    arrays = {"features": scipy.sparse.csr_matrix(np.ones((n, 3))), "label": np.ones((1, n))}
    scipy.io.savemat(tmp_path / "Amazon.mat", relations | arrays)
    graph = load_graph(tmp_path / "Amazon.mat")
    assert list(graph.relations) == ["upu", "usu", "uvu"]
    assert (graph.labels[:3305] == -1).all()
    assert (graph.labels[3305:] == 1).all()


def test_transactions(tmp_path):
    rows = [
        (0, "s", "t", 5, "l", "p", 2),
        (1, "s", "u", 6, "l", "q", 0),
        (2, "s", "t", 7, "m", "q", 1),
    ]
    text = "Time,Source,Target,Amount,Location,Type,Labels\n"
    (tmp_path / "S-FFSD.csv").write_text(text + "\n".join(",".join(map(str, r)) for r in rows))
    graph = load_graph(tmp_path / "S-FFSD.csv", ReadOptions(links=2))
    assert graph.labels.tolist() == [-1, 0, 1]
    found = {k: sorted(v.T.tolist()) for k, v in graph.relations.items()}
    assert found == {
        "source": [[0, 1], [0, 2], [1, 2]],
        "target": [[0, 2]],
        "location": [[0, 1]],
        "type": [[1, 2]],
    }
    assert np.allclose(np.expm1(graph.numeric[:, 2]), [0, 1, 2])  # earlier ones of the source


def test_what_is_no_graph(tmp_path):
    (tmp_path / "tfinance").write_bytes(b"\0\1")
    with pytest.raises(InputError, match=r"without dgl.*numpy.savez"):
        load_graph(tmp_path / "tfinance")
    with pytest.raises(InputError, match="does not exist"):
        load_graph(tmp_path / "none.npz")
    (tmp_path / "x.npz").write_bytes(b"no")
    with pytest.raises(InputError, match=r"x.npz"):
        load_graph(tmp_path / "x.npz")
    with pytest.raises(InputError, match=r"nodes.csv"):
        load_graph(tmp_path)


@pytest.mark.parametrize("scaling", ["standard", "quantile", "none"])
def test_features_know_the_training_nodes_only(scaling):
    graph = camouflaged_rings(400, rings=5)
    network, _ = connect(graph)
    rows = np.arange(0, 400, 3)
    features = Features.fit(graph, network, rows, scaling=scaling)
    x, _ = features.apply(graph, network)
    assert x.shape == (400, features.size) == (400, len(features.names()))
    assert np.isfinite(x).all()
    changed = camouflaged_rings(400, rings=5)
    others = np.setdiff1d(np.arange(400), rows)
    changed.numeric[others] *= 1e3
    again = Features.fit(changed, network, rows, scaling=scaling)
    assert again == features == Features.from_state(features.state())
    if scaling == "standard":
        whole = rows[~np.isnan(graph.numeric[rows]).any(1)]
        assert abs(x[rows][:, 0].mean()) < 1e-5
        column = graph.numeric[whole, 0].astype(float)
        known = graph.numeric[rows, 0][~np.isnan(graph.numeric[rows, 0])].astype(float)
        assert np.allclose(x[whole, 0], (column - known.mean()) / known.std(), atol=1e-4)


def test_new_categories_are_counted(tmp_path):
    graph = load_graph(tables(tmp_path))
    network, _ = connect(graph)
    features = Features.fit(graph, network, np.arange(2))
    new = load_graph(tables(tmp_path / "new", NODES.replace(",x,", ",z,")))
    x, said = features.apply(new, connect(new)[0])
    place = features.names().index("kind=other")
    assert x[:, place].tolist() == [1, 0, 1]
    assert any("2 nodes hold a rare or new value" in s for s in said)
    lacking = load_graph(tables(tmp_path / "less", "id,kind\na,x\nb,x\nc,x\n"))
    with pytest.raises(InputError, match="'age', as in training"):
        features.apply(lacking, network)
    kinds = ReadOptions(kinds=features.kinds())
    with pytest.raises(InputError, match=r"nodes.csv:2, column age: expected a number"):
        load_graph(tables(tmp_path / "odd", NODES.replace("a,1", "a,old")), kinds)


@pytest.mark.parametrize("fanouts", [[3], [4, 2], [0, 0], [100, 5, 1]])
def test_sampling_by_its_definition(fanouts):
    graph = camouflaged_rings(800, rings=8)
    network, _ = connect(graph)
    seeds = np.array([5, 17, 400, 799])
    found = sample_neighbourhood(network, seeds, fanouts, np.random.default_rng(0))
    assert found.nodes[:4].tolist() == seeds.tolist()
    assert len(set(found.nodes.tolist())) == len(found.nodes)
    source, target = found.nodes[found.edge_index]
    assert np.array_equal(network.source[found.edges], source)
    assert np.array_equal(network.target[found.edges], target)
    pairs = set(zip(source.tolist(), target.tolist(), strict=True))
    assert len(pairs) == len(source)
    assert {(b, a) for a, b in pairs} == pairs
    near, hops = set(seeds.tolist()), set(seeds.tolist())
    for fanout in fanouts:
        grown = set()
        for node in hops:
            drawn = {a for a, b in pairs if b == node}
            assert drawn <= set(network.neighbours(node).tolist())
            # Its own draw; more only where it was drawn from the other side.
            assert len(drawn) >= min(fanout or 10**9, len(network.neighbours(node)))
            grown |= drawn
        hops = grown - near
        near |= grown
    assert near == set(found.nodes.tolist())
    again = sample_neighbourhood(network, seeds, fanouts, np.random.default_rng(0))
    assert np.array_equal(again.edges, found.edges)


def test_every_neighbour_is_drawn_equally_often():
    edges = np.stack([np.arange(1, 11), np.zeros(10, np.int64)])
    raw = RawGraph("here", 11, np.zeros((11, 0), np.float32), (), {"edges": edges})
    network, _ = connect(raw)
    random, counts = np.random.default_rng(1), np.zeros(11)
    for _ in range(4000):
        found = sample_neighbourhood(network, np.array([0]), [3], random)
        assert len(found.nodes) == 4
        counts[found.nodes] += 1
    assert np.abs(counts[1:] / 4000 - 0.3).max() < 0.03
