"""Columns as numbers, by the training nodes alone."""

import json

import numpy as np
import pytest

from lawful.errors import InputError
from lawful.tasks.graphdata import Features, RawGraph, connect


def graph(numeric, names=("a", "b"), texts=None, edges=((0, 1),)):
    x = np.array(numeric, np.float32)
    raw = RawGraph(
        "g",
        len(x),
        x,
        tuple(names),
        {"e": np.array(edges, np.int64).reshape(-1, 2).T},
        texts={k: np.array(v, dtype=object) for k, v in (texts or {}).items()},
    )
    return raw, connect(raw)[0]


TRAIN = np.array([0, 1, 2])
NUMBERS = [[1, 5], [2, np.nan], [3, 7], [100, 9]]


def test_statistics_are_of_training_nodes_only():
    raw, network = graph(NUMBERS)
    features = Features.fit(raw, network, TRAIN, degrees=False)
    x, said = features.apply(raw, network)
    want = (np.array([1, 2, 3, 100]) - 2) / np.std([1, 2, 3])
    np.testing.assert_allclose(x[:3, 0], want[:3], rtol=1e-6)
    assert x[3, 0] == 10  # cut at ten deviations
    np.testing.assert_allclose(x[:, 1], [-1, 0, 1, 3], atol=1e-6)
    np.testing.assert_array_equal(x[:, 2], [0, 1, 0, 0])  # marks the gap
    assert features.size == 3
    assert said == ["column b: 1 missing values (first at node 1) take the training mean"]
    changed, _ = graph([*NUMBERS[:3], [-7, 1]])
    again = Features.fit(changed, network, TRAIN, degrees=False)
    assert again == features


def test_degrees_and_no_scaling():
    raw, network = graph(NUMBERS, edges=[(0, 1), (1, 2)])
    features = Features.fit(raw, network, TRAIN, scaling="none")
    x, _ = features.apply(raw, network)
    np.testing.assert_array_equal(x[:, 0], [1, 2, 3, 100])
    np.testing.assert_allclose(x[:, 1], [5, 6, 7, 9])
    np.testing.assert_allclose(x[:, 2], np.log1p([1, 2, 1, 0]), rtol=1e-6)


def test_quantiles_are_normal_and_keep_the_order():
    random = np.random.default_rng(0)
    raw, network = graph(np.exp(3 * random.normal(size=(2000, 1))), ("a",), edges=())
    features = Features.fit(raw, network, np.arange(1500), scaling="quantile", degrees=False)
    x = features.apply(raw, network)[0][:, 0]
    assert abs(x.mean()) < 0.05
    assert abs(x.std() - 1) < 0.05
    order = np.argsort(raw.numeric[:, 0])
    assert (np.diff(x[order]) >= 0).all()
    # Half of the nodes share one value, which takes the middle of its ranks
    raw, network = graph([[0.0]] * 50 + [[float(i)] for i in range(1, 51)], ("a",), edges=())
    features = Features.fit(raw, network, np.arange(100), scaling="quantile", degrees=False)
    tied = features.apply(raw, network)[0][0, 0]
    assert abs(tied - -0.674) < 0.05  # the normal quantile of 1/4


def test_categories_known_frequent_and_new():
    texts = {"c": ["x", "x", "y", "z"]}
    raw, network = graph(NUMBERS, texts=texts)
    features = Features.fit(raw, network, TRAIN, degrees=False, categories=1)
    x, _ = features.apply(raw, network)
    np.testing.assert_array_equal(x[:, 3:], [[1], [1], [0], [0]])
    every = Features.fit(raw, network, TRAIN, degrees=False)
    x, said = every.apply(raw, network)
    np.testing.assert_array_equal(x[:, 3:], [[1, 0], [1, 0], [0, 1], [0, 0]])
    want = "column c: 1 nodes hold a value that is rare in training or not there"
    assert f"{want} (first 'z' at node 3): none of the known ones" in said


def test_other_columns_than_in_training():
    raw, network = graph(NUMBERS, texts={"c": ["x"] * 4})
    features = Features.fit(raw, network, TRAIN)
    with pytest.raises(InputError, match="columns: expected 'b', as in training, got a, d"):
        features.apply(*graph(NUMBERS, ("a", "d"), texts={"c": ["x"] * 4}))
    with pytest.raises(InputError, match="columns: expected 'c', as in training"):
        features.apply(*graph(NUMBERS))
    turned, net = graph([[5, 1, 0], [6, 2, 0]], ("b", "a", "new"), {"c": ["x", "x"]})
    x, said = features.apply(turned, net)
    straight, _ = features.apply(*graph([[1, 5], [2, 6]], texts={"c": ["x", "x"]}))
    np.testing.assert_array_equal(x, straight)
    assert "columns that training had not: new; not used" in said


def test_state_is_json():
    raw, network = graph(NUMBERS, texts={"c": ["x", "y", "x", "y"]})
    features = Features.fit(raw, network, TRAIN, scaling="quantile")
    again = Features.from_state(json.loads(json.dumps(features.state())))
    assert again == features
    with pytest.raises(InputError, match="expected the features"):
        Features.from_state({"mean": [1]})
