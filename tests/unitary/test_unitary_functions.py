"""Kernels of functions of a convolution, against dense matrices and closed forms."""

import math

import pytest
import scipy.linalg
import scipy.special
import torch
from hypothesis import given
from hypothesis import strategies as st
from unitary_dense import expm, lift

from lawful.errors import InputError, NumericalWarning
from lawful.unitary import (
    antihermitian,
    antisymmetric,
    conv_apply,
    conv_cos,
    conv_exp,
    conv_function,
    conv_sin,
    from_antihermitian,
    support_radius,
    symbol,
    xp_kernels,
)

LATTICES = [((16,), (5,)), ((15,), (3,)), ((3,), (7,)), ((6, 5), (3, 5)), ((2, 3, 4), (3, 3, 1))]


def random_kernel(taps, channels=None, *, is_complex=True, seed=0):
    g = torch.Generator().manual_seed(seed)
    shape = taps if channels is None else (channels, channels, *taps)
    kernel = torch.randn(shape, dtype=torch.float64, generator=g)
    if is_complex:
        kernel = torch.complex(kernel, torch.randn(shape, dtype=torch.float64, generator=g))
    return 0.4 * kernel


def first_column(matrix, channels, size):
    """The kernel of a lifted operator: its response to a unit at site 0, per channel pair."""
    total = math.prod(size)
    blocks = matrix.view(channels, total, channels, total)[..., 0]
    return blocks.transpose(1, 2).reshape(channels, channels, *size)


@pytest.mark.parametrize(("size", "taps"), LATTICES)
@pytest.mark.parametrize("channels", [None, 3])
@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize(
    ("ours", "dense"),
    [(conv_exp, scipy.linalg.expm), (conv_cos, scipy.linalg.cosm), (conv_sin, scipy.linalg.sinm)],
)
def test_functions_equal_the_dense_matrix_function(size, taps, channels, is_complex, ours, dense):
    kernel = random_kernel(taps, channels, is_complex=is_complex)
    full = kernel if channels else kernel[None, None]
    want = torch.from_numpy(dense(lift(full, size).numpy()))
    want = first_column(want, channels or 1, size)
    got = ours(kernel, size)
    assert got.dtype == kernel.dtype
    got = got if channels else got[None, None]
    assert (got - want).abs().max() <= 1e-13 * want.abs().max()


@given(st.integers(1, 9), st.sampled_from([1, 3, 5]), st.floats(-2, 2), st.integers(0, 99))
def test_flow_is_a_group(n, k, t, seed):
    kernel = random_kernel((k,), seed=seed)
    once = conv_exp(kernel, n, t)
    both = conv_apply(conv_exp(kernel, n, 1 - t), once)
    assert torch.allclose(both, conv_exp(kernel, n), atol=1e-12)
    unit = torch.zeros(n, dtype=once.dtype)
    unit[0] = 1
    assert torch.allclose(conv_apply(conv_exp(kernel, n, -t), once), unit, atol=1e-10)


def test_exponential_equals_the_literal_series():
    kernel, size = random_kernel((3, 3)), (5, 6)
    term = conv_exp(kernel, size, 0.0)
    total = term.clone()
    for m in range(1, 40):
        term = conv_apply(kernel, term, origin="centre") / m
        total += term
    assert torch.allclose(total, conv_exp(kernel, size), atol=1e-14)


@pytest.mark.parametrize("channels", [None, 2])
@pytest.mark.parametrize("function", [torch.exp, torch.cosh, lambda z: z * z - 3 * z])
def test_any_entire_function_by_its_symbol(channels, function):
    kernel = random_kernel((3,), channels, is_complex=False)
    full = (kernel if channels else kernel[None, None]).numpy()
    matrix = lift(torch.from_numpy(full), (7,))
    if function is torch.exp:
        want = torch.from_numpy(scipy.linalg.expm(matrix.numpy()))
    elif function is torch.cosh:
        want = torch.from_numpy(scipy.linalg.coshm(matrix.numpy()))
    else:
        want = matrix @ matrix - 3 * matrix
    got = conv_function(function, kernel, 7, real=True)
    got = got if channels else got[None, None]
    assert torch.allclose(got, first_column(want, channels or 1, (7,)), atol=1e-12)


def test_contour_integral_warns_when_it_cancels():
    kernel = 30 * random_kernel((3,), 2)
    with pytest.warns(NumericalWarning, match="cancellation"):
        conv_function(torch.exp, kernel, 4)


@pytest.mark.parametrize("channels", [None, 2])
def test_gradients_are_finite_and_right_at_zero_and_elsewhere(channels):
    for kernel in (random_kernel((3,), channels), 0 * random_kernel((3,), channels)):
        kernel = kernel.requires_grad_()
        assert torch.autograd.gradcheck(lambda k: conv_exp(k, 4, 0.7), kernel)
        assert torch.autograd.gradcheck(lambda k: conv_sin(k, 4), kernel)
    if channels:
        assert torch.autograd.gradcheck(lambda k: conv_function(torch.exp, k, 3), kernel)


def test_gradient_is_a_correlation_with_the_exponential():
    kernel = random_kernel((9,), is_complex=True).requires_grad_()
    out = conv_exp(kernel, 9)
    g = random_kernel((9,), seed=3)
    out.backward(g)
    back = out.detach().conj().flip(0).roll(1, 0)  # conj-flip about index 0
    want = conv_apply(back, g).roll(4, 0)  # from index-0 to centred order
    assert torch.allclose(kernel.grad, want, atol=1e-13)


def test_derivative_of_cosine_is_minus_the_translated_sine():
    kernel, size = random_kernel((3,), is_complex=False), 8
    jacobian = torch.autograd.functional.jacobian(lambda k: conv_cos(k, size), kernel)
    sine = conv_sin(kernel, size)
    for a in range(3):
        assert torch.allclose(jacobian[:, a], -sine.roll(a - 1, 0), atol=1e-14)


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 2, 3)])
@pytest.mark.parametrize("origin", ["centre", "zero"])
def test_antihermitian_is_a_bijection_onto_antihermitian_kernels(shape, origin):
    dims = 1 if len(shape) == 3 else None
    weight = torch.randn(shape, dtype=torch.float64)
    kernel = antihermitian(weight, dims, origin=origin)
    assert torch.allclose(from_antihermitian(kernel, dims, origin=origin), weight, atol=1e-15)
    size = shape[-(dims or len(shape)) :]
    values = symbol(kernel, size, origin=origin)
    if dims is None:
        assert values.real.abs().max() < 1e-14
        white = torch.fft.fftn(conv_exp(kernel, size, origin=origin)).abs()
        assert (white - 1).abs().max() < 1e-14
    else:
        blocks = values.movedim(2, 0)
        assert (blocks + blocks.mH).abs().max() < 1e-14


def test_even_full_lattice_kernels_need_the_origin_named():
    weight = torch.randn(8, dtype=torch.float64)
    with pytest.raises(InputError, match="odd number of taps"):
        antihermitian(weight)
    kernel = antihermitian(weight, origin="zero")
    assert (torch.fft.fft(conv_exp(kernel, 8, origin="zero")).abs() - 1).abs().max() < 1e-14


def test_from_antihermitian_refuses_other_kernels():
    with pytest.raises(InputError, match="anti-Hermitian"):
        from_antihermitian(torch.randn(3, dtype=torch.complex64))


def test_antisymmetric_kernels_keep_the_sum():
    kernel = antisymmetric(torch.randn(5, dtype=torch.float64))
    assert abs(conv_exp(kernel, 12).sum() - 1) < 1e-14


@pytest.mark.parametrize("norm", [1e-9, 1e-5, 1e-3, 0.01, 0.04, 0.3, 0.6, 1.0, 3.0])
def test_matrix_exponential_is_exact_at_every_norm(norm):
    for sign in (1.0, -1.0):
        kernel = norm * torch.tensor([[0.0, 1.0], [-1.0, sign]], dtype=torch.float64)[..., None]
        want = expm(kernel[..., 0])
        error = (conv_exp(kernel, 1)[..., 0] - want).abs().max()
        assert error < 1e-14 * torch.exp(torch.tensor(2 * norm))


# --- closed forms -----------------------------------------------------------------------------


@pytest.mark.parametrize("t", [0.5, 1.0, 4.0])
def test_laplacian_gives_the_bessel_kernel_and_variance_2t(t):
    laplacian = torch.tensor([1.0, -2.0, 1.0], dtype=torch.float64)
    n = 129
    got = conv_exp(laplacian, n, t)
    site = torch.arange(n) - 64
    want = torch.from_numpy(scipy.special.ive(site.numpy(), 2 * t))
    got = got.roll(64, 0)
    assert (got - want).abs().max() < 1e-14
    assert abs(got.sum() - 1) < 1e-14
    assert abs((got * site**2).sum() - 2 * t) < 1e-10
    cross = torch.tensor([[0, 1, 0], [1, -4, 1], [0, 1, 0]], dtype=torch.float64)
    plane = conv_exp(cross, (33, 33), t)
    line = conv_exp(laplacian, 33, t)
    assert (plane - line[:, None] * line).abs().max() < 1e-14


@pytest.mark.parametrize("t", [1.0, 20.0])
def test_central_difference_gives_bessel_j_and_moves_the_mean_by_t(t):
    kernel = torch.tensor([-0.5, 0.0, 0.5], dtype=torch.float64)
    got = conv_exp(kernel, 257, t).roll(128, 0)
    site = torch.arange(257) - 128
    assert (got - torch.from_numpy(scipy.special.jv(site.numpy(), t))).abs().max() < 1e-14
    assert abs((got * site).sum() - t) < 1e-11
    assert abs(got.square().sum() - 1) < 1e-13


def test_laplacian_plus_difference_is_a_translated_gaussian():
    t = 3.0
    kernel = torch.tensor([0.5, -2.0, 1.5], dtype=torch.float64)
    got = conv_exp(kernel, 255, t).roll(127, 0)
    site = torch.arange(255) - 127
    mean = (got * site).sum()
    assert abs(got.sum() - 1) < 1e-13
    assert abs(mean - t) < 1e-11
    assert abs((got * (site - mean) ** 2).sum() - 2 * t) < 1e-10
    assert abs((got * (site - mean) ** 3).sum() - t) < 1e-8  # dispersion: third cumulant t


def test_four_kernels_of_a_nonsymmetric_coupling_are_orthogonal():
    g = torch.Generator().manual_seed(0)
    k, a, c = (torch.randn(5, dtype=torch.float64, generator=g) for _ in range(3))
    a, c = antisymmetric(a), antisymmetric(c)
    for inner in ((None, None), (a, c)):
        xx, xp, px, pp = xp_kernels(k, 9, 1.3, *inner)
        rows = [torch.stack([xx, xp]), torch.stack([px, pp])]
        blocks = torch.stack(rows)  # (2, 2, 9)
        zero = torch.zeros_like(k)
        first, last = (zero if m is None else m for m in inner)
        generator = torch.stack([torch.stack([first, k]), torch.stack([-k.flip(0), last])])
        want = expm(1.3 * lift(generator, (9,)))
        assert (blocks - first_column(want, 2, (9,))).abs().max() < 1e-14
        assert abs(torch.linalg.det(want) - 1) < 1e-12
    # The sine and cosine kernels are right only for symmetric K.
    symmetric = (k + k.flip(0)) / 2
    xx, xp, px, _ = xp_kernels(symmetric, 9)
    assert torch.allclose(xx, conv_cos(symmetric, 9), atol=1e-14)
    assert torch.allclose(xp, conv_sin(symmetric, 9), atol=1e-14)
    assert torch.allclose(px, -conv_sin(symmetric, 9), atol=1e-14)
    assert (xp_kernels(k, 9)[1] - conv_sin(k, 9)).abs().max() > 0.1


def test_gradients_of_the_four_kernels_at_zero_coupling():
    k, a, c = (torch.zeros(3, dtype=torch.float64).requires_grad_() for _ in range(3))

    def kernels(k, a, c):
        return xp_kernels(k, 6, 1.3, antisymmetric(a), antisymmetric(c))

    assert torch.autograd.gradcheck(kernels, (k, a, c))
    assert torch.autograd.gradcheck(lambda k: xp_kernels(k, 6), (k.detach() + 0.3).requires_grad_())


# --- support ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("s", "tol", "radius"), [(1, 1e-7, 8), (4, 1e-7, 14), (16, 1e-7, 31)])
def test_support_radius_bounds_the_tail(s, tol, radius):
    kernel = antihermitian(torch.tensor([0.1, 0.3, 0.6], dtype=torch.float64))
    kernel = kernel * (s / kernel.abs().sum())
    found = support_radius(kernel, tol)
    assert 0.7 * radius <= found <= radius + 1  # the table's entry is the worst of many kernels
    weight = conv_exp(kernel, 501).abs()
    assert weight[found + 1 : 501 - found].sum() < tol <= weight[found : 502 - found].sum()


def test_support_radius_in_two_dimensions_and_trivial_cases():
    assert support_radius(torch.zeros(3, 3)) == 0
    wide = support_radius(torch.full((3, 3), 0.2))
    values = conv_exp(torch.full((3, 3), 0.2, dtype=torch.float64), (63, 63)).abs()
    values = values.roll((31, 31), (0, 1))
    inside = values[31 - wide : 32 + wide, 31 - wide : 32 + wide].sum()
    assert values.sum() - inside < 1e-7
    with pytest.warns(NumericalWarning, match="wraps"):
        support_radius(torch.ones(3), size=8)
    with pytest.raises(InputError, match="tol"):
        support_radius(torch.ones(3), 0.0)


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: conv_exp(torch.ones(4), 8), "odd number of taps"),
        (lambda: conv_exp(torch.ones(3, 3), 8), "one entry for each axis"),
        (lambda: conv_exp(torch.ones(3, dtype=torch.long), 8), "floating or complex"),
        (lambda: conv_exp(torch.ones(3), 0), "at least 1 site"),
        (lambda: conv_exp(torch.ones(2, 3, 3), 8), "as many output as input"),
        (lambda: conv_exp(torch.ones(3), 8, origin="left"), "origin"),
        (lambda: antihermitian(torch.ones(3, dtype=torch.complex64)), "real tensor"),
        (lambda: conv_apply(torch.ones(4, 4), torch.ones(4)), "at least 2 axes"),
    ],
)
def test_bad_input_is_refused(call, match):
    with pytest.raises(InputError, match=match):
        call()


def test_single_precision_is_rounded_double_precision():
    kernel = random_kernel((3,), is_complex=False)
    single = conv_exp(kernel.float(), 64, 5.0)
    assert single.dtype == torch.float32
    assert (single - conv_exp(kernel.float().double(), 64, 5.0)).abs().max() < 1e-6


@pytest.mark.parametrize("norm", [32.0, 128.0])
def test_large_norms_stay_unitary(norm):
    kernel = antihermitian(torch.randn(3, 3, 3, dtype=torch.float64), 1)
    blocks = symbol(kernel, 8).movedim(2, 0)
    kernel = kernel * (norm / torch.linalg.matrix_norm(blocks, ord=2).max())
    out = symbol(conv_exp(kernel, 8), 8, origin="zero").movedim(2, 0)
    assert (torch.linalg.svdvals(out) - 1).abs().max() < 1e-12
