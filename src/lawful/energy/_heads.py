"""Queries and keys: the weights that every attention energy has, dense or on a graph."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lawful.energy._checks import count, positive
from lawful.energy._terms import EnergyTerm
from lawful.errors import expected


class Heads(EnergyTerm):
    """W^Q, W^K, their offsets and β; a state dict of one attention fits any other of its sizes."""

    def __init__(
        self,
        dim: int,
        heads: int,
        head_dim: int,
        *,
        beta: float | Sequence[float] | None,
        learn_beta: bool,
        self_attention: bool,
        causal: bool,
        bias: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.dim, self.heads, self.head_dim = count("dim", dim), count("heads", heads, 0), head_dim
        count("head_dim", head_dim)
        self.self_attention, self.causal = bool(self_attention), bool(causal)
        self._beta = _betas(beta, heads, head_dim)
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        shape = (heads, head_dim, dim)
        self.query = nn.Parameter(torch.empty(shape, **made))
        self.key = nn.Parameter(torch.empty(shape, **made))
        self.query_bias = nn.Parameter(torch.empty(shape[:2], **made)) if bias else None
        self.key_bias = nn.Parameter(torch.empty(shape[:2], **made)) if bias else None
        log_beta = torch.empty(heads, **made)
        if learn_beta:
            self.log_beta = nn.Parameter(log_beta)
        else:
            self.register_buffer("log_beta", log_beta)
        for name, value in self._form().items():
            self.register_buffer(name, torch.tensor(value, device=device))
        self.reset_parameters()

    def _form(self) -> dict[str, bool]:
        return {"allows_self": self.self_attention, "is_causal": self.causal}

    def reset_parameters(self) -> None:
        """Queries and keys from N(0, 1/D), so that scores have unit scale at any D; biases 0."""
        for weight in (self.query, self.key):
            nn.init.normal_(weight, std=self.dim**-0.5)
        for offset in (self.query_bias, self.key_bias):
            if offset is not None:
                nn.init.zeros_(offset)
        with torch.no_grad():
            self.log_beta.copy_(torch.tensor(self._beta, dtype=torch.float64).log())

    @property
    def beta(self) -> Tensor:
        """Inverse temperatures β (H,)."""
        return self.log_beta.exp()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        errors = args[-1]
        for name, mine in self._form().items():
            saved = state_dict.get(prefix + name)
            if saved is not None and not saved.is_meta and bool(saved) != mine:
                errors.append(
                    f"{prefix}{name}: the state dict has {bool(saved)}, this layer {mine}"
                )
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _rows(self) -> tuple[Tensor, Tensor | None]:
        """Queries over keys as one matrix (2 H Y, D), and their biases (2 H Y,)."""
        weight = torch.cat([self.query.flatten(0, 1), self.key.flatten(0, 1)])
        if self.query_bias is None or self.key_bias is None:
            return weight, None
        return weight, torch.cat([self.query_bias.flatten(), self.key_bias.flatten()])


def _betas(beta: float | Sequence[float] | None, heads: int, width: int) -> list[float]:
    if beta is None:
        return [1 / math.sqrt(width)] * heads
    if isinstance(beta, Sequence):
        if len(beta) != heads:
            raise expected("beta", f"one number or {heads} of them", f"{len(beta)}")
        return [positive("beta", b) for b in beta]
    return [positive("beta", beta)] * heads
