"""Which past steps a step's loss reaches, measured."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lawful.errors import expected
from lawful.kernels import force_backend

if TYPE_CHECKING:
    from lawful.memory._sab import SAB

__all__ = ["credit_map"]


def credit_map(
    layer: "SAB", steps: int, x: Tensor | None, generator: torch.Generator | None
) -> Tensor:
    """See `SAB.credit_map`."""
    if not isinstance(steps, int) or steps < 0:
        raise expected("steps", "an integer of at least 0", repr(steps))
    like = next(layer.parameters())
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    if x is None:
        x = torch.randn(1, steps, layer.input_size, generator=generator, dtype=like.dtype)
        x = x.to(like.device)
    elif x.shape[1] != steps:
        raise expected("x", f"shape (B, {steps}, {layer.input_size})", str(tuple(x.shape)))
    x = x.detach().requires_grad_()
    direction = torch.randn(layer.output_size, generator=generator, dtype=like.dtype)
    with torch.enable_grad(), force_backend("reference"):
        inputs = x if layer.batch_first else x.transpose(0, 1)
        output, _ = layer(inputs)
        output = output if layer.batch_first else output.transpose(0, 1)
        losses = (output * direction.to(like.device)).sum((0, 2))
        rows = [
            torch.autograd.grad(loss, x, retain_graph=True)[0].norm(dim=-1).amax(0)
            for loss in losses.unbind()
        ]
    return torch.stack(rows) if rows else like.new_zeros(0, 0)
