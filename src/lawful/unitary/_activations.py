"""Activations for norm-preserving recurrences, each with what it does to gradients declared.

A unitary kernel keeps the norm of gradients only if the activation does too: with an exactly
unitary kernel, 1000 steps multiply gradients by 1 for the fold, by 0.03 for z/sqrt(1+|z|^2) and by
1e83 for a rotation by an angle that depends on |z|, although that one keeps the norm of states.

Fields are complex, or real with an even number of channels, X layers first: then X is read as the
imaginary and P as the real part.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lawful.errors import expected
from lawful.kernels.softnorm import softnorm

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "Fold",
    "Identity",
    "ModReLU",
    "PhaseTwist",
    "SoftNorm",
    "SplitReLU",
    "activation_of",
]


def parts(z: Tensor) -> tuple[Tensor, Tensor]:
    """Real and imaginary part; of real fields the P and the X half of the channels."""
    if z.is_complex():
        return z.real, z.imag
    if z.shape[1] % 2:
        raise expected("channels", "an even number (X and P) for this activation", z.shape[1])
    x, p = z.chunk(2, dim=1)
    return p, x


def joined(real: Tensor, imag: Tensor, like: Tensor) -> Tensor:
    """Inverse of `parts`."""
    return torch.complex(real, imag) if like.is_complex() else torch.cat([imag, real], dim=1)


def scaled(z: Tensor, factor: Tensor) -> Tensor:
    """Z times a real factor per site that has the shape of `parts`."""
    return z * factor if z.is_complex() else z * torch.cat([factor, factor], dim=1)


class Activation(nn.Module):
    """What a recurrence needs to know of its activation.

    Attributes:
        invertible: Whether `undo` exists.
        isometric: Whether the Jacobian keeps the norm of every gradient; reversal then loses
            only rounding.
        gain: Measured norm of dL/dz_0 over that of dL/dz_T at T = 10, 100, 1000 (`gradient_gain`
            with its defaults); None where it depends on a parameter.
    """

    invertible: ClassVar[bool] = False
    isometric: ClassVar[bool] = False
    gain: ClassVar[tuple[float, float, float] | None] = None

    def tensors(self) -> tuple[Tensor, ...]:
        """Learned tensors that `run` takes."""
        return ()

    def branch(self, z: Tensor) -> Tensor | None:
        """One bit per site that `undo` needs, or None."""
        return None

    def run(self, z: Tensor, tensors: tuple[Tensor, ...], branch: Tensor | None = None) -> Tensor:
        """Applies it; ``branch`` fixes the side on which it acts (see `branch`)."""
        raise NotImplementedError

    def undo(self, y: Tensor, tensors: tuple[Tensor, ...], branch: Tensor | None) -> Tensor:
        """The argument that `run` maps to ``y``."""
        raise expected("activation", "an invertible one", type(self).__name__)

    def forward(self, z: Tensor) -> Tensor:
        r"""Applies it to a field (B, C, \*size)."""
        return self.run(z, self.tensors())


class Identity(Activation):
    """No activation: the recurrence is linear and can stay in Fourier space."""

    invertible, isometric, gain = True, True, (1.0, 1.0, 1.0)

    def run(self, z: Tensor, tensors: tuple[Tensor, ...], branch: Tensor | None = None) -> Tensor:
        """Z."""
        return z

    def undo(self, y: Tensor, tensors: tuple[Tensor, ...], branch: Tensor | None) -> Tensor:
        """Y."""
        return y


class _Swap(torch.autograd.Function):
    """Exchanges real and imaginary part where a bit is set; its own adjoint."""

    @staticmethod
    def forward(z: Tensor, side: Tensor) -> Tensor:
        return torch.where(side, z.conj() * 1j, z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (side,) = ctx.saved_tensors
        return _Swap.apply(g, side), None  # type: ignore[no-untyped-call]


class Fold(Activation):
    """(Re, Im) -> (max, min): folds the plane along its diagonal; one bit tells the side.

    The Jacobian is a permutation, so norms of states and gradients are kept exactly.
    """

    invertible, isometric, gain = True, True, (1.0, 1.0, 1.0)

    def branch(self, z: Tensor) -> Tensor:
        """Whether the parts change places."""
        real, imag = parts(z)
        return real < imag

    def run(self, z: Tensor, tensors: tuple[Tensor, ...], branch: Tensor | None = None) -> Tensor:
        """Larger part first."""
        side = self.branch(z) if branch is None else branch
        if z.is_complex():
            out: Tensor = _Swap.apply(z, side)  # type: ignore[no-untyped-call]
            return out
        real, imag = parts(z)
        return joined(torch.where(side, imag, real), torch.where(side, real, imag), z)

    def undo(self, y: Tensor, tensors: tuple[Tensor, ...], branch: Tensor | None) -> Tensor:
        """Swaps back where the bit is set."""
        return self.run(y, tensors, branch)


class SoftNorm(Activation):
    """z / sqrt(1 + |z|^2): bounded, invertible, but gradients shrink."""

    invertible, gain = True, (0.285, 0.0896, 0.0282)

    def run(self, z: Tensor, tensors: tuple[Tensor, ...], branch: Tensor | None = None) -> Tensor:
        """Into the open unit disc."""
        if z.is_complex():
            return softnorm(z)
        real, imag = parts(z)
        return scaled(z, (1 + real.square() + imag.square()).rsqrt())

    def undo(self, y: Tensor, tensors: tuple[Tensor, ...], branch: Tensor | None) -> Tensor:
        """Y / sqrt(1 - |y|^2)."""
        real, imag = parts(y)
        return scaled(y, (1 - real.square() - imag.square()).rsqrt())


class ModReLU(Activation):
    """relu(|z| + b) z/|z| with a learned b: invertible while b >= 0, a dead disc for b < 0.

    Inside |z| < 1e-6 the modulus in the quotient is held at 1e-6, so that value and gradient are
    finite at 0, where a state starts.

    Args:
        bias: Initial b.
        device: Where b lives.
        dtype: Its real dtype.
    """

    invertible = True
    floor = 1e-6

    def __init__(
        self,
        bias: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.tensor(float(bias), device=device, dtype=dtype))

    def tensors(self) -> tuple[Tensor, ...]:
        """(b,)."""
        return (self.bias,)

    def run(self, z: Tensor, tensors: tuple[Tensor, ...], branch: Tensor | None = None) -> Tensor:
        """Moves the modulus by b."""
        real, imag = parts(z)
        modulus = (real.square() + imag.square()).clamp_min(self.floor**2).sqrt()
        return scaled(z, torch.relu(modulus + tensors[0]) / modulus)

    def undo(self, y: Tensor, tensors: tuple[Tensor, ...], branch: Tensor | None) -> Tensor:
        """Moves it back."""
        bias = float(tensors[0].detach())
        if bias < 0:
            raise expected("bias", "b >= 0 to undo modReLU", bias, "a disc is lost")
        real, imag = parts(y)
        modulus = (real.square() + imag.square()).sqrt()
        inner = self.floor / (self.floor + tensors[0])
        outer = (modulus - tensors[0]) / modulus.clamp_min(1e-30)
        return scaled(y, torch.where(modulus > self.floor + tensors[0], outer, inner))


class PhaseTwist(Activation):
    """z exp(2 i |z|^2/(1 + |z|^2)): keeps every norm of a state, yet its gradients explode."""

    invertible, gain = True, (6.03, 1.81e8, 1.55e83)

    def _turn(self, z: Tensor, sign: float) -> Tensor:
        real, imag = parts(z)
        square = real.square() + imag.square()
        angle = 2 * sign * square / (1 + square)
        cos, sin = torch.cos(angle), torch.sin(angle)
        return joined(real * cos - imag * sin, real * sin + imag * cos, z)

    def run(self, z: Tensor, tensors: tuple[Tensor, ...], branch: Tensor | None = None) -> Tensor:
        """Turns by an angle that depends on the modulus."""
        return self._turn(z, 1.0)

    def undo(self, y: Tensor, tensors: tuple[Tensor, ...], branch: Tensor | None) -> Tensor:
        """Turns back: the modulus is unchanged."""
        return self._turn(y, -1.0)


class SplitReLU(Activation):
    """relu of real and imaginary part: not invertible; gradients vanish."""

    gain = (0.247, 1.37e-4, 6.41e-46)

    def run(self, z: Tensor, tensors: tuple[Tensor, ...], branch: Tensor | None = None) -> Tensor:
        """Into the first quadrant."""
        return torch.complex(z.real.relu(), z.imag.relu()) if z.is_complex() else z.relu()


ACTIVATIONS: dict[str, type[Activation]] = {
    "identity": Identity,
    "fold": Fold,
    "modrelu": ModReLU,
    "softnorm": SoftNorm,
    "phase_twist": PhaseTwist,
    "split_relu": SplitReLU,
}


def activation_of(which: str | Activation) -> Activation:
    """An activation by name, or the given one."""
    if isinstance(which, Activation):
        return which
    if which not in ACTIVATIONS:
        raise expected("activation", f"one of {sorted(ACTIVATIONS)}", repr(which))
    return ACTIVATIONS[which]()
