import itertools

import pytest
import torch

from lawful.errors import InputError
from lawful.memory import SAB, SABConfig
from lawful.memory._laws import reachable

STEPS = 13
GRID = [
    {"k_att": k_att, "k_trunc": k_trunc, "k_top": k_top, "phase": phase}
    for k_att, k_trunc, k_top, phase in itertools.product(
        (1, 2, 3), (1, 3, 4, 20), (2, 3), ("start", "end")
    )
]
GRID += [
    {"k_att": 1, "k_trunc": 3, "k_top": 2, "truncation": t, "hops": h, "mental_updates": m}
    for t, h, m in itertools.product(("blocked", "window"), (None, 1, 2), (None, 0, 1, 2))
]
GRID += [
    {"k_att": 2, "k_trunc": 4, "k_top": 2, "score_grad": "params_only"},
    {"k_att": 3, "k_trunc": 3, "k_top": 2, "phase": "start"},
    {"k_att": 3, "k_trunc": 3, "k_top": 2, "phase": "end"},
    {"k_att": 2, "k_trunc": 5, "k_top": 2, "init_memory": "zero"},
    {"k_att": 1, "k_trunc": 2, "k_top": 2, "max_memories": 4, "hops": 1},
    {"k_att": 1, "k_trunc": 2, "k_top": 9, "truncation": "window"},
    {"k_att": 2, "k_trunc": None, "k_top": 2},
]


@pytest.mark.parametrize("options", GRID, ids=str)
def test_credit_reaches_exactly_what_the_definition_allows(options):
    torch.manual_seed(0)
    layer = SAB(3, 6, dtype=torch.float64, **options)
    x = torch.randn(1, STEPS, 3, dtype=torch.float64)
    _, _, (recall,) = layer(x, return_recall=True)
    recalled = [recall.steps[0, t, 0][recall.weights[0, t, 0] != 0].tolist() for t in range(STEPS)]
    if layer.config.score_grad == "full":
        for t in range(STEPS):
            recalled[t].append(int(recall.threshold[0, t, 0]))
    measured = layer.credit_map(STEPS, x) > 0
    assert torch.equal(measured, reachable(recalled, layer.config))


def test_equal_periods_late_cuts_make_mental_updates_one_step_deep():
    """With k_att = k_trunc the authors' phase puts each memory just behind a cut."""
    deep, shallow = (
        SAB(2, 5, 2, 4, 4, phase=p, hops=1, dtype=torch.float64).credit_map(20)[19] > 0
        for p in ("start", "end")
    )
    assert shallow[:16].sum() < deep[:16].sum()


def test_truncation_cuts_inputs_off():
    layer = SAB(2, 4, 2, k_att=50, k_trunc=2, dtype=torch.float64)
    reach = layer.credit_map(4) > 0
    assert reach.tolist() == [[t // 2 == s // 2 and s <= t for s in range(4)] for t in range(4)]


def test_gru_stack_and_both_directions():
    layer = SAB(2, 4, 2, 1, 2, cell="gru", num_layers=2, bidirectional=True, dtype=torch.float64)
    reach = layer.credit_map(6)
    assert reach.shape == (6, 6)
    assert reach.triu(1).any()


def test_no_steps_and_bad_arguments():
    layer = SAB(2, 4)
    assert layer.credit_map(0).shape == (0, 0)
    with pytest.raises(InputError, match="steps"):
        layer.credit_map(-1)
    with pytest.raises(InputError, match="x: expected shape"):
        layer.credit_map(3, torch.zeros(1, 2, 2))


def test_no_credit_without_gradients_changes_no_value():
    for options in ({"truncation": "window"}, {"hops": 1}, {"mental_updates": 0}):
        layer = SAB(2, 4, 2, 1, 3, **options)
        x = torch.randn(2, 9, 2)
        with torch.no_grad():
            free, _ = layer(x)
        tracked, _ = layer(x)
        torch.testing.assert_close(free, tracked)
        plain = SAB(2, 4, 2, 1, 3)
        plain.load_state_dict(layer.state_dict())
        torch.testing.assert_close(plain(x)[0], tracked)


def test_config_is_frozen_and_checked():
    config = SABConfig()
    with pytest.raises(AttributeError):
        config.k_top = 3
    with pytest.raises(InputError, match="did you mean k_trunc"):
        config.replace(ktrunc=3)
