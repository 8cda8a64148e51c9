"""Distributions over discrete structures; attention weights are their marginals."""

from lawful.structures._categorical import Bernoulli as Bernoulli
from lawful.structures._categorical import Categorical as Categorical
from lawful.structures._distribution import StructuredDistribution as StructuredDistribution

__all__ = ["Bernoulli", "Categorical", "StructuredDistribution"]
