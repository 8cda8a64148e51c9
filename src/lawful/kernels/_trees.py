"""What the two families of dependency trees share: differentiable operators over two backends.

A family is a name. Its truth is a function ``log_partition(arcs, root, lengths, single_root)`` in
plain differentiable torch; its compiled operators are ``torch.ops.lawful.<name>_...``. Here
arcs is (B, N, N), root (B, N) and lengths (B); callers flatten their batch dimensions.

The gradient of the log-partition is the marginals, the gradient of the marginals is a
Hessian-vector product: one more pass, no tape through the chart. Third derivatives come from the
plain torch path.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from lawful.kernels._native import Backend, native_status, use_native

ROOT = -1  # head of a child of the root
PAD = -2  # head of a word in the padding

Pair = tuple[Tensor, Tensor]
Triple = tuple[Tensor, Tensor, Tensor]
Truth = Callable[[Tensor, Tensor, Tensor, bool], Tensor]
# A fast plain torch path: (value, sound) and (value, sound, marginals or their derivative).
FastValue = Callable[[Tensor, Tensor, Tensor, bool], tuple[Tensor, Tensor]]
FastPair = Callable[[Tensor, Tensor, Tensor, bool, Pair | None], tuple[Tensor, Tensor, Pair]]
_truths: dict[str, Truth] = {}
_fast: dict[str, tuple[FastValue, FastPair]] = {}
_with_fakes: set[str] = set()


def register(family: str, truth: Truth, value: FastValue, pair: FastPair) -> None:
    """Makes a family known: its log-partition in plain torch, and the fast way to the same."""
    _truths[family] = truth
    _fast[family] = value, pair


def flatten(arcs: Tensor, root: Tensor, lengths: Tensor | None) -> tuple[torch.Size, Triple]:
    """The batch shape, and (B, N, N), (B, N), (B) with one batch dimension; no lengths means N."""
    n = arcs.shape[-1]
    batch = torch.broadcast_shapes(arcs.shape[:-2], root.shape[:-1])
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


# ---- plain torch: derivatives of the truth by autodiff ---------------------------------------------


def _grad(f: Callable[[Tensor, Tensor], Tensor], arcs: Tensor, root: Tensor) -> Pair:
    pair: Pair = torch.func.grad(lambda a, r: f(a, r).sum(), (0, 1))(arcs, root)
    return pair


def plain_marginals(family: str, arcs: Tensor, root: Tensor, lengths: Tensor, single: bool) -> Pair:
    """Gradient of the truth; differentiable, in the precision of the input."""
    truth = _truths[family]
    return _grad(lambda a, r: truth(a, r, lengths, single), arcs, root)


def plain_hvp(
    family: str,
    arcs: Tensor,
    root: Tensor,
    lengths: Tensor,
    direction: Pair,
    single: bool,
) -> Pair:
    """Hessian of the truth times a direction; differentiable."""

    def along(a: Tensor, r: Tensor) -> Tensor:
        ma, mr = plain_marginals(family, a, r, lengths, single)
        return (ma * direction[0]).sum() + (mr * direction[1]).sum()

    return _grad(along, arcs, root)


# ---- plain torch: the fast path where it is sound, else the truth -----------------------------------


def _eager_only(*tensors: Tensor) -> bool:
    """Whether the fast path is out of the question: it looks at values, in float64."""
    blind = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    return blind or tensors[0].numel() == 0 or tensors[0].device.type in ("mps", "meta")


def reference_log_partition(
    family: str, arcs: Tensor, root: Tensor, lengths: Tensor, single: bool
) -> Tensor:
    """(B) float64."""
    if _eager_only(arcs):
        return _truths[family](arcs, root, lengths, single)
    value, sound = _fast[family][0](arcs, root, lengths, single)
    if not bool(sound.all()):
        bad = (~sound).nonzero()[:, 0]
        value[bad] = _truths[family](arcs[bad], root[bad], lengths[bad], single)
    return value


def reference_marginals(
    family: str, arcs: Tensor, root: Tensor, lengths: Tensor, single: bool
) -> Pair:
    """(B, N, N) and (B, N) in the precision of the input."""
    if _eager_only(arcs):
        return plain_marginals(family, arcs, root, lengths, single)
    _, sound, pair = _fast[family][1](arcs, root, lengths, single, None)
    if not bool(sound.all()):
        bad = (~sound).nonzero()[:, 0]
        exact = plain_marginals(family, arcs[bad], root[bad], lengths[bad], single)
        _replace(pair, bad, exact)
    return pair[0].to(arcs.dtype), pair[1].to(arcs.dtype)


def reference_hvp(
    family: str, arcs: Tensor, root: Tensor, lengths: Tensor, direction: Pair, single: bool
) -> Pair:
    """(B, N, N) and (B, N) in the precision of the input."""
    if _eager_only(arcs):
        return plain_hvp(family, arcs, root, lengths, direction, single)
    _, sound, pair = _fast[family][1](arcs, root, lengths, single, direction)
    if not bool(sound.all()):
        bad = (~sound).nonzero()[:, 0]
        part = direction[0][bad], direction[1][bad]
        _replace(pair, bad, plain_hvp(family, arcs[bad], root[bad], lengths[bad], part, single))
    return pair[0].to(arcs.dtype), pair[1].to(arcs.dtype)


def _replace(pair: Pair, where: Tensor, exact: Pair) -> None:
    for x, y in zip(pair, exact, strict=True):
        x[where] = y.to(x.dtype)


# ---- compiled operators ----------------------------------------------------------------------------


def native_op(family: str, name: str) -> Any:
    """The compiled operator, with its shape functions for the compiler registered on first use."""
    if family not in _with_fakes:
        _register_fakes(family)
    return getattr(torch.ops.lawful, f"{family}_{name}")


def _register_fakes(family: str) -> None:
    _with_fakes.add(family)
    fake = torch.library.register_fake

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
    if native and family not in _with_fakes and native_status().live:
        _register_fakes(family)
    return native


def call_native(
    family: str, name: str, arcs: Tensor, root: Tensor, lengths: Tensor, single: bool
) -> Any:
    """Calls a compiled operator on contiguous copies."""
    op = native_op(family, name)
    return op(arcs.contiguous(), root.contiguous(), lengths.contiguous(), single)


# ---- autograd --------------------------------------------------------------------------------------


def _fold(info: Any, in_dims: tuple[int | None, ...], tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """Merges the mapped dimension of each tensor into its batch dimension."""
    folded = []
    for x, dim in zip(tensors, in_dims, strict=True):
        mapped = x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
        folded.append(mapped.reshape(-1, *mapped.shape[2:]))
    return folded


def _unfold(info: Any, x: Tensor) -> Tensor:
    return x.reshape(info.batch_size, -1, *x.shape[1:])


def _graph_wanted() -> bool:
    """Whether a backward is itself to be differentiated, mapped or traced."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return True
    return bool(torch._C._are_functorch_transforms_active())


class _LogPartition(Function):
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
        call = _Marginals.apply if _graph_wanted() else _Marginals.forward
        ma, mr = call(*ctx.how, arcs, root, lengths)
        scale = grad.to(arcs.dtype)
        return None, None, None, ma * scale[:, None, None], mr * scale[:, None], None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        out = _LogPartition.apply(*args[:3], *_fold(info, in_dims[3:], args[3:]))
        return _unfold(info, out), 0


class _Marginals(Function):
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
        call = _Hvp.apply if _graph_wanted() else _Hvp.forward
        pair = call(*ctx.how, arcs, root, lengths, grads[0], grads[1])
        return None, None, None, pair[0], pair[1], None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        out = _Marginals.apply(*args[:3], *_fold(info, in_dims[3:], args[3:]))
        return tuple(_unfold(info, x) for x in out), (0, 0)


class _Hvp(Function):
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

        _, pull = torch.func.vjp(product, arcs, root, along_arcs, along_root)
        ga, gr, gva, gvr = pull((grads[0], grads[1]))
        return None, None, None, ga, gr, None, gva, gvr

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        out = _Hvp.apply(*args[:3], *_fold(info, in_dims[3:], args[3:]))
        return tuple(_unfold(info, x) for x in out), (0, 0)


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
    value: Tensor = _LogPartition.apply(family, native, single, *flat)
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
    ma, mr = _Marginals.apply(family, native, single, *flat)
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
