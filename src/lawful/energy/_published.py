"""Reads the image model that the paper's authors published."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lawful.energy._transformer import EnergyTransformer
from lawful.errors import expected

_NAMES: tuple[str, ...] = (
    "Wq",
    "Wk",
    "Xi",
    "LNORM_gamma",
    "LNORM_bias",
    "Wenc",
    "Benc",
    "Wdec",
    "Bdec",
)
_NAMES += ("CLS_token", "MASK_token", "POS_embed")


class PublishedImageModel(nn.Module):
    """Image completion as published: encode patches, settle, decode.

    Masked patches are replaced by the mask token after the encoder, the class token is put in
    front, learned positions are added to all; after the descent the class token is dropped, the
    *same* layer norm is applied again and the decoder maps back to patches. Exactly the patches
    of ``masked`` are replaced: the authors' code also overwrote patch 0 whenever fewer patches
    were masked than lay in the loss, which is not repeated here.

    Args:
        block: The energy, with its steps.
        encoder: Patch to token.
        decoder: Token to patch.
        class_token: (D,).
        mask_token: (D,).
        positions: (N+1, D), the class token's first.
    """

    def __init__(
        self,
        block: EnergyTransformer,
        encoder: nn.Linear,
        decoder: nn.Linear,
        class_token: Tensor,
        mask_token: Tensor,
        positions: Tensor,
    ) -> None:
        super().__init__()
        self.block, self.encoder, self.decoder = block, encoder, decoder
        self.class_token = nn.Parameter(class_token)
        self.mask_token = nn.Parameter(mask_token)
        self.positions = nn.Parameter(positions)

    def tokens(self, patches: Tensor, masked: Tensor) -> Tensor:
        """Where the descent starts (..., N+1, D)."""
        n = len(self.positions) - 1
        if patches.dim() < 2 or patches.shape[-2:] != (n, self.encoder.in_features):
            want = f"shape (..., {n}, {self.encoder.in_features})"
            raise expected("patches", want, tuple(patches.shape))
        if masked.dtype != torch.bool or masked.shape != patches.shape[:-1]:
            want = f"bool of shape {tuple(patches.shape[:-1])}, True where a patch is hidden"
            raise expected("masked", want, f"{masked.dtype} {tuple(masked.shape)}")
        x = torch.where(masked[..., None], self.mask_token, self.encoder(patches))
        start = self.class_token.expand(*x.shape[:-2], 1, -1)
        return torch.cat([start, x], -2) + self.positions

    def forward(self, patches: Tensor, masked: Tensor) -> Tensor:
        """Completed patches (..., N, P), shown ones reconstructed too.

        Args:
            patches: (..., N, P), each (channel, row, column) flattened, normalised as in training.
            masked: (..., N) bool, True where a patch is hidden.
        """
        x = self.block(self.tokens(patches, masked))
        found: Tensor = self.decoder(self.block.norm(x[..., 1:, :]))
        return found


def load_published(
    source: str | Path | Mapping[str, Any],
    *,
    self_attention: bool = True,
    beta: float | None = None,
    steps: int = 12,
    step_size: float = 0.1,
    **options: Any,
) -> PublishedImageModel:
    """Builds the published image model from its weights.

    Args:
        source: An .npz file, or a mapping of arrays, with the published names: Wq and Wk
            (H, Y, D), Xi (D, M), LNORM_gamma, LNORM_bias, Wenc (P, D), Benc, Wdec (D, P), Bdec,
            CLS_token, MASK_token, POS_embed (N+1, D). Axes of length one in front do not matter.
        self_attention: Whether tokens attend to themselves. The published weights were trained so
            (True), against the paper's formula.
        beta: Inverse temperature; default 1 / sqrt(Y).
        steps: T.
        step_size: α.
        options: Passed on to `EnergyTransformer`.

    Raises:
        InputError: A name is missing or a shape does not fit.
    """
    if isinstance(source, Mapping):
        arrays = {k: torch.as_tensor(np.asarray(v)) for k, v in source.items()}
    else:
        with np.load(source, allow_pickle=False) as file:
            arrays = {k: torch.from_numpy(file[k]) for k in file.files}
    missing = [k for k in _NAMES if k not in arrays]
    if missing:
        raise expected("source", f"arrays named {', '.join(_NAMES)}", f"none for {missing}")
    a = {k: v.to(torch.get_default_dtype()) for k, v in arrays.items()}
    if a["Wq"].dim() != 3 or a["Wk"].shape != a["Wq"].shape:
        raise expected(
            "Wq, Wk", "one shape (H, Y, D)", (tuple(a["Wq"].shape), tuple(a["Wk"].shape))
        )
    heads, width, dim = a["Wq"].shape
    if a["Xi"].dim() != 2 or len(a["Xi"]) != dim:
        raise expected("Xi", f"shape ({dim}, M)", tuple(a["Xi"].shape))
    block = EnergyTransformer(
        dim, heads, width, a["Xi"].shape[1], steps, step_size, beta=beta,
        self_attention=self_attention, **options,
    )  # fmt: skip
    encoder, decoder = (nn.Linear(*a[k].shape) for k in ("Wenc", "Wdec"))
    first = block._blocks()[0]
    pairs = [
        ("Wq", first.attention.query),
        ("Wk", first.attention.key),
        ("Xi", first.hopfield.memories),
        ("LNORM_gamma", first.norm.gamma),
        ("LNORM_bias", first.norm.delta),
        ("Wenc", encoder.weight),
        ("Benc", encoder.bias),
        ("Wdec", decoder.weight),
        ("Bdec", decoder.bias),
    ]
    with torch.no_grad():
        for name, parameter in pairs:
            value = a[name].mT if name in ("Xi", "Wenc", "Wdec") else a[name]
            if value.numel() != parameter.numel():
                raise expected(name, f"{parameter.numel()} values", tuple(a[name].shape))
            parameter.copy_(value.reshape(parameter.shape))
    start, hidden = (a[k].reshape(-1) for k in ("CLS_token", "MASK_token"))
    if len(start) != dim or len(hidden) != dim or a["POS_embed"].shape[-1] != dim:
        raise expected("CLS_token, MASK_token, POS_embed", f"{dim} features", "others")
    positions = a["POS_embed"].reshape(-1, dim).clone()
    return PublishedImageModel(block, encoder, decoder, start, hidden, positions)
