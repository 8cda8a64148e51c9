import pytest
import torch

from lawful.laws import check
from lawful.laws._testing import assert_lawful
from lawful.memory import SAB
from lawful.memory._recall import Recall


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"k_att": 9, "k_trunc": 2},
        {"cell": "gru", "num_layers": 2},
        {"bidirectional": True},
        {"preset": "release", "k_att": 1},
        {"truncation": "window", "k_att": 9, "k_trunc": 3, "phase": "end"},
    ],
    ids=str,
)
def test_keeps_its_laws(options):
    torch.manual_seed(0)
    layer = SAB(3, 6, 2, **{"k_att": 2, "k_trunc": 3, **options}, dtype=torch.float64)
    assert_lawful(layer, torch.randn(3, 9, 3, dtype=torch.float64))


def rows_of(layer, x):
    return {row.law: row.holds for row in check(layer, x).rows}


def test_broken_layers_are_found_out():
    torch.manual_seed(0)
    x = torch.randn(3, 9, 3)
    layer = SAB(3, 6, 2, 9, 2)
    assert all(rows_of(layer, x)[name] for name in ("pieces equal the whole", "truncation holds"))

    cell = layer.layers[0]
    scan = cell.scan

    def forgetful(x, state=None, *more, **named):
        return scan(x, None, *more, **named)

    def leaky(x, *more, **named):
        return scan(x + x.cumsum(1), *more, **named)

    def mixing(x, *more, **named):
        return scan(x + x.mean(0, keepdim=True), *more, **named)

    for broken, law in (
        (forgetful, "pieces equal the whole"),
        (leaky, "truncation holds"),
        (mixing, "rows are independent"),
    ):
        cell.scan = broken
        assert rows_of(layer, x)[law] is False


def test_each_law_on_recall_catches_its_mutant():
    torch.manual_seed(0)
    x = torch.randn(3, 12, 3)

    class Unnormalised(SAB):
        def forward(self, x, *more, return_recall=False, **named):
            found = super().forward(x, *more, return_recall=return_recall, **named)
            if not return_recall:
                return found
            recalls = [Recall(r.steps, 1.5 * r.weights) for r in found[2]]
            return *found[:2], recalls

    class TooMany(SAB):
        """Recalls one more than it says."""

        @property
        def config(self):
            return super().config.replace(k_top=super().config.k_top - 1)

    class Hoarder(SAB):
        """Says it keeps fewer memories than it does."""

        @property
        def config(self):
            return super().config.replace(max_memories=2)

    class LeakyCut(SAB):
        """Says it cuts earlier than it does: an extra path of credit."""

        @property
        def config(self):
            return super().config.replace(k_trunc=2)

    for kind, law in (
        (Unnormalised, "weights are normalised"),
        (TooMany, "few are recalled"),
        (Hoarder, "memory is bounded"),
        (LeakyCut, "credit goes only there"),
    ):
        assert rows_of(SAB(3, 6, 3, 1, 4), x)[law] is True
        assert rows_of(kind(3, 6, 3, 1, 4), x)[law] is False


def test_lengths_do_not_take_the_case_away():
    torch.manual_seed(0)
    layer = SAB(3, 6, 2, 1, 4)
    lengths = torch.tensor([9, 5, 7])
    rows = check(layer, torch.randn(3, 9, 3), lengths=lengths)
    assert rows.holds
    assert all(r.holds for r in rows if r.law != "truncation holds")
