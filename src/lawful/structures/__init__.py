"""Distributions over discrete structures; attention weights are their marginals."""

from lawful.structures._categorical import Bernoulli as Bernoulli
from lawful.structures._categorical import Categorical as Categorical
from lawful.structures._chain import ChainParts as ChainParts
from lawful.structures._chain import LinearChain as LinearChain
from lawful.structures._dependency import ProjectiveTree as ProjectiveTree
from lawful.structures._dependency import SpanningTree as SpanningTree
from lawful.structures._dependency import marginalise_labels as marginalise_labels
from lawful.structures._distribution import StructuredDistribution as StructuredDistribution

__all__ = [
    "Bernoulli",
    "Categorical",
    "ChainParts",
    "LinearChain",
    "ProjectiveTree",
    "SpanningTree",
    "StructuredDistribution",
    "marginalise_labels",
]
