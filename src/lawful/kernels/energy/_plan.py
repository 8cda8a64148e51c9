"""The constants and the tensors that define one energy block, in the form the operators take."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

EdgeForm = Literal["multiply", "add"]
Activation = Literal["relu", "softmax", "none"]


@dataclass(frozen=True)
class Plan:
    """What never changes during a descent and is no tensor."""

    heads: int
    width: int
    memories: int
    eps: float = 1e-5
    self_attention: bool = False
    causal: bool = False
    edge_form: EdgeForm = "multiply"
    activation: Activation = "relu"

    @property
    def span(self) -> int:
        """Rows of the stacked matrix that hold the queries (and again the keys): heads · width."""
        return self.heads * self.width

    @property
    def rows(self) -> int:
        """All rows of the stacked matrix."""
        return 2 * self.span + self.memories


class Params(NamedTuple):
    """The tensors of a block; ``weight`` stacks queries, keys and memories."""

    weight: Tensor  # (R, D), R = 2·H·Y + M
    bias: Tensor | None  # (R,)
    gamma: Tensor  # ()
    delta: Tensor  # (D,)
    beta: Tensor  # (H,)
    memory_beta: Tensor | None  # (), softmax memories only
    edge: Tensor | None  # (B or 1, H or 1, N, N) finite weights, [query, key]
    mask: Tensor | None  # (B, N) bool, True = real
    allowed: Tensor | None  # (B or 1, H or 1, N, N) bool, [query, key]


def part(p: Params, rows: slice) -> Params:
    """The tensors for some of the samples."""
    mask = None if p.mask is None else p.mask[rows]
    edge, allowed = (t if t is None or len(t) == 1 else t[rows] for t in (p.edge, p.allowed))
    return p._replace(mask=mask, edge=edge, allowed=allowed)


def split_heads(t: Tensor, heads: int, width: int) -> Tensor:
    """Columns (B, N, H·Y) seen as (B, H, N, Y)."""
    return t.reshape(*t.shape[:-1], heads, width).transpose(1, 2)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type energies and softmax are computed in: at least float32."""
    return torch.promote_types(dtype, torch.float32)


def pairs(plan: Plan, p: Params, rows: slice, n: int, device: torch.device) -> Tensor | None:
    """Which keys each query in ``rows`` may look at.

    Returns:
        Broadcastable to (B, H, rows, N) bool, or None when every pair is allowed.
    """
    found: list[Tensor] = []
    if plan.causal or not plan.self_attention:
        key = torch.arange(n, device=device)
        query = key[rows, None]
        if not plan.causal:
            found.append(query != key)
        else:
            found.append(key <= query if plan.self_attention else key < query)
    if p.mask is not None:
        found.append(p.mask[:, None, None, :] & p.mask[:, None, rows, None])
    if p.allowed is not None:
        found.append(p.allowed[:, :, rows])
    if not found:
        return None
    result = found[0]
    for other in found[1:]:
        result = result & other
    return result
