"""The Energy Transformer: tokens that settle in an energy."""

import copy
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from lawful.energy._attention import EnergyAttention
from lawful.energy._block import Blocks, EnergyBlock, StepRule
from lawful.energy._checks import choice, count, positive
from lawful.energy._hopfield import ConvexPotential, HopfieldNetwork
from lawful.energy._norm import EnergyLayerNorm
from lawful.energy._scene import Scene, scene
from lawful.energy._terms import EnergyTerm
from lawful.errors import expected
from lawful.kernels import Backend
from lawful.kernels.energy._plan import EdgeForm


class Settled(NamedTuple):
    """What a descent gives."""

    tokens: Tensor  # (*batch, N, D)
    energies: Tensor  # (T+1, *batch), or (S, T+1, *batch) for S > 1 blocks
    trajectory: Tensor | None  # (T+1, *batch, N, D) or (S, T+1, *batch, N, D), when asked for
    steps: Tensor | None  # (*batch) or (S, *batch): steps taken, when a tolerance was given
    change: Tensor | None  # likewise: the last change of g


class EnergyTransformer(Blocks):
    """Tokens descend one energy of attention and memories, in T steps with the same weights.

    ``x ← x - α ∂E/∂g`` at ``g = LN(x)``, with ``E(g) = E_attention(g) + E_memories(g)``; see
    `EnergyLayerNorm`, `EnergyAttention` and `HopfieldNetwork`. The gradient is in closed form,
    two matmuls with one stacked matrix; its derivative is a hand-written Hessian-vector product,
    so training costs three times the forward pass, and the energies come with the update.

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
            - "certified": for each sample min(α, what is proven to lower E). The bound is that of
              the guide; the energies fall whatever α is asked for, up to the rounding of E.
            - "backtracking": for each sample α, halved until the computed energy does not rise.
              The energies that are returned never rise, exactly, in any precision.

            The step lengths of the last two are constants to the derivative.
        blocks: S blocks with weights of their own, run one after another, T steps each.
        beta: See `EnergyAttention`.
        learn_beta: See `EnergyAttention`.
        self_attention: See `EnergyAttention`; False in the paper's formula, True in its weights.
        causal: See `EnergyAttention`.
        bias: Offsets of queries, keys and memories.
        adjacency_form: See `EnergyAttention`.
        activation: See `HopfieldNetwork`.
        memory_beta: β of softmax memories at the start; learned.
        terms: Further energies, added to every block's (later blocks get copies).
        noise: σ >= 0 of Langevin noise: each step adds ``sqrt(α) σ η``, η standard normal. Off in
            evaluation unless asked for in the call.
        eps: ε of the layer norm.
        recompute: Keep only the states for the backward pass and recompute the rest: about one
            sixth more time, and memory that hardly grows with T.
        device: Of the parameters.
        dtype: Of the parameters.

    Example:
        >>> import torch
        >>> from lawful.energy import EnergyTransformer
        >>> model = EnergyTransformer(32, heads=4, head_dim=8, step_rule="backtracking")
        >>> tokens, energies = model(torch.randn(2, 10, 32), return_energy=True)
        >>> tokens.shape, energies.shape
        (torch.Size([2, 10, 32]), torch.Size([13, 2]))
        >>> bool((energies.diff(dim=0) <= 0).all())
        True

    Cost: 2·(8 N D H Y / 2 + 3 N² H Y + 2 N D M) floating-point operations for each step and
    sample; no N x N matrix is held for long inputs.

    Source: Hoover et al. 2023, "Energy Transformer". Departures: the initialisation (unit scale at
    any D), the guaranteed step rules.
    """

    def __init__(
        self,
        dim: int,
        heads: int = 12,
        head_dim: int = 64,
        memories: int | None = None,
        steps: int = 12,
        step_size: float = 0.1,
        *,
        step_rule: StepRule = "fixed",
        blocks: int = 1,
        beta: float | Sequence[float] | None = None,
        learn_beta: bool = False,
        self_attention: bool = False,
        causal: bool = False,
        bias: bool = False,
        adjacency_form: EdgeForm = "multiply",
        activation: Literal["relu", "softmax"] | ConvexPotential = "relu",
        memory_beta: float = 0.01,
        terms: Iterable[EnergyTerm] = (),
        noise: float = 0.0,
        eps: float = 1e-5,
        recompute: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.steps = count("dim", dim), count("steps", steps, 0)
        self.step_size = positive("step_size", step_size)
        choice("step_rule", step_rule, ("fixed", "learned", "certified", "backtracking"))
        self.noise, self.recompute = positive("noise", noise, zero=True), bool(recompute)
        if noise and step_rule in ("certified", "backtracking"):
            raise expected("noise", f"0 with step_rule={step_rule!r}", noise, "noise can raise E")
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        terms = list(terms)

        def block(first: bool) -> EnergyBlock:
            return EnergyBlock(
                EnergyLayerNorm(dim, eps, **made),
                EnergyAttention(
                    dim,
                    heads,
                    head_dim,
                    beta=beta,
                    learn_beta=learn_beta,
                    self_attention=self_attention,
                    causal=causal,
                    bias=bias,
                    adjacency_form=adjacency_form,
                    **made,
                ),
                HopfieldNetwork(dim, memories, activation, beta=memory_beta, bias=bias, **made),
                terms if first else copy.deepcopy(terms),
                step_rule=step_rule,
                step_size=self.step_size,
            )

        self.blocks = nn.ModuleList(block(i == 0) for i in range(count("blocks", blocks)))

    def _blocks(self) -> list[EnergyBlock]:
        return list(self.blocks)  # type: ignore[arg-type]

    @property
    def attention(self) -> EnergyAttention:
        """Attention of the first block."""
        return self._blocks()[0].attention

    def forward(
        self,
        tokens: Tensor,
        mask: Tensor | None = None,
        adjacency: Tensor | None = None,
        return_energy: bool = False,
        *,
        steps: int | None = None,
        step_size: float | None = None,
        langevin: bool | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Settles the tokens.

        Args:
            tokens: (*batch, N, D), with any batch axes.
            mask: (*batch, N) bool, True for a real token. Padding takes part neither as key nor
                as query, and comes back as it was. For given real tokens neither the content, the
                number nor the place of padding changes a bit of the result.
            adjacency: (N, N), (*batch, N, N) or (*batch, H, N, N): entry [C, B] is about query C
                and key B. Bool or integer: whether B is one of C's keys. Floating: a weight, see
                ``adjacency_form``; gradients flow to it.
            return_energy: Also return the energies.
            steps: In place of the module's T.
            step_size: In place of the module's α (a learned one too).
            langevin: Whether noise is added; None: in training only.
            generator: Source of the noise.

        Returns:
            Tokens (*batch, N, D); with ``return_energy`` also E before each step and at the end
            (T+1, *batch), summed over heads, tokens and memories of a sample; (S, T+1, *batch)
            with S > 1 blocks.

        Raises:
            InputError: A wrong shape, type or value.
        """
        found = self.settle(
            tokens,
            mask,
            adjacency,
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
        mask: Tensor | None = None,
        adjacency: Tensor | None = None,
        *,
        energies: bool = True,
        trajectory: bool = False,
        tolerance: float | None = None,
        steps: int | None = None,
        step_size: float | None = None,
        langevin: bool | None = None,
        generator: torch.Generator | None = None,
        backend: Backend = "auto",
    ) -> Settled:
        """Settles the tokens and tells how it went.

        Args:
            tokens: As for calling the module, like the arguments not named here.
            mask: As above.
            adjacency: As above.
            energies: Whether energies are wanted (else they are empty).
            trajectory: Whether the states before each step and at the end are wanted.
            tolerance: A sample stops when no token's g = LN(x) changes by more than this (root
                mean square over features) in a step. The states x themselves never converge:
                their length grows for ever while g settles. A stopped sample keeps its last
                energy and state for the steps not taken.
            steps: As above.
            step_size: As above.
            langevin: As above.
            generator: As above.
            backend: "native" or "reference" insists on compiled kernels or plain torch.
        """
        total = self.steps if steps is None else count("steps", steps, 0)
        if step_size is not None:
            positive("step_size", step_size)
        if tolerance is not None:
            positive("tolerance", tolerance, zero=True)
        noisy = self.training if langevin is None else langevin
        courses = []
        for block in self._blocks():
            at = self._scene(tokens, mask, adjacency)
            course = block.descend(
                at,
                total,
                step_size=step_size,
                last=energies,
                record=trajectory,
                tolerance=tolerance,
                noise=self.noise if noisy else 0.0,
                generator=generator,
                recompute=self.recompute,
                backend=backend,
            )
            tokens = at.scatter(course.x, at.original)
            courses.append((at, course))
        return self._settled(tokens, courses, total, trajectory)

    def _settled(
        self, tokens: Tensor, courses: list[tuple[Scene, Any]], total: int, trajectory: bool
    ) -> Settled:
        def join(parts: list[Tensor]) -> Tensor:
            return parts[0] if len(parts) == 1 else torch.stack(parts)

        rows, paths, counts, changes = [], [], [], []
        for at, course in courses:
            empty = course.x.new_empty(0, len(at.x))
            rows.append(at.per_sample(torch.stack(course.energies) if course.energies else empty))
            if trajectory:
                states = [at.x, *course.states]
                states += [states[-1]] * (total + 1 - len(states))
                paths.append(torch.stack([at.scatter(s, at.original) for s in states]))
            if course.taken is not None:
                counts.append(at.per_sample(course.taken))
                changes.append(at.per_sample(course.change))
        return Settled(
            tokens,
            join(rows),
            join(paths) if paths else None,
            join(counts) if counts else None,
            join(changes) if changes else None,
        )

    def _scene(self, x: Tensor, mask: Tensor | None, adjacency: Tensor | None) -> Scene:
        first, x = self.attention, self._cast(x)
        return scene(x, self.dim, mask, adjacency, first.heads, first.adjacency_form)

    def energy(
        self,
        tokens: Tensor,
        mask: Tensor | None = None,
        adjacency: Tensor | None = None,
        *,
        block: int = 0,
    ) -> Tensor:
        """Energy of each sample at ``g = LN(tokens)``, (*batch).

        Args:
            tokens: (*batch, N, D).
            mask: As for calling the module.
            adjacency: As for calling the module.
            block: Whose energy, when there are several blocks.
        """
        at = self._scene(tokens, mask, adjacency)
        course = self._blocks()[block].descend(at, 0, last=True, recompute=True)
        return at.per_sample(course.energies[0])
