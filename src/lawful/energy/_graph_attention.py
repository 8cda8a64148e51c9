"""Attention over the edges of a graph, as an energy."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lawful.energy._checks import choice
from lawful.energy._edges import Edges, Membership, membership, prepared
from lawful.energy._heads import Heads
from lawful.errors import expected
from lawful.kernels.edges import Stage, activations
from lawful.kernels.edges import reference as ref
from lawful.kernels.energy._plan import EdgeForm, Plan


class GraphEnergyAttention(Heads):
    """`EnergyAttention` in which a node's keys are the sources of the edges that enter it.

    ``E = -Σ_h (1/β_h) Σ_C log Σ_{B→C} exp(β_h K_hB · Q_hC)``; calling the layer gives

    ``-∂E/∂g_A = Σ_h [W^Qᵀ Σ_{B→A} P_hAB K_hB + W^Kᵀ Σ_{A→C} P_hCA Q_hC]``,

    P the softmax over the edges into the same node. The first sum runs over the edges into A, the
    second over those out of it, so the update is the exact gradient for directed graphs too. A
    node that no edge enters adds no energy; one without any edge is not moved.

    The parameters and the state dict are those of `EnergyAttention`: with an adjacency matrix of
    the same edges the two layers agree.

    Args:
        dim: Features D.
        heads: Heads H >= 0.
        head_dim: Width Y of a head; need not be D / H.
        beta: Inverse temperature β > 0, one number or one for each head. Default 1 / sqrt(Y).
        learn_beta: Whether log β (one for each head) is a parameter.
        self_attention: True: a node is one of its own keys, whether or not the graph lists its
            self-loop (missing ones are added, as the published graph code does). False:
            self-loops are ignored. Kept in the state dict; the other form is refused.
        bias: Whether there are offsets of queries and keys.
        edge_form: What an edge weight w does to its score s = β K·Q: "multiply" gives w·s, with
            w = 0 meaning no edge; "add" gives s + w, with w = -inf meaning no edge. An added
            self-loop changes nothing: w = 1, or 0.
        device: Of the parameters.
        dtype: Of the parameters.

    Attributes:
        query: W^Q (H, Y, D).
        key: W^K (H, Y, D).

    Cost: 8 N D H Y + 6 E H Y multiply-adds; memory O(N H Y + E) in the compiled kernels.

    Source: Hoover et al. 2023, equations 3 and 4 and the appendix on graphs.
    """

    def __init__(
        self,
        dim: int,
        heads: int = 1,
        head_dim: int = 64,
        *,
        beta: float | Sequence[float] | None = None,
        learn_beta: bool = False,
        self_attention: bool = True,
        bias: bool = False,
        edge_form: EdgeForm = "multiply",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            dim,
            heads,
            head_dim,
            beta=beta,
            learn_beta=learn_beta,
            self_attention=self_attention,
            causal=False,
            bias=bias,
            device=device,
            dtype=dtype,
        )
        choice("edge_form", edge_form, ("multiply", "add"))
        self.edge_form: EdgeForm = edge_form

    @property
    def adjacency_form(self) -> EdgeForm:
        """`edge_form`, by the name it has in `EnergyAttention`."""
        return self.edge_form

    def _plan(self) -> Plan:
        return Plan(self.heads, self.head_dim, 0, edge_form=self.edge_form, activation="none")

    def _stage(self, g: Tensor, edges: Edges, weight: Tensor | None) -> Stage:
        w = edges.weigh(weight, self.heads, self.edge_form, g)
        return Stage(self.beta.to(torch.promote_types(g.dtype, torch.float32)), weight=w)

    def _edges(self, g: Tensor, edges: Edges | Tensor) -> Edges:
        nodes("g", g, self.dim, self.query.dtype)
        return prepared(edges, len(g), self.self_attention, g)

    def _run(
        self, g: Tensor, edges: Edges | Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Energy of each node, activations, and the matrix that makes an update of them."""
        edges = self._edges(g, edges)
        matrix, bias = self._rows()
        z = torch.nn.functional.linear(g, matrix, bias)
        found = activations(z, self._plan(), self._stage(g, edges, weight), edges.graph)
        return (*found, matrix)

    def node_energy(
        self, g: Tensor, edge_index: Edges | Tensor, edge_weight: Tensor | None = None
    ) -> Tensor:
        """What each node's own query adds to the energy, ``-Σ_h LSE/β_h`` (N,)."""
        return self._run(g, edge_index, edge_weight)[0]

    def energy(  # type: ignore[override]
        self,
        g: Tensor,
        edge_index: Edges | Tensor,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        graphs: int | None = None,
    ) -> Tensor:
        """Energy of each graph.

        Args:
            g: Normalised nodes (N, D), those of all graphs after one another.
            edge_index: (2, E) int64, sources (keys) over targets (queries), or prepared `Edges`.
            edge_weight: (E,), (E, 1) or (E, H) floating-point weights of the edges as given (for
                `Edges`: as they were given to `Edges.of`); see ``edge_form``.
            batch: (N,) int64, the graph of each node; None: there is one graph.
            graphs: How many graphs G; None: the largest in ``batch`` plus 1.

        Returns:
            (G,).

        Raises:
            InputError: A wrong shape, type, id or value.
        """
        node = self.node_energy(g, edge_index, edge_weight)
        return membership(batch, graphs, len(g), g.device).total(node)

    def forward(
        self, g: Tensor, edge_index: Edges | Tensor, edge_weight: Tensor | None = None
    ) -> Tensor:
        """The update ``-∂E/∂g`` (N, D); arguments as for `energy`."""
        _, out, matrix = self._run(g, edge_index, edge_weight)
        return out @ matrix

    def update(  # type: ignore[override]
        self, g: Tensor, edge_index: Edges | Tensor, edge_weight: Tensor | None = None
    ) -> Tensor:
        """The same as calling the layer."""
        return self(g, edge_index, edge_weight)  # type: ignore[no-any-return]

    def hvp(  # type: ignore[override]
        self,
        g: Tensor,
        v: Tensor,
        edge_index: Edges | Tensor,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """``∂²E/∂g² v`` (N, D): the update's own derivative, since a Hessian is symmetric."""
        with torch.enable_grad():
            point = g.detach().requires_grad_()
            (bend,) = torch.autograd.grad(self(point, edge_index, edge_weight), point, v)
        return -bend

    def weights(
        self, g: Tensor, edge_index: Edges | Tensor, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Attention probabilities, which sum to 1 over the edges into a node.

        Returns:
            (E, H): for a tensor ``edge_index``, of its edges in its order (a duplicate repeats the
            one edge's probability, a removed self-loop has 0); for `Edges`, of
            ``Edges.edge_index``, added self-loops included.
        """
        edges = self._edges(g, edge_index)
        z = torch.nn.functional.linear(g, *self._rows())
        q, k = (t.reshape(len(g), self.heads, self.head_dim) for t in z.chunk(2, -1))
        stage = self._stage(g, edges, edge_weight)
        prob = ref.probabilities(*ref.scores(q, k, self._plan(), stage, edges.graph), edges.graph)
        return prob[0] if isinstance(edge_index, Edges) else edges.given(prob[0])

    def example_inputs(self, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Six random nodes and directed edges among them, for checks."""
        g = torch.randn(6, self.dim, generator=generator).to(self.query)
        return g, example_edges(6, generator).to(g.device)

    def extra_repr(self) -> str:
        """Shown by print."""
        parts = [f"{self.dim}, heads={self.heads}, head_dim={self.head_dim}"]
        parts += [f"self_attention={self.self_attention}, edge_form={self.edge_form!r}"]
        return ", ".join(parts)


def nodes(name: str, x: object, dim: int, dtype: torch.dtype) -> None:
    """Refuses anything but floating nodes (N, dim) of the parameters' type."""
    if not isinstance(x, Tensor):
        raise expected(name, f"a tensor (N, {dim})", type(x).__name__)
    if x.dim() != 2 or x.shape[1] != dim:
        hint = (
            "join the graphs of a batch and say which is whose with batch=" if x.dim() > 2 else ""
        )
        raise expected(name, f"shape (N, {dim})", tuple(x.shape), hint)
    if x.dtype != dtype and not torch.is_autocast_enabled(x.device.type):
        raise expected(name, f"{dtype}, the parameters' type", x.dtype)


def example_edges(count: int, generator: torch.Generator | None) -> Tensor:
    """Directed edges (2, 2·count) of random nodes; the last node has none."""
    return torch.randint(max(count - 1, 1), (2, 2 * count), generator=generator)


__all__ = ["GraphEnergyAttention", "Membership", "example_edges", "nodes"]
