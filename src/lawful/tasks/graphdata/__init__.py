"""Graphs from the user's files: tables, arrays, published formats, sets of labelled graphs."""

from lawful.tasks.graphdata._encode import Features as Features
from lawful.tasks.graphdata._generate import camouflaged_rings as camouflaged_rings
from lawful.tasks.graphdata._generate import write_tables as write_tables
from lawful.tasks.graphdata._load import ReadOptions as ReadOptions
from lawful.tasks.graphdata._load import load_graph as load_graph
from lawful.tasks.graphdata._network import Network as Network
from lawful.tasks.graphdata._network import connect as connect
from lawful.tasks.graphdata._raw import RawGraph as RawGraph
from lawful.tasks.graphdata._sample import Neighbourhood as Neighbourhood
from lawful.tasks.graphdata._sample import sample_neighbourhood as sample_neighbourhood

__all__ = [
    "Features",
    "Neighbourhood",
    "Network",
    "RawGraph",
    "ReadOptions",
    "camouflaged_rings",
    "connect",
    "load_graph",
    "sample_neighbourhood",
    "write_tables",
]
