"""Sequence models by name, and how one is made from its config."""

from typing import Any

import torch
from torch import nn

from lawful.errors import expected
from lawful.models._attention import AttentiveLSTMConfig, AttentiveLSTMModel
from lawful.models._recurrent import (
    LSTMConfig,
    LSTMModel,
    TruncatedLSTMConfig,
    TruncatedLSTMModel,
)
from lawful.models._sab import SABModel, SABModelConfig
from lawful.models._specs import InputSpec, OutputSpec
from lawful.models._transformer import TransformerConfig, TransformerModel
from lawful.models._unitary import ConvOrthogonalConfig, ConvUnitaryConfig, ConvUnitaryModel

SEQUENCE_MODELS: dict[str, type[Any]] = {
    "lstm": LSTMConfig,
    "lstm-tbptt": TruncatedLSTMConfig,
    "lstm-attention": AttentiveLSTMConfig,
    "transformer": TransformerConfig,
    "sab": SABModelConfig,
    "conv-unitary": ConvUnitaryConfig,
    "conv-orthogonal": ConvOrthogonalConfig,
}

_MODULES: dict[type[Any], type[nn.Module]] = {
    LSTMConfig: LSTMModel,
    TruncatedLSTMConfig: TruncatedLSTMModel,
    AttentiveLSTMConfig: AttentiveLSTMModel,
    TransformerConfig: TransformerModel,
    SABModelConfig: SABModel,
    ConvUnitaryConfig: ConvUnitaryModel,
}


def build_sequence_model(
    config: Any,
    inputs: InputSpec,
    outputs: OutputSpec,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> nn.Module:
    """A fresh model from its config (one of `SEQUENCE_MODELS`, or a subclass of one).

    Args:
        config: The model's settings.
        inputs: What the task feeds.
        outputs: What the task wants.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Returns:
        A module ``(inputs, lengths=None) -> (B, size) or (B, T, size)``.

    Raises:
        InputError: For a config of no known model.
    """
    for kind in type(config).__mro__:
        if kind in _MODULES:
            return _MODULES[kind](config, inputs, outputs, device=device, dtype=dtype)
    known = ", ".join(SEQUENCE_MODELS)
    raise expected("model config", f"the config of one of {known}", type(config).__name__)
