import pytest
import torch

from lawful.laws import check
from lawful.laws._testing import assert_lawful
from lawful.memory import SAB


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
