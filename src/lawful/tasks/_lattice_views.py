"""What a transition by convolution looks like: its eigenvalues, its kernel, the norms of states."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from lawful.tasks.exhibits import Array, Curves, Exhibit, Heatmap
from lawful.unitary import ConvOrthogonalRNN, ConvUnitaryRNN

_LARGEST = 4096  # fields times sites of a kernel that is drawn
Transition = Callable[[Tensor], Tensor | None]


def impulse_response(
    transition: Transition, channels: int, size: tuple[int, ...], like: Tensor
) -> Tensor | None:
    r"""The kernel of a linear step, origin at index 0: (C, C, \*size), channels in first.

    None where the step is not one linear map.
    """
    impulse = like.new_zeros(channels, channels, *size)
    for channel in range(channels):
        impulse[(channel, channel, *[0] * len(size))] = 1.0
    with torch.no_grad():
        return transition(impulse)


def eigenvalues(kernel: Tensor) -> Array:
    """Eigenvalues of a periodic convolution, one for each field and wave vector."""
    dims = kernel.ndim - 2
    symbol = torch.fft.fftn(kernel.to(torch.complex128), dim=tuple(range(-dims, 0)))
    blocks = symbol.flatten(2).permute(2, 1, 0)
    values: Array = torch.linalg.eigvals(blocks).flatten().cpu().numpy()
    return values


def transition_views(kernel: Tensor, origin: str) -> list[Exhibit]:
    """The spectrum beside the unit circle, and the kernel itself.

    Args:
        kernel: As `impulse_response` gives it.
        origin: What the step is, for the notes.
    """
    values = eigenvalues(kernel)
    circle = np.exp(2j * np.pi * np.arange(201) / 200)
    gap = float(np.abs(np.abs(values) - 1).max())
    note = f"Eigenvalues of {origin}; the largest distance from the unit circle is {gap:.1e}."
    series = {
        "eigenvalues": (values.real.tolist(), values.imag.tolist()),
        "unit circle": (circle.real.tolist(), circle.imag.tolist()),
    }
    spectrum = Curves(
        "Spectrum",
        series,
        "real part",
        "imaginary part",
        note=note,
        style="points",
        equal_axes=True,
        muted=("unit circle",),
    )
    return [spectrum, *_kernel_views(kernel, origin)]


def _kernel_views(kernel: Tensor, origin: str) -> list[Exhibit]:
    dims = kernel.ndim - 2
    if dims > 2:
        return []
    centred = torch.fft.fftshift(kernel, dim=tuple(range(-dims, 0))).cpu()
    shown = [("", centred)]
    if centred.is_complex():
        shown = [("real part, ", centred.real), ("imaginary part, ", centred.imag)]
    channels = min(len(kernel), 4)
    note = f"The kernel of {origin}: what a unit pulse in the middle becomes after one step."
    if dims == 1:
        series = {}
        offsets = [float(i - kernel.shape[2] // 2) for i in range(kernel.shape[2])]
        for part, values in shown:
            for i in range(channels):
                for o in range(channels):
                    name = f"{part}field {i} to {o}" if len(kernel) > 1 else part.rstrip(", ")
                    series[name or "kernel"] = (offsets, values[i, o].tolist())
        few = dict(list(series.items())[:8])
        return [Curves("Kernel", few, "offset in sites", "weight", note=note)]
    panels = [
        (f"{part}{i} to {o}", values[i, o].numpy())
        for part, values in shown
        for i in range(channels)
        for o in range(channels)
    ][:8]
    stack = np.stack([p for _, p in panels])
    names = [n for n, _ in panels]
    return [Heatmap("Kernel", stack, scale="diverging", note=note, panels=names)]


def norm_view(norms: Array, start: int, title: str, note: str) -> Curves:
    """Norms of states over time, relative to the first: (T,)."""
    first = norms[0] if norms[0] > 0 else 1.0
    steps = [float(start + i) for i in range(len(norms))]
    series = {
        "norm of the state": (steps, (norms / first).tolist()),
        "kept exactly": (steps, [1.0] * len(steps)),
    }
    return Curves(
        title, series, "step", "relative to the first", note=note, muted=("kept exactly",)
    )


def lattice_views(model: nn.Module, free: int = 200) -> list[Exhibit]:
    """Views of a sequence model with a recurrence on a lattice (`rnn`); else nothing.

    Args:
        model: Any sequence model.
        free: Steps of the free run whose norm is shown.
    """
    rnn = getattr(model, "rnn", None)
    if not isinstance(rnn, ConvUnitaryRNN | ConvOrthogonalRNN):
        return []
    complex_fields = isinstance(rnn, ConvUnitaryRNN)
    like = rnn.conv.weight.detach()
    if complex_fields:
        like = torch.complex(like, like)
    views: list[Exhibit] = []
    if rnn.channels * rnn.channels * int(np.prod(rnn.size)) <= _LARGEST:
        kernel = impulse_response(rnn.conv, rnn.channels, rnn.size, like)
        assert kernel is not None
        views += transition_views(kernel, "the trained transition, one step")
    return [*views, _free_norm(rnn, like, free)]


def _free_norm(rnn: ConvUnitaryRNN | ConvOrthogonalRNN, like: Tensor, steps: int) -> Curves:
    """The norm over a free run from a random state: what transition and activation keep."""
    generator = torch.Generator().manual_seed(0)
    shape = (1, rnn.channels, *rnn.size)
    start = torch.randn(shape, generator=generator, dtype=like.dtype).to(like.device)
    norms = [float(start.norm())]
    with torch.no_grad():
        operator = rnn.conv.operator(rnn.size)
        for _ in range(steps):
            start = rnn.activation(operator(start))
            norms.append(float(start.norm()))
    name = type(rnn.activation).__name__
    note = f"A random state, no input; activation: {name}. The transition alone keeps every norm."
    return norm_view(np.array(norms), 0, "Norm over time", note)
