"""Networks from raw edges, neighbour sampling, and the generated network."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful.errors import InputError
from lawful.tasks.graphdata import RawGraph, camouflaged_rings, connect, sample_neighbourhood


def raw(count, **relations):
    edges = {k: np.array(v, np.int64).reshape(-1, 2).T for k, v in relations.items()}
    return RawGraph("g", count, np.zeros((count, 0), np.float32), (), edges)


def pairs(network):
    return set(map(tuple, network.edge_index.T.tolist()))


def test_loops_and_repetitions_go_and_every_edge_gets_its_back():
    network, said = connect(raw(4, e=[(0, 1), (0, 1), (2, 2), (1, 0), (2, 3)]))
    assert pairs(network) == {(0, 1), (1, 0), (2, 3), (3, 2)}
    assert network.source.tolist() == [1, 0, 3, 2]
    assert network.start.tolist() == [0, 1, 2, 3, 4]
    assert network.member is None
    assert said == [
        "e: 1 self-loops left out (layers add their own)",
        "e: 1 repeated edges left out",
        "e: 3 edges, of which 1 had no edge back: all are taken both ways",
    ]
    _, said = connect(raw(2, e=[(0, 1), (1, 0)]))
    assert said == ["e: 1 undirected edges, each given both ways"]


def test_relations_share_edges():
    graph = raw(3, a=[(0, 1), (1, 2)], b=[(1, 0)])
    network, _ = connect(graph)
    found = {
        tuple(e): m.tolist()
        for e, m in zip(network.edge_index.T.tolist(), network.member, strict=True)
    }
    assert found == {(0, 1): [1, 1], (1, 0): [1, 1], (1, 2): [1, 0], (2, 1): [1, 0]}
    np.testing.assert_array_equal(network.degrees(), [[1, 1], [2, 1], [1, 0]])
    # A trained model's order of relations; one that is not there is said
    network, said = connect(raw(3, b=[(0, 1)]), ("a", "b", "c"))
    assert network.member.tolist() == [[0, 1, 0], [0, 1, 0]]
    assert "relation 'a' has no edges here" in said
    with pytest.raises(InputError, match=r"relation: expected one of a, b, got '?c"):
        connect(raw(3, c=[(0, 1)]), ("a", "b"))


edge_lists = st.integers(2, 12).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40),
        st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True),
        st.lists(st.integers(0, 4), max_size=3),
    )
)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(edge_lists)
def test_samples_are_parts_of_the_network(case):
    count, edges, seeds, fanouts = case
    network, _ = connect(raw(count, a=edges, b=edges[::2]))
    seeds = np.array(seeds)
    found = sample_neighbourhood(network, seeds, fanouts, np.random.default_rng(0))
    np.testing.assert_array_equal(found.nodes[: len(seeds)], seeds)
    assert len(np.unique(found.nodes)) == len(found.nodes)
    ends = found.nodes[found.edge_index]
    drawn = set(map(tuple, ends.T.tolist()))
    assert len(drawn) == ends.shape[1]
    assert drawn <= pairs(network)
    assert drawn == {(b, a) for a, b in drawn}
    np.testing.assert_array_equal(network.edge_index[:, found.edges], ends)
    key = found.edge_index[1] * (count + 1) + found.edge_index[0]
    assert (np.diff(key) > 0).all()  # sorted by target, then source


@settings(max_examples=40, derandomize=True, deadline=None)
@given(edge_lists)
def test_zero_takes_all_neighbours(case):
    """With all neighbours, every edge of a node within one hop less is there."""
    count, edges, seeds, fanouts = case
    network, _ = connect(raw(count, a=edges))
    found = sample_neighbourhood(
        network, np.array(seeds), [0] * len(fanouts), np.random.default_rng(0)
    )
    inside = set(seeds)
    want: set[tuple[int, int]] = set()
    for _ in fanouts:
        want |= {(s, t) for s, t in pairs(network) if t in inside}
        inside |= {s for s, _ in want}
    assert set(found.nodes.tolist()) == inside
    drawn = set(map(tuple, found.nodes[found.edge_index].T.tolist()))
    assert drawn == want | {(b, a) for a, b in want}


def test_draws_are_uniform_and_bounded():
    star, _ = connect(raw(11, e=[(0, i) for i in range(1, 11)]))
    random = np.random.default_rng(0)
    times = np.zeros(11)
    for _ in range(2000):
        found = sample_neighbourhood(star, np.array([0]), [3], random)
        assert len(found.nodes) == 4
        times[found.nodes[1:]] += 1
    assert times[0] == 0
    # Each of ten leaves is drawn in 3 of 10 samples: 600 times, standard deviation 20.5
    assert abs(times[1:] - 600).max() < 85


def test_the_generated_network_is_a_function_of_its_seed():
    one, two, other = (camouflaged_rings(400, rings=4, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.numeric, two.numeric)
    np.testing.assert_array_equal(one.relations["payment"], two.relations["payment"])
    assert not np.array_equal(one.labels, other.labels)
    assert 16 <= int(one.labels.sum()) <= 36
    assert (camouflaged_rings(400, rings=4, known=0.3, seed=1).labels < 0).mean() > 0.5
    with pytest.raises(InputError, match="at least 20 accounts"):
        camouflaged_rings(100, rings=40)


def test_rings_hide_from_columns_and_from_sharing_alone():
    """Neither single columns nor shared devices separate the fraudulent."""
    from sklearn.metrics import roc_auc_score

    graph = camouflaged_rings(seed=0)
    network, _ = connect(graph)
    x = np.nan_to_num(graph.numeric)
    single = [roc_auc_score(graph.labels, x[:, i]) for i in range(x.shape[1])]
    assert max(max(single), 1 - min(single)) < 0.75
    shares = network.degrees()[:, 1] > 0
    assert shares[graph.labels == 0].mean() > 0.2
    assert graph.labels[shares].mean() < 0.5
