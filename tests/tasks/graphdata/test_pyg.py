"""Graphs that torch_geometric saved."""

import warnings

import pytest
import torch

from lawful.errors import InputError
from lawful.tasks.graphdata.pyg import read_pyg

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    data = pytest.importorskip("torch_geometric.data")


def graphs():
    ring = torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]])
    one = data.Data(x=torch.tensor([[1.0], [2.0], [3.0]]), edge_index=ring, y=torch.tensor([1]),
                    edge_attr=torch.arange(6.0)[:, None])  # fmt: skip
    alone = data.Data(x=torch.tensor([[4.0]]), edge_index=torch.empty(2, 0, dtype=torch.long),
                      y=torch.tensor([0]), edge_attr=torch.empty(0, 1))  # fmt: skip
    pair = data.Data(x=torch.tensor([[5.0], [6.0]]), edge_index=torch.tensor([[0], [1]]),
                     y=torch.tensor([1]), edge_attr=torch.tensor([[9.0]]))  # fmt: skip
    return [one, alone, pair]


def save(path, form):
    items = graphs()
    if form == "list":
        torch.save(items, path)
    else:
        data.InMemoryDataset.save(items, str(path))
    return path


@pytest.mark.parametrize("form", ["list", "dataset"])
def test_lists_and_datasets(tmp_path, form):
    found = read_pyg(save(tmp_path / "mine.pt", form))
    assert (found.name, found.count) == ("mine", 3)
    assert found.sizes.tolist() == [3, 1, 2]
    assert found.labels.tolist() == [1, 0, 1]
    assert found.node_values[:, 0].tolist() == [1, 2, 3, 4, 5, 6]
    edges = dict(zip(map(tuple, found.edges.T.tolist()), found.edge_values[:, 0], strict=True))
    assert edges == {
        (0, 1): 0, (1, 2): 1, (2, 0): 2, (1, 0): 3, (2, 1): 4, (0, 2): 5, (4, 5): 9, (5, 4): 9,
    }  # fmt: skip
    assert found.notes == ("1 edges were listed one way only; the reverse was added",)


def test_without_classes_or_features(tmp_path):
    items = [{"edge_index": g.edge_index, "num_nodes": g.num_nodes} for g in graphs()]
    torch.save(items, tmp_path / "a.pt")
    found = read_pyg(tmp_path / "a.pt", labelled=False)
    assert found.labels is None
    assert found.node_values is None
    assert found.sizes.tolist() == [3, 1, 2]
    with pytest.raises(InputError, match=r"a\.pt: graph 0: expected one class y, got None"):
        read_pyg(tmp_path / "a.pt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": torch.tensor([0.5])}, "graph 1: expected a whole number as its class"),
        ({"y": torch.tensor([0, 1])}, "graph 1: expected one class y"),
        ({"edge_index": torch.tensor([[0], [7]])}, r"graph 1: expected node numbers in 0\.\.0"),
        ({"edge_index": torch.tensor([0])}, r"graph 1: expected edge_index of shape"),
        ({"x": torch.tensor([[float("nan")]])}, "graph 1: expected finite x"),
        ({"x": torch.empty(0, 1)}, "graph 1: expected at least one node"),
        ({"x": torch.tensor([[1.0, 2.0]])}, "graph 1: expected x with 1 rows, and as many"),
        ({"edge_attr": torch.ones(3, 1)}, "graph 1: expected edge_attr with 0 rows"),
    ],
)
def test_bad_graphs_are_named(tmp_path, change, message):
    items = graphs()
    for name, value in change.items():
        items[1][name] = value
    torch.save(items, tmp_path / "bad.pt")
    with pytest.raises(InputError, match=message):
        read_pyg(tmp_path / "bad.pt")


def test_files_of_other_kinds(tmp_path):
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(InputError, match="read safely"):
        read_pyg(tmp_path / "text.pt")
    for name, value in {"empty": [], "tensor": torch.ones(3), "words": {"a": 1}}.items():
        torch.save(value, tmp_path / f"{name}.pt")
        with pytest.raises(InputError, match=name):
            read_pyg(tmp_path / f"{name}.pt")
