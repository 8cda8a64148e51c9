"""Whole networks that tasks train."""

from lawful.models._attention import AttentiveLSTMConfig as AttentiveLSTMConfig
from lawful.models._attention import AttentiveLSTMModel as AttentiveLSTMModel
from lawful.models._common import valid_steps as valid_steps
from lawful.models._entailment import EntailmentConfig as EntailmentConfig
from lawful.models._entailment import EntailmentModel as EntailmentModel
from lawful.models._entailment import HardParentEntailmentConfig as HardParentEntailmentConfig
from lawful.models._entailment import ParsedEntailmentConfig as ParsedEntailmentConfig
from lawful.models._entailment import SentencePair as SentencePair
from lawful.models._entailment import SimpleEntailmentConfig as SimpleEntailmentConfig
from lawful.models._entailment import TreeEntailmentConfig as TreeEntailmentConfig
from lawful.models._fact_networks import BinaryChainConfig as BinaryChainConfig
from lawful.models._fact_networks import MemoryNetworkConfig as MemoryNetworkConfig
from lawful.models._fact_networks import ReaderConfig as ReaderConfig
from lawful.models._fact_networks import Reading as Reading
from lawful.models._fact_networks import UnaryChainConfig as UnaryChainConfig
from lawful.models._field_configs import FieldSpec as FieldSpec
from lawful.models._fields import FIELD_MODELS as FIELD_MODELS
from lawful.models._fields import Forecaster as Forecaster
from lawful.models._fields import build_forecaster as build_forecaster
from lawful.models._graph_classifiers import EnergyGraphConfig as EnergyGraphConfig
from lawful.models._graph_classifiers import EnergyGraphModel as EnergyGraphModel
from lawful.models._graph_classifiers import GCNConfig as GCNConfig
from lawful.models._graph_classifiers import GINConfig as GINConfig
from lawful.models._graph_classifiers import Graphs as Graphs
from lawful.models._graph_classifiers import GraphSpec as GraphSpec
from lawful.models._graph_classifiers import build_graph_model as build_graph_model
from lawful.models._graph_layers import BetaWavelets as BetaWavelets
from lawful.models._inpainter import Completion as Completion
from lawful.models._inpainter import EnergyInpainter as EnergyInpainter
from lawful.models._inpainter import Inpainter as Inpainter
from lawful.models._inpainter import ViTInpainter as ViTInpainter
from lawful.models._inpainter import build_inpainter as build_inpainter
from lawful.models._inpainter_config import EnergyInpainterConfig as EnergyInpainterConfig
from lawful.models._inpainter_config import PatchSpec as PatchSpec
from lawful.models._inpainter_config import TiedViTInpainterConfig as TiedViTInpainterConfig
from lawful.models._inpainter_config import ViTInpainterConfig as ViTInpainterConfig
from lawful.models._node_configs import EnergyNodeConfig as EnergyNodeConfig
from lawful.models._node_configs import GATNodeConfig as GATNodeConfig
from lawful.models._node_configs import GCNNodeConfig as GCNNodeConfig
from lawful.models._node_configs import LayeredNodeConfig as LayeredNodeConfig
from lawful.models._node_configs import MLPNodeConfig as MLPNodeConfig
from lawful.models._node_configs import NodeSpec as NodeSpec
from lawful.models._node_configs import PublishedEnergyNodeConfig as PublishedEnergyNodeConfig
from lawful.models._node_configs import SAGENodeConfig as SAGENodeConfig
from lawful.models._node_configs import WaveletNodeConfig as WaveletNodeConfig
from lawful.models._node_scorers import NODE_MODELS as NODE_MODELS
from lawful.models._node_scorers import EnergyNodeScorer as EnergyNodeScorer
from lawful.models._node_scorers import NodeScorer as NodeScorer
from lawful.models._node_scorers import Reasons as Reasons
from lawful.models._node_scorers import build_node_scorer as build_node_scorer
from lawful.models._parser import BiaffineParser as BiaffineParser
from lawful.models._parser import LocalParserConfig as LocalParserConfig
from lawful.models._parser import ParserScores as ParserScores
from lawful.models._parser import ParserStates as ParserStates
from lawful.models._parser import TreeParserConfig as TreeParserConfig
from lawful.models._reader import FactReader as FactReader
from lawful.models._recurrent import LSTMConfig as LSTMConfig
from lawful.models._recurrent import LSTMModel as LSTMModel
from lawful.models._recurrent import TruncatedLSTMConfig as TruncatedLSTMConfig
from lawful.models._recurrent import TruncatedLSTMModel as TruncatedLSTMModel
from lawful.models._registry import SEQUENCE_MODELS as SEQUENCE_MODELS
from lawful.models._registry import build_sequence_model as build_sequence_model
from lawful.models._sab import Recalling as Recalling
from lawful.models._sab import SABModel as SABModel
from lawful.models._sab import SABModelConfig as SABModelConfig
from lawful.models._search import beam_search as beam_search
from lawful.models._specs import Carried as Carried
from lawful.models._specs import InputSpec as InputSpec
from lawful.models._specs import OutputSpec as OutputSpec
from lawful.models._specs import Streaming as Streaming
from lawful.models._tagger import CRFTaggerConfig as CRFTaggerConfig
from lawful.models._tagger import SoftmaxTaggerConfig as SoftmaxTaggerConfig
from lawful.models._tagger import Tagger as Tagger
from lawful.models._tagger import TagScores as TagScores
from lawful.models._transducer import SimpleTransducerConfig as SimpleTransducerConfig
from lawful.models._transducer import TransducerConfig as TransducerConfig
from lawful.models._transducer import TransducerModel as TransducerModel
from lawful.models._transducer import TreeTransducerConfig as TreeTransducerConfig
from lawful.models._transformer import TransformerConfig as TransformerConfig
from lawful.models._transformer import TransformerModel as TransformerModel
from lawful.models._translator import (
    SegmentationTranslatorConfig as SegmentationTranslatorConfig,
)
from lawful.models._translator import SigmoidTranslatorConfig as SigmoidTranslatorConfig
from lawful.models._translator import TranslatorConfig as TranslatorConfig
from lawful.models._translator import TranslatorModel as TranslatorModel
from lawful.models._unitary import ActivationName as ActivationName
from lawful.models._unitary import ConvOrthogonalConfig as ConvOrthogonalConfig
from lawful.models._unitary import ConvUnitaryConfig as ConvUnitaryConfig
from lawful.models._unitary import ConvUnitaryModel as ConvUnitaryModel
from lawful.models._unitary import Form as Form
from lawful.models._unitary import RasterModel as RasterModel
from lawful.models._weisfeiler import WLConfig as WLConfig
from lawful.models._weisfeiler import WLModel as WLModel
from lawful.models._weisfeiler import histogram as histogram
from lawful.models._weisfeiler import refine as refine
from lawful.models._words import WordEncoder as WordEncoder
from lawful.models._words import WordEncoderConfig as WordEncoderConfig

__all__ = [
    "FIELD_MODELS",
    "NODE_MODELS",
    "SEQUENCE_MODELS",
    "ActivationName",
    "AttentiveLSTMConfig",
    "AttentiveLSTMModel",
    "BetaWavelets",
    "BiaffineParser",
    "BinaryChainConfig",
    "CRFTaggerConfig",
    "Carried",
    "Completion",
    "ConvOrthogonalConfig",
    "ConvUnitaryConfig",
    "ConvUnitaryModel",
    "EnergyGraphConfig",
    "EnergyGraphModel",
    "EnergyInpainter",
    "EnergyInpainterConfig",
    "EnergyNodeConfig",
    "EnergyNodeScorer",
    "EntailmentConfig",
    "EntailmentModel",
    "FactReader",
    "FieldSpec",
    "Forecaster",
    "Form",
    "GATNodeConfig",
    "GCNConfig",
    "GCNNodeConfig",
    "GINConfig",
    "GraphSpec",
    "Graphs",
    "HardParentEntailmentConfig",
    "Inpainter",
    "InputSpec",
    "LSTMConfig",
    "LSTMModel",
    "LayeredNodeConfig",
    "LocalParserConfig",
    "MLPNodeConfig",
    "MemoryNetworkConfig",
    "NodeScorer",
    "NodeSpec",
    "OutputSpec",
    "ParsedEntailmentConfig",
    "ParserScores",
    "ParserStates",
    "PatchSpec",
    "PublishedEnergyNodeConfig",
    "RasterModel",
    "ReaderConfig",
    "Reading",
    "Reasons",
    "Recalling",
    "SABModel",
    "SABModelConfig",
    "SAGENodeConfig",
    "SegmentationTranslatorConfig",
    "SentencePair",
    "SigmoidTranslatorConfig",
    "SimpleEntailmentConfig",
    "SimpleTransducerConfig",
    "SoftmaxTaggerConfig",
    "Streaming",
    "TagScores",
    "Tagger",
    "TiedViTInpainterConfig",
    "TransducerConfig",
    "TransducerModel",
    "TransformerConfig",
    "TransformerModel",
    "TranslatorConfig",
    "TranslatorModel",
    "TreeEntailmentConfig",
    "TreeParserConfig",
    "TreeTransducerConfig",
    "TruncatedLSTMConfig",
    "TruncatedLSTMModel",
    "UnaryChainConfig",
    "ViTInpainter",
    "ViTInpainterConfig",
    "WLConfig",
    "WLModel",
    "WaveletNodeConfig",
    "WordEncoder",
    "WordEncoderConfig",
    "beam_search",
    "build_forecaster",
    "build_graph_model",
    "build_inpainter",
    "build_node_scorer",
    "build_sequence_model",
    "histogram",
    "refine",
    "valid_steps",
]
