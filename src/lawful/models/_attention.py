"""An LSTM that attends to all of its past: the dense counterpart of sparse reminding."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from lawful.models._common import Readout, StepEncoder, check_count, check_positive, factory
from lawful.models._specs import Carried, InputSpec, OutputSpec


@dataclass(frozen=True)
class AttentiveLSTMConfig:
    """LSTM with dense softmax attention over all past states, full backpropagation."""

    hidden: int = 128
    """Width of the state."""
    feedback: bool = False
    """Add what was recalled to the state that the next step sees. Costs one attention call per
    step; without it all steps attend at once."""
    embedding: int = 0
    """Width of learned token vectors; 0 feeds tokens one-hot."""
    context: int = 0
    """Earlier states kept where a sequence is read in pieces; 0 keeps all."""

    def __post_init__(self) -> None:
        """Refuses impossible sizes."""
        check_positive(hidden=self.hidden)
        check_count(embedding=self.embedding, context=self.context)


class AttentiveLSTMModel(nn.Module):
    """LSTM whose output at each step also reads a softmax mixture of its earlier states.

    With memories m_0 = 0 and m_j = h_j (the state after step j), step t reads

        s_t = sum_{j<t} softmax_j(<W_q h_t, W_k m_j> / sqrt(n)) m_j,    y_t = V [h_t; s_t] + b,

    so a step never reads itself and the first step reads zero. With ``feedback``,
    h_t := h_t + s_t before it is stored and carried on, as in Sparse Attentive Backtracking.

    Args:
        config: Sizes.
        inputs: What the task feeds.
        outputs: What the task wants.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Cost: O(T^2 hidden + T hidden^2) time per row. Memory without feedback is O(T hidden) where
    PyTorch's fused attention applies; with feedback the backward pass keeps O(T^2 hidden).

    Departures from the LSTM with self-attention of Ke et al. (2018): a scaled dot product with a
    softmax in place of an unnormalised score network, and the context beside, not added to, h.
    """

    def __init__(
        self,
        config: AttentiveLSTMConfig,
        inputs: InputSpec,
        outputs: OutputSpec,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        made = factory(device, dtype)
        n = config.hidden
        self.config = config
        self.encoder = StepEncoder(inputs, config.embedding, device, dtype)
        self.rnn = nn.LSTM(self.encoder.size, n, batch_first=True, **made)
        self.query = nn.Linear(n, n, bias=False, **made)
        self.key = nn.Linear(n, n, bias=False, **made)
        self.readout = Readout(2 * n, outputs, device=device, dtype=dtype)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, size) or (B, T, size), as the task wants; see `InputSpec` for ``x``."""
        out: Tensor = self.readout(self._read(self.encoder(x, lengths))[0], lengths)
        return out

    def stream(self, x: Tensor, state: Carried = ()) -> tuple[Tensor, Carried]:
        """Reads the next steps of sequences; see `Streaming`.

        The state is (h, c, memories): the last ``context`` states, or all.
        """
        states, (h, c, memory) = self._read(self.encoder(x), state)
        memory = memory[:, -self.config.context :] if self.config.context else memory
        return self.readout(states), (h, c, memory)

    def _read(self, x: Tensor, state: Carried = ()) -> tuple[Tensor, Carried]:
        if not state:
            zero = x.new_zeros(x.shape[0], 1, self.config.hidden)
            state = (zero[:, 0][None], zero[:, 0][None], zero)
        return self._with_feedback(x, state) if self.config.feedback else self._at_once(x, state)

    def _at_once(self, x: Tensor, state: Carried) -> tuple[Tensor, Carried]:
        h, last = self.rnn(x, state[:2])  # (B, T, n)
        past = state[2].shape[1]
        memory = torch.cat([state[2], h], dim=1)
        # With one memory before them, step t reads memories 0..t, as a causal mask says.
        mask = None
        if past > 1:
            mask = torch.ones(h.shape[1], memory.shape[1] - 1, dtype=torch.bool, device=h.device)
            mask = mask.tril(past - 1)
        recalled = scaled_dot_product_attention(
            self.query(h), self.key(memory[:, :-1]), memory[:, :-1], mask, is_causal=mask is None
        )
        return torch.cat([h, recalled], dim=-1), (*last, memory)

    def _with_feedback(self, x: Tensor, state: Carried) -> tuple[Tensor, Carried]:
        h, c = state[0][0], state[1][0]
        memory, outputs = list(state[2].unbind(1)), []
        keys = [self.key(m) for m in memory]
        for step in x.unbind(1):
            _, (top, cell) = self.rnn(step[:, None], (h[None], c[None]))
            h, c = top[0], cell[0]
            query = self.query(h)[:, None]  # (B, 1, n)
            values = torch.stack(memory, dim=1)  # (B, t, n)
            s = scaled_dot_product_attention(query, torch.stack(keys, dim=1), values)[:, 0]
            h = h + s
            memory.append(h)
            keys.append(self.key(h))
            outputs.append(torch.cat([h, s], dim=-1))
        return torch.stack(outputs, dim=1), (h[None], c[None], torch.stack(memory, dim=1))
