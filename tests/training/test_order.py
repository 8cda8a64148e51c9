import numpy as np
import pytest

from lawful.tasks import batches
from lawful.training._order import EpochOrder, Share, training_batches, update_indices
from tests.training.toy import ToySource


class Ragged(ToySource):
    """Examples with lengths of their own."""

    def __init__(self, n, seed=0):
        super().__init__(n, seed)
        self.lengths = np.random.default_rng(seed).geometric(0.05, n)


def indices(source, stop, size, start=0, seed=3):
    stream = training_batches(source, seed=seed, start=start, stop=stop, size=size, share=Share(1))
    return [b["index"].tolist() for b in stream]


@pytest.mark.parametrize(("n", "size"), [(50, 8), (7, 8), (64, 8), (3, 8), (1000, 7), (1, 1)])
def test_every_epoch_sees_every_example_once(n, size):
    source = Ragged(n)
    seen = [i for b in indices(source, 5 * n // size + 5, size) for i in b]
    for epoch in range(5):
        assert sorted(seen[epoch * n : (epoch + 1) * n]) == list(range(n))
    if n > 10:
        assert seen[:n] != seen[n : 2 * n]


def test_batches_hold_examples_of_similar_length():
    source = Ragged(6000)
    spread = [np.ptp(source.lengths[b]) for b in indices(source, 300, 20)]
    plain = [np.ptp(source.lengths[b]) for b in indices(ToySource(6000, 0), 300, 20)]
    assert np.median(spread) <= 1
    assert np.median(plain) > 20


@pytest.mark.parametrize("n", [1003, 990])
def test_batches_stay_similar_when_epochs_do_not_divide(n):
    """All but the batch that straddles two epochs, wherever the epochs begin in the stream."""
    source = Ragged(n)
    cells = [20 * source.lengths[b].max() for b in indices(source, 4 * n // 20, 20)]
    real = 4 * source.lengths.sum()
    assert sum(cells) < 1.25 * real


def test_order_of_batches_is_shuffled():
    source = Ragged(2000)
    means = [source.lengths[b].mean() for b in indices(source, 100, 20)]
    assert abs(np.corrcoef(means, np.arange(100))[0, 1]) < 0.3


def test_any_update_can_be_asked_for_on_its_own():
    source = Ragged(103)
    whole = indices(source, 40, 8)
    assert [update_indices(source, 3, step, 8) for step in range(40)] == whole
    assert indices(source, 40, 8, start=17) == whole[17:]
    order = EpochOrder(source, 3, 8)
    backwards = [update_indices(source, 3, step, 8, order) for step in reversed(range(40))]
    assert backwards[::-1] == whole


def test_seeds_give_different_orders():
    source = Ragged(100)
    assert indices(source, 10, 10, seed=1) != indices(source, 10, 10, seed=2)


def test_evaluation_goes_from_short_to_long_and_over_all():
    source = Ragged(53)
    found = [b["index"] for b in batches(source, 10, by_length=True)]
    flat = np.concatenate(found)
    assert sorted(flat.tolist()) == list(range(53))
    assert (np.diff(source.lengths[flat]) >= 0).all()
    plain = np.concatenate([b["index"] for b in batches(source, 10)])
    assert plain.tolist() == list(range(53))
    assert np.concatenate(
        [b["index"] for b in batches(ToySource(53, 0), 10, by_length=True)]
    ).tolist() == list(range(53))
