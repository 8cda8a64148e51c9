"""The compiled chain kernels against the plain-torch truth."""

import multiprocessing

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lawful.kernels import chain, native_status
from lawful.kernels.chain import _ops, reference, scaled

pytestmark = pytest.mark.skipif(not native_status().live, reason=native_status().describe())
INF = torch.inf


def make(B, N, C, form, seed, scale=1.0, dtype=torch.float64, forbid=0.0, lengths=True):
    g = torch.Generator().manual_seed(seed)
    shape = {"shared": (1, C, C), "group": (B, C, C), "edge": (B, max(N - 1, 0), C, C)}[form]
    unary = scale * torch.randn(B, N, C, generator=g, dtype=torch.float64)
    transition = scale * torch.randn(shape, generator=g, dtype=torch.float64)
    for x in (unary, transition):
        x.masked_fill_(torch.rand(x.shape, generator=g) < forbid, -INF)
    ends = torch.randint(0, N + 1, (B,), generator=g) if lengths else None
    return unary.to(dtype), transition.to(dtype), ends


def everything(unary, transition, lengths, native):
    """All outputs and first derivatives, with fixed tangents."""
    u, x = unary.clone().requires_grad_(), transition.clone().requires_grad_()
    A, mu, pair = chain.infer(u, x, lengths, native)
    g = torch.Generator().manual_seed(1)
    v = torch.randn(mu.shape, generator=g, dtype=torch.float64).to(mu.dtype)
    w = torch.randn(pair.shape, generator=g, dtype=torch.float64).to(mu.dtype)
    both = torch.autograd.grad((mu * v).sum() + (pair * w).sum(), (u, x), retain_graph=True)
    states_only = torch.autograd.grad((mu * v).sum(), (u, x), retain_graph=True)
    finite = torch.where(A.detach() > -INF, A, torch.zeros_like(A))
    first = torch.autograd.grad(finite.sum(), (u, x))
    alone = chain.log_partition(unary, transition, lengths, native)
    dice = torch.rand(2, *unary.shape[:2], generator=g, dtype=torch.float64)
    drawn = chain.sample(unary, transition, lengths, dice, native)
    best = chain.best(unary, transition, lengths, native)
    return {
        "log-partition": A,
        "marginals": mu,
        "pairs": pair,
        "tangent unary": both[0],
        "tangent pairs": both[1],
        "tangent of states": torch.cat([x.flatten() for x in states_only]),
        "gradient": torch.cat([x.flatten() for x in first]),
        "log-partition alone": alone,
        "samples": drawn,
        "best": best,
    }


def compare(args, atol, rtol=1e-8, skip=()):
    ours, truth = everything(*args, True), everything(*args, False)
    for name, x in ours.items():
        if name not in skip:
            torch.testing.assert_close(
                x.double(), truth[name].double(), atol=atol, rtol=rtol, msg=lambda m, n=name: n + m
            )


@pytest.mark.parametrize("form", ["shared", "group", "edge"])
@given(
    B=st.integers(1, 20),
    N=st.integers(0, 12),
    C=st.sampled_from([1, 2, 3, 5, 8, 9, 16, 17, 33, 50, 70]),
    seed=st.integers(0, 9),
    scale=st.sampled_from([1.0, 30.0]),
    lengths=st.booleans(),
)
def test_native_is_the_reference(form, B, N, C, seed, scale, lengths):
    compare(make(B, N, C, form, seed, scale, lengths=lengths), atol=1e-9 * scale)


@pytest.mark.parametrize("form", ["shared", "group", "edge"])
@given(C=st.sampled_from([2, 6, 12, 20]), seed=st.integers(0, 30), B=st.integers(1, 6))
def test_forbidden_parts(form, C, seed, B):
    args = make(B, 8, C, form, seed, scale=2.0, forbid=0.4)
    possible = chain.log_partition(*args, False) > -INF
    skip = () if bool(possible.all()) else ("samples", "best")
    compare(args, atol=1e-9, skip=skip)


@pytest.mark.parametrize("form", ["shared", "group", "edge"])
@pytest.mark.parametrize("C", [3, 12])
@pytest.mark.parametrize("scale", [1e2, 1e4, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scales_that_leave_the_scaled_domain(form, C, scale, dtype):
    args = make(4, 9, C, form, 3, scale, dtype)
    # Log-space messages of this size carry that much rounding.
    tight = 1e-6 if dtype == torch.float32 else max(1e-9, 2e-14 * scale)
    compare(args, atol=tight, rtol=tight)


@pytest.mark.parametrize("C", [2, 12])
def test_a_path_that_the_scaled_domain_would_lose(C):
    """The prefix makes a state 1e-60 likely and the transitions then insist on it."""
    unary = torch.zeros(2, 6, C)
    unary[:, :3, 0] = 50.0
    unary[:, 3:, 1] = 0.0
    transition = torch.zeros(1, C, C)
    transition[0, 0, 1:] = -INF  # from state 0 nowhere but to itself
    unary[:, -1, 0] = -INF
    args = (unary, transition, None)
    compare(args, atol=1e-6, rtol=1e-6, skip=("samples",))
    assert _ops._native.marginals(*args)[4].all()  # the fall-back was taken


@pytest.mark.parametrize("form", ["shared", "edge"])
@pytest.mark.parametrize("C", [2, 20])
def test_single_precision(form, C):
    exact = make(4, 200, C, form, 0, scale=2.0)
    short = tuple(x.float() for x in exact[:2]) + exact[2:]
    a, b = everything(*short, True), everything(*exact, False)
    for name in ("marginals", "log-partition"):
        torch.testing.assert_close(a[name].double(), b[name], atol=1e-5, rtol=1e-6)
    torch.testing.assert_close(
        a["tangent unary"].double(), b["tangent unary"], atol=2e-5, rtol=1e-4
    )


@pytest.mark.parametrize("form", ["shared", "group", "edge"])
@pytest.mark.parametrize("C", [4, 20])
def test_threads_do_not_matter(form, C):
    args = make(16, 60, C, form, 0, dtype=torch.float32)
    one = everything(*args, True)
    torch.set_num_threads(2)
    try:
        two = everything(*args, True)
    finally:
        torch.set_num_threads(1)
    for name, x in one.items():
        if "pairs" in name or "states" in name or "gradient" in name:
            torch.testing.assert_close(x, two[name], atol=1e-4, rtol=1e-5)
        else:
            assert torch.equal(x, two[name]), name


@pytest.mark.parametrize("form", ["shared", "edge"])
def test_registered_properly(form):
    unary, transition, lengths = make(3, 5, 9, form, 0, dtype=torch.float32)
    checks = ("test_schema", "test_faketensor")
    ops = torch.ops.lawful
    saved = ops.chain_marginals(unary, transition, lengths)
    for op, args in (
        (ops.chain_log_partition, (unary, transition, lengths)),
        (ops.chain_marginals, (unary, transition, lengths)),
        (ops.chain_best, (unary, transition, None)),
        (ops.chain_sample, (unary, transition, None, torch.rand(2, 3, 5, dtype=torch.float64))),
        (ops.chain_tangent, (unary, transition, lengths, *saved[1:], unary, None)),
    ):
        if op is ops.chain_marginals:  # its saved rows are scratch, partly never written
            torch.library.opcheck(op, args, test_utils="test_schema")
            with torch._subclasses.FakeTensorMode() as mode:
                fake = op(*(x if x is None else mode.from_tensor(x) for x in args))
            assert [x.shape for x in fake] == [x.shape for x in saved]
            assert [x.dtype for x in fake] == [x.dtype for x in saved]
        else:
            torch.library.opcheck(op, args, test_utils=checks)


def _in_child(queue):
    torch.set_num_threads(1)
    args = make(4, 30, 20, "shared", 0)
    queue.put(float(chain.infer(*args, True)[0].sum()))


def test_works_after_a_fork():
    """As in a DataLoader's worker."""
    args = make(4, 30, 20, "shared", 0)
    here = float(chain.infer(*args, True)[0].sum())
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == here
    child.join()


def test_reference_recursion_has_the_same_gradient():
    unary, transition, lengths = make(3, 5, 4, "edge", 2)
    unary.requires_grad_()
    A = reference.recursion(unary, transition, lengths)
    (grad,) = torch.autograd.grad(A.sum(), unary)
    torch.testing.assert_close(grad, reference.marginals(unary, transition, lengths)[1])


@pytest.mark.parametrize("form", ["shared", "group", "edge"])
@given(
    C=st.sampled_from([1, 2, 5, 12]),
    seed=st.integers(0, 20),
    lengths=st.booleans(),
    forbid=st.sampled_from([0.0, 0.2]),
)
def test_scaled_torch_path_is_the_log_space_one(form, C, seed, lengths, forbid):
    args = make(4, 6, C, form, seed, forbid=forbid, lengths=lengths)
    found = scaled.marginals(*args)
    if found is None:
        assert forbid  # only then may it give up here
        return
    want = reference.marginals(*args)
    v, w = torch.randn_like(want[1]), torch.randn_like(want[2])
    for tangents in ((v, w), (v, None), (None, w)):
        found += scaled.tangent(*args, *tangents)
        want += reference.tangent(*args, *tangents)
    for x, y in zip(found, want, strict=True):
        torch.testing.assert_close(x, y, atol=1e-10, rtol=1e-10)


def test_scaled_torch_path_knows_its_range():
    unary, transition, _ = make(2, 6, 3, "shared", 0)
    assert scaled.marginals(1e4 * unary, 1e4 * transition, None) is None
    assert scaled.marginals(unary + 1e6, transition - 1e6, None) is not None
