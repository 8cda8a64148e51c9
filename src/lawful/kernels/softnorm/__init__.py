"""z / sqrt(1 + |z|^2), the bounded activation of unitary recurrences; see README.md."""

import functools
from typing import Any

import torch
from torch import Tensor

from lawful.errors import expected
from lawful.kernels._native import Backend, use_native
from lawful.kernels.softnorm import reference

__all__ = ["softnorm"]


@functools.cache
def _register_fakes() -> None:
    @torch.library.register_fake("lawful::softnorm")  # type: ignore[untyped-decorator]
    def _(v: Tensor) -> Tensor:
        return torch.empty_like(v, memory_format=torch.contiguous_format)

    @torch.library.register_fake("lawful::softnorm_backward")  # type: ignore[untyped-decorator]
    def _(v: Tensor, g: Tensor) -> Tensor:
        return torch.empty_like(v, memory_format=torch.contiguous_format)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _live(backend: Backend, device: str, dtype: torch.dtype) -> bool:
    if not use_native(backend, torch.empty(0, dtype=dtype, device=device)):
        return False
    _register_fakes()
    return True


class _SoftNorm(torch.autograd.Function):
    @staticmethod
    def forward(v: Tensor, native: bool) -> Tensor:
        if not native:
            return reference.softnorm(v)
        y: Tensor = torch.ops.lawful.softnorm(v)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, bool], output: Tensor) -> None:
        v, ctx.native = inputs
        ctx.save_for_backward(v)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (v,) = ctx.saved_tensors
        if torch.is_grad_enabled() or not ctx.native:
            return reference.softnorm_backward(v, g), None
        return torch.ops.lawful.softnorm_backward(v, g), None


def softnorm(z: Tensor, *, backend: Backend = "auto") -> Tensor:
    """Computes z / sqrt(1 + |z|^2), elementwise: into the open unit disc.

    Args:
        z: Complex, any shape.
        backend: Which path to take.

    Returns:
        Same shape. Only z is kept for the gradient.
    """
    if not z.is_complex():
        raise expected("z", "a complex tensor", z.dtype)
    v = torch.view_as_real(z.resolve_conj())
    native = _live(backend, z.device.type, v.dtype)
    y: Tensor = _SoftNorm.apply(v, native)  # type: ignore[no-untyped-call]
    return torch.view_as_complex(y)
