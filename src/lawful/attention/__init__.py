"""Attention layers whose weights are the marginals of a structure."""

from lawful.attention._chain import ChainAttention as ChainAttention
from lawful.attention._items import SegmentationAttention as SegmentationAttention
from lawful.attention._items import SigmoidAttention as SigmoidAttention
from lawful.attention._items import SoftmaxAttention as SoftmaxAttention
from lawful.attention._scores import BilinearScore as BilinearScore
from lawful.attention._scores import DotScore as DotScore
from lawful.attention._scores import MLPScore as MLPScore
from lawful.attention._syntactic import SyntacticAttention as SyntacticAttention

__all__ = [
    "BilinearScore",
    "ChainAttention",
    "DotScore",
    "MLPScore",
    "SegmentationAttention",
    "SigmoidAttention",
    "SoftmaxAttention",
    "SyntacticAttention",
]
