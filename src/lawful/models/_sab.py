"""Sparse attentive backtracking as a sequence model."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from lawful.kernels.sab import SABState
from lawful.memory import SAB, StackedState
from lawful.models._common import (
    Readout,
    StepEncoder,
    check_count,
    check_positive,
    check_share,
)
from lawful.models._specs import Carried, InputSpec, OutputSpec


@dataclass(frozen=True)
class SABModelConfig:
    """Recurrent network with sparse attentive backtracking.

    Fields that are None keep what the preset says.
    """

    hidden: int = 128
    """Width of the state."""
    k_top: int = 5
    """Memories recalled at each step, at most; 0 for all of them (dense attention)."""
    k_att: int = 1
    """Store the state after every so many steps."""
    k_trunc: int = 5
    """Steps between cuts of the gradient along the recurrence."""
    preset: Literal["paper", "authors", "release", "stable"] = "paper"
    """Settings to start from: the paper's, the authors' development code, the released code, or
    what trains most smoothly."""
    score_grad: Literal["full", "params_only"] | None = None
    """Gradient through the scores of memories: into states too, or into the score weights only
    (smoother training)."""
    truncation: Literal["blocked", "window"] | None = None
    """Cut between blocks of k_trunc steps, or give every loss and memory k_trunc steps of its
    own."""
    phase: Literal["start", "end"] | None = None
    """Where blocks begin: "start" at 0, k, 2k, ...; "end" one step earlier."""
    mental_updates: int | None = None
    """Steps that credit follows into a recalled memory's past; 0 ends at the memory."""
    hops: int | None = None
    """Recalls in a row that credit may pass through."""
    recall_scale: float | None = None
    """Factor of the recalled state before it is added; below 1 bounds the state's growth."""
    normaliser: Literal["relu", "softmax"] | None = None
    """Weights of what is recalled: excess over the threshold, or a softmax over the best."""
    margin: float | None = None
    """Added to each excess, so that small differences of scores have bounded derivatives."""
    small_memory: Literal["shift", "softmax", "raw"] | None = None
    """Weights while there are no more than k_top memories, so always for dense attention."""
    init_memory: Literal["empty", "zero"] | None = None
    """Begin with no memory, or with a zero vector, so that a step may recall nothing."""
    max_memories: int | None = None
    """Most memories kept; the oldest leave first."""
    cell: Literal["lstm", "gru", "rnn"] = "lstm"
    """The recurrent cell."""
    layers: int = 1
    """Number of layers, each with its own memory."""
    dropout: float = 0.0
    """Share of entries dropped between layers and before the output layer, in training."""
    embedding: int = 0
    """Width of learned token vectors; 0 feeds tokens one-hot."""

    def __post_init__(self) -> None:
        """Refuses impossible values; the layer checks the rest."""
        check_positive(
            hidden=self.hidden,
            k_att=self.k_att,
            k_trunc=self.k_trunc,
            layers=self.layers,
        )
        for name in ("hops", "max_memories"):
            value = getattr(self, name)
            if value is not None:
                check_positive(**{name: value})
        check_count(embedding=self.embedding, k_top=self.k_top)
        if self.mental_updates is not None:
            check_count(mental_updates=self.mental_updates)
        check_share(dropout=self.dropout)

    def knobs(self) -> dict[str, Any]:
        """The options of the layer that differ from the preset."""
        names = (
            "score_grad",
            "truncation",
            "phase",
            "mental_updates",
            "hops",
            "recall_scale",
            "normaliser",
            "margin",
            "small_memory",
            "init_memory",
            "max_memories",
        )
        return {n: getattr(self, n) for n in names if getattr(self, n) is not None}


ALL = 1 << 20  # more memories than any sequence stores


@runtime_checkable
class Recalling(Protocol):
    """A sequence model that can show what it recalled."""

    def recalled(self, x: Tensor) -> Tensor:
        """(B, T, T): the weight that step t gave to the state stored at step j."""
        ...

    def credit(self, x: Tensor) -> Tensor:
        """(T, T): how strongly a loss at step t reaches the input of step j."""
        ...


class SABModel(nn.Module):
    """Encoder, `lawful.memory.SAB`, linear readout of [h_t; s_t].

    Args:
        config: Sizes and the choices of the layer.
        inputs: What the task feeds.
        outputs: What the task wants.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Source: Ke et al. (2018), equation of section 3; see `lawful.memory.SAB`.
    """

    def __init__(
        self,
        config: SABModelConfig,
        inputs: InputSpec,
        outputs: OutputSpec,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.encoder = StepEncoder(inputs, config.embedding, device, dtype)
        self.rnn = SAB(
            self.encoder.size,
            config.hidden,
            config.k_top or ALL,
            config.k_att,
            config.k_trunc,
            cell=config.cell,
            num_layers=config.layers,
            dropout=config.dropout if config.layers > 1 else 0.0,
            output="concat",
            preset=config.preset,
            device=device,
            dtype=dtype,
            **config.knobs(),
        )
        self.readout = Readout(self.rnn.output_size, outputs, config.dropout, device, dtype)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, size) or (B, T, size), as the task wants; see `InputSpec` for ``x``."""
        states, _ = self.rnn(self.encoder(x, lengths), lengths=lengths)
        out: Tensor = self.readout(states, lengths)
        return out

    def stream(self, x: Tensor, state: Carried = ()) -> tuple[Tensor, Carried]:
        """Reads the next steps of sequences; see `Streaming`.

        The state is that of the layers, as plain tensors. In training, the keys of carried
        memories are made anew by the present weights.
        """
        carried = _from_tensors(state, len(self.rnn.layers))
        if carried is not None and self.training:
            carried = self.rnn.rekey(carried)
        states, new = self.rnn(self.encoder(x), carried)
        return self.readout(states), _to_tensors(new)

    @torch.no_grad()
    def recalled(self, x: Tensor) -> Tensor:
        """What each step recalled in the top layer.

        Args:
            x: A batch of inputs, without padding.

        Returns:
            (B, T, T): [b, t, j] is the weight that step t gave to the state stored after step j;
            0 for states that were not stored or not recalled.
        """
        _, _, recalls = self.rnn(self.encoder(x), return_recall=True)
        weights: Tensor = recalls[-1].dense(x.shape[1])
        return weights

    def credit(self, x: Tensor) -> Tensor:
        """How far credit reaches, by the gradient of the present weights.

        Args:
            x: A batch of inputs, without padding.

        Returns:
            (T, T): [t, j] is the size of the gradient of a random projection of the output at
            step t, at the encoded input of step j; the largest in the batch. Exactly 0 where no
            credit flows.

        Cost: T backward passes.
        """
        credit: Tensor = self.rnn.credit_map(x.shape[1], self.encoder(x).detach())
        return credit


_FIELDS = ("memory", "keys", "counts", "stamps", "saliency", "steps")


def _to_tensors(state: SABState | StackedState) -> Carried:
    layers = (state,) if isinstance(state, SABState) else state
    return tuple(t for s in layers for t in (*s.recurrent, *(getattr(s, name) for name in _FIELDS)))


def _from_tensors(state: Carried, layers: int) -> SABState | StackedState | None:
    if not state:
        return None
    size = len(state) // layers
    parts = []
    for start in range(0, len(state), size):
        own = state[start : start + size]
        recurrent = size - len(_FIELDS)
        parts.append(SABState(own[:recurrent], *own[recurrent:]))
    return parts[0] if layers == 1 else StackedState(parts)
