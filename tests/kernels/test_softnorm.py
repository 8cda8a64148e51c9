import pytest
import torch

from lawful.errors import InputError
from lawful.kernels import force_backend, native_status
from lawful.kernels.softnorm import softnorm


@pytest.mark.parametrize("shape", [(0,), (1,), (7, 3), (2, 4, 33)])
@pytest.mark.parametrize(("dtype", "tol"), [(torch.complex64, 1e-6), (torch.complex128, 1e-15)])
def test_value_is_the_formula(shape, dtype, tol, backend):
    z = 3 * torch.randn(shape, dtype=dtype)
    want = z / torch.sqrt(1 + z.real**2 + z.imag**2)
    for field in (z, z.conj(), z.mT if z.ndim > 1 else z):
        want = field / torch.sqrt(1 + field.real**2 + field.imag**2)
        assert torch.allclose(softnorm(field), want, atol=tol)


def test_derivatives_also_at_zero(backend):
    z = torch.randn(3, 4, dtype=torch.complex128)
    z[0] = 0
    z.requires_grad_()
    assert torch.autograd.gradcheck(softnorm, z)
    assert torch.autograd.gradgradcheck(softnorm, z)


def test_both_paths_give_the_same_gradient():
    if not native_status().live:
        pytest.skip(native_status().describe())
    z, g = (torch.randn(50, 70, dtype=torch.complex64) for _ in range(2))
    found = []
    for path in ("native", "reference"):
        with force_backend(path):
            leaf = z.clone().requires_grad_()
            softnorm(leaf).backward(g)
            found.append(leaf.grad)
    assert torch.allclose(*found, atol=1e-6)


def test_registration():
    if not native_status().live:
        pytest.skip(native_status().describe())
    softnorm(torch.zeros(1, dtype=torch.complex64))
    v = torch.randn(5, 2)
    torch.library.opcheck(torch.ops.lawful.softnorm.default, (v,))
    torch.library.opcheck(torch.ops.lawful.softnorm_backward.default, (v, v))


def test_real_input_is_refused():
    with pytest.raises(InputError, match="complex"):
        softnorm(torch.zeros(3))
