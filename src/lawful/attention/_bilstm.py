"""A bidirectional LSTM whose backward direction begins at each sequence's own end."""

from typing import Any

import torch
from torch import Tensor, nn

from lawful.attention._scores import Device

__all__ = ["BiLSTM"]


class BiLSTM(nn.Module):
    """Reads a padded sequence in both directions; neither sees the padding.

    Args:
        input_size: D.
        hidden: r, units of each direction.
        device: Where the parameters live.
        dtype: Their floating-point type.
    """

    def __init__(
        self,
        input_size: int,
        hidden: int,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"batch_first": True, "device": device, "dtype": dtype}
        self.ahead = nn.LSTM(input_size, hidden, **made)
        self.back = nn.LSTM(input_size, hidden, **made)

    def reset_parameters(self) -> None:
        """Draws the parameters afresh."""
        self.ahead.reset_parameters()
        self.back.reset_parameters()

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """States (B, N, 2r) of tokens (B, N, D) with lengths (B).

        The padding must be free of NaN; what it holds, and its states, mean nothing.
        """
        if x.numel() == 0:  # torch's LSTM takes no empty sequence
            return x.new_zeros(*x.shape[:-1], 2 * self.ahead.hidden_size)
        if lengths is None:
            there, back = self.ahead(x)[0], self.back(x.flip(1))[0].flip(1)
            return torch.cat([there, back], -1)
        # Reversed within each length, so that the padding stays behind in both directions.
        steps = torch.arange(x.shape[1], device=x.device)
        size = lengths[:, None]
        order = torch.where(steps < size, size - 1 - steps, steps)[..., None]
        turned = x.gather(1, order.expand(x.shape))
        there, back = self.ahead(x)[0], self.back(turned)[0]
        return torch.cat([there, back.gather(1, order.expand(back.shape))], -1)
