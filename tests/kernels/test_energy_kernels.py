"""The compiled stage between the matmuls against the plain torch one and the reference."""

import itertools

import pytest
import torch
from torch.library import opcheck

from lawful.kernels import force_backend, native_status
from lawful.kernels.energy import Params, Plan, _ops, reference

pytestmark = pytest.mark.native
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


@pytest.fixture(autouse=True)
def _live():
    if not native_status().live:
        pytest.skip(native_status().describe())


def params(plan, dim=6, dtype=torch.float64, mask=None, allowed=None):
    make = {"dtype": dtype}
    beta = torch.rand(plan.heads, **make) + 0.3
    memory_beta = torch.tensor(0.7, **make) if plan.activation == "softmax" else None
    weight = torch.randn(plan.rows, dim, **make)
    return Params(
        weight, None, torch.ones((), **make), torch.zeros(dim, **make), beta, memory_beta,
        None, mask, allowed,
    )  # fmt: skip


def both(plan, p, z, c, ebar):
    """(activations, energy, dz, dβ, dβ_m) of each way."""
    found = []
    for backend in ("reference", "native"):
        out, dz, again = (torch.zeros_like(z) for _ in "123")
        energy = _ops.push(plan, p, z, out, backend)
        slopes = _ops.pull(plan, p, z, c, ebar, (dz, again), False, backend)
        torch.testing.assert_close(again, out)
        extra = [] if slopes.memory_beta is None else [slopes.memory_beta.to(z.dtype)]
        found.append([out, energy, dz, slopes.beta.to(z.dtype), *extra])
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", ["relu", "softmax", "none"])
@pytest.mark.parametrize(
    ("n", "width", "memories"), [(1, 1, 1), (5, 3, 7), (64, 32, 40), (70, 17, 33), (130, 8, 16)]
)
def test_native_equals_reference(n, width, memories, activation, dtype):
    torch.manual_seed(0)
    m = memories if activation != "none" else 0
    for self_attention, causal, masked, hard in itertools.product((False, True), repeat=4):
        plan = Plan(2, width, m, 1e-5, self_attention, causal, activation=activation)
        mask = torch.rand(3, n) > 0.3 if masked else None
        allowed = torch.rand(1 + 2 * masked, 1 + hard, n, n) > 0.3 if hard else None
        p = params(plan, dtype=dtype, mask=mask, allowed=allowed)
        z, c = torch.randn(2, 3, n, plan.rows, dtype=dtype)
        ebar = torch.randn(3, dtype=dtype) if hard else None
        plain, native = both(plan, p, z, c, ebar)
        wide = Params(*(t.double() if t is not None and t.is_floating_point() else t for t in p))
        e = None if ebar is None else ebar.double()
        truth = both(plan, wide, z.double(), c.double(), e)[0]
        for want, one, got in zip(truth, plain, native, strict=True):
            # Sums with cancellation (of β) are off in plain torch as well: no worse than that.
            allowed_error = 4 * (one - want).abs().max() + TOLERANCE[
                dtype
            ] * want.abs().max().clamp(min=1)
            assert (got - want).abs().max() <= allowed_error


@pytest.mark.parametrize("size", [1e-30, 1e4, 1e15])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_scores(size, dtype):
    torch.manual_seed(0)
    plan = Plan(1, 4, 6)
    z = torch.randn(2, 9, plan.rows, dtype=dtype)
    z[..., :4] *= size
    c = torch.randn_like(z)
    for want, got in zip(*both(plan, params(plan, dtype=dtype), z, c, None), strict=True):
        assert got.isfinite().all()
        scale = max(1.0, want.abs().max().item())
        torch.testing.assert_close(got / scale, want / scale, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", ["relu", "softmax"])
def test_nan_and_infinity_are_not_hidden(activation):
    plan = Plan(1, 3, 5, activation=activation)
    p = params(plan, dtype=torch.float32)
    for place, where in ((0, slice(0, 3)), (3, slice(3, 6)), (7, slice(6, 11))):
        z = torch.randn(2, 4, plan.rows)
        z[1, 2, place] = float("nan")
        out = torch.zeros_like(z)
        energy = _ops.push(plan, p, z, out, "native")
        assert energy[1].isnan()
        assert energy[0].isfinite()
        assert out[1].isnan().any()
        assert out[0].isfinite().all()
        assert out[1, ..., where].isnan().any() or place < 6


def test_exp_is_accurate_to_the_last_places():
    """Through the softmax of one query over two keys: weights are exp(-d) / (1 + exp(-d))."""
    for dtype, limit in ((torch.float32, 3e-7), (torch.float64, 1e-15)):
        plan = Plan(1, 1, 0, activation="none", self_attention=True)
        d = torch.linspace(0, 80 if dtype == torch.float32 else 700, 4001, dtype=dtype)
        z = torch.zeros(len(d), 2, 2, dtype=dtype)
        z[:, 0, 0], z[:, 1, 1] = 1.0, -d  # query 0 scores its keys 0 and -d
        z[:, 0, 1] = 0.0
        p = params(plan, dim=1, dtype=dtype)._replace(beta=torch.ones(1, dtype=dtype))
        out = torch.zeros_like(z)
        _ops.push(plan, p, z, out, "native")
        wide = d.double()
        want = -wide * torch.sigmoid(-wide)
        error = ((out[:, 0, 0].double() - want)[1:] / want[1:]).abs()
        assert error[wide[1:] < 60].max() < limit * 10
        assert error.max() < limit * 100


def test_in_place_and_threads():
    torch.manual_seed(0)
    plan = Plan(3, 8, 20)
    p, z = params(plan, dtype=torch.float32), torch.randn(16, 40, plan.rows)
    out, inplace = torch.zeros_like(z), z.clone()
    energy = _ops.push(plan, p, z, out, "native")
    assert torch.equal(_ops.push(plan, p, inplace, inplace, "native"), energy)
    assert torch.equal(inplace, out)
    torch.set_num_threads(2)
    try:
        again = torch.zeros_like(z)
        assert torch.equal(_ops.push(plan, p, z, again, "native"), energy)
        assert torch.equal(again, out)
    finally:
        torch.set_num_threads(1)


def test_operators_are_registered_as_they_behave():
    plan = Plan(2, 3, 5)
    p = params(plan, dtype=torch.float64, mask=torch.tensor([[True, True, False]]))
    z, c = torch.randn(2, 1, 3, plan.rows, dtype=torch.float64)
    out, dz = torch.zeros_like(z), torch.zeros_like(z)
    heads, rows = torch.zeros(1, 2, dtype=torch.float64), torch.zeros(1, 3, dtype=torch.float64)
    constants = _ops._constants(plan, p)
    _ops._describe()
    opcheck(torch.ops.lawful.energy_push.default, (z, out, heads, rows, *constants))
    opcheck(torch.ops.lawful.energy_pull.default, (z, c, None, dz, out, heads, rows, *constants))


def test_reference_forms_agree_with_each_other():
    """`_stage` is written out by hand; `reference` is differentiable: they must say the same."""
    torch.manual_seed(0)
    plan = Plan(2, 3, 5, activation="softmax")
    p = params(plan)
    g = torch.randn(2, 4, 6, dtype=torch.float64)
    energy, update = reference.energy_and_update(g, plan, p)
    z = g @ p.weight.T
    with force_backend("reference"):
        got = _ops.push(plan, p, z, z, "auto")
    torch.testing.assert_close(got, energy)
    torch.testing.assert_close(z @ p.weight, update)
