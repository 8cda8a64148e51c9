"""The compiled spectral products against plain torch: values, derivatives, registration."""

import pytest
import torch

from lawful.errors import InputError
from lawful.kernels import force_backend, native_status
from lawful.kernels.spectral import pack_blocks, packed_apply, packed_outer, spectral_apply
from lawful.kernels.spectral.reference import (
    apply_blocks,
    outer_blocks,
    tile_blocks,
    untile_blocks,
)
from lawful.unitary._boundaries import PackedFourier

needs_native = pytest.mark.skipif(not native_status().live, reason=native_status().describe())
SHAPES = [(1, 1, 1, 1), (3, 2, 5, 17), (9, 8, 8, 16), (8, 9, 3, 33), (2, 17, 17, 40), (0, 2, 2, 5)]
TOLERANCE = {torch.complex64: 2e-5, torch.complex128: 1e-13}


def draw(batch, c_out, c_in, count, dtype):
    g = torch.Generator().manual_seed(0)
    blocks = torch.randn(count, c_out, c_in, dtype=dtype, generator=g)
    x = torch.randn(batch, c_in, count, dtype=dtype, generator=g)
    y = torch.randn(batch, c_out, count, dtype=dtype, generator=g)
    return blocks, x, y


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("shape", SHAPES)
def test_products_equal_einsum(shape, dtype, backend):
    blocks, x, y = draw(*shape, dtype)
    u = pack_blocks(blocks)
    assert u.ndim == (5 if backend == "native" else 3)
    for got, want in (
        (spectral_apply(u, x), torch.einsum("foi,bif->bof", blocks, x)),
        (spectral_apply(u, y, adjoint=True), torch.einsum("foi,bof->bif", blocks.conj(), y)),
    ):
        assert got.shape == want.shape
        assert torch.allclose(got, want, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("count", [1, 16, 17, 40])
def test_tiles_can_be_undone(count):
    blocks, _, _ = draw(1, 3, 2, count, torch.complex128)
    assert torch.equal(untile_blocks(tile_blocks(blocks), count), blocks)


@pytest.mark.parametrize("adjoint", [False, True])
def test_first_and_second_derivatives(adjoint, backend):
    blocks, x, y = draw(2, 2, 3, 5, torch.complex128)
    field = (y if adjoint else x).requires_grad_()
    blocks.requires_grad_()

    def run(blocks, field):
        return spectral_apply(pack_blocks(blocks), field, adjoint=adjoint)

    assert torch.autograd.gradcheck(run, (blocks, field))
    assert torch.autograd.gradgradcheck(run, (blocks, field))


def test_strided_and_conjugated_fields(backend):
    blocks, x, _ = draw(4, 3, 3, 20, torch.complex64)
    u = pack_blocks(blocks)
    strided = x.transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.allclose(spectral_apply(u, strided), spectral_apply(u, x), atol=1e-5)
    want = apply_blocks(blocks, x.conj().resolve_conj())
    assert torch.allclose(spectral_apply(u, x.conj()), want, atol=1e-5)


def test_wrong_shapes_are_refused(backend):
    blocks, x, _ = draw(2, 2, 3, 5, torch.complex64)
    with pytest.raises(InputError, match="complex"):
        pack_blocks(blocks.real)
    with pytest.raises(InputError, match=r"\(B, 3, F\)"):
        spectral_apply(pack_blocks(blocks), x[:, :2])


@needs_native
@pytest.mark.parametrize("size", [(1,), (2,), (7,), (36,), (4, 5), (6, 4), (3, 2, 4)])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_packed_products_equal_the_separated_ones(size, dtype):
    transform = PackedFourier(size)
    plus, minus = transform.pairs(torch.device("cpu"))
    g = torch.Generator().manual_seed(0)
    z, y = (torch.randn(5, 3, *size, dtype=dtype, generator=g) for _ in range(2))
    # A real operator: symbols of real kernels, which are real where k = -k.
    kernel = torch.randn(6, 6, *size, dtype=torch.float64, generator=g)
    symbols = torch.fft.fftn(kernel, dim=tuple(range(2, kernel.ndim))).flatten(2)[..., plus]
    blocks = symbols.movedim(2, 0).to(dtype)
    u = tile_blocks(blocks)
    whole = transform.whole.forward(z).flatten(2)
    for adjoint in (False, True):
        product = packed_apply(u, whole, plus, minus, adjoint).view(z.shape)
        got = transform.whole.backward(product)
        want = transform.backward(apply_blocks(blocks, transform.forward(z), adjoint))
        assert torch.allclose(got, want, rtol=1e-5, atol=10 * TOLERANCE[dtype])
    outer = packed_outer(transform.whole.forward(y).flatten(2), whole, plus, minus)
    left = transform.forward(y) * transform.weights(z.device)
    want = tile_blocks(outer_blocks(left.to(dtype), transform.forward(z)))
    assert torch.allclose(outer, want, rtol=1e-5, atol=10 * TOLERANCE[dtype])


@needs_native
def test_operators_are_registered_correctly():
    blocks, x, y = draw(2, 3, 3, 20, torch.complex64)
    with force_backend("native"):
        u = pack_blocks(blocks)
    x, y = torch.view_as_real(x), torch.view_as_real(y)
    plus = torch.arange(11)
    minus = (-plus) % 20
    z = torch.view_as_real(torch.randn(2, 2, 20, dtype=torch.complex64))
    with force_backend("native"):
        four = pack_blocks(torch.randn(11, 4, 4, dtype=torch.complex64))
    for name, args in (
        ("spectral_apply", (u, x, False)),
        ("spectral_apply", (u, y, True)),
        ("spectral_outer", (y, x)),
        ("spectral_packed_apply", (four, z, plus, minus, False)),
        ("spectral_packed_outer", (z, z, plus, minus)),
    ):
        torch.library.opcheck(getattr(torch.ops.lawful, name).default, args)


@needs_native
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_do_not_change_the_result(threads):
    blocks, x, _ = draw(8, 16, 16, 700, torch.complex64)
    u = tile_blocks(blocks)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert torch.allclose(spectral_apply(u, x), apply_blocks(blocks, x), atol=1e-4)
    finally:
        torch.set_num_threads(before)
