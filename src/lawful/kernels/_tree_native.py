"""Compiled tree operators, ``torch.ops.lawful.<family>_<name>``."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from lawful.kernels._native import Backend, use_native

__all__ = ["call_native", "native_op", "takes_native"]

Pair = tuple[Tensor, Tensor]
_with_fakes: set[str] = set()


def native_op(family: str, name: str) -> Any:
    """The compiled operator, with its shape functions for the compiler registered on first use."""
    if family not in _with_fakes:
        _register_fakes(family)
    return getattr(torch.ops.lawful, f"{family}_{name}")


def _register_fakes(family: str) -> None:
    _with_fakes.add(family)
    fake = cast(Callable[[str], Callable[[Any], Any]], torch.library.register_fake)

    @fake(f"lawful::{family}_log_partition")
    def _(arcs: Tensor, root: Tensor, lengths: Tensor, single: bool) -> Tensor:
        return arcs.new_empty(arcs.shape[0], dtype=torch.float64)

    @fake(f"lawful::{family}_marginals")
    def _(arcs: Tensor, root: Tensor, lengths: Tensor, single: bool) -> Pair:
        return torch.empty_like(arcs), torch.empty_like(root)

    @fake(f"lawful::{family}_hvp")
    def _(
        arcs: Tensor, root: Tensor, lengths: Tensor, da: Tensor, dr: Tensor, single: bool
    ) -> Pair:
        return torch.empty_like(arcs), torch.empty_like(root)

    @fake(f"lawful::{family}_argmax")
    def _(arcs: Tensor, root: Tensor, lengths: Tensor, single: bool) -> Pair:
        heads = arcs.new_empty(arcs.shape[:2], dtype=torch.int64)
        return heads, arcs.new_empty(arcs.shape[0])


def takes_native(family: str, backend: Backend, *tensors: Tensor) -> bool:
    """Whether the compiled operator of the family serves these tensors."""
    native = use_native(backend, *tensors)
    if native and family not in _with_fakes:
        _register_fakes(family)
    return native


def call_native(
    family: str, name: str, arcs: Tensor, root: Tensor, lengths: Tensor, single: bool
) -> Any:
    """Calls a compiled operator on contiguous copies."""
    op = native_op(family, name)
    return op(arcs.contiguous(), root.contiguous(), lengths.contiguous(), single)
