"""Recurrences whose transition is a unitary or orthogonal convolution."""

from lawful.unitary._layers import OrthogonalConv, UnitaryConv
from lawful.unitary._recurrence import ConvRNN

__all__ = ["ConvOrthogonalRNN", "ConvUnitaryRNN"]


class ConvUnitaryRNN(ConvRNN):
    """z_n = phi(e^A z_{n-1} + I_n) on complex fields, A an anti-Hermitian convolution kernel.

    The exponential is computed once per call, however long the sequence; with the identity the
    whole recurrence stays in Fourier space. The linear part keeps the norm of states and gradients
    exactly; the activation decides what is left of that (see `Activation.gain`).

    Args:
        input_size: Features D, or channels of input fields.
        size: The lattice. With ``input_map="field"`` or "direct" and no readout, each call may
            bring another one.
        channels: C; 1 by default.
        kernel_size: Taps of A, odd.
        activation: "identity", "fold", "softnorm" (the author's later choice), "modrelu",
            "phase_twist", "split_relu", or an `Activation`.
        input_map: "profile": every feature excites a learned pattern; "field": a field of
            features, mixed site by site; "direct": the input is added as it is.
        output_size: Number of real features read from the state by learned profiles; None: the
            states themselves are the output.
        memory: "store": ordinary back-propagation. "reverse": steps are undone in the backward
            pass, so that memory does not grow with the states of the sequence; the activation
            must be invertible, and isometric unless ``window`` is given.
        window: With "reverse", keep every so many states.
        reverse_tolerance: Largest relative error of an undone state before backward refuses.
        scan: How a linear recurrence runs: "loop", "frame" (running sum in the rotating frame,
            most accurate), or "auto" (frame from 1024 steps on, where it is possible).
        batch_first: Whether the batch comes before time.
        boundary: As in `UnitaryConv`, as are ``mixing``, ``even`` and ``gain``.
        mixing: Whether channels mix.
        even: Kernels even along each axis.
        gain: Scale of the initial phases.
        device: Where the parameters live.
        dtype: Real dtype of the parameters.

    Source: Magnasco 2023 (arXiv 2302.07396), equation 1.4. Departures: channels, boundaries, and
        readout; inputs by profiles.
    """

    _kind, _channels = UnitaryConv, 1


class ConvOrthogonalRNN(ConvRNN):
    """(X, P)_n = phi(e^B (X, P)_{n-1} + I_n) on real fields, B an antisymmetric kernel.

    The real counterpart of `ConvUnitaryRNN`: layers X and P rotate into each other, as position
    and momentum of a wave do. One X and one P channel (or ``mixing=False``) run as one complex
    field P + iX, with one complex FFT for both.

    Args:
        input_size: As in `ConvUnitaryRNN`.
        size: The lattice.
        channels: M, X layers first, then P; 2 by default.
        kernel_size: Taps, odd.
        form: "full", "pair" or "symmetric", as in `OrthogonalConv`.
        split: (X channels, P channels).
        activation: As in `ConvUnitaryRNN`; all but the identity need an even number of channels.
        input_map: As in `ConvUnitaryRNN`.
        output_size: Likewise.
        memory: Likewise.
        window: Likewise.
        reverse_tolerance: Likewise.
        scan: Likewise.
        batch_first: Likewise.
        device: Where the parameters live.
        dtype: Dtype of the parameters.
        conv: Further arguments of `OrthogonalConv`.

    Source: Magnasco 2023 (arXiv 2302.07396), equation 1.5. Departures: inputs may drive P as
        well; one activation acts on X and P together; general kernels.
    """

    _kind, _channels = OrthogonalConv, 2
