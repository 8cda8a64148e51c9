"""Differentiable operators of linear chains, over the compiled kernels or the reference.

One `autograd.Function` gives log-partition and marginals together; the derivative of the latter is
a second one, the Hessian product, which is linear in its tangent and symmetric.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from lawful.kernels._native import native_status
from lawful.kernels.chain import reference, scaled

__all__ = ["best", "infer", "k_best", "log_partition", "sample"]

Maybe = Tensor | None
LANE_STATES = 8  # as kLaneStates in csrc/chain_lanes.h


def _register_fakes(vector_bytes: int) -> None:
    """Output shapes for torch.compile."""

    def saved(unary: Tensor, transition: Tensor) -> int:
        B, N, C = unary.shape
        lanes = vector_bytes // unary.element_size()
        if transition.dim() == 4:
            return 0
        if C <= LANE_STATES:
            return int(2 * N * ((B + lanes - 1) // lanes) * lanes * C)
        return int(2 * N * B * ((C + lanes - 1) // lanes) * lanes)

    fake = cast(Callable[[str], Callable[[Any], Any]], torch.library.register_fake)

    @fake("lawful::chain_log_partition")
    def _(unary: Tensor, transition: Tensor, lengths: Maybe) -> Tensor:
        return unary.new_empty(unary.shape[:1], dtype=torch.float64)

    @fake("lawful::chain_marginals")
    def _(unary: Tensor, transition: Tensor, lengths: Maybe) -> tuple[Tensor, ...]:
        B, N, C = unary.shape
        pair = transition.shape if transition.dim() == 4 else (B, C, C)
        return (
            unary.new_empty(B, dtype=torch.float64),
            unary.new_empty(B, N, C),
            unary.new_empty(pair),
            unary.new_empty(saved(unary, transition)),
            unary.new_empty(B, dtype=torch.uint8),
        )

    @fake("lawful::chain_tangent")
    def _(unary: Tensor, transition: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        return unary.new_empty(unary.shape), transition.new_empty(transition.shape)

    @fake("lawful::chain_best")
    def _(unary: Tensor, transition: Tensor, lengths: Maybe) -> Tensor:
        return unary.new_empty(unary.shape[:2], dtype=torch.int64)

    @fake("lawful::chain_sample")
    def _(unary: Tensor, transition: Tensor, lengths: Maybe, uniform: Tensor) -> Tensor:
        return uniform.new_empty(uniform.shape, dtype=torch.int64)


def _compiled() -> SimpleNamespace:
    """The compiled operators, or an empty namespace."""
    if not native_status().live:
        return SimpleNamespace()
    _register_fakes(torch.ops.lawful.vector_bytes())
    names = ("log_partition", "marginals", "tangent", "best", "sample")
    return SimpleNamespace(
        **{n: getattr(torch.ops.lawful, f"chain_{n}").default for n in names},
    )


_native = _compiled()


class _Infer(Function):
    """(unary, transition, lengths) -> log-partition, marginals, pairs, saved rows, flags."""

    @staticmethod
    def forward(
        unary: Tensor, transition: Tensor, lengths: Maybe, native: bool
    ) -> tuple[Tensor, ...]:
        if native:
            return tuple(_native.marginals(unary, transition, lengths))
        args = (unary, transition, lengths)
        A, mu, pair = scaled.marginals(*args) or reference.marginals(*args)
        return A, mu, pair, unary.new_empty(0), unary.new_empty(unary.shape[0], dtype=torch.uint8)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        unary, transition, lengths, ctx.native = inputs
        _, mu, pair, work, flag = output
        ctx.mark_non_differentiable(work, flag)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(unary, transition, lengths, mu, pair, work, flag)

    @staticmethod
    def backward(ctx: Any, *grads: Maybe) -> tuple[Maybe, ...]:
        g_A, g_mu, g_pair = grads[:3]
        saved = ctx.saved_tensors
        transition, mu, pair = saved[1], saved[3], saved[4]
        g_unary = g_transition = None
        if g_mu is not None or g_pair is not None:
            g_unary, g_transition = _tangent(*saved, g_mu, g_pair, ctx.native)
        if g_A is not None:
            scale = g_A.to(mu.dtype)[:, None, None]
            first = scale * mu
            g_unary = first if g_unary is None else g_unary + first
            if ctx.needs_input_grad[1]:
                first = _shared(pair, transition, scale)
                g_transition = first if g_transition is None else g_transition + first
        return g_unary, g_transition, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        size, native = info.batch_size, args[3]
        flat = [_flatten(x, d, size) for x, d in zip(args[:3], in_dims[:3], strict=True)]
        A, mu, pair, work, flag = _infer(*flat, native)
        parts = [_unflatten(x, size) for x in (A, mu, pair, flag)]
        return (*parts[:3], work, parts[3]), (0, 0, 0, None, 0)


class _EagerInfer(Function):
    """`_Infer` without what torch.func needs, which costs 30 us in every call."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        output = _Infer.forward(*inputs)
        _Infer.setup_context(ctx, inputs, output)
        return output

    backward = _Infer.backward


def _infer(*args: Any) -> tuple[Tensor, ...]:
    plain = not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()
    kind = _EagerInfer if plain else _Infer
    return cast(tuple[Tensor, ...], kind.apply(*args))  # type: ignore[no-untyped-call]


def _shared(pair: Tensor, transition: Tensor, scale: Tensor) -> Tensor:
    """Pairs times a number per batch element, in the layout of ``transition``."""
    if transition.dim() == 4:
        return scale[..., None] * pair
    G, C, _ = transition.shape
    weighted = (scale * pair).reshape(G, pair.shape[0] // max(G, 1), C, C)
    return weighted.sum(1)


class _Tangent(Function):
    """Hessian of the log-partition times (v_unary, v_pair); pairs are summed over a group."""

    @staticmethod
    def forward(
        unary: Tensor,
        transition: Tensor,
        lengths: Maybe,
        mu: Tensor,
        pair: Tensor,
        work: Tensor,
        flag: Tensor,
        v_unary: Maybe,
        v_pair: Maybe,
        native: bool,
    ) -> tuple[Tensor, ...]:
        if not native:
            args = (unary, transition, lengths, v_unary, v_pair)
            return scaled.tangent(*args) or reference.tangent(*args)
        v_unary = None if v_unary is None else v_unary.contiguous()
        v_pair = None if v_pair is None else v_pair.contiguous()
        saved = (mu, pair, work, flag)
        return tuple(_native.tangent(unary, transition, lengths, *saved, v_unary, v_pair))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.native = inputs[-1]
        ctx.save_for_backward(*inputs[:-1])

    @staticmethod
    def backward(ctx: Any, c_unary: Tensor, c_transition: Tensor) -> tuple[Maybe, ...]:
        *saved, v_unary, v_pair = ctx.saved_tensors
        unary, transition, lengths = saved[:3]
        # The transpose of a sum over the group hands the same tangent to each of its members.
        each = transition
        if transition.dim() == 3:
            each, c_pair = (_per_element(x, unary.shape[0]) for x in (transition, c_transition))
        else:
            c_pair = c_transition
        rest = (lengths, *saved[3:])
        g_v, g_w = _tangent(unary, each, *rest, c_unary, c_pair, ctx.native)
        g_unary = g_transition = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            g_unary, g_transition = _third_order(
                unary, transition, lengths, v_unary, v_pair, c_unary, c_transition
            )
        g_tangent = (None if v_unary is None else g_v, None if v_pair is None else g_w)
        return (g_unary, g_transition, None, None, None, None, None, *g_tangent, None)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        size = info.batch_size
        keep = (5, 9)  # saved rows, which belong to the flattened batch, and the backend
        flat = [
            x if i in keep else _flatten(x, d, size)
            for i, (x, d) in enumerate(zip(args, in_dims, strict=True))
        ]
        if in_dims[0] is None and in_dims[1] is None:
            # Only the tangent is batched, so that the saved rows are those of one copy.
            flat[3:7] = _infer(*flat[:3], flat[9])[1:]
        out = _tangent(*flat)
        return tuple(_unflatten(x, size) for x in out), (0, 0)


def _tangent(*args: Any) -> tuple[Tensor, ...]:
    if not torch.compiler.is_compiling():
        graph = torch.is_grad_enabled() or torch._C._are_functorch_transforms_active()
        if not graph:
            return _Tangent.forward(*args)
    return cast(tuple[Tensor, ...], _Tangent.apply(*args))  # type: ignore[no-untyped-call]


def _unflatten(x: Tensor, size: int) -> Tensor:
    return x.reshape(size, x.shape[0] // size, *x.shape[1:])


def _per_element(x: Tensor, batch: int) -> Tensor:
    """(G, C, C) -> (B, C, C)."""
    return x.repeat_interleave(batch // max(x.shape[0], 1), 0).contiguous()


def _flatten(x: Maybe, dim: int | None, size: int) -> Maybe:
    """Merges a batched dimension (made by expansion if there is none) into the first one."""
    if x is None:
        return None
    x = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
    return x.reshape(size * x.shape[1], *x.shape[2:]).contiguous()


def _third_order(
    unary: Tensor,
    transition: Tensor,
    lengths: Maybe,
    v_unary: Maybe,
    v_pair: Maybe,
    c_unary: Tensor,
    c_transition: Tensor,
) -> tuple[Tensor, ...]:
    """Derivative of <c, H v> in the potentials, by autograd through the reference recursion."""
    with torch.enable_grad():
        u, x = (y.detach().requires_grad_() for y in (unary, transition))
        each = x if x.dim() == 4 else _per_element(x, u.shape[0])
        A = reference.recursion(u, each, lengths).sum()
        mu, pair = torch.autograd.grad(A, (u, each), create_graph=True)
        total = u.sum() * 0.0 + x.sum() * 0.0
        for m, v in ((mu, v_unary), (pair, v_pair)):
            total = total if v is None else total + _masked_dot(m, v)
        h = torch.autograd.grad(total, (u, x), create_graph=True)
        value = _masked_dot(h[0], c_unary) + _masked_dot(h[1], c_transition)
        return torch.autograd.grad(value, (u, x))


def _masked_dot(x: Tensor, v: Tensor) -> Tensor:
    return (x * v.detach().to(x.dtype)).sum()


def infer(
    unary: Tensor, transition: Tensor, lengths: Maybe, native: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """log-partition (B) in float64, marginals (B, N, C) and pairs, differentiable twice."""
    A, mu, pair, _, _ = _infer(unary, transition, lengths, native)
    return A, mu, pair


def log_partition(unary: Tensor, transition: Tensor, lengths: Maybe, native: bool) -> Tensor:
    """log-partition (B) in float64; without the marginals if no gradient can be asked for."""
    wanted = torch.is_grad_enabled() and (unary.requires_grad or transition.requires_grad)
    if wanted or torch._C._are_functorch_transforms_active():
        return infer(unary, transition, lengths, native)[0]
    if native:
        return cast(Tensor, _native.log_partition(unary, transition, lengths))
    return reference.log_partition(unary, transition, lengths)


def best(unary: Tensor, transition: Tensor, lengths: Maybe, native: bool) -> Tensor:
    """A path of highest score, (B, N) int64, -1 in padding."""
    run = _native.best if native else reference.best
    return cast(Tensor, run(unary.detach(), transition.detach(), lengths))


def sample(
    unary: Tensor, transition: Tensor, lengths: Maybe, uniform: Tensor, native: bool
) -> Tensor:
    """Paths drawn with the given uniforms (S, B, N) in [0, 1), float64; (S, B, N) int64."""
    run = _native.sample if native else reference.sample
    return cast(Tensor, run(unary.detach(), transition.detach(), lengths, uniform))


def k_best(unary: Tensor, transition: Tensor, lengths: Maybe, k: int) -> tuple[Tensor, Tensor]:
    """The k best paths (k, B, N), -1 in padding and where fewer exist, and their scores (k, B)."""
    return reference.k_best(unary.detach(), transition.detach(), lengths, k)
