import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sab_oracle import plain_weights

from lawful.errors import InputError
from lawful.memory import sparse_attention


@given(st.integers(1, 8), st.integers(1, 10), st.integers(0, 2**20))
def test_equals_the_formula_value_and_gradient(k_top, size, seed):
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(size, dtype=torch.float64, generator=g, requires_grad=True)
    direction = torch.randn(size, dtype=torch.float64, generator=g)
    ours = sparse_attention(scores, k_top)
    plain = torch.stack(plain_weights(list(scores.unbind()), k_top))
    torch.testing.assert_close(ours, plain)
    grads = [torch.autograd.grad(w @ direction, scores)[0] for w in (ours, plain)]
    torch.testing.assert_close(*grads, atol=1e-6, rtol=1e-9)


@given(st.integers(1, 8), st.integers(1, 12), st.integers(0, 2**20))
def test_is_a_sparse_distribution(k_top, size, seed):
    scores = torch.randn(3, size, generator=torch.Generator().manual_seed(seed)) * 10
    w = sparse_attention(scores, k_top)
    assert (w >= 0).all()
    torch.testing.assert_close(w.sum(-1), torch.ones(3))
    assert ((w != 0).sum(-1) <= k_top).all()
    best = scores.argsort(-1, descending=True)[:, k_top:]
    assert (w.gather(-1, best) == 0).all()


@pytest.mark.parametrize("normaliser", ["relu", "softmax"])
@pytest.mark.parametrize("small_memory", ["shift", "softmax"])
@pytest.mark.parametrize("size", [1, 2, 5, 6, 9])
@pytest.mark.parametrize("level", [0.0, -3.7, 1e8])
def test_equal_scores_share_and_learn(normaliser, small_memory, size, level):
    scores = torch.full((2, size), level, requires_grad=True)
    w = sparse_attention(scores, 5, normaliser=normaliser, small_memory=small_memory)
    want = (torch.arange(size) < 5).float() / min(size, 5)
    torch.testing.assert_close(w, want.expand(2, size))
    w[:, 0].sum().backward()
    assert scores.grad.isfinite().all()
    if size > 1:
        assert (scores.grad[:, 0] > 0).all()
        assert (scores.grad[:, 1:5] < 0).all() or normaliser == "relu"


def test_tied_scores_take_the_free_places_in_order():
    scores = torch.tensor([1.0, 3.0, 1.0, 2.0, 1.0, 0.0], dtype=torch.float64, requires_grad=True)
    w = sparse_attention(scores, 3, margin=0.5)
    torch.testing.assert_close(w, torch.tensor([0.5, 2.5, 0, 1.5, 0, 0]).double() / 4.5)
    (g,) = torch.autograd.grad(w[1], scores)
    assert g[2] == g[4] != 0  # all that are tied share the threshold's derivative
    assert g[5] == 0


@pytest.mark.parametrize("normaliser", ["relu", "softmax"])
@pytest.mark.parametrize("small_memory", ["shift", "softmax", "raw"])
@pytest.mark.parametrize("k_top", [2, 4, 7])
def test_gradcheck(normaliser, small_memory, k_top):
    torch.manual_seed(0)
    scores = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    options = {"normaliser": normaliser, "small_memory": small_memory, "margin": 0.01}
    assert torch.autograd.gradcheck(lambda a: sparse_attention(a, k_top, **options), scores)


def test_empty_and_masked_rows_are_zero():
    assert sparse_attention(torch.zeros(2, 0), 3).shape == (2, 0)
    assert (sparse_attention(torch.full((2, 3), -torch.inf), 2) == 0).all()
    scores = torch.randn(2, 4, requires_grad=True)
    mask = torch.tensor([[True, True, False, True], [False] * 4])
    w = sparse_attention(scores, 2, mask=mask)
    assert (w[~mask] == 0).all()
    alone = sparse_attention(scores[0, mask[0]], 2)
    torch.testing.assert_close(w[0, mask[0]], alone)
    w.square().sum().backward()
    assert scores.grad.isfinite().all()
    assert (scores.grad[~mask] == 0).all()


def test_extreme_scores_stay_finite():
    w = sparse_attention(torch.tensor([[1.37e8, 1.60e8], [-1e30, 1e30]]), 1)
    torch.testing.assert_close(w, torch.tensor([[0.0, 1.0], [0.0, 1.0]]))


def test_extra_axis_changes_nothing():
    a = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
    b = a.detach()[:, None].requires_grad_()
    u, v = sparse_attention(a, 2), sparse_attention(b, 2)[:, 0]
    torch.testing.assert_close(u, v, rtol=0, atol=0)
    (g,), (h,) = (torch.autograd.grad(w.square().sum(), x) for w, x in ((u, a), (v, b)))
    torch.testing.assert_close(g, h[:, 0], rtol=0, atol=0)


def test_released_rule_keeps_one_less_and_drops_ties():
    scores = torch.tensor([[4.0, 3.0, 2.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    w = sparse_attention(scores, 3, threshold="k", small_memory="raw")
    torch.testing.assert_close(w, torch.tensor([[2 / 3, 1 / 3, 0.0, 0.0], [0.0] * 4]))
    few = sparse_attention(scores[:, :3], 3, threshold="k", small_memory="raw")
    torch.testing.assert_close(few, scores[:, :3])


def test_one_memory_learns_only_straight_through():
    scores = torch.tensor([0.3, 0.1, -0.2], dtype=torch.float64, requires_grad=True)
    hard = sparse_attention(scores, 1)
    (g,) = torch.autograd.grad(hard[0], scores)
    assert g.abs().max() < 1e-5
    soft = sparse_attention(scores, 1, straight_through=True)
    torch.testing.assert_close(soft, hard)
    (g,) = torch.autograd.grad(soft[0], scores)
    assert g[0] > 0.1
    assert g[1] < -0.1
    assert g[2] == 0


def test_half_precision_separates_close_scores():
    scores = torch.tensor([1.0, 1.0078125, 1.015625, 0.0], dtype=torch.bfloat16)
    w = sparse_attention(scores, 2)
    assert w.dtype == torch.bfloat16
    torch.testing.assert_close(w.float(), torch.tensor([0.0, 1 / 3, 2 / 3, 0.0]), atol=1e-2, rtol=0)


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        (torch.zeros(3), {"k_top": 0}, "k_top: expected an integer of at least 1, got 0"),
        (torch.tensor([0.0, torch.nan]), {"k_top": 1}, "NaN"),
        (torch.tensor([0.0, torch.inf]), {"k_top": 1}, "inf"),
        (torch.zeros(3, dtype=torch.int64), {"k_top": 1}, "floating"),
        (torch.zeros(3), {"k_top": 1, "mask": torch.ones(2, dtype=torch.bool)}, "mask"),
        (torch.zeros(3), {"k_top": 1, "normaliser": "relUU"}, 'did you mean "relu"'),
        (torch.zeros(3), {"k_top": 1, "margin": 0.0}, "margin"),
    ],
)
def test_bad_input_is_refused(scores, options, message):
    with pytest.raises(InputError, match=message):
        sparse_attention(scores, **options)
