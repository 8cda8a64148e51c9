"""Chooses between the compiled and the plain torch form, and gives both their derivative."""

from torch import Tensor

from lawful.kernels._native import Backend
from lawful.kernels.edges import reference
from lawful.kernels.edges._graph import Graph
from lawful.kernels.edges.reference import Stage
from lawful.kernels.energy._plan import Plan


def activations(
    z: Tensor, plan: Plan, p: Stage, graph: Graph, backend: Backend = "auto"
) -> tuple[Tensor, Tensor]:
    """Energy of each node and activations, differentiable in ``z`` and the tensors of ``p``.

    Args:
        z: Pre-activations (N, R): queries, keys, memories side by side.
        plan: Constants of the block.
        p: Tensors of the block.
        graph: The edges.
        backend: Which form.

    Returns:
        Energy (N,), and activations (N, R) whose product with the stacked matrix is ``-∂E/∂g``.
    """
    return reference.activations(z, plan, p, graph)
