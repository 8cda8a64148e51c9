"""The layers against dense matrix exponentials, and everything a layer of torch has to survive."""

import copy
import io

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unitary_dense import expm, lift, matrix_of

from lawful.errors import InputError
from lawful.kernels import force_backend, native_status
from lawful.unitary import OrthogonalConv, UnitaryConv
from lawful.unitary._boundaries import dct, dst, idct
from lawful.unitary._chebyshev import bessel, norm_bound

BOUNDARIES = ["circular", "neumann", "dirichlet", "zeros"]
LATTICES = [
    ((7,), (3,)),
    ((8,), (5,)),
    ((3,), (5,)),  # the kernel is larger than the lattice
    ((1,), (3,)),
    ((4, 3), (3, 3)),
    ((5, 4), (3, 5)),
    ((3, 2, 4), (3, 1, 3)),
]
UNITARY = [
    {"channels": 1},
    {"channels": 3},
    {"channels": 2, "mixing": False},
]
ORTHOGONAL = [
    {"channels": 1},
    {"channels": 2},
    {"channels": 3},
    {"channels": 4},
    {"channels": 2, "form": "pair"},
    {"channels": 2, "form": "symmetric"},
    {"channels": 3, "form": "pair", "split": (1, 2)},
    {"channels": 4, "form": "symmetric"},
    {"channels": 4, "mixing": False},
    {"channels": 4, "mixing": False, "form": "symmetric"},
]


def unitary(taps, boundary, dtype=torch.float64, **kwargs):
    even = boundary in ("neumann", "dirichlet")
    return UnitaryConv(kernel_size=taps, boundary=boundary, even=even, dtype=dtype, **kwargs)


def orthogonal(taps, boundary, dtype=torch.float64, **kwargs):
    even = boundary in ("neumann", "dirichlet")
    return OrthogonalConv(kernel_size=taps, boundary=boundary, even=even, dtype=dtype, **kwargs)


def name(kwargs):
    return "-".join(f"{k}={v}" for k, v in kwargs.items())


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(("size", "taps"), LATTICES)
@pytest.mark.parametrize("kwargs", UNITARY, ids=name)
def test_unitary_layer_is_the_exponential_of_its_lifted_generator(
    boundary, size, taps, kwargs, backend
):
    layer = unitary(taps, boundary, **kwargs)
    generator = lift(layer.generator().detach(), size, boundary)
    assert (generator + generator.mH).abs().max() < 1e-13
    got = matrix_of(layer, size, torch.complex128, t=1.3)
    assert (got - expm(1.3 * generator)).abs().max() < 1e-12


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(("size", "taps"), LATTICES)
@pytest.mark.parametrize("kwargs", ORTHOGONAL, ids=name)
def test_orthogonal_layer_is_the_exponential_of_its_lifted_generator(
    boundary, size, taps, kwargs, backend
):
    layer = orthogonal(taps, boundary, **kwargs)
    generator = lift(layer.generator().detach(), size, boundary)
    assert (generator + generator.T).abs().max() < 1e-13
    got = matrix_of(layer, size, torch.float64, t=0.7)
    want = expm(0.7 * generator)
    assert (got - want).abs().max() < 1e-12
    assert abs(torch.linalg.det(want) - 1) < 1e-10
    x = torch.randn(2, layer.channels, *size, dtype=torch.float64)
    assert (layer.inverse(layer(x, 0.7), 0.7) - x).abs().max() < 1e-12


@pytest.mark.parametrize("gain", [1.0, 20.0])
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_singular_values_in_single_precision(boundary, gain, backend):
    cases = [(UnitaryConv, 1), (UnitaryConv, 4), (OrthogonalConv, 2), (OrthogonalConv, 4)]
    for kind, channels in cases:
        even = boundary in ("neumann", "dirichlet")
        layer = kind(channels, 3, 2, boundary=boundary, even=even, gain=gain)
        dtype = torch.complex64 if kind is UnitaryConv else torch.float32
        matrix = matrix_of(layer, (6, 7), dtype).to(torch.complex128)
        assert (torch.linalg.svdvals(matrix) - 1).abs().max() < 2e-6


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.sampled_from([1, 3, 5]),
    st.integers(1, 4),
    st.sampled_from(BOUNDARIES),
    st.floats(-3, 3),
    st.integers(0, 999),
)
def test_norm_is_kept_and_the_inverse_undoes(size, k, channels, boundary, t, seed):
    torch.manual_seed(seed)
    for make in (unitary, orthogonal):
        layer = make((k,) * len(size), boundary, channels=channels)
        x = torch.randn(2, channels, *size, dtype=torch.float64)
        y = layer(x, t)
        assert y.shape == x.shape
        norms = [torch.linalg.vector_norm(v, dim=tuple(range(1, v.ndim))) for v in (x, y)]
        assert torch.allclose(*norms, rtol=1e-12)
        assert torch.allclose(layer.inverse(y, t), x.to(y.dtype), atol=1e-11)
        assert torch.allclose(layer(layer(x, 0.25 * t), 0.75 * t), y, atol=1e-11)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_zero_parameters_are_the_identity(boundary):
    for make, channels in ((unitary, 3), (orthogonal, 2), (orthogonal, 4)):
        layer = make((3, 3), boundary, channels=channels)
        for weight in layer.parameters():
            torch.nn.init.zeros_(weight)
        x = torch.randn(2, channels, 5, 4, dtype=torch.float64)
        y = layer(x)
        assert torch.allclose(y, x.to(y.dtype), atol=1e-14)
        y.abs().square().sum().backward()
        assert all(w.grad.isfinite().all() for w in layer.parameters())


# --- gradients --------------------------------------------------------------------------------


def functional(layer, inverse=False):
    names = [n for n, _ in layer.named_parameters()]

    def run(x, *weights):
        call = torch.func.functional_call
        if inverse:
            saved = layer.forward
            layer.forward = layer.inverse
            try:
                return call(layer, dict(zip(names, weights, strict=True)), (x,))
            finally:
                layer.forward = saved
        return call(layer, dict(zip(names, weights, strict=True)), (x,))

    return run


GRADIENTS = [
    *[(unitary, "circular", k) for k in UNITARY],
    *[(orthogonal, "circular", k) for k in ORTHOGONAL],
    (unitary, "neumann", {"channels": 2}),
    (unitary, "zeros", {"channels": 2}),
    (orthogonal, "dirichlet", {"channels": 4}),
    (orthogonal, "zeros", {"channels": 2}),
]


@pytest.mark.parametrize(
    ("make", "boundary", "kwargs"), GRADIENTS, ids=lambda v: name(v) if isinstance(v, dict) else ""
)
@pytest.mark.parametrize("scale", [1.0, 0.0])
def test_gradcheck_also_at_zero(make, boundary, kwargs, scale, backend):
    torch.manual_seed(0)
    layer = make((3,), boundary, **kwargs)
    dtype = torch.complex128 if make is unitary else torch.float64
    x = torch.randn(2, layer.channels, 4, dtype=dtype, requires_grad=True)
    weights = [(scale * w.detach()).requires_grad_() for w in layer.parameters()]
    assert torch.autograd.gradcheck(functional(layer), (x, *weights))
    if scale:
        assert torch.autograd.gradcheck(functional(layer, inverse=True), (x, *weights))


@pytest.mark.parametrize(
    ("make", "kwargs"),
    [(unitary, {"channels": 1}), (unitary, {"channels": 2}), (orthogonal, {"channels": 2}),
     (orthogonal, {"channels": 3})],
)  # fmt: skip
def test_second_derivatives(make, kwargs, backend):
    torch.manual_seed(0)
    layer = make((3,), "circular", **kwargs)
    dtype = torch.complex128 if make is unitary else torch.float64
    x = torch.randn(1, layer.channels, 3, dtype=dtype, requires_grad=True)
    weights = [w.detach().requires_grad_() for w in layer.parameters()]
    assert torch.autograd.gradgradcheck(functional(layer), (x, *weights))


def test_gradient_at_repeated_eigenvalues(backend):
    layer = unitary((1,), "circular", channels=3)
    weight = torch.eye(3, dtype=torch.float64)[:, :, None].requires_grad_()  # H = 1 everywhere
    x = torch.randn(1, 3, 4, dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(functional(layer), (x, weight))


def test_time_has_a_gradient():
    layer = unitary((3,), "circular", channels=2)
    x = torch.randn(1, 2, 5, dtype=torch.complex128)
    t = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: layer(x, t), t)
    zeros = orthogonal((3,), "zeros", channels=2)
    assert torch.autograd.gradcheck(lambda t: zeros(x.real, t), t)


# --- what every layer must survive ------------------------------------------------------------


def test_lattice_may_change_from_call_to_call_and_batches_may_be_absent_or_empty(backend):
    layer = OrthogonalConv(4, 3, 2)
    for size in ((8, 8), (5, 9), (1, 2)):
        x = torch.randn(3, 4, *size)
        assert torch.allclose(layer(x)[1], layer(x[1]), atol=1e-6)
        assert layer(x[:0]).shape == (0, 4, *size)
    x = torch.randn(3, 6, 5, 4).transpose(1, 3)
    assert torch.allclose(layer(x), layer(x.contiguous()), atol=1e-6)


def test_logdet_is_zero_and_true():
    layer = OrthogonalConv(2, 3, dtype=torch.float64)
    matrix = matrix_of(layer, (5,), torch.float64)
    assert torch.allclose(torch.linalg.slogdet(matrix)[1], layer.logdet(), atol=1e-12)
    assert layer.logdet(torch.randn(3, 2, 5)).shape == (3,)


def test_determinant_plus_one_and_kept_sum_of_a_single_real_channel():
    layer = OrthogonalConv(1, 5, dtype=torch.float64)
    x = torch.randn(1, 1, 8, dtype=torch.float64)
    assert torch.allclose(layer(x).sum(), x.sum())
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(4)
    assert torch.allclose((layer(x) * sign).sum(), (x * sign).sum())


@pytest.mark.parametrize("boundary", ["reflect", "replicate", "symmetric", "crop", "nowhere"])
def test_boundaries_that_break_unitarity_are_refused_with_the_reason(boundary):
    with pytest.raises(InputError, match="boundary"):
        UnitaryConv(1, 3, boundary=boundary)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: UnitaryConv(1, 4), "odd numbers of taps"),
        (lambda: UnitaryConv(0), "channels"),
        (lambda: UnitaryConv(1, (3, 3), 1), "1 entries"),
        (lambda: UnitaryConv(1, 3, 4), "dims"),
        (lambda: UnitaryConv(1, 3, gain=float("nan")), "gain"),
        (lambda: UnitaryConv(1, 3, boundary="neumann"), "even=True"),
        (lambda: UnitaryConv(2, 3)(torch.randn(1, 3, 8)), r"\(B, 2, n\)"),
        (lambda: UnitaryConv(2, 3, 2)(torch.randn(1, 2, 8, 8, 8)), r"\(B, 2, n, n\)"),
        (lambda: OrthogonalConv(2)(torch.randn(1, 2, 8, dtype=torch.cfloat)), "UnitaryConv"),
        (lambda: OrthogonalConv(3, form="symmetric"), "even number"),
        (lambda: OrthogonalConv(3, mixing=False), "even number"),
        (lambda: OrthogonalConv(3, form="both"), "form"),
        (lambda: OrthogonalConv(3, form="pair", split=(2, 2)), "sum to 3"),
        (lambda: OrthogonalConv(1, form="pair"), "at least one for X"),
        (lambda: UnitaryConv(1, 3).operator((4, 4)), "1 axes"),
    ],
)
def test_bad_input_is_refused(call, match):
    with pytest.raises(InputError, match=match):
        call()


def test_half_precision_and_autocast_compute_in_single(backend):
    layer = OrthogonalConv(4, 3, 1)
    x = torch.randn(2, 4, 33)
    y = layer(x.bfloat16())
    assert y.dtype == torch.bfloat16
    assert (y.float() - layer(x.bfloat16().float())).abs().max() < 0.02
    zeros = OrthogonalConv(2, 3, 1, boundary="zeros")
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(zeros(x[:, :2]), zeros(x[:, :2]))
        assert zeros(x[:, :2]).dtype == torch.float32
        assert (zeros.inverse(zeros(x[:, :2])) - x[:, :2]).abs().max() < 1e-5


def test_copies_pickles_and_state_dicts_agree():
    layer = OrthogonalConv(4, 3, 2, mixing=False)
    assert list(layer.state_dict()) == ["weight", "weight_x", "weight_p"]
    assert list(UnitaryConv(2).state_dict()) == ["weight"]
    x = torch.randn(1, 4, 5, 6)
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    other = OrthogonalConv(4, 3, 2, mixing=False)
    other.load_state_dict(layer.state_dict())
    for twin in (copy.deepcopy(layer), torch.load(buffer, weights_only=False), other):
        assert torch.equal(twin(x), layer(x))
    assert "boundary='circular'" in repr(layer)


def test_initial_parameters_come_from_the_generator():
    one, two = UnitaryConv(2), UnitaryConv(2)
    for layer in (one, two):
        layer.reset_parameters(torch.Generator().manual_seed(7))
    assert torch.equal(one.weight, two.weight)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's
@pytest.mark.parametrize("kind", ["phase", "pair", "blocks"])
def test_compiled_layer_gives_the_same_numbers(kind, backend):
    layer, x = {
        "phase": (UnitaryConv(1, 3), torch.randn(2, 1, 9, dtype=torch.complex64)),
        "pair": (OrthogonalConv(2, 3), torch.randn(2, 2, 9)),
        "blocks": (OrthogonalConv(4, 3), torch.randn(2, 4, 9)),
    }[kind]
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x), layer(x), atol=1e-6)
    grads = []
    for run in (layer, compiled):
        layer.zero_grad()
        run(x).abs().square().cumsum(-1).sum().backward()
        grads.append([w.grad.clone() for w in layer.parameters()])
    for a, b in zip(*grads, strict=True):
        assert torch.allclose(a, b, atol=1e-4)


@pytest.mark.skipif(not native_status().live, reason=native_status().describe())
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_and_plain_products_agree(threads):
    torch.manual_seed(0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for kind, channels in ((UnitaryConv, 5), (OrthogonalConv, 5), (OrthogonalConv, 6)):
            layer = kind(channels, 3, 2)
            x = torch.randn(9, channels, 7, 11)
            found = []
            for path in ("native", "reference"):
                with force_backend(path):
                    layer.zero_grad()
                    y = layer(x)
                    (y * torch.arange(11)).abs().square().sum().backward()
                    found.append((y.detach(), layer.weight.grad.clone()))
            assert torch.allclose(found[0][0], found[1][0], atol=1e-5)
            assert torch.allclose(found[0][1], found[1][1], rtol=1e-4, atol=1e-1)
    finally:
        torch.set_num_threads(before)


# --- transforms and series --------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 16])
def test_trigonometric_transforms_match_scipy(n):
    import scipy.fft

    x = torch.randn(3, n, 2, dtype=torch.float64)
    want = torch.from_numpy(scipy.fft.dct(x.numpy(), axis=1, norm="ortho"))
    assert torch.allclose(dct(x, 1), want, atol=1e-14)
    assert torch.allclose(idct(dct(x, 1), 1), x, atol=1e-14)
    line = torch.sin(torch.pi * torch.arange(1, n + 1).double() / (n + 1))
    matrix = torch.sin(torch.pi * torch.outer(torch.arange(1.0, n + 1), torch.arange(1.0, n + 1))
                       .double() / (n + 1)) * (2 / (n + 1)) ** 0.5  # fmt: skip
    assert torch.allclose(dst(x, 1), torch.einsum("kn,bnc->bkc", matrix, x), atol=1e-6)
    assert torch.allclose(dst(dst(x, 1), 1), x, atol=1e-14)
    assert torch.allclose(dst(line[None], 1)[0, 1:], torch.zeros(n - 1).double(), atol=1e-14)


@pytest.mark.parametrize("s", [0.0, 1e-3, 1.0, 16.0, 64.0, 300.0])
def test_bessel_functions_match_scipy(s):
    import scipy.special

    count = int(s) + 40
    want = scipy.special.jv(range(count), s)
    assert max(abs(a - b) for a, b in zip(bessel(s, count), want, strict=True)) < 1e-14


@pytest.mark.parametrize("taps", [(1,), (3,), (5, 3), (3, 3, 3)])
def test_norm_bound_is_a_bound_and_not_loose(taps):
    layer = UnitaryConv(2, taps, dtype=torch.float64)
    kernel = layer.generator().detach()
    size = tuple(7 for _ in taps) if len(taps) < 3 else (4, 4, 4)
    norm = torch.linalg.matrix_norm(lift(kernel, size, "zeros"), ord=2)
    bound = norm_bound(kernel, len(taps))
    assert norm <= bound * (1 + 1e-12)
    assert bound <= 2.0 * norm


@pytest.mark.parametrize("gain", [4.0, 64.0])
def test_chebyshev_series_is_stable_in_single_precision(gain):
    torch.manual_seed(0)
    layer = OrthogonalConv(2, 3, boundary="zeros", gain=gain)
    double = copy.deepcopy(layer).double()
    x = torch.randn(4, 2, 65)
    assert (layer(x) - double(x.double())).abs().max() < 2e-5
    assert (layer(x).norm() / x.norm() - 1).abs() < 2e-6
