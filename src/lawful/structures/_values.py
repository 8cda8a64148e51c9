"""What distributions hand out that is more than a tensor."""

from typing import Any, cast

import torch
from torch import Tensor
from torch.distributions import constraints

__all__ = ["CallableValue", "Support"]


class CallableValue(Tensor):
    """A plain tensor that may also be called, so that ``d.entropy`` and ``d.entropy()`` agree."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __call__(self) -> Tensor:
        """The plain tensor."""
        return self.as_subclass(Tensor)


class Support(constraints.Constraint):
    """The valid structures of a distribution, in integer form."""

    is_discrete = True

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self.event_dim = len(owner.event_shape)
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        """Which structures are valid."""
        return cast(Tensor, self._owner._is_valid(value))
