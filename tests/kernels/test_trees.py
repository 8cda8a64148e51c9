"""The compiled tree kernels and the fast plain torch paths against the log-space truth."""

import math

import pytest
import torch

from lawful.kernels import _trees, constituency, native_status, projective, spanning
from lawful.kernels._tree_native import native_op
from lawful.kernels.constituency import reference as constituency_truth
from lawful.kernels.projective import reference as projective_truth
from lawful.kernels.projective import scaled
from lawful.kernels.spanning import dense
from lawful.kernels.spanning import reference as spanning_truth

FAMILIES = {
    "projective": (projective, projective_truth.log_partition),
    "spanning": (spanning, spanning_truth.log_partition),
    "constituency": (constituency, constituency_truth.log_partition),
}
PATHS = ["reference", "native"]


@pytest.fixture(params=PATHS)
def path(request):
    if request.param == "native" and not native_status().live:
        pytest.skip(native_status().describe())
    return request.param


def problem(batch, n, seed=0, scale=1.0, dtype=torch.float64, mask=0.0):
    g = torch.Generator().manual_seed(seed)
    arcs = scale * torch.randn(batch, n, n, generator=g, dtype=torch.float64)
    root = scale * torch.randn(batch, n, generator=g, dtype=torch.float64)
    arcs = arcs.masked_fill(torch.rand(batch, n, n, generator=g) < mask, -torch.inf)
    lengths = torch.randint(0, n + 1, (batch,), generator=g)
    lengths[: (batch + 1) // 2] = n
    return arcs.to(dtype), root.to(dtype), lengths


def run(name, path, arcs, root, lengths, single):
    """Log-partition, marginals, and a Hessian-vector product."""
    a, r = arcs.clone().requires_grad_(), root.clone().requires_grad_()
    value = _trees.log_partition(name, a, r, lengths, single, path)
    mu = _trees.marginals(name, a, r, lengths, single, path)
    g = torch.Generator().manual_seed(1)
    v = [torch.randn(m.shape, generator=g, dtype=torch.float64).to(m.dtype) for m in mu]
    h = torch.autograd.grad(sum((x * y).sum() for x, y in zip(mu, v, strict=True)), (a, r))
    return value, *mu, *h


def truth(name, arcs, root, lengths, single):
    f = FAMILIES[name][1]
    a, r = (x.double().clone().requires_grad_() for x in (arcs, root))
    value = f(a, r, lengths, single)
    mu = torch.autograd.grad(value.sum(), (a, r), create_graph=True)
    g = torch.Generator().manual_seed(1)
    v = [torch.randn(m.shape, generator=g, dtype=torch.float64) for m in mu]
    h = torch.autograd.grad(sum((x * y).sum() for x, y in zip(mu, v, strict=True)), (a, r))
    return value, *mu, *h


def assert_close(got, want, atol, rtol=1e-11):
    for x, y in zip(got, want, strict=True):
        torch.testing.assert_close(x.double(), y.double(), atol=atol, rtol=rtol)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 7, 17, 30])
def test_every_number_of_lanes(name, single, batch, path):
    args = problem(batch, 6, seed=batch)
    assert_close(run(name, path, *args, single), truth(name, *args, single), 1e-12)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("scale", [60.0, 1e3, 1e4, 1e6])
@pytest.mark.parametrize("mask", [0.0, 0.3])
def test_scores_that_leave_the_scaled_range(name, scale, mask, path):
    args = problem(9, 7, seed=3, scale=scale, mask=mask)
    single = mask > 0
    got, want = run(name, path, *args, single), truth(name, *args, single)
    assert_close(got, want, 1e-12 * max(1.0, scale))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("shift", [-300.0, 300.0])
def test_words_and_roots_of_very_different_size(name, shift, path):
    """Ill-conditioned Laplacians: the root hardly weighs, or one word's scores are all small."""
    arcs, root, lengths = problem(4, 6, seed=5)
    root = root + shift
    arcs[..., 2] = arcs[..., 2] - shift
    got, want = run(name, path, arcs, root, lengths, False), truth(name, arcs, root, lengths, False)
    assert_close(got, want, 1e-10)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("scale", [0.0, 1.0, 8.0])
def test_long_sentences(name, scale):
    """Beyond the lengths at which weights relative to the best head keep the range."""
    if not native_status().live:
        pytest.skip(native_status().describe())
    args = problem(2, 150, scale=scale)
    got = run(name, "native", *args, False)
    value = FAMILIES[name][1](*args, False)
    assert_close(got[:1], [value], 1e-9)
    if name != "constituency":
        words = torch.arange(150) < args[2][:, None]
        assert_close([got[1].sum(1) + got[2]], [words], 1e-12)
        assert_close([got[3].sum(1) + got[4]], [torch.zeros(2, 150)], 1e-10)


def test_counts_of_long_sentences(path):
    n = 400 if path == "native" else 60
    zeros = torch.zeros(1, n, n), torch.zeros(1, n)
    got = projective.log_partition(*zeros, backend=path).item()
    trees = math.lgamma(3 * n + 1) - math.lgamma(n + 1) - math.lgamma(2 * n + 1)
    assert got == pytest.approx(trees - math.log(2 * n + 1), rel=1e-12)
    assert spanning.log_partition(*zeros, backend=path).item() == pytest.approx(
        (n - 1) * math.log(n + 1), rel=1e-12
    )
    assert spanning.log_partition(*zeros, None, True, path).item() == pytest.approx(
        (n - 1) * math.log(n), rel=1e-12
    )
    got = constituency.log_partition(*zeros, backend=path).item()
    trees = math.lgamma(2 * n - 1) - math.lgamma(n) - math.lgamma(n + 1)
    assert got == pytest.approx(trees, rel=1e-12)


@pytest.mark.parametrize("name", ["projective", "spanning"])
def test_fast_plain_torch_path_knows_when_it_is_sound(name):
    fast = scaled if name == "projective" else dense
    arcs, root, lengths = problem(4, 6)
    arcs[0] *= 1e4
    arcs[1] = -torch.inf
    root[1, 1:] = -torch.inf
    value, sound, pair = fast.run(arcs, root, lengths, False, None)
    assert sound.tolist()[1:] == [False, True, True]
    want = truth(name, arcs, root, lengths, False)
    assert_close([value[2:], pair[0][2:]], [want[0][2:], want[1][2:]], 1e-12)
    assert torch.equal(fast.partition(arcs, root, lengths, False)[1], sound)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_and_two_threads_and_any_strides(name, dtype, path):
    arcs, root, lengths = problem(20, 12, dtype=dtype)
    want = run(name, path, arcs, root, lengths, False)
    strided = arcs.mT.contiguous().mT, torch.stack([root, root], -1)[..., 0]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for got, x in zip(run(name, path, *strided, lengths, False), want, strict=True):
            assert got.dtype == x.dtype
            torch.testing.assert_close(got, x, atol=1e-6, rtol=1e-6)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_of_any_size(name, path):
    """The direction of a Hessian-vector product is scaled: 1e-30 is as good as 1."""
    arcs, root, lengths = problem(3, 5)
    for size in (1e-200, 1e-30, 1e30):
        a, r = arcs.clone().requires_grad_(), root.clone().requires_grad_()
        ma, mr = _trees.marginals(name, a, r, lengths, False, path)
        one = torch.autograd.grad((ma**2).sum() + (mr**2).sum(), (a, r), retain_graph=True)
        loss = (size * ma**2).sum() + (size * mr**2).sum()
        got = torch.autograd.grad(loss, (a, r))
        assert_close([g / size for g in got], one, 1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_operators_pass_opcheck(name):
    if not native_status().live:
        pytest.skip(native_status().describe())
    args = problem(2, 3, dtype=torch.float32)
    for op, extra in (
        ("log_partition", ()),
        ("marginals", ()),
        ("hvp", (args[0] * 2, args[1] * 2)),
        ("argmax", ()),
    ):
        if name == "constituency" and op == "argmax":
            continue
        function = native_op(name, op)
        torch.library.opcheck(
            function, (*args, *extra, False), test_utils=("test_schema", "test_faketensor")
        )


def test_walks_that_are_trapped_are_drawn_otherwise(path):
    """Two words that point to each other with weight e^40 against the root's 1."""
    arcs = torch.full((1, 2, 2), 40.0, dtype=torch.float64)
    root = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    g = torch.Generator().manual_seed(0)
    heads = spanning.sample(4000, arcs, root, generator=g, backend=path)[:, 0]
    assert ((heads == -1).sum(1) == 1).all()
    share = (heads[:, 1] == -1).double().mean().item()
    assert share == pytest.approx(1 / (1 + math.exp(-1)), abs=0.03)


@pytest.mark.parametrize("single", [False, True])
def test_best_spanning_tree_without_recursion_or_ties(single, path):
    n = 1000 if path == "native" else 300
    zeros = torch.zeros(1, n, n), torch.zeros(1, n)
    heads, score = spanning.argmax(*zeros, None, single, path)
    again, _ = spanning.argmax(*zeros, None, single, path)
    assert torch.equal(heads, again)
    assert score.item() == 0
    assert (heads == -1).sum() >= 1
    if single:
        assert (heads == -1).sum() == 1
    up = torch.nn.functional.pad(torch.where(heads < 0, n, heads), (0, 1), value=n)
    for _ in range(11):
        up = up.gather(1, up)
    assert (up == n).all()


def test_single_root_is_not_bought_with_a_large_constant(path):
    """The best tree with one root child, where scores differ by 1e6 and by 1e-3."""
    arcs = torch.tensor([[[0.0, -1e6, -2e6], [1e-3, 0, -1e6], [0, -1e6, 0]]], dtype=torch.float64)
    root = torch.tensor([[0.0, 1e6, 9e5]], dtype=torch.float64)
    heads, score = spanning.argmax(arcs, root, None, True, path)
    assert heads.tolist() == [[1, -1, 1]]
    assert score.item() == pytest.approx(1e-3, abs=1e-9)
