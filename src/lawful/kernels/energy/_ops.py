"""Chooses between the compiled and the plain torch form of the stage between the matmuls."""

from torch import Tensor

from lawful.kernels._native import Backend
from lawful.kernels.energy import _stage
from lawful.kernels.energy._plan import Params, Plan


def push(plan: Plan, p: Params, z: Tensor, out: Tensor, backend: Backend) -> tuple[Tensor, Tensor]:
    """See `_stage.push`."""
    return _stage.push(plan, p, z, out)


def pull(
    plan: Plan,
    p: Params,
    z: Tensor,
    c: Tensor,
    lse: Tensor,
    ebar: Tensor | None,
    to: tuple[Tensor, Tensor],
    want_edge: bool,
    backend: Backend,
) -> _stage.Cotangents:
    """See `_stage.pull`."""
    return _stage.pull(plan, p, z, c, lse, ebar, to, want_edge)
