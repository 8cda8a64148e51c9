"""Graphs from node and edge tables: what is read, and what is refused with which words."""

import zipfile

import numpy as np
import pytest

from lawful.errors import InputError
from lawful.tasks.graphdata import (
    RawGraph,
    ReadOptions,
    camouflaged_rings,
    connect,
    load_graph,
    write_tables,
)

NODES = "id,age,city,label\na,1.5,Rome,0\nb,,Bonn,1\nc,3,Rome,\n"
EDGES = "source,target\na,b\nb,c\n"


@pytest.fixture
def folder(tmp_path):
    def write(nodes=NODES, **tables):
        (tmp_path / "nodes.csv").write_text(nodes)
        for name, text in (tables or {"edges": EDGES}).items():
            (tmp_path / f"{name.replace('__', '-')}.csv").write_text(text)
        return tmp_path

    return write


def test_columns_labels_and_edges(folder):
    graph = load_graph(folder())
    assert graph.count == 3
    assert graph.numeric_names == ("age",)
    np.testing.assert_array_equal(graph.numeric[:, 0], [1.5, np.nan, 3])
    assert graph.texts["city"].tolist() == ["Rome", "Bonn", "Rome"]
    assert graph.labels.tolist() == [0, 1, -1]
    np.testing.assert_array_equal(graph.relations["edges"], [[0, 1], [1, 2]])
    assert [graph.id_of(i) for i in range(3)] == ["a", "b", "c"]


def test_relations_from_files_and_from_a_column(folder):
    path = folder(
        edges="src,dst,relation\na,b,pays\nb,c,calls\nc,a,\n",
        edges__pays="v,u\nb,c\n",
    )
    graph = load_graph(path)
    assert set(graph.relations) == {"edges", "pays", "calls"}
    # columns named u and v are source and target in whatever order they stand
    np.testing.assert_array_equal(graph.relations["pays"], [[2, 0], [1, 1]])
    np.testing.assert_array_equal(graph.relations["edges"], [[2], [0]])


def test_other_separators_quotes_and_marks(folder):
    path = folder('﻿id\tname\tlabel\n1\t"x, y"\tno\n2\tz\tfraud\n', edges="source;target\n1;2\n")
    graph = load_graph(path)
    assert graph.texts["name"].tolist() == ["x, y", "z"]
    assert graph.labels.tolist() == [0, 1]


def test_a_table_without_edges_rows_or_labels(folder):
    graph = load_graph(folder("id,x\na,1\nb,2\n", edges="source,target\n"))
    assert graph.labels is None
    assert graph.relations["edges"].shape == (2, 0)
    assert any("no column of labels" in r for r in graph.remarks)
    _, said = connect(graph)
    assert "there are no edges: every node stands alone" in said


@pytest.mark.parametrize(
    ("nodes", "edges", "words"),
    [
        (NODES, "source,target\na,b\nb,z\nc,y\n", r"edges.csv:3, column target.*'z'; 2 cells"),
        (NODES + "a,2,Rome,0\n", EDGES, r"nodes.csv:5, column id.*'a' again \(first in line 2\)"),
        (NODES + ",2,Rome,0\n", EDGES, r"nodes.csv:5, column id.*an id, got an empty cell"),
        (NODES + "d,2\n", EDGES, r"nodes.csv:5: expected 4 cells, as in line 1, got 2"),
        (NODES + "d,inf,Rome,0\n", EDGES, r"nodes.csv:5, column age.*finite number, got 'inf'"),
        (NODES + "d,2,Rome,odd\n", EDGES, r"nodes.csv:5, column label.*'odd'.*--anomalous"),
        ("id,x,x\na,1,2\n", EDGES, r"nodes.csv:1.*'x' twice"),
        ("id,,x\na,1,2\n", EDGES, r"nodes.csv:1.*a column without a name"),
        ("", EDGES, r"nodes.csv.*an empty file"),
        ("id,x\n", EDGES, r"at least one node, got none"),
        (NODES, "source\na\n", r"edges.csv: expected columns source and target"),
    ],
)
def test_wrong_tables_name_their_place(folder, nodes, edges, words):
    with pytest.raises(InputError, match=words):
        load_graph(folder(nodes, edges=edges))


def test_wrong_bytes_are_no_table(folder):
    path = folder()
    (path / "nodes.csv").write_bytes(b"id,x\n\xff\xfe,1\n")
    with pytest.raises(InputError, match="expected a table as text"):
        load_graph(path)


def test_chosen_label_column_and_words(folder):
    nodes = "id,state,kind\na,fine,bad\nb,odd,good\nc,fine,good\n"
    path = folder(nodes)
    graph = load_graph(path, ReadOptions(label_column="state", anomalous=("Odd",)))
    assert graph.labels.tolist() == [0, 1, 0]
    with pytest.raises(InputError, match=r"label_column.*id, state, kind, got stat"):
        load_graph(path, ReadOptions(label_column="stat"))
    with pytest.raises(InputError, match="words that the label column holds"):
        load_graph(path, ReadOptions(label_column="state", anomalous=("strange",)))


def test_known_kinds_win_over_looks(folder):
    nodes = "id,zip,n\na,1,1\nb,2,2\nc,3,3\n"
    graph = load_graph(folder(nodes), ReadOptions(kinds={"zip": "text", "n": "number"}))
    assert graph.numeric_names == ("n",)
    assert graph.texts["zip"].tolist() == ["1", "2", "3"]
    broken = nodes.replace("b,2,2", "b,2,two")
    with pytest.raises(InputError, match=r"nodes.csv:3, column n.*as in training, got 'two'"):
        load_graph(folder(broken), ReadOptions(kinds={"n": "number"}))


def test_folders_without_tables(tmp_path):
    with pytest.raises(InputError, match=r"nodes.csv and edges.csv.*got an empty folder"):
        load_graph(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        load_graph(tmp_path / "none")
    (tmp_path / "nodes.csv").write_text(NODES)
    with pytest.raises(InputError, match=r"a table edges.csv or edges.parquet, got none"):
        load_graph(tmp_path)
    (tmp_path / "nodes.tsv").write_text(NODES)
    with pytest.raises(InputError, match=r"one table nodes\.csv"):
        load_graph(tmp_path)


def test_written_tables_come_back(tmp_path):
    graph = camouflaged_rings(400, rings=5, known=0.5, seed=3)
    write_tables(graph, tmp_path)
    again = load_graph(tmp_path)
    np.testing.assert_allclose(again.numeric, graph.numeric, rtol=1e-5)
    np.testing.assert_array_equal(again.labels, graph.labels)
    assert list(again.ids) == list(graph.ids)
    assert again.texts["kind"].tolist() == graph.texts["kind"].tolist()
    for name, edges in graph.relations.items():
        np.testing.assert_array_equal(again.relations[name], edges)
    write_tables(graph, tmp_path, with_labels=False)
    assert load_graph(tmp_path).labels is None


def test_zipped_tables(folder, tmp_path):
    path = folder()
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name in ("nodes.csv", "edges.csv"):
            archive.write(path / name, f"inside/{name}")
    assert load_graph(tmp_path / "all.zip").count == 3
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.npz", "")
        archive.writestr("b.npz", "")
    with pytest.raises(InputError, match="one graph inside, got 2 files"):
        load_graph(tmp_path / "two.zip")
    (tmp_path / "no.zip").write_text("no")
    with pytest.raises(InputError, match="expected a zip file"):
        load_graph(tmp_path / "no.zip")


def test_parquet_reads_as_csv(folder):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow as pa
    import pyarrow.parquet as parquet

    path = folder()
    expected = load_graph(path)
    table = pa.table(
        {"id": ["a", "b", "c"], "age": [1.5, None, 3.0], "city": ["Rome", "Bonn", "Rome"]}
    ).append_column("label", pa.array([0, 1, None]))
    parquet.write_table(table, path / "nodes.parquet")
    (path / "nodes.csv").unlink()
    parquet.write_table(pa.table({"source": ["a", "b"], "target": ["b", "c"]}), path / "e.parquet")
    (path / "e.parquet").rename(path / "edges.parquet")
    (path / "edges.csv").unlink()
    graph = load_graph(path)
    np.testing.assert_array_equal(graph.numeric, expected.numeric)
    assert graph.labels.tolist() == expected.labels.tolist()
    np.testing.assert_array_equal(graph.relations["edges"], expected.relations["edges"])


def test_transactions_join_what_is_shared(tmp_path):
    path = tmp_path / "S-FFSD.csv"
    path.write_text(
        "Time,Source,Target,Amount,Location,Type,Labels\n"
        "0,s1,t1,5,l1,x,0\n"
        "1,s1,t2,6,l2,x,1\n"
        "3,s1,t1,7,l3,y,2\n"
        "2,s2,t1,8,l4,z,0\n"
    )
    graph = load_graph(path)
    assert graph.labels.tolist() == [0, 1, -1, 0]
    pairs = {name: set(map(tuple, e.T.tolist())) for name, e in graph.relations.items()}
    assert pairs["source"] == {(0, 1), (1, 2), (0, 2)}
    assert pairs["target"] == {(0, 3), (3, 2), (0, 2)}  # by time, not by line
    assert pairs["location"] == set()
    assert pairs["type"] == {(0, 1)}
    one = load_graph(path, ReadOptions(links=1))
    assert set(map(tuple, one.relations["source"].T.tolist())) == {(0, 1), (1, 2)}
    # log(1 + earlier transactions of the same target)
    np.testing.assert_allclose(graph.numeric[:, 3], np.log1p([0, 0, 2, 1]), rtol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (",Labels", ",Label", "expected the columns Time, .*got no Labels"),
        ("x,0", "x,7", r":2, column Labels: expected 0, 1 or 2, got 7"),
        ("0,s1,t1,5", "0,s1,t1,much", r":2, column Amount.*'much'"),
    ],
)
def test_wrong_transactions(tmp_path, old, new, words):
    text = "Time,Source,Target,Amount,Location,Type,Labels\n0,s1,t1,5,l1,x,0\n"
    (tmp_path / "t.csv").write_text(text.replace(old, new))
    with pytest.raises(InputError, match=words):
        load_graph(tmp_path / "t.csv")


def test_dgl_files_tell_how_to_convert(tmp_path):
    (tmp_path / "tfinance").write_bytes(b"\x00" * 100)
    with pytest.raises(InputError, match=r"dgl.load_graphs.*numpy.savez.*graph.npz"):
        load_graph(tmp_path / "tfinance")
    (tmp_path / "x.doc").write_bytes(b"\x00" * 100)
    with pytest.raises(InputError, match=r"a folder with nodes.csv.*got a file .doc"):
        load_graph(tmp_path / "x.doc")


def test_impossible_graphs():
    one = np.zeros((1, 0), np.float32)
    with pytest.raises(InputError, match=r"node numbers in 0..0, got 1"):
        RawGraph("g", 1, one, (), {"e": np.array([[0], [1]])})
    with pytest.raises(InputError, match=r"shape \(2, E\)"):
        RawGraph("g", 1, one, (), {"e": np.zeros((3, 1), np.int64)})
    with pytest.raises(InputError, match="1 labels, one a node, got 2"):
        RawGraph("g", 1, one, (), {}, labels=np.zeros(2, np.int8))
    with pytest.raises(InputError, match="features for each of 1 nodes"):
        RawGraph("g", 1, one, ("x",), {})
