"""Convolutional exponentials, and layers and recurrences made of them."""

from lawful.unitary._activations import ACTIVATIONS as ACTIVATIONS
from lawful.unitary._activations import Activation as Activation
from lawful.unitary._activations import Fold as Fold
from lawful.unitary._activations import Identity as Identity
from lawful.unitary._activations import ModReLU as ModReLU
from lawful.unitary._activations import PhaseTwist as PhaseTwist
from lawful.unitary._activations import SoftNorm as SoftNorm
from lawful.unitary._activations import SplitReLU as SplitReLU
from lawful.unitary._functions import conv_apply as conv_apply
from lawful.unitary._functions import conv_cos as conv_cos
from lawful.unitary._functions import conv_exp as conv_exp
from lawful.unitary._functions import conv_function as conv_function
from lawful.unitary._functions import conv_sin as conv_sin
from lawful.unitary._functions import symbol as symbol
from lawful.unitary._gain import gradient_gain as gradient_gain
from lawful.unitary._lattice import antihermitian as antihermitian
from lawful.unitary._lattice import antisymmetric as antisymmetric
from lawful.unitary._lattice import from_antihermitian as from_antihermitian
from lawful.unitary._laws import CONVOLUTION_LAWS as CONVOLUTION_LAWS
from lawful.unitary._laws import RECURRENCE_LAWS as RECURRENCE_LAWS
from lawful.unitary._layers import OrthogonalConv as OrthogonalConv
from lawful.unitary._layers import UnitaryConv as UnitaryConv
from lawful.unitary._recurrent import ConvOrthogonalRNN as ConvOrthogonalRNN
from lawful.unitary._recurrent import ConvUnitaryRNN as ConvUnitaryRNN
from lawful.unitary._reversible import ReversalError as ReversalError
from lawful.unitary._support import support_radius as support_radius
from lawful.unitary._xp import xp_kernels as xp_kernels

__all__ = [
    "ACTIVATIONS",
    "CONVOLUTION_LAWS",
    "RECURRENCE_LAWS",
    "Activation",
    "ConvOrthogonalRNN",
    "ConvUnitaryRNN",
    "Fold",
    "Identity",
    "ModReLU",
    "OrthogonalConv",
    "PhaseTwist",
    "ReversalError",
    "SoftNorm",
    "SplitReLU",
    "UnitaryConv",
    "antihermitian",
    "antisymmetric",
    "conv_apply",
    "conv_cos",
    "conv_exp",
    "conv_function",
    "conv_sin",
    "from_antihermitian",
    "gradient_gain",
    "support_radius",
    "symbol",
    "xp_kernels",
]
