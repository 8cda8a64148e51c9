"""Graphs from .npz, .mat and .pt files, and from the published files among the shared data."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lawful.errors import InputError
from lawful.models._graph_layers import geometric
from lawful.tasks.graphdata import connect, load_graph
from tests.published import published

X = np.arange(8, dtype=np.float32).reshape(4, 2)
EDGES = np.array([[0, 1, 2], [1, 2, 3]])
Y = np.array([0, 1, -1, 0])


def saved(path, **arrays):
    np.savez(path, **arrays)
    return load_graph(path)


@pytest.mark.parametrize("names", [("x", "y"), ("node_features", "node_labels")])
def test_npz_by_usual_names(tmp_path, names):
    graph = saved(tmp_path / "g.npz", **{names[0]: X, names[1]: Y}, edge_index=EDGES)
    np.testing.assert_array_equal(graph.numeric, X)
    assert graph.labels.tolist() == Y.tolist()
    np.testing.assert_array_equal(graph.relations["edges"], EDGES)
    turned = saved(tmp_path / "t.npz", **{names[0]: X, names[1]: Y}, edges=EDGES.T)
    np.testing.assert_array_equal(turned.relations["edges"], EDGES)


def test_a_square_list_of_two_edges_is_read_by_its_name(tmp_path):
    two = np.array([[0, 1], [2, 3]])
    graph = saved(tmp_path / "a.npz", x=X, edge_index=two)
    assert set(map(tuple, graph.relations["edges"].T.tolist())) == {(0, 2), (1, 3)}
    graph = saved(tmp_path / "b.npz", x=X, edges=two)
    assert set(map(tuple, graph.relations["edges"].T.tolist())) == {(0, 1), (2, 3)}


def test_several_relations_and_masks(tmp_path):
    masks = {f"{p}_masks": np.eye(4, dtype=bool)[:2] for p in ("train", "val", "test")}
    graph = saved(tmp_path / "g.npz", x=X, y=Y, edges_pays=EDGES.T, edge_index_calls=EDGES, **masks)
    assert set(graph.relations) == {"pays", "calls"}
    assert graph.masks["valid"].shape == (2, 4)
    columns = {f"{p}_mask": np.zeros((4, 3), bool) for p in ("train", "val", "test")}
    assert saved(tmp_path / "c.npz", x=X, edges=EDGES.T, **columns).masks["test"].shape == (3, 4)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": X}, r"edge_index \(2, E\) or edges"),
        ({"x": X, "edges": EDGES.T.astype(float)}, "whole numbers"),
        ({"x": X, "edges": EDGES.T + 2}, r"edge 1.*0\.\.3"),
        ({"x": X, "edges": EDGES.T, "y": Y[:3]}, "4 labels"),
        ({"x": np.full((4, 2), np.inf), "edges": EDGES.T}, "column x0, node 0: expected a finite"),
        ({"x": X.astype(str), "edges": EDGES.T}, "numbers of 4 nodes"),
        ({"x": X, "edges": EDGES.T, "y": Y.astype(str)}, "labels that are numbers"),
        ({"x": X, "edges": EDGES.T, "train_mask": Y > 0}, "train, val and test masks"),
        ({"x": X, "edges": EDGES.T, "y": np.array([None] * 4)}, "without pickle"),
    ],
)
def test_wrong_arrays(tmp_path, arrays, words):
    with pytest.raises(InputError, match=words):
        saved(tmp_path / "g.npz", **arrays)


def test_broken_files(tmp_path):
    for name in ("a.npz", "a.mat", "a.pt"):
        (tmp_path / name).write_bytes(b"nothing of use")
        with pytest.raises(InputError, match=rf"{name}: expected"):
            load_graph(tmp_path / name)


def test_pyg_data(tmp_path):
    data = geometric("data", "the test")
    one = data.Data(x=torch.from_numpy(X), edge_index=torch.from_numpy(EDGES), y=torch.tensor(Y))
    for mask in ("train_mask", "val_mask", "test_mask"):
        one[mask] = torch.tensor([True, False, False, False])
    torch.save(one, tmp_path / "one.pt")
    graph = load_graph(tmp_path / "one.pt")
    np.testing.assert_array_equal(graph.numeric, X)
    assert graph.labels.tolist() == Y.tolist()
    assert graph.masks["train"].sum() == 1
    several = data.HeteroData()
    several["user"].x, several["user"].y = torch.from_numpy(X), torch.tensor(Y)
    several["user", "pays", "user"].edge_index = torch.from_numpy(EDGES)
    several["user", "calls", "user"].edge_index = torch.from_numpy(EDGES[:, :1])
    torch.save(several, tmp_path / "several.pt")
    graph = load_graph(tmp_path / "several.pt")
    assert {k: v.shape[1] for k, v in graph.relations.items()} == {"pays": 3, "calls": 1}
    several["shop"].x = torch.ones(2, 1)
    torch.save(several, tmp_path / "kinds.pt")
    with pytest.raises(InputError, match=r"one kind of nodes.*user, shop"):
        load_graph(tmp_path / "kinds.pt")


def test_a_dict_of_tensors_and_a_file_with_code(tmp_path):
    torch.save({"x": torch.from_numpy(X), "edge_index": torch.from_numpy(EDGES)}, tmp_path / "d.pt")
    assert load_graph(tmp_path / "d.pt").count == 4
    torch.save(Path("x"), tmp_path / "code.pt")
    with pytest.raises(InputError, match="can be read safely"):
        load_graph(tmp_path / "code.pt")


def test_mat_in_three_published_forms(tmp_path):
    scipy_io = pytest.importorskip("scipy.io", reason="scipy is not installed")
    from scipy.sparse import csc_matrix

    square = csc_matrix((np.ones(3), (EDGES[0], EDGES[1])), (4, 4))
    arrays = {"Network": square, "Attributes": csc_matrix(X), "Label": [[0], [1], [0], [0]]}
    scipy_io.savemat(tmp_path / "f.mat", arrays)
    graph = load_graph(tmp_path / "f.mat")
    np.testing.assert_array_equal(graph.numeric, X)
    assert set(map(tuple, graph.relations["Network"].T.tolist())) == {(0, 1), (1, 2), (2, 3)}
    nets = {f"net_{n}": square for n in ("rur", "rtr", "rsr")}
    yelp = {"features": csc_matrix(X), "label": [[0, 1, 0, 0]], "homo": square, **nets}
    scipy_io.savemat(tmp_path / "YelpChi.mat", yelp)
    graph = load_graph(tmp_path / "YelpChi.mat")
    assert set(graph.relations) == {"rur", "rtr", "rsr"}
    assert graph.labels.tolist() == [0, 1, 0, 0]
    n = 3307
    upu = csc_matrix((np.ones(1), ([0], [1])), (n, n))
    label = np.zeros((1, n))
    label[0, -1] = 1
    amazon = {"features": np.ones((n, 1)), "label": label, "net_upu": upu, "homo": upu}
    scipy_io.savemat(tmp_path / "Amazon.mat", amazon)
    graph = load_graph(tmp_path / "Amazon.mat")
    assert np.bincount(graph.labels + 1).tolist() == [3305, 1, 1]
    assert any("3305" in r for r in graph.remarks)
    scipy_io.savemat(tmp_path / "x.mat", {"a": 1})
    with pytest.raises(InputError, match="Network and Attributes"):
        load_graph(tmp_path / "x.mat")


def test_users_and_things(tmp_path):
    graph = saved(
        tmp_path / "b.npz",
        u2p_indptr=np.array([0, 1, 3]),
        u2p_indices=np.array([0, 0, 2]),
        shape=np.array([2, 3]),
        labels_u=np.array([0, 1]),
    )
    assert graph.labels.tolist() == [0, 1, -1, -1, -1]
    np.testing.assert_array_equal(graph.relations["u2p"], [[0, 1, 1], [2, 2, 4]])
    assert graph.id_of(1) == "u1"
    assert graph.id_of(2) == "p0"


#: File, nodes, undirected edges without loops, anomalous.
PUBLISHED = [
    ("tolokers.npz", 11_758, 519_000, 2_566),
    ("reddit.npz", 10_984, 78_516, 366),
    ("books.npz", 1_418, None, 28),
    ("disney.npz", 124, 335, 6),
    ("Facebook.mat", 1_081, None, 25),
    ("weibo_s_bipartite.npz", 70_369, 145_496, 868),
    ("S-FFSD.zip", 77_881, None, 5_256),
]


@pytest.mark.parametrize(("name", "nodes", "edges", "anomalous"), PUBLISHED)
def test_published_files(name, nodes, edges, anomalous):
    graph = load_graph(published("graph_anomaly") / name)
    network, _ = connect(graph)
    assert graph.count == nodes
    assert int((graph.labels == 1).sum()) == anomalous
    if edges is not None:
        assert len(network.source) == 2 * edges
