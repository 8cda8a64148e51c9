"""Energies of tokens, and blocks that settle in them."""

from lawful.energy._attention import EnergyAttention as EnergyAttention
from lawful.energy._block import EnergyBlock as EnergyBlock
from lawful.energy._edges import Edges as Edges
from lawful.energy._graph_attention import GraphEnergyAttention as GraphEnergyAttention
from lawful.energy._graph_laws import GRAPH_LAWS as GRAPH_LAWS
from lawful.energy._graph_transformer import GraphEnergyTransformer as GraphEnergyTransformer
from lawful.energy._hopfield import ConvexPotential as ConvexPotential
from lawful.energy._hopfield import HopfieldNetwork as HopfieldNetwork
from lawful.energy._laws import TRANSFORMER_LAWS as TRANSFORMER_LAWS
from lawful.energy._norm import EnergyLayerNorm as EnergyLayerNorm
from lawful.energy._published import PublishedImageModel as PublishedImageModel
from lawful.energy._published import load_published as load_published
from lawful.energy._terms import EnergyTerm as EnergyTerm
from lawful.energy._transformer import EnergyTransformer as EnergyTransformer
from lawful.energy._transformer import Settled as Settled

__all__ = [
    "GRAPH_LAWS",
    "TRANSFORMER_LAWS",
    "ConvexPotential",
    "Edges",
    "EnergyAttention",
    "EnergyBlock",
    "EnergyLayerNorm",
    "EnergyTerm",
    "EnergyTransformer",
    "GraphEnergyAttention",
    "GraphEnergyTransformer",
    "HopfieldNetwork",
    "PublishedImageModel",
    "Settled",
    "load_published",
]
