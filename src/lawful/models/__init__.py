"""Whole networks that tasks train."""

from lawful.models._attention import AttentiveLSTMConfig as AttentiveLSTMConfig
from lawful.models._attention import AttentiveLSTMModel as AttentiveLSTMModel
from lawful.models._common import valid_steps as valid_steps
from lawful.models._parser import BiaffineParser as BiaffineParser
from lawful.models._parser import LocalParserConfig as LocalParserConfig
from lawful.models._parser import ParserScores as ParserScores
from lawful.models._parser import ParserStates as ParserStates
from lawful.models._parser import TreeParserConfig as TreeParserConfig
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
from lawful.models._words import WordEncoder as WordEncoder
from lawful.models._words import WordEncoderConfig as WordEncoderConfig

__all__ = [
    "SEQUENCE_MODELS",
    "AttentiveLSTMConfig",
    "AttentiveLSTMModel",
    "BiaffineParser",
    "CRFTaggerConfig",
    "Carried",
    "InputSpec",
    "LSTMConfig",
    "LSTMModel",
    "LocalParserConfig",
    "OutputSpec",
    "ParserScores",
    "ParserStates",
    "Recalling",
    "SABModel",
    "SABModelConfig",
    "SimpleTransducerConfig",
    "SoftmaxTaggerConfig",
    "Streaming",
    "TagScores",
    "Tagger",
    "TransducerConfig",
    "TransducerModel",
    "TransformerConfig",
    "TransformerModel",
    "TreeParserConfig",
    "TreeTransducerConfig",
    "TruncatedLSTMConfig",
    "TruncatedLSTMModel",
    "WordEncoder",
    "WordEncoderConfig",
    "beam_search",
    "build_sequence_model",
    "valid_steps",
]
