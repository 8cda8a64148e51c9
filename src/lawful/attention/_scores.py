"""How well a key answers a query: the log-potentials of attention, as small modules."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from lawful.attention._inputs import check_size
from lawful.errors import expected

__all__ = ["BilinearScore", "DotScore", "MLPScore", "ScoreName", "make_score"]

ScoreName = Literal["auto", "dot", "scaled_dot", "bilinear", "mlp"]
Device = torch.device | str | None


class DotScore(nn.Module):
    """theta_ji = <q_j, k_i>, divided by sqrt(D) if ``scaled``. No parameters."""

    def __init__(self, scaled: bool = False) -> None:
        super().__init__()
        self.scaled = scaled

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """(..., Q, N) from (..., Q, D) and (..., N, D)."""
        check_size("keys", keys, query.shape[-1])
        query = query / math.sqrt(max(query.shape[-1], 1)) if self.scaled else query
        return query @ keys.mT

    def extra_repr(self) -> str:
        """Whether scores are scaled."""
        return f"scaled={self.scaled}"


class BilinearScore(nn.Module):
    """theta_ji = k_i^T W q_j, without bias.

    Args:
        query_size: D.
        key_size: K.
        device: Where W (K, D) lives.
        dtype: Its floating-point type.
    """

    def __init__(
        self,
        query_size: int,
        key_size: int,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(key_size, query_size, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform within 1 / sqrt(D)."""
        _uniform(self.weight, self.weight.shape[1])

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """(..., Q, N) from (..., Q, D) and (..., N, K)."""
        check_size("query", query, self.weight.shape[1])
        check_size("keys", keys, self.weight.shape[0])
        return linear(query, self.weight) @ keys.mT

    def extra_repr(self) -> str:
        """Sizes."""
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}"


class MLPScore(nn.Module):
    """theta_hji = s_h^T tanh(W_q q_j + W_k k_i + b), one score for each head h.

    Args:
        query_size: D.
        key_size: K.
        hidden: Hidden units of each head; D if None.
        heads: How many scores.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Cost: O(Q N hidden heads) time and, for the gradient, memory.
    """

    def __init__(
        self,
        query_size: int,
        key_size: int,
        hidden: int | None = None,
        heads: int = 1,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        hidden = query_size if hidden is None else hidden
        self.query = nn.Linear(query_size, heads * hidden, bias=False, **made)
        self.key = nn.Linear(key_size, heads * hidden, **made)
        self.out = nn.Parameter(torch.empty(heads, hidden, **made))
        _uniform(self.out, hidden)

    def reset_parameters(self) -> None:
        """As a linear layer: uniform within 1 / sqrt(inputs)."""
        self.query.reset_parameters()
        self.key.reset_parameters()
        _uniform(self.out, self.out.shape[1])

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """(..., Q, N), or (..., H, Q, N) for several heads."""
        check_size("query", query, self.query.in_features)
        check_size("keys", keys, self.key.in_features)
        q, k = self.query(query), self.key(keys)
        if len(self.out) == 1:
            # In place: the sum is not needed for the gradient, and is the largest tensor here.
            hidden: Tensor = (q[..., :, None, :] + k[..., None, :, :]).tanh_()
            return hidden @ self.out[0]
        q, k = (x.unflatten(-1, self.out.shape).transpose(-2, -3) for x in (q, k))
        hidden = (q[..., :, None, :] + k[..., None, :, :]).tanh_()  # (..., H, Q, N, A)
        scores: Tensor = hidden.flatten(-3, -2) @ self.out[..., None]
        return scores.reshape(hidden.shape[:-1])


def _uniform(weight: Tensor, inputs: int) -> None:
    bound = 1 / math.sqrt(max(inputs, 1))
    nn.init.uniform_(weight, -bound, bound)


def make_score(
    name: str,
    query_size: int | None,
    key_size: int | None,
    hidden: int | None = None,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> nn.Module:
    """The score module of a name; "auto" is bilinear where sizes are given, else dot.

    Raises:
        InputError: An unknown name, or a score with weights without sizes.
    """
    if name == "auto":
        name = "dot" if query_size is None else "bilinear"
    if name in ("dot", "scaled_dot"):
        return DotScore(name == "scaled_dot")
    if name not in ("bilinear", "mlp"):
        raise expected("score", "auto, dot, scaled_dot, bilinear or mlp", repr(name))
    if query_size is None:
        raise expected("query_size", f"a whole number, for score={name!r}", None)
    key_size = query_size if key_size is None else key_size
    for what, size in (("query_size", query_size), ("key_size", key_size)):
        if size < 1:
            raise expected(what, "a whole number of at least 1", size)
    if name == "bilinear":
        return BilinearScore(query_size, key_size, device, dtype)
    return MLPScore(query_size, key_size, hidden, 1, device, dtype)
