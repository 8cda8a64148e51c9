"""Distributions over discrete structures; attention weights are their marginals."""

from lawful.structures import _kl as _kl
from lawful.structures._alignment import HMM as HMM
from lawful.structures._alignment import Alignment as Alignment
from lawful.structures._categorical import Bernoulli as Bernoulli
from lawful.structures._categorical import Categorical as Categorical
from lawful.structures._chain import ChainParts as ChainParts
from lawful.structures._chain import LinearChain as LinearChain
from lawful.structures._constituency import ConstituencyTree as ConstituencyTree
from lawful.structures._dependency import ProjectiveTree as ProjectiveTree
from lawful.structures._dependency import SpanningTree as SpanningTree
from lawful.structures._dependency import TreeParts as TreeParts
from lawful.structures._distribution import StructuredDistribution as StructuredDistribution
from lawful.structures._labels import marginalise_labels as marginalise_labels
from lawful.structures._laws import STRUCTURE_LAWS as STRUCTURE_LAWS
from lawful.structures._semimarkov import SegmentParts as SegmentParts
from lawful.structures._semimarkov import SemiMarkov as SemiMarkov

__all__ = [
    "HMM",
    "STRUCTURE_LAWS",
    "Alignment",
    "Bernoulli",
    "Categorical",
    "ChainParts",
    "ConstituencyTree",
    "LinearChain",
    "ProjectiveTree",
    "SegmentParts",
    "SemiMarkov",
    "SpanningTree",
    "StructuredDistribution",
    "TreeParts",
    "marginalise_labels",
]
