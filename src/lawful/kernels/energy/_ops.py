"""Chooses between the compiled and the plain torch form of the stage between the matmuls."""

import functools
from typing import Any

import torch
from torch import Tensor

from lawful.kernels._native import Backend, use_native
from lawful.kernels.energy import _stage
from lawful.kernels.energy._plan import Params, Plan

_ACTIVATIONS = {"none": 0, "relu": 1, "softmax": 2}


def push(plan: Plan, p: Params, z: Tensor, out: Tensor, backend: Backend) -> Tensor:
    """See `_stage.push`."""
    if not _native(p, z, backend):
        return _stage.push(plan, p, z, out)
    b, n, _ = z.shape
    by_head = z.new_empty((b, plan.heads), dtype=torch.float64)
    by_token = z.new_empty((b, n), dtype=torch.float64)
    torch.ops.lawful.energy_push(z, out, by_head, by_token, *_constants(plan, p))
    return (by_head.sum(-1) + by_token.sum(-1)).to(z.dtype)


def pull(
    plan: Plan,
    p: Params,
    z: Tensor,
    c: Tensor,
    ebar: Tensor | None,
    to: tuple[Tensor, Tensor],
    want_edge: bool,
    backend: Backend,
) -> _stage.Cotangents:
    """See `_stage.pull`."""
    if not _native(p, z, backend):
        return _stage.pull(plan, p, z, c, ebar, to, want_edge)
    b, n, _ = z.shape
    by_head = z.new_empty((b, plan.heads), dtype=torch.float64)
    by_token = z.new_empty((b, n), dtype=torch.float64)
    e = None if ebar is None else ebar.contiguous()
    torch.ops.lawful.energy_pull(z, c, e, *to, by_head, by_token, *_constants(plan, p))
    memory_beta = by_token.sum() if p.memory_beta is not None else None
    return _stage.Cotangents(by_head.sum(0), memory_beta, None)


def _native(p: Params, z: Tensor, backend: Backend) -> bool:
    """Weighted edges are left to plain torch."""
    if p.edge is not None or not use_native(backend, z):
        return False
    _describe()
    return True


@functools.cache
def _describe() -> None:
    """Tells tracers of the compiled operators that they only write to what they are given."""
    for name in ("energy_push", "energy_pull"):
        torch.library.register_fake(f"lawful::{name}", lambda *args: None)


def _constants(plan: Plan, p: Params) -> tuple[Any, ...]:
    mask = None if p.mask is None else p.mask.contiguous()
    allowed = None if p.allowed is None else p.allowed.contiguous()
    kind = _ACTIVATIONS[plan.activation]
    flags = (plan.heads, plan.width, plan.self_attention, plan.causal, kind)
    return (p.beta.contiguous(), p.memory_beta, mask, allowed, *flags)
