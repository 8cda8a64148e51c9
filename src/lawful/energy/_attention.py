"""Attention as an energy."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lawful.energy._checks import choice
from lawful.energy._heads import Heads
from lawful.energy._scene import Scene, scene
from lawful.kernels.energy import Params, Plan
from lawful.kernels.energy import reference as ref
from lawful.kernels.energy._plan import EdgeForm, pairs, split_heads


class EnergyAttention(Heads):
    """Multi-head attention whose update is minus the gradient of an energy.

    ``E = -Σ_h (1/β_h) Σ_C log Σ_{B in S(C)} exp(β_h K_hB · Q_hC)`` with ``Q = W^Q g + b^Q`` and
    ``K = W^K g + b^K``; C is a query, S(C) the keys it may look at. Calling the layer gives

    ``-∂E/∂g_A = Σ_h [W^Qᵀ Σ_B P_hAB K_hB + W^Kᵀ Σ_C P_hCA Q_hC]``,

    P the softmax over keys. A query with no key adds nothing. There is no value matrix.

    Args:
        dim: Features D.
        heads: Heads H >= 0.
        head_dim: Width Y of a head; need not be D / H.
        beta: Inverse temperature β > 0, one number or one for each head. Default 1 / sqrt(Y).
        learn_beta: Whether log β (one for each head) is a parameter.
        self_attention: Whether a token is one of its own keys. The paper's formula excludes it
            (False); its released image weights were trained with True. Kept in the state dict, and
            a state dict of the other form is refused.
        causal: A query sees only keys up to its own place, and *keys are held fixed*: the update
            is the first sum alone, by which each token descends its own term of E. No token learns
            of later ones, but E as a whole need not fall. (For the exact gradient of a causally
            masked energy, in which early tokens are moved by later queries, pass a lower
            triangular ``adjacency`` instead.)
        bias: Whether there are b^Q and b^K.
        adjacency_form: What a floating-point ``adjacency`` w does to a score s = β K·Q:
            "multiply" gives w·s, with w = 0 meaning no edge; "add" gives s + w, with w = -inf
            meaning no edge.
        device: Of the parameters.
        dtype: Of the parameters.

    Attributes:
        query: W^Q (H, Y, D).
        key: W^K (H, Y, D).

    Cost: 8 N D H Y + 6 N² H Y multiply-adds x 2 for each sample; memory is linear in N inside
    `EnergyTransformer`, which takes queries in blocks.

    Source: Hoover et al. 2023, equations 3 and 4; edge weights after their equation 25.
    """

    def __init__(
        self,
        dim: int,
        heads: int = 12,
        head_dim: int = 64,
        *,
        beta: float | Sequence[float] | None = None,
        learn_beta: bool = False,
        self_attention: bool = False,
        causal: bool = False,
        bias: bool = False,
        adjacency_form: EdgeForm = "multiply",
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
            causal=causal,
            bias=bias,
            device=device,
            dtype=dtype,
        )
        choice("adjacency_form", adjacency_form, ("multiply", "add"))
        self.adjacency_form: EdgeForm = adjacency_form

    def _plan(self) -> Plan:
        return Plan(
            self.heads,
            self.head_dim,
            0,
            self_attention=self.self_attention,
            causal=self.causal,
            edge_form=self.adjacency_form,
            activation="none",
        )

    def _params(self, at: Scene) -> Params:
        weight, bias = self._rows()
        one = weight.new_ones(())
        return Params(
            weight,
            bias,
            one,
            weight.new_zeros(self.dim),
            self.beta,
            None,
            at.edge,
            at.mask,
            at.allowed,
        )

    def _scene(self, g: Tensor, mask: Tensor | None, adjacency: Tensor | None) -> Scene:
        return scene(g, self.dim, mask, adjacency, self.heads, self.adjacency_form)

    def energy(
        self, g: Tensor, mask: Tensor | None = None, adjacency: Tensor | None = None
    ) -> Tensor:
        """Energy of each sample.

        Args:
            g: Normalised tokens (..., N, D).
            mask: (..., N) bool, True for a real token. Padding is removed as key and as query.
            adjacency: (N, N), (..., N, N) or (..., H, N, N): entry [C, B] is about query C
                and key B. Bool or integer: whether B is one of C's keys. Floating: a weight, see
                ``adjacency_form``.

        Returns:
            (...).
        """
        at = self._scene(g, mask, adjacency)
        return at.per_sample(ref.energy_and_update(at.x, self._plan(), self._params(at))[0])

    def forward(
        self, g: Tensor, mask: Tensor | None = None, adjacency: Tensor | None = None
    ) -> Tensor:
        """The update ``-∂E/∂g`` (..., N, D), zero at padding; arguments as for `energy`."""
        at = self._scene(g, mask, adjacency)
        return at.scatter(ref.energy_and_update(at.x, self._plan(), self._params(at))[1])

    def update(
        self, g: Tensor, mask: Tensor | None = None, adjacency: Tensor | None = None
    ) -> Tensor:
        """The same as calling the layer."""
        return self(g, mask, adjacency)  # type: ignore[no-any-return]

    def weights(
        self, g: Tensor, mask: Tensor | None = None, adjacency: Tensor | None = None
    ) -> Tensor:
        """Attention probabilities P (..., H, N, N), [query, key]; rows without a key are zero."""
        at = self._scene(g, mask, adjacency)
        plan, p = self._plan(), self._params(at)
        z = nn.functional.linear(at.x, p.weight, p.bias)
        q, k = (split_heads(t, self.heads, self.head_dim) for t in z.chunk(2, -1))
        s = (q @ k.mT) * p.beta[:, None, None]
        if p.edge is not None:
            s = s * p.edge if self.adjacency_form == "multiply" else s + p.edge
        n = at.x.shape[1]
        can = pairs(plan, p, slice(0, n), n, s.device)
        if can is not None:
            s = s.masked_fill(~can, -math.inf).masked_fill(~can.any(-1, keepdim=True), 0.0)
        prob = s.softmax(-1)
        return at.pairs(prob if can is None else prob.masked_fill(~can, 0.0))

    @torch.no_grad()
    def curvature(
        self, g: Tensor, mask: Tensor | None = None, adjacency: Tensor | None = None
    ) -> Tensor:
        """Bound on the positive curvature of E over all g, for each sample (...).

        ``λ₊ = 2 max|w| sqrt(c) Σ_h ‖W^K_hᵀ W^Q_h‖₂`` with c the most queries that share a key: the
        log-sum-exp is concave in the scores, the scores are bilinear in g, and a row-stochastic
        matrix with at most c entries in a column has norm at most sqrt(c).
        """
        return self._curvature(self._scene(g, mask, adjacency))

    def _curvature(self, at: Scene) -> Tensor:
        b, n, _ = at.x.shape
        kind = torch.promote_types(self.query.dtype, torch.float32)
        r = [torch.linalg.qr(w.to(kind).mT, mode="r").R for w in (self.query, self.key)]
        norm = torch.linalg.matrix_norm(r[0] @ r[1].mT, 2).sum() if self.heads else r[0].sum()
        can = pairs(self._plan(), self._params(at), slice(0, n), n, at.x.device)
        if n == 0:
            most = norm.new_zeros(())
        elif can is None:
            most = norm.new_tensor(float(n))
        else:
            can = can[(None,) * (4 - can.dim())]
            most = can.sum(-2).amax((-1, -2)).to(kind)
        largest = norm.new_ones(())
        if at.edge is not None and self.adjacency_form == "multiply":
            largest = at.edge.abs().amax().to(kind) if at.edge.numel() else norm.new_zeros(())
        return at.per_sample((2 * largest * most.sqrt() * norm).expand(b))

    def example_inputs(self, generator: torch.Generator | None = None) -> tuple[Tensor]:
        """Random tokens (2, 5, D), for checks of a layer that a model calls in a way of its own."""
        return (torch.randn(2, 5, self.dim, generator=generator).to(self.query),)

    def extra_repr(self) -> str:
        """Shown by print."""
        parts = [f"{self.dim}, heads={self.heads}, head_dim={self.head_dim}"]
        parts += [f"self_attention={self.self_attention}"]
        parts += ["causal=True"] if self.causal else []
        return ", ".join(parts)
