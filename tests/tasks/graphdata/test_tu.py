"""TU files, positions and generated graphs against slow definitions."""

import zipfile

import numpy as np
import pytest

from lawful.errors import InputError
from lawful.tasks.graphdata._graphs import GraphSet, spans, tidy
from lawful.tasks.graphdata.motifs import CLASSES, motif_graphs
from lawful.tasks.graphdata.positions import laplacian_positions, return_probabilities
from lawful.tasks.graphdata.tu import find_tu, read_tu
from tests.published import published

# Graph 1: a triangle and an isolated node; graph 2: a path of two, listed twice; graph 3: a node.
FILES = {
    "A": "1, 2\n2, 1\n2, 3\n3, 2\n1, 3\n3, 1\n5, 6\n6, 5\n5, 6\n6, 5\n",
    "graph_indicator": "1\n1\n1\n1\n2\n2\n3\n",
    "graph_labels": "1\n-1\n1\n",
    "node_labels": "0\n1\n0\n2\n5\n5\n0\n",
    "edge_labels": "7\n7\n8\n8\n9\n9\n7\n7\n7\n7\n",
    "node_attributes": "".join(f" {i}.5, -{i}e-1\n" for i in range(7)),
}


def write(folder, name="TOY", **changed):
    folder.mkdir(parents=True, exist_ok=True)
    for part, text in (FILES | changed).items():
        if text is not None:
            (folder / f"{name}_{part}.txt").write_text(text)
    return folder


def pairs(graphs, index):
    """Undirected edges of a graph, by numbers within it."""
    nodes = np.flatnonzero(graphs.graph == index)
    own = graphs.edges[:, graphs.graph[graphs.edges[1]] == index] - nodes[0]
    return {tuple(sorted(p)) for p in own.T.tolist()}


def test_a_folder(tmp_path):
    found = read_tu(write(tmp_path))
    assert (found.count, found.nodes, found.edges.shape) == (3, 7, (2, 8))
    assert found.sizes.tolist() == [4, 2, 1]
    assert found.edge_counts.tolist() == [6, 2, 0]
    assert found.labels.tolist() == [1, -1, 1]
    assert [pairs(found, i) for i in range(3)] == [{(0, 1), (1, 2), (0, 2)}, {(0, 1)}, set()]
    assert found.degrees.tolist() == [2, 2, 2, 0, 1, 1, 0]
    assert found.node_labels[:, 0].tolist() == [0, 1, 0, 2, 5, 5, 0]
    assert found.node_values[3].tolist() == [3.5, -0.3]
    assert found.notes == ("2 repeated edges dropped",)
    labels = {}
    for (a, b), label in zip(found.edges.T.tolist(), found.edge_labels[:, 0].tolist(), strict=True):
        labels[a, b] = label
    assert labels == {
        (0, 1): 7, (1, 0): 7, (1, 2): 8, (2, 1): 8, (0, 2): 9, (2, 0): 9, (4, 5): 7, (5, 4): 7,
    }  # fmt: skip
    assert found.edges[1].tolist() == sorted(found.edges[1].tolist())


def same(a, b):
    assert a.count == b.count
    for name in ("edges", "graph", "labels", "node_labels", "node_values", "edge_labels"):
        x, y = getattr(a, name), getattr(b, name)
        assert (x is None) == (y is None), name
        assert x is None or np.array_equal(x, y), name


@pytest.mark.parametrize("inner", ["", "TOY/", "deep/TOY/raw/"])
def test_a_zip_and_nested_folders(tmp_path, inner):
    plain = read_tu(write(tmp_path / "a"))
    archive = tmp_path / "b" / "TOY.zip"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w") as z:
        for part, text in FILES.items():
            z.writestr(f"{inner}TOY_{part}.txt", text)
        z.writestr("__MACOSX/TOY_A.txt", "nothing")
    for path in (archive, archive.parent):
        same(read_tu(path), plain)
    same(read_tu(write(tmp_path / "c" / "TOY").parent), plain)
    same(read_tu(write(tmp_path / "d" / "TOY" / "raw").parents[1], "TOY"), plain)


def test_the_set_is_named_where_there_are_several(tmp_path):
    write(tmp_path, "ONE")
    write(tmp_path / "sub", "TWO", node_labels=None)
    (tmp_path / "broken.zip").write_text("no zip")
    assert sorted(find_tu(tmp_path)) == ["ONE", "TWO"]
    assert read_tu(tmp_path, "TWO").node_labels is None
    with pytest.raises(InputError, match="dataset: expected the name of one set, got none"):
        read_tu(tmp_path)
    with pytest.raises(InputError, match="did you mean ONE"):
        read_tu(tmp_path, "ONNE")
    with pytest.raises(InputError, match=r"broken\.zip: expected a folder or zip of TU files"):
        read_tu(tmp_path / "broken.zip")


def test_nodes_in_any_order_and_edges_one_way(tmp_path):
    mixed = read_tu(
        write(tmp_path / "m", A="3,1\n1,1\n4,2\n", graph_indicator="2\n1\n2\n1\n",
              graph_labels="0\n1\n", node_labels="9\n8\n7\n6\n", edge_labels="1\n2\n3\n",
              node_attributes=None)
    )  # fmt: skip
    assert mixed.graph.tolist() == [0, 0, 1, 1]
    assert mixed.node_labels[:, 0].tolist() == [8, 6, 9, 7]
    assert [pairs(mixed, i) for i in range(2)] == [{(0, 1)}, {(0, 1)}]
    assert mixed.edges.T.tolist() == [[1, 0], [0, 1], [3, 2], [2, 3]]
    assert mixed.edge_labels[:, 0].tolist() == [3, 3, 1, 1]
    assert mixed.notes == (
        "1 self-loops dropped",
        "2 edges were listed one way only; the reverse was added",
    )


def test_graphs_without_any_edge(tmp_path):
    found = read_tu(write(tmp_path, A="", edge_labels=""))
    assert found.edges.shape == (2, 0)
    assert found.edge_counts.tolist() == [0, 0, 0]
    assert not laplacian_positions(found, 3).any()
    assert not return_probabilities(found, 3).any()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"A": "1, 2\n\n2, x\n"}, r"TOY_A\.txt:3: expected whole numbers .*got '2, x'"),
        ({"A": "1, 2\n1.5, 2\n"}, r"TOY_A\.txt:2: expected whole numbers"),
        ({"A": "1, 2\n2, 1, 3\n"}, r"TOY_A\.txt:2: expected 2 numbers, got 3"),
        ({"A": "1\n2\n"}, r"TOY_A\.txt:1: expected two node numbers, got 1"),
        ({"A": "1, 2\n\n2, 8\n"}, r"TOY_A\.txt:3: expected numbers in 1\.\.7, got 2, 8"),
        ({"A": "0, 1\n"}, r"TOY_A\.txt:1: expected numbers in 1\.\.7, got 0, 1"),
        ({"A": "1, 2\n3, 5\n"}, r"TOY_A\.txt:2: .*got one between graphs 1 and 2"),
        ({"graph_indicator": None}, r"TOY_graph_indicator\.txt: expected a file, got none"),
        ({"graph_indicator": ""}, r"expected at least one graph, got an empty file"),
        ({"graph_labels": None}, r"TOY_graph_labels\.txt: expected a file with a class"),
        ({"graph_labels": "1\n2\n"}, r"TOY_graph_indicator\.txt:7: expected numbers in 1\.\.2"),
        ({"graph_labels": "1\n2\n3\n4\n"}, r"expected nodes for every graph, got none for graph 4"),
        ({"graph_labels": "1, 2\n"}, r"TOY_graph_labels\.txt:1: expected one number a line"),
        ({"node_labels": "0\n1\n"}, r"TOY_node_labels\.txt: expected 7 lines, one for each node"),
        ({"edge_labels": "0\n"}, r"TOY_edge_labels\.txt: expected 10 lines, one for each edge"),
        ({"node_attributes": "1\n2\nnan\n4\n5\n6\n7\n"},
         r"TOY_node_attributes\.txt:3: expected finite numbers, got \[nan\]"),
        ({"node_attributes": "1\n2\n\n3\ninf\n5\n6\n7\n"}, r"node_attributes\.txt:5"),
    ],
)  # fmt: skip
def test_bad_files_are_told_with_the_line(tmp_path, changed, message):
    folder = tmp_path / "bad"
    write(folder, **changed)
    with pytest.raises(InputError, match=message):
        read_tu(folder)


def test_paths_without_a_set(tmp_path):
    with pytest.raises(InputError, match="no such path"):
        read_tu(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"got no file \*_A\.txt"):
        read_tu(tmp_path)


def test_prediction_needs_no_classes(tmp_path):
    found = read_tu(write(tmp_path, graph_labels=None), labelled=False)
    assert found.labels is None
    assert found.ids == ["1", "2", "3"]


def test_spans():
    assert spans(np.array([5, 0, 9]), np.array([2, 0, 3])).tolist() == [5, 6, 9, 10, 11]
    assert spans(np.zeros(0, np.int64), np.zeros(0, np.int64)).tolist() == []


def graph_of(edges, size):
    pair = np.array(edges, np.int64).reshape(-1, 2).T
    both = np.concatenate([pair, pair[::-1]], 1)
    return tidy(GraphSet("g", both, np.zeros(size, np.int64), 1, np.zeros(1, np.int64)))


def dense(graphs):
    a = np.zeros((graphs.nodes, graphs.nodes))
    a[graphs.edges[1], graphs.edges[0]] = 1
    return a


@pytest.mark.parametrize("size", [40, 400])  # by the dense solver, and by the sparse one
def test_eigenvectors_of_the_laplacian(size):
    random = np.random.default_rng(0)
    tree = [(int(random.integers(0, i)), i) for i in range(1, size)]
    graphs = graph_of([*tree, *random.integers(0, size, (size, 2)).tolist()], size)
    found = laplacian_positions(graphs, 6)
    a = dense(graphs)
    scale = 1 / np.sqrt(a.sum(1))
    laplacian = np.eye(size) - scale[:, None] * a * scale
    values = np.linalg.eigvalsh(laplacian)
    assert values[0] == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(laplacian @ found, found * values[1:7], atol=1e-6)
    np.testing.assert_allclose(found.T @ found, size * np.eye(6), atol=1e-6 * size)
    top = np.abs(found).argmax(0)
    assert (found[top, np.arange(6)] > 0).all()
    np.testing.assert_array_equal(laplacian_positions(graphs, 6), found)


def test_components_have_positions_of_their_own():
    path, ring = [(0, 1), (1, 2)], [(4, 5), (5, 6), (6, 7), (7, 8), (8, 4)]
    both = laplacian_positions(graph_of([*path, *ring], 10), 6)
    np.testing.assert_allclose(both[:3], laplacian_positions(graph_of(path, 3), 6), atol=1e-9)
    assert not both[[3, 9]].any()  # isolated
    assert not both[:3, 2:].any()  # three nodes have two vectors besides the first
    assert both[4:9, :4].any(0).all()
    assert laplacian_positions(graph_of(path, 3), 0).shape == (3, 0)
    with pytest.raises(InputError, match="eigenvectors"):
        laplacian_positions(graph_of(path, 3), -1)


def test_other_graphs_do_not_change_positions():
    graphs = motif_graphs(count=8)
    nodes = np.flatnonzero(graphs.graph == 5)
    own = graphs.edges[:, graphs.graph[graphs.edges[1]] == 5] - nodes[0]
    alone = tidy(GraphSet("g", own, np.zeros(len(nodes), np.int64), 1, np.zeros(1, np.int64)))
    for made in (laplacian_positions, return_probabilities):
        np.testing.assert_allclose(made(graphs, 5)[nodes], made(alone, 5), atol=1e-9)


def test_chances_of_return():
    graphs = graph_of([(0, 1), (1, 2), (2, 0), (2, 3)], 5)
    a = dense(graphs)
    walk = a / np.maximum(a.sum(1, keepdims=True), 1)
    want = np.stack([np.diag(np.linalg.matrix_power(walk, t)) for t in range(1, 5)], 1)
    np.testing.assert_allclose(return_probabilities(graphs, 4), want, atol=1e-12)
    with pytest.raises(InputError, match="walks"):
        return_probabilities(graphs, -1)


def test_motif_graphs_are_connected_and_as_told():
    graphs = motif_graphs(3, 40)
    assert np.bincount(graphs.labels).tolist() == [10] * 4
    cycles = graphs.edge_counts // 2 - graphs.sizes + 1
    assert [set(cycles[graphs.labels == c].tolist()) for c in range(4)] == [{0}, {1}, {1}, {2}]
    assert len(CLASSES) == 4
    assert 14 <= graphs.sizes.min() <= graphs.sizes.max() <= 24
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    matrix = csr_array((np.ones(graphs.edges.shape[1]), tuple(graphs.edges)), (graphs.nodes,) * 2)
    assert connected_components(matrix)[0] == 40
    triangles = np.array([np.trace(np.linalg.matrix_power(dense_of(graphs, i), 3)) // 6
                          for i in range(40)])  # fmt: skip
    assert [set(triangles[graphs.labels == c].tolist()) for c in range(4)] == [{0}, {1}, {0}, {1}]
    same(motif_graphs(3, 40), graphs)
    assert not np.array_equal(motif_graphs(4, 40).graph, graphs.graph)


def dense_of(graphs, index):
    nodes = np.flatnonzero(graphs.graph == index)
    a = np.zeros((len(nodes), len(nodes)), np.int64)
    for x, y in pairs(graphs, index):
        a[x, y] = a[y, x] = 1
    return a


@pytest.mark.parametrize(
    ("name", "graphs", "nodes", "edges", "classes"),
    [
        ("MUTAG", 188, 3371, 7442, [63, 125]),
        ("ENZYMES", 600, 19580, 74564, [100] * 6),
        ("IMDB-BINARY", 1000, 19773, 193062, [500, 500]),  # each edge is listed twice
    ],
)
def test_published_sets(name, graphs, nodes, edges, classes):
    found = read_tu(published("tudataset"), name)
    assert (found.count, found.nodes, found.edges.shape[1]) == (graphs, nodes, edges)
    assert np.unique(found.labels, return_counts=True)[1].tolist() == classes
    assert len(np.unique(found.edges, axis=1).T) == edges
    source, target = found.edges
    assert (found.graph[source] == found.graph[target]).all()
    if name == "ENZYMES":
        assert found.node_values.shape == (nodes, 18)
        assert (found.degrees == 0).sum() == 106
