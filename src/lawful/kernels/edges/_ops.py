"""Chooses between the compiled and the plain torch form, and gives both their derivative."""

import functools
from typing import Any

import torch
from torch import Tensor

from lawful.kernels._native import Backend, use_native
from lawful.kernels.edges import reference
from lawful.kernels.edges._graph import Graph
from lawful.kernels.edges.reference import Stage
from lawful.kernels.energy._plan import Plan

_KINDS = {"none": 0, "relu": 1, "softmax": 2}


def activations(
    z: Tensor, plan: Plan, p: Stage, graph: Graph, backend: Backend = "auto"
) -> tuple[Tensor, Tensor]:
    """Energy of each node and activations, differentiable in ``z`` and the tensors of ``p``.

    ``keep`` alone is a constant to the derivative.

    Args:
        z: Pre-activations (N, R): queries, keys, memories side by side.
        plan: Constants of the block.
        p: Tensors of the block, of at least float32.
        graph: The edges.
        backend: Which form.

    Returns:
        Energy (N,), and activations (N, R) whose product with the stacked matrix is ``-∂E/∂g``.
    """
    given = [t for t in p if t is not None]
    if not use_native(backend, z, *given) or any(t.dtype != z.dtype for t in given):
        return reference.activations(z, plan, p, graph)
    _describe()
    energy, out, *_ = Activations.apply(plan, z, *p, *graph)  # type: ignore[no-untyped-call]
    return energy, out


@functools.cache
def _register() -> None:
    for name in ("edges_push", "edges_pull"):
        torch.library.register_fake(f"lawful::{name}", lambda *args: None)


# The compiler cannot trace a cached function; this one is a constant to it.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _describe() -> bool:
    """Tells tracers of the compiled operators that they only write to what they are given."""
    _register()
    return True


def _constants(plan: Plan, p: Stage, graph: Graph) -> tuple[Any, ...]:
    whole = [None if t is None else t.contiguous() for t in p]
    multiply = plan.edge_form == "multiply"
    edges = (graph.source, graph.into, graph.slot, graph.sink, graph.out_of)
    return (*whole, *edges, plan.heads, plan.width, multiply, _KINDS[plan.activation])


class Activations(torch.autograd.Function):
    """The compiled form and its derivative.

    Inputs: plan, z (N, R), the fields of `Stage`, the fields of `Graph`.
    Outputs: energy (N,), activations (N, R); and, not differentiable, P (H, E) and its
    log-sum-exp (H, N).
    """

    @staticmethod
    def forward(plan: Plan, z: Tensor, *tensors: Any) -> Any:
        p, graph = Stage(*tensors[:4]), Graph(*tensors[4:])
        nodes, z = len(z), z.contiguous()
        out, energy = torch.empty_like(z), z.new_empty(nodes, dtype=torch.float64)
        prob, lse = z.new_empty(plan.heads, len(graph.source)), z.new_empty(plan.heads, nodes)
        torch.ops.lawful.edges_push(z, out, energy, prob, lse, *_constants(plan, p, graph))
        return energy.to(z.dtype), out, prob, lse

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.plan = inputs[0]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[2:])
        ctx.save_for_backward(*inputs[1:], *output[2:])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        z, *rest = ctx.saved_tensors
        p, graph, (prob, lse) = Stage(*rest[:4]), Graph(*rest[4:10]), rest[10:]
        find = _twice if torch.is_grad_enabled() else _once
        found = find(ctx, z, p, graph, (prob, lse), grads[0], grads[1])
        return (None, *found, *[None] * (1 + len(graph)))

    @staticmethod
    def vmap(info: Any, in_dims: Any, plan: Plan, *tensors: Any) -> Any:
        """Slice by slice: graphs joined in one are the fast way."""
        results = []
        for i in range(info.batch_size):
            picked = [
                t if d is None else t.select(d, i)
                for t, d in zip(tensors, in_dims[1:], strict=True)
            ]
            results.append(Activations.apply(plan, *picked))  # type: ignore[no-untyped-call]
        outputs = tuple(torch.stack(parts) for parts in zip(*results, strict=True))
        return outputs, tuple(0 for _ in outputs)


def _once(
    ctx: Any,
    z: Tensor,
    p: Stage,
    graph: Graph,
    kept: tuple[Tensor, Tensor],
    ebar: Tensor | None,
    c: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """Derivatives of z, β, memory β and edge weights, by hand."""
    plan, (_, _, want_beta, _, want_weight, *_) = ctx.plan, ctx.needs_input_grad
    z, nodes = z.contiguous(), len(z)
    c = torch.zeros_like(z) if c is None else c.contiguous()
    ebar = None if ebar is None else ebar.contiguous()
    slopes = bool(want_beta or want_weight)
    dz, dmemory = torch.empty_like(z), z.new_empty(nodes, dtype=torch.float64)
    dbeta = z.new_empty((plan.heads, nodes if slopes else 0), dtype=torch.float64)
    weight = None if p.weight is None else p.weight.contiguous()
    dweight = torch.zeros_like(weight) if want_weight and weight is not None else None
    to = (dz, dbeta, dmemory, dweight, slopes)
    torch.ops.lawful.edges_pull(z, c, ebar, *kept, *to, *_constants(plan, p, graph))
    beta = dbeta.sum(1).to(p.beta.dtype) if want_beta else None
    memory = None if p.memory_beta is None else dmemory.sum().to(p.memory_beta.dtype)
    return dz, beta, memory, dweight


def _twice(
    ctx: Any,
    z: Tensor,
    p: Stage,
    graph: Graph,
    kept: tuple[Tensor, Tensor],
    ebar: Tensor | None,
    c: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """The same as a differentiable function, through the reference."""
    energy, out = reference.activations(z, ctx.plan, p, graph)
    pairs = [(v, b) for v, b in ((energy, ebar), (out, c)) if b is not None]
    inputs = (z, p.beta, p.memory_beta, p.weight)
    need = ctx.needs_input_grad[1:5]
    wanted = [t for t, w in zip(inputs, need, strict=True) if w and t is not None]
    found = iter(
        torch.autograd.grad(
            [v for v, _ in pairs],
            wanted,
            [b for _, b in pairs],
            create_graph=True,
            allow_unused=True,
        )
    )
    return tuple(next(found) if w else None for w in need)
