"""Padding takes no part, to the last bit; a query without keys is silent."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lawful.energy import EnergyTransformer
from lawful.kernels.energy import _function


def build(**options):
    torch.manual_seed(0)
    return EnergyTransformer(16, 3, 5, 24, steps=4, **options)


def pad(x, mask, place, content):
    """x (B, n, D) with `place` (B, N) bool telling where its tokens go; -1 content elsewhere."""
    wide = torch.full((len(x), place.shape[1], x.shape[-1]), content)
    wide[place] = x.flatten(0, 1)
    real = torch.zeros(place.shape, dtype=torch.bool)
    real[place] = mask.flatten()
    return wide, real


@pytest.mark.parametrize("content", [0.0, 1e30, float("nan"), float("inf")])
@pytest.mark.parametrize("step_rule", ["fixed", "certified", "backtracking"])
def test_neither_content_number_nor_place_of_padding_changes_a_bit(content, step_rule, backend):
    model = build(step_rule=step_rule)
    x = torch.randn(3, 7, 16)
    mask = torch.ones(3, 7, dtype=torch.bool)
    mask[1, 4:] = mask[2, 2:] = False
    small = x.clone().requires_grad_()
    y, e = model(small, mask, return_energy=True)
    (y[mask].sin().sum() + e.sum()).backward()
    grads = [p.grad.clone() for p in model.parameters()]
    for total in (9, 40):
        place = torch.zeros(3, total, dtype=torch.bool)
        for row in place:
            row[torch.randperm(total)[:7]] = True
        wide, real = pad(x, mask, place, content)
        wide.requires_grad_()
        model.zero_grad()
        y2, e2 = model(wide, real, return_energy=True)
        assert torch.equal(e2, e)
        assert torch.equal(y2[real], y[mask])
        assert torch.equal(y2[~real].nan_to_num(7.0), wide[~real].nan_to_num(7.0))
        (y2[real].sin().sum() + e2.sum()).backward()
        assert torch.equal(wide.grad[real], small.grad[mask])
        for p, g in zip(model.parameters(), grads, strict=True):
            assert torch.equal(p.grad, g)


def test_full_samples_in_padded_storage_equal_the_unpadded_call(backend):
    model, x = build(), torch.randn(4, 6, 16)
    mask = torch.zeros(4, 11, dtype=torch.bool)
    mask[:, 2:8] = True
    wide = torch.full((4, 11, 16), float("nan"))
    wide[:, 2:8] = x
    assert torch.equal(model(wide, mask)[:, 2:8], model(x))


def test_adjacency_follows_its_tokens(backend):
    model, x = build(), torch.randn(2, 5, 16)
    edges = torch.rand(2, 5, 5) > 0.4
    place = torch.tensor([[0, 2, 3, 5, 8], [1, 2, 4, 6, 7]])
    wide, mask = torch.zeros(2, 9, 16), torch.zeros(2, 9, dtype=torch.bool)
    big = torch.rand(2, 9, 9) > 0.5
    for b in range(2):
        wide[b, place[b]], mask[b, place[b]] = x[b], True
        big[b, place[b][:, None], place[b]] = edges[b]
    assert torch.equal(model(wide, mask, big)[mask], model(x, None, edges).flatten(0, 1))
    weights = model.attention.weights(wide, mask, big)
    assert weights.shape == (2, 3, 9, 9)
    small = model.attention.weights(x, None, edges)
    assert torch.equal(weights[1][:, place[1][:, None], place[1]], small[1])
    assert weights[:, :, :, ~mask[0]][0].abs().sum() == 0


def test_a_sample_alone_and_among_longer_ones(backend):
    """Here the shapes of the matmuls differ, so it holds to rounding."""
    model, x = build(), torch.randn(2, 30, 16)
    mask = torch.ones(2, 30, dtype=torch.bool)
    mask[0, 9:] = False
    torch.testing.assert_close(model(x, mask)[0, :9], model(x[0, :9]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"step_rule": "certified"}])
def test_all_padding_and_no_keys(options, backend):
    model, x = build(**options), torch.randn(2, 3, 16, requires_grad=True)
    y, e = model(x, torch.zeros(2, 3, dtype=torch.bool), return_energy=True)
    assert torch.equal(y, x)
    assert torch.equal(e, torch.zeros(5, 2))
    nothing = EnergyTransformer(16, 3, 5, 0, **options)
    y, e = nothing(x, None, torch.zeros(3, 3, dtype=torch.bool), return_energy=True)
    (y.sum() + e.sum()).backward()
    assert torch.equal(y, x)
    assert e.abs().max() == 0
    assert torch.equal(x.grad, torch.ones_like(x))
    assert all(p.grad is None or p.grad.abs().sum() == 0 for p in nothing.blocks.parameters())


def test_lonely_token_without_self_attention_has_only_its_memories(backend):
    model, x = build(), torch.randn(1, 16)
    e = model.energy(x)
    torch.testing.assert_close(e, model.hopfield.energy(model.norm(x)))


@given(st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_equivariance_under_permutation(n, seed):
    random = torch.Generator().manual_seed(seed)
    model = build().double()
    x = torch.randn(2, n, 16, dtype=torch.float64, generator=random)
    mask = torch.rand(2, n, generator=random) > 0.3
    edges = torch.rand(2, n, n, generator=random) > 0.3
    order = torch.randperm(n, generator=random)
    y, e = model(x, mask, edges, return_energy=True)
    z, f = model(x[:, order], mask[:, order], edges[:, order][:, :, order], return_energy=True)
    torch.testing.assert_close(z, y[:, order], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(f, e, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("step_rule", ["learned", "certified", "backtracking"])
def test_samples_taken_in_chunks(recompute, step_rule, monkeypatch, backend):
    model = build(step_rule=step_rule, recompute=recompute, activation="softmax").double()
    x = torch.randn(5, 4, 16, dtype=torch.float64)
    mask = torch.rand(5, 4) > 0.2
    weights = torch.rand(5, 4, 4, dtype=torch.float64) + 0.1
    found = []
    for rows in (128, 8):
        monkeypatch.setattr(_function, "CHUNK_ROWS", rows)
        monkeypatch.setattr(_function, "CHUNK_BYTES", 1 if rows == 8 else 1 << 30)
        for edges in (weights > 0.5, weights):
            a, b = x.clone().requires_grad_(), edges.clone()
            b = b.requires_grad_() if b.is_floating_point() else b
            y, e = model(a, mask, b, return_energy=True)
            path = model.settle(a, mask, b, trajectory=True).trajectory
            loss = y.sin().sum() + e.cos().sum() + path.square().sum()
            wanted = [a, *model.parameters(), *([b] if b.requires_grad else [])]
            found.append((y, e, path, *torch.autograd.grad(loss, wanted)))
            with torch.no_grad():
                torch.testing.assert_close(model(a, mask, b), y, rtol=1e-12, atol=1e-12)
    assert len(_function._chunks(_run(), *_sizes(x))) == 3
    for one, other in zip(found[:2], found[2:], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def _run():
    return _function.Run(_function.Fixed(0.1), 1)


def _sizes(x):
    model = build().double()
    at = model._scene(x, None, None)
    return model.blocks[0].params(at), x
