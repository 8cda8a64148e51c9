"""What the families of trees share: differentiable operators over two backends.

A family is a name. Its operators take arcs (B, N, N), root (B, N), lengths (B) and a flag; callers
flatten their batch dimensions. The gradient of the log-partition is the marginals, the gradient of
the marginals is a Hessian-vector product: one more pass, no tape through the chart. Third
derivatives come from the plain torch path.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from lawful.kernels._native import Backend
from lawful.kernels._tree_native import call_native, native_op, takes_native
from lawful.kernels._tree_truth import (
    Pair,
    plain_hvp,
    reference_hvp,
    reference_log_partition,
    reference_marginals,
)

__all__ = ["PAD", "ROOT", "flatten", "heads_of", "log_partition", "marginals"]

ROOT = -1  # head of a child of the root
PAD = -2  # head of a word in the padding

Triple = tuple[Tensor, Tensor, Tensor]


def flatten(arcs: Tensor, root: Tensor, lengths: Tensor | None) -> tuple[torch.Size, Triple]:
    """The batch shape, and (B, N, N), (B, N), (B) with one batch dimension; no lengths means N."""
    n = arcs.shape[-1]
    batch: torch.Size = torch.broadcast_shapes(  # type: ignore[no-untyped-call]
        arcs.shape[:-2], root.shape[:-1]
    )
    count = batch.numel()
    if lengths is None:
        size = torch.full((count,), n, dtype=torch.int64, device=arcs.device)
    else:
        size = lengths.to(device=arcs.device, dtype=torch.int64).expand(batch).reshape(count)
    return batch, (
        arcs.expand(*batch, n, n).reshape(count, n, n),
        root.expand(*batch, n).reshape(count, n),
        size,
    )


def heads_of(arcs: Tensor, root: Tensor, lengths: Tensor) -> Tensor:
    """Heads (..., N) from indicators or weights of arcs and root: the largest in each column."""
    n = root.shape[-1]
    if n == 0:
        return torch.zeros(root.shape, dtype=torch.int64, device=root.device)
    best = torch.cat([root[..., None, :], arcs], -2).argmax(-2) - 1
    return best.masked_fill(torch.arange(n, device=root.device) >= lengths[..., None], PAD)


def _fold(info: Any, in_dims: tuple[int | None, ...], tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """Merges the mapped dimension of each tensor into its batch dimension."""
    folded = []
    for x, dim in zip(tensors, in_dims, strict=True):
        mapped = x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
        folded.append(mapped.reshape(-1, *mapped.shape[2:]))
    return folded


def _unfold(info: Any, x: Tensor) -> Tensor:
    return x.reshape(info.batch_size, -1, *x.shape[1:])


def _transformed() -> bool:
    """Whether torch.func or the compiler is at work."""
    if torch.compiler.is_compiling():
        return True
    return bool(torch._C._are_functorch_transforms_active())


def _call(function: Any, *args: Any) -> Any:
    """Applies an operator, with no more bookkeeping than the call needs.

    What only torch.func needs costs some 30 us a call; where no graph is wanted nothing is needed.
    """
    if _transformed():
        return function.apply(*args)
    if not torch.is_grad_enabled():
        return function.forward(*args)
    return function.eager.apply(*args)


def _eager(function: Any) -> Any:
    """The same Function with forward and setup_context in one."""

    def forward(ctx: Any, *args: Any) -> Any:
        output = function.forward(*args)
        function.setup_context(ctx, args, output)
        return output

    body = {"forward": staticmethod(forward), "backward": staticmethod(function.backward)}
    return type(f"{function.__name__}Eager", (Function,), body)


class _LogPartition(Function):
    eager: Any

    @staticmethod
    def forward(
        family: str, native: bool, single: bool, arcs: Tensor, root: Tensor, lengths: Tensor
    ) -> Tensor:
        if native:
            value: Tensor = call_native(family, "log_partition", arcs, root, lengths, single)
            return value
        return reference_log_partition(family, arcs, root, lengths, single)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.how = inputs[:3]
        ctx.save_for_backward(*inputs[3:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        arcs, root, lengths = ctx.saved_tensors
        ma, mr = _call(_Marginals, *ctx.how, arcs, root, lengths)
        scale = grad.to(arcs.dtype)
        return None, None, None, ma * scale[:, None, None], mr * scale[:, None], None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        out = _call(_LogPartition, *args[:3], *_fold(info, in_dims[3:], args[3:]))
        return _unfold(info, out), 0


class _Marginals(Function):
    eager: Any

    @staticmethod
    def forward(
        family: str, native: bool, single: bool, arcs: Tensor, root: Tensor, lengths: Tensor
    ) -> Pair:
        if native:
            pair: Pair = call_native(family, "marginals", arcs, root, lengths, single)
            return pair
        return reference_marginals(family, arcs, root, lengths, single)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Pair) -> None:
        ctx.how = inputs[:3]
        ctx.save_for_backward(*inputs[3:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        arcs, root, lengths = ctx.saved_tensors
        pair = _call(_Hvp, *ctx.how, arcs, root, lengths, grads[0], grads[1])
        return None, None, None, pair[0], pair[1], None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        out = _call(_Marginals, *args[:3], *_fold(info, in_dims[3:], args[3:]))
        return tuple(_unfold(info, x) for x in out), (0, 0)


class _Hvp(Function):
    eager: Any

    @staticmethod
    def forward(
        family: str,
        native: bool,
        single: bool,
        arcs: Tensor,
        root: Tensor,
        lengths: Tensor,
        along_arcs: Tensor,
        along_root: Tensor,
    ) -> Pair:
        if native:
            tensors = (arcs, root, lengths, along_arcs, along_root)
            op = native_op(family, "hvp")
            pair: Pair = op(*(x.contiguous() for x in tensors), single)
            return pair
        return reference_hvp(family, arcs, root, lengths, (along_arcs, along_root), single)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Pair) -> None:
        ctx.how = inputs[:3]
        ctx.save_for_backward(*inputs[3:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        family, _, single = ctx.how
        arcs, root, lengths, along_arcs, along_root = ctx.saved_tensors

        def product(a: Tensor, r: Tensor, va: Tensor, vr: Tensor) -> Pair:
            return plain_hvp(family, a, r, lengths, (va, vr), single)

        pull: Any = torch.func.vjp(product, arcs, root, along_arcs, along_root)[1]
        ga, gr, gva, gvr = pull((grads[0], grads[1]))
        return None, None, None, ga, gr, None, gva, gvr

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        out = _call(_Hvp, *args[:3], *_fold(info, in_dims[3:], args[3:]))
        return tuple(_unfold(info, x) for x in out), (0, 0)


for _function in (_LogPartition, _Marginals, _Hvp):
    _function.eager = _eager(_function)


def log_partition(
    family: str,
    arcs: Tensor,
    root: Tensor,
    lengths: Tensor | None,
    single: bool,
    backend: Backend,
) -> Tensor:
    """(...) float64, differentiable any number of times."""
    batch, flat = flatten(arcs, root, lengths)
    native = takes_native(family, backend, arcs, root)
    value: Tensor = _call(_LogPartition, family, native, single, *flat)
    return value.reshape(batch)


def marginals(
    family: str,
    arcs: Tensor,
    root: Tensor,
    lengths: Tensor | None,
    single: bool,
    backend: Backend,
) -> Pair:
    """(..., N, N) and (..., N), differentiable any number of times."""
    batch, flat = flatten(arcs, root, lengths)
    native = takes_native(family, backend, arcs, root)
    ma, mr = _call(_Marginals, family, native, single, *flat)
    n = arcs.shape[-1]
    return ma.reshape(*batch, n, n), mr.reshape(*batch, n)


def sample_by_conditioning(
    family: str,
    count: int,
    arcs: Tensor,
    root: Tensor,
    lengths: Tensor,
    single: bool,
    generator: torch.Generator | None,
) -> Tensor:
    """Exact samples (count, B, N): each word's head from its marginals given the heads before.

    N calls of the marginals; serves the plain torch path and what the compiled samplers decline.
    """
    n, batch = arcs.shape[-1], len(arcs)
    arcs = arcs.detach().double().repeat(count, 1, 1)
    root = root.detach().double().repeat(count, 1)
    size = lengths.repeat(count)
    heads = torch.full((count * batch, n), PAD, device=arcs.device)
    for m in range(n):
        ma, mr = marginals(family, arcs, root, size, single, "auto")
        column = torch.cat([mr[:, m, None], ma[:, :, m]], -1)  # the root, then heads 0..N-1
        steps = column.cumsum(-1)
        drawn = torch.rand(
            (len(steps), 1), generator=generator, dtype=torch.float64, device=arcs.device
        )
        choice = (steps <= drawn * steps[:, -1:]).sum(-1)
        possible = steps[:, -1] > 0
        heads[:, m] = torch.where(possible, choice - 1, heads[:, m])
        taken = torch.nn.functional.one_hot(choice.clamp(max=n), n + 1).bool()
        taken = taken | ~possible[:, None]
        root[:, m].masked_fill_(~taken[:, 0], -torch.inf)
        arcs[:, :, m].masked_fill_(~taken[:, 1:], -torch.inf)
    return heads.reshape(count, batch, n)
