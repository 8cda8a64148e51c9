"""Predict each character of a text from those before it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lawful.errors import InputError, expected
from lawful.models import (
    SEQUENCE_MODELS,
    AttentiveLSTMConfig,
    InputSpec,
    OutputSpec,
    SABModelConfig,
    TransformerConfig,
)
from lawful.tasks._base import Batch, Evaluation, MeanEvaluation, Source, Split
from lawful.tasks._sequence import SequenceTask
from lawful.tasks.charlm._grammar import PROPORTIONS, sample_text
from lawful.tasks.charlm._model import Carrier, LanguageModel, read
from lawful.tasks.charlm._sources import Pieces, Streams, Windows
from lawful.tasks.charlm._text import UNKNOWN, Alphabet, Codes, Form, read_texts
from lawful.tasks.exhibits import Exhibit

LN2 = math.log(2)


@dataclass(frozen=True)
class CharLMConfig:
    """How a text is cut and read, and how new text is drawn."""

    form: Form = "plain"
    """The text as it stands; "ptb-words": Penn Treebank's words, made into its characters (_ for a
    blank); "ptb-characters": the same ready made, a blank after each character."""
    window: int = 100
    """Characters predicted between two cuts of the gradient. The paper: 100 (Penn Treebank), 180
    (Text8)."""
    carry: Literal["never", "evaluation", "always"] = "always"
    """Whether a window starts with the state that the one before it left: never (the paper), in
    evaluation only, or in training too."""
    streams: int = 32
    """With --carry always: rows that the training text is cut into and read side by side. The
    batch size must divide it."""
    piece: int = 2000
    """Characters that are evaluated in one go with carried state; each piece starts afresh."""
    valid_share: float = 0.05
    """Share of one text that is for validation, ahead of the test part."""
    test_share: float = 0.05
    """Share of one text, its end, that is for testing."""
    min_count: int = 1
    """Characters seen less often in the training text are read as unknown."""
    sample_size: int = 200_000
    """Characters of the embedded training text, where no data is named."""
    sample_length: int = 300
    """Characters drawn after a prompt."""
    temperature: float = 0.8
    """Logits are divided by it before drawing; 0 always takes the likeliest character."""
    sample_seed: int = 0
    """Seed of the drawing."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        for name in ("window", "streams", "piece", "min_count", "sample_size"):
            if getattr(self, name) < 1:
                raise expected(name, "a whole number of at least 1", getattr(self, name))
        if self.sample_length < 0:
            raise expected("sample_length", "a whole number of at least 0", self.sample_length)
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise expected("temperature", "a finite number of at least 0", self.temperature)
        shares = (self.valid_share, self.test_share)
        if min(shares) <= 0 or sum(shares) >= 1:
            want = "shares above 0 with a sum below 1"
            raise expected("valid_share and test_share", want, shares)


@dataclass(frozen=True)
class CharSABConfig(SABModelConfig):
    """Recurrent network with sparse attentive backtracking, sized for text."""

    k_att: int = 5
    """Store the state after every so many steps."""
    k_trunc: int = 20
    """Steps between cuts of the gradient along the recurrence."""
    preset: Literal["paper", "authors", "release", "stable"] = "stable"
    """Settings to start from: the paper's, the authors' development code, the released code, or
    what trains most smoothly."""
    recall_scale: float | None = 0.2
    """Factor of the recalled state before it is added; below 1 bounds the state's growth."""
    max_memories: int | None = 40
    """Most memories kept; the oldest leave first."""


@dataclass(frozen=True)
class CharAttentiveLSTMConfig(AttentiveLSTMConfig):
    """LSTM with dense softmax attention over past states, full backpropagation in a window."""

    context: int = 100
    """Earlier states kept where a sequence is read in pieces; 0 keeps all."""


@dataclass(frozen=True)
class CharTransformerConfig(TransformerConfig):
    """Causal Transformer."""

    causal: bool = True
    """Let a step see only itself and earlier steps."""
    context: int = 100
    """Earlier steps read again where a sequence is read in pieces (causal only); 0 for all."""


class CharLMTask(SequenceTask[CharLMConfig]):
    """Predict each character of a text from those before it."""

    name = "charlm"
    summary = "predict the next character of a text, and write more of it"
    data_help = (
        "a UTF-8 text file (plain or .gz), cut 90/5/5, or a folder with one file each for train, "
        "valid and test; without: pseudo-English of a small grammar"
    )
    Config = CharLMConfig
    models: ClassVar[Mapping[str, type[Any]]] = {
        # The lattice models do not read a stream in pieces.
        **{k: v for k, v in SEQUENCE_MODELS.items() if not k.startswith("conv-")},
        "lstm-attention": CharAttentiveLSTMConfig,
        "transformer": CharTransformerConfig,
        "sab": CharSABConfig,
    }
    metric = "bpc"
    higher_is_better = False
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "steps": 1000,
        "batch_size": 32,
        "lr": 3e-3,
        "schedule": "cosine",
        "warmup": 50,
        "eval_every": 250,
        "checkpoint_every": 250,
    }

    texts: Mapping[str, str]
    codes: Mapping[str, Codes]
    alphabet: Alphabet

    def __init__(self, config: CharLMConfig, seed: int = 0, data: Path | None = None) -> None:
        super().__init__(config, seed, data)
        self._carrier = Carrier()
        self._restored = False

    def load(self) -> None:
        """Reads the text, and takes the alphabet from its training part (unless restored)."""
        c = self.config
        if self.data is None:
            sizes = {part: round(share * c.sample_size) for part, share in PROPORTIONS.items()}
            self.texts = {part: sample_text(part, size) for part, size in sizes.items()}
        else:
            self.texts = read_texts(self.data, c.form, c.valid_share, c.test_share)
        if not self._restored:
            self._set_alphabet(Alphabet.of(self.texts["train"], c.min_count))
        self.codes = {part: self.alphabet.encode(text) for part, text in self.texts.items()}

    def _set_alphabet(self, alphabet: Alphabet) -> None:
        if not alphabet.characters:
            want = f"a character that occurs at least {self.config.min_count} times"
            raise expected("training text", want, "none")
        self.alphabet = alphabet

    def source(self, split: Split) -> Source:
        """Windows or streams of the training text, pieces of the others."""
        c, codes = self.config, self.codes[split]
        if split == "train":
            if c.carry == "always":
                return Streams(codes, c.window, c.streams)
            return Windows(codes, c.window)
        return Pieces(codes, c.window if c.carry == "never" else c.piece, split)

    def inputs(self) -> InputSpec:
        """Codes of characters."""
        return InputSpec("tokens", len(self.alphabet))

    def outputs(self) -> OutputSpec:
        """One logit a character, at each step."""
        return OutputSpec(len(self.alphabet), per_step=True)

    def build(self, model: Any) -> nn.Module:
        """A fresh language model.

        Raises:
            InputError: For a Transformer that is not causal.
        """
        return LanguageModel(super().build(model))

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean cross-entropy of a character in nats; "bpc" is the same in bits."""
        carried = "row" in batch
        state = self._carrier.take(batch) if carried else ()
        logits, state = model(batch["x"], *state)
        if carried and model.training:
            self._carrier.keep(batch, state)
        loss = cross_entropy(logits.flatten(0, 1), batch["y"].flatten())
        return loss, {"bpc": loss.detach() / LN2}

    def evaluation(self) -> Evaluation:
        """Bits per character ("bpc"), nats ("loss"), accuracy and the share of unknown ones.

        bpc = -(1/N) sum_i log2 p(c_i | c_1 .. c_{i-1}) over all N characters of the split but its
        first; ends of lines count like any other, and an unknown character costs what the model
        gives to "unknown".
        """
        window = self.config.window
        return MeanEvaluation(lambda model, batch: _measure(model, batch, window))

    def baselines(self) -> dict[str, float]:
        """Test bits per character of guessing, and of counts of single characters and pairs."""
        size, train, test = len(self.alphabet), self.codes["train"], self.codes["test"]
        single = np.bincount(train, minlength=size) + 1.0
        pairs = np.zeros((size, size))
        np.add.at(pairs, (train[:-1], train[1:]), 1.0)
        # Counts of pairs lean on those of single characters: one pseudo-count for each context.
        chances = (pairs + single / single.sum()) / (pairs.sum(1, keepdims=True) + 1)
        return {
            "uniform": math.log2(size),
            "frequencies": float(-np.log2((single / single.sum())[test[1:]]).mean()),
            "pairs": float(-np.log2(chances[test[:-1], test[1:]]).mean()),
        }

    def exhibits(self, model: nn.Module, split: Split = "test") -> list[Exhibit]:
        """Written text, what characters cost, bits against context, recall and credit."""
        from lawful.tasks.charlm._exhibits import charlm_exhibits

        return charlm_exhibits(self, model, split)

    def predict(self, model: nn.Module, path: Path) -> Iterator[dict[str, Any]]:
        """Bits per character of each text file (or file of a folder), and how the model goes on."""
        from lawful.tasks.charlm._predict import predictions

        return predictions(self, model, path)

    def state(self) -> dict[str, Any]:
        """The alphabet."""
        return {"characters": self.alphabet.characters}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned."""
        try:
            characters = str(state["characters"])
        except KeyError as error:
            raise InputError(f"task state: expected an alphabet, got no {error}") from error
        self._set_alphabet(Alphabet(characters))
        self._restored = True

    def progress(self) -> dict[str, Any]:
        """What the rows of text were left with."""
        return self._carrier.state()

    def load_progress(self, state: dict[str, Any]) -> None:
        """Restores what `progress` returned."""
        self._carrier.load(state)


def _measure(model: nn.Module, batch: Batch, window: int) -> dict[str, tuple[Tensor, int]]:
    y = batch["y"]
    real = torch.arange(y.shape[1], device=y.device) < batch["lengths"][:, None]
    nats = torch.zeros((), dtype=torch.float64)
    hits = torch.zeros((), dtype=torch.int64)
    for start, logits in read(model, batch["x"], window):
        want, counts = (t[:, start : start + window] for t in (y, real))
        each = cross_entropy(logits.transpose(1, 2).float(), want, reduction="none")
        nats += each[counts].double().sum().cpu()
        hits += (logits.argmax(-1) == want)[counts].sum().cpu()
    count = int(real.sum())
    return {
        "loss": (nats, count),
        "bpc": (nats / LN2, count),
        "accuracy": (hits, count),
        "unknown": ((y[real] == UNKNOWN).sum(), count),
    }
