"""The Energy Transformer on graphs: nodes that settle in an energy of attention over edges."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lawful.energy._block import Blocks
from lawful.energy._checks import choice, count, positive
from lawful.energy._edges import Edges, membership, prepared
from lawful.energy._graph_attention import GraphEnergyAttention, example_edges, nodes
from lawful.energy._graph_block import GraphBlock, Network
from lawful.energy._hopfield import ConvexPotential, HopfieldNetwork
from lawful.energy._norm import EnergyLayerNorm
from lawful.energy._transformer import Settled
from lawful.errors import expected
from lawful.kernels import Backend
from lawful.kernels.energy._plan import EdgeForm


class GraphEnergyTransformer(Blocks):
    """`EnergyTransformer` whose attention runs over the edges of a graph.

    ``x ← x - α ∂E/∂g`` at ``g = LN(x)``, with ``E(g) = E_attention(g) + E_memories(g)``; see
    `EnergyLayerNorm`, `GraphEnergyAttention` and `HopfieldNetwork`. Time and memory are linear in
    the edges. The state dict is that of `EnergyTransformer`, and so are the results for an
    adjacency matrix of the same edges.

    Args:
        dim: Features D.
        heads: Attention heads H.
        head_dim: Width Y of a head; need not be D / H.
        memories: Memories M. Default 4 D.
        steps: T >= 0.
        step_size: α > 0.
        step_rule: How long the steps are.

            - "fixed": α.
            - "learned": one α for each block, a parameter (its logarithm is), starting at
              ``step_size``.
            - "backtracking": for each graph α, halved until the computed energy does not rise. The
              energies that are returned never rise, exactly, in any precision. The step lengths
              are constants to the derivative.
        blocks: S blocks with weights of their own, run one after another, T steps each.
        beta: See `GraphEnergyAttention`.
        learn_beta: See `GraphEnergyAttention`.
        self_attention: See `GraphEnergyAttention`: True adds the self-loops that are missing.
        bias: Offsets of queries, keys and memories.
        edge_form: See `GraphEnergyAttention`.
        activation: See `HopfieldNetwork`.
        memory_beta: β of softmax memories at the start; learned.
        dropout: In training, the part of the ReLU memories that each node does without; drawn once
            for a descent, so that a descent has one energy. The others count 1 / (1 - dropout).
        noise: σ >= 0 of Langevin noise: each step adds ``sqrt(α) σ η``, η standard normal. Off in
            evaluation unless asked for in the call.
        eps: ε of the layer norm.
        recompute: Keep only the states for the backward pass and recompute the rest.
        device: Of the parameters.
        dtype: Of the parameters.

    Example:
        >>> import torch
        >>> from lawful.energy import GraphEnergyTransformer
        >>> model = GraphEnergyTransformer(16, heads=2, head_dim=8, steps=5)
        >>> edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])  # sources over targets
        >>> tokens, energies = model(torch.randn(5, 16), edge_index, return_energy=True)
        >>> tokens.shape, energies.shape
        (torch.Size([5, 16]), torch.Size([6, 1]))

    Cost: 8 N D H Y + 6 E H Y + 4 N D M multiply-adds for each step; memory for training O(T (N (D +
    H Y + M) + E H)) in the compiled kernels.

    Source: Hoover et al. 2023, section on graphs. Departures: the update is the exact gradient for
    directed edges too; scores are not clamped; the initialisation (unit scale at any D).
    """

    def __init__(
        self,
        dim: int,
        heads: int = 1,
        head_dim: int = 64,
        memories: int | None = None,
        steps: int = 1,
        step_size: float = 0.1,
        *,
        step_rule: Literal["fixed", "learned", "backtracking"] = "fixed",
        blocks: int = 1,
        beta: float | Sequence[float] | None = None,
        learn_beta: bool = False,
        self_attention: bool = True,
        bias: bool = False,
        edge_form: EdgeForm = "multiply",
        activation: Literal["relu", "softmax"] | ConvexPotential = "relu",
        memory_beta: float = 0.01,
        dropout: float = 0.0,
        noise: float = 0.0,
        eps: float = 1e-5,
        recompute: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.steps = count("dim", dim), count("steps", steps, 0)
        self.step_size = positive("step_size", step_size)
        choice("step_rule", step_rule, ("fixed", "learned", "backtracking"))
        self.noise, self.recompute = positive("noise", noise, zero=True), bool(recompute)
        if noise and step_rule == "backtracking":
            raise expected("noise", f"0 with step_rule={step_rule!r}", noise, "noise can raise E")
        self.dropout = positive("dropout", dropout, zero=True)
        if self.dropout >= 1 or (dropout and activation != "relu"):
            want = "a number in [0, 1), and 0 unless activation='relu'"
            raise expected("dropout", want, dropout)
        made: dict[str, Any] = {"device": device, "dtype": dtype}

        def block() -> GraphBlock:
            return GraphBlock(
                EnergyLayerNorm(dim, eps, **made),
                GraphEnergyAttention(
                    dim,
                    heads,
                    head_dim,
                    beta=beta,
                    learn_beta=learn_beta,
                    self_attention=self_attention,
                    bias=bias,
                    edge_form=edge_form,
                    **made,
                ),
                HopfieldNetwork(dim, memories, activation, beta=memory_beta, bias=bias, **made),
                step_rule=step_rule,
                step_size=self.step_size,
            )

        self.blocks = nn.ModuleList(block() for _ in range(count("blocks", blocks)))

    def _blocks(self) -> list[GraphBlock]:
        return list(self.blocks)  # type: ignore[arg-type]

    @property
    def attention(self) -> GraphEnergyAttention:
        """Attention of the first block."""
        return self._blocks()[0].attention

    def forward(
        self,
        tokens: Tensor,
        edge_index: Edges | Tensor,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        return_energy: bool = False,
        *,
        graphs: int | None = None,
        steps: int | None = None,
        step_size: float | None = None,
        langevin: bool | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Settles the nodes.

        Args:
            tokens: Nodes (N, D), those of all graphs after one another.
            edge_index: (2, E) integers in [0, N): row 0 the sources (keys), row 1 the targets
                (queries, the nodes that attend); or `Edges` prepared once.
            edge_weight: (E,), (E, 1) or (E, H) floating-point weights of the edges as given; see
                ``edge_form``. Gradients flow to it.
            batch: (N,) integers, the graph of each node; None: there is one graph.
            return_energy: Also return the energies.
            graphs: How many graphs G; None: the largest in ``batch`` plus 1.
            steps: In place of the module's T.
            step_size: In place of the module's α (a learned one too).
            langevin: Whether noise is added; None: in training only.
            generator: Source of the noise and of the dropout.

        Returns:
            Tokens (N, D); with ``return_energy`` also E of each graph before each step and at the
            end (T+1, G); (S, T+1, G) with S > 1 blocks.

        Raises:
            InputError: A wrong shape, type, id or value.
        """
        found = self.settle(
            tokens,
            edge_index,
            edge_weight,
            batch,
            graphs=graphs,
            energies=return_energy,
            steps=steps,
            step_size=step_size,
            langevin=langevin,
            generator=generator,
        )
        return (found.tokens, found.energies) if return_energy else found.tokens

    def settle(
        self,
        tokens: Tensor,
        edge_index: Edges | Tensor,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        graphs: int | None = None,
        energies: bool = True,
        trajectory: bool = False,
        steps: int | None = None,
        step_size: float | None = None,
        langevin: bool | None = None,
        generator: torch.Generator | None = None,
        backend: Backend = "auto",
    ) -> Settled:
        """Settles the nodes and tells how it went.

        Args:
            tokens: As for calling the module, like the arguments not named here.
            edge_index: As above.
            edge_weight: As above.
            batch: As above.
            graphs: As above.
            energies: Whether energies are wanted (else only those before each step are there,
                (T, G) or (S, T, G), which cost nothing).
            trajectory: Whether the states before each step and at the end (T+1, N, D) are wanted.
            steps: As above.
            step_size: As above.
            langevin: As above.
            generator: As above.
            backend: "native" or "reference" insists on compiled kernels or plain torch.
        """
        total = self.steps if steps is None else count("steps", steps, 0)
        if step_size is not None:
            positive("step_size", step_size)
        at = self._network(tokens, edge_index, edge_weight, batch, graphs)
        noisy = self.training if langevin is None else langevin
        rows, paths = [], []
        for block in self._blocks():
            course = block.descend(
                at,
                total,
                step_size=step_size,
                last=energies,
                record=trajectory,
                noise=self.noise if noisy else 0.0,
                dropout=self.dropout if self.training else 0.0,
                generator=generator,
                recompute=self.recompute,
                backend=backend,
            )
            empty = course.x.new_empty(0, at.members.graphs)
            rows.append(torch.stack(course.energies) if course.energies else empty)
            if trajectory:
                paths.append(torch.stack([at.x, *course.states]))
            at = replace(at, x=course.x)
        return Settled(at.x, _join(rows), _join(paths), None, None)

    def _network(
        self,
        x: Tensor,
        edge_index: Edges | Tensor,
        weight: Tensor | None,
        batch: Tensor | None,
        graphs: int | None,
    ) -> Network:
        first, x = self.attention, self._cast(x)
        nodes("tokens", x, self.dim, self.norm.gamma.dtype)
        edges = prepared(edge_index, len(x), first.self_attention, x)
        weight = edges.weigh(weight, first.heads, first.edge_form, x)
        return Network(x, edges, weight, membership(batch, graphs, len(x), x.device))

    def energy(
        self,
        tokens: Tensor,
        edge_index: Edges | Tensor,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        graphs: int | None = None,
        block: int = 0,
    ) -> Tensor:
        """Energy of each graph at ``g = LN(tokens)``, (G,).

        Args:
            tokens: As for calling the module, like the arguments not named here.
            edge_index: As above.
            edge_weight: As above.
            batch: As above.
            graphs: As above.
            block: Whose energy, when there are several blocks.
        """
        at = self._network(tokens, edge_index, edge_weight, batch, graphs)
        return self._blocks()[block].descend(at, 0, last=True).energies[0]

    def example_inputs(self, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Eight random nodes and directed edges among them, for checks."""
        x = torch.randn(8, self.dim, generator=generator).to(self.norm.gamma)
        return x, example_edges(8, generator).to(x.device)


def _join(parts: list[Tensor]) -> Any:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else torch.stack(parts)
