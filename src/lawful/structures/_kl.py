"""Registers the divergence of two distributions of one family with torch.distributions."""

from typing import cast

from torch import Tensor
from torch.distributions import register_kl

from lawful.structures._distribution import StructuredDistribution


def _kl(p: StructuredDistribution, q: StructuredDistribution) -> Tensor:
    """KL(p || q) = cross-entropy - entropy."""
    return (p.cross_entropy(q) - cast(Tensor, p.entropy())).clamp(min=0)


register_kl(StructuredDistribution, StructuredDistribution)(_kl)  # type: ignore[no-untyped-call]
