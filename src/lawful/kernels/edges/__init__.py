"""Energy of attention over the edges of a graph, and its derivative, in O(N H Y + E) memory."""

from lawful.kernels.edges._graph import Graph as Graph
from lawful.kernels.edges._ops import activations as activations
from lawful.kernels.edges.reference import Stage as Stage

__all__ = ["Graph", "Stage", "activations"]
