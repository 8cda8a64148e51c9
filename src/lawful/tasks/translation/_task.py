"""The task: parallel sentences, perplexity and BLEU, beam search."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lawful.errors import InputError, expected
from lawful.models import (
    SegmentationTranslatorConfig,
    SigmoidTranslatorConfig,
    TranslatorConfig,
    TranslatorModel,
)
from lawful.tasks._base import Batch, Evaluation, Split, Task
from lawful.tasks._lines import text_lines
from lawful.tasks._padding import padded
from lawful.tasks.exhibits import Exhibit
from lawful.tasks.translation._corpus import Corpus, read_corpus
from lawful.tasks.translation._numbers import pairs as number_names
from lawful.tasks.translation._vocabulary import END, PAD, SPECIAL, START, Vocabulary

__all__ = ["Sentences", "TranslationConfig", "TranslationTask", "corpus_bleu", "units"]

Unit = Literal["word", "char"]
SETTLED = 0.01  # a marginal this near to 0 or 1 hardly has a gradient any more
Tokens = tuple[list[str], list[str]]  # source, target
_NUMBERS: dict[Split, int] = {"train": 4000, "valid": 200, "test": 400}


@dataclass(frozen=True)
class TranslationConfig:
    """What is read from the files, and how it is cut into tokens."""

    source: str = ""
    """Ending of the source files, such as ja; needless for files of two columns."""
    target: str = ""
    """Ending of the target files, such as en."""
    source_unit: Unit = "char"
    """Read the source by characters (spaces removed) or by words (split at spaces)."""
    target_unit: Unit = "word"
    """Write the target by words or by characters."""
    min_count: int = 2
    """How often a token must occur in the training part to be known; others become <unk>."""
    max_source: int = 50
    """Longest source sentence in tokens; longer pairs are left out of every part, as in the
    paper. 0 keeps all."""
    max_target: int = 50
    """Longest target sentence in tokens; 0 keeps all."""
    max_train: int = 0
    """Use only this many training pairs, the first ones; 0 for all."""
    beam: int = 5
    """Width of the beam search, in evaluation and prediction; 1 is greedy search."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        for name in ("min_count", "beam"):
            if getattr(self, name) < 1:
                raise expected(name, "a whole number of at least 1", getattr(self, name))
        for name in ("max_source", "max_target", "max_train"):
            if getattr(self, name) < 0:
                raise expected(name, "a whole number of at least 0", getattr(self, name))


def units(text: str, unit: Unit) -> list[str]:
    """The tokens of a sentence: its characters without spaces, or what spaces separate."""
    return list("".join(text.split())) if unit == "char" else text.split()


class Sentences:
    """Sentence pairs of one part as padded batches."""

    endless = False

    def __init__(self, pairs: Sequence[Tokens], task: "TranslationTask", first: int) -> None:
        self.pairs = pairs
        self.task = task
        self.first = first  # place of the first one among the pairs of all parts
        # Batches of like length of both sides: that is what a step costs.
        self.lengths = np.array([len(s) + len(t) for s, t in pairs], np.int64)

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.pairs)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Tokens "source" (B, N), "target" (B, T) from <s> to </s>; "lengths" (B), "pair" (B)."""
        chosen = [self.pairs[i] for i in indices]
        source, target = self.task.source_words, self.task.target_words
        return {
            "source": padded([source.encode(s) for s, _ in chosen], PAD),
            "lengths": torch.tensor([len(s) for s, _ in chosen]),
            "target": padded([(START, *target.encode(t), END) for _, t in chosen], PAD),
            "pair": torch.as_tensor(indices) + self.first,
        }


class TranslationTask(Task[TranslationConfig]):
    """Translates sentences; trained on parallel text."""

    name = "translation"
    summary = "translate sentences, from characters or words"
    data_help = (
        "a folder or zip of train.SRC, train.TGT, dev.SRC, ... (with --source, --target), or a "
        ".tsv of two columns; without: numbers by name, English letters to French words"
    )
    Config = TranslationConfig
    models: ClassVar[Mapping[str, type[Any]]] = {
        "simple": TranslatorConfig,
        "sigmoid": SigmoidTranslatorConfig,
        "segmentation": SegmentationTranslatorConfig,
    }
    default_model = "segmentation"
    metric = "perplexity"
    higher_is_better = False
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "epochs": 12,
        "batch_size": 32,
        "lr": 3e-3,
        "schedule": "cosine",
        "warmup": 50,
        "clip": 1.0,
        "eval_every": 250,
        "checkpoint_every": 250,
        "eval_batch_size": 100,
    }

    corpus: Corpus
    source_words: Vocabulary
    target_words: Vocabulary
    parts: dict[Split, Sentences]
    every: list[Tokens]  # the pairs of all parts, which "pair" of a batch counts

    def load(self) -> None:
        """Reads or makes the sentences, and counts the tokens of the training part."""
        c = self.config
        self.corpus = _numbers(self.seed) if self.data is None else read_corpus(
            self.data, c.source, c.target
        )  # fmt: skip
        cut = {name: self._cut(name, pairs) for name, pairs in self.corpus.parts.items()}
        if not hasattr(self, "source_words"):  # else restored: the model knows those
            self.source_words = Vocabulary.count((s for s, _ in cut["train"]), c.min_count)
            self.target_words = Vocabulary.count((t for _, t in cut["train"]), c.min_count)
        self.every = []
        self.parts = {}
        for name, pairs in cut.items():
            self.parts[name] = Sentences(pairs, self, len(self.every))
            self.every += pairs

    def _cut(self, name: Split, pairs: Sequence[tuple[str, str]]) -> list[Tokens]:
        c = self.config
        if name == "train" and c.max_train:
            pairs = pairs[: c.max_train]
        cut = [(units(s, c.source_unit), units(t, c.target_unit)) for s, t in pairs]
        kept = [
            (s, t)
            for s, t in cut
            if len(s) <= (c.max_source or math.inf) and len(t) <= (c.max_target or math.inf)
        ]
        if not kept:
            bounds = f"{c.max_source} and {c.max_target} tokens"
            raise expected("max_source, max_target", f"{name} sentences within them", bounds)
        return kept

    def source(self, split: Split) -> Sentences:
        """The sentence pairs of a part."""
        return self.parts[split]

    def build(self, model: TranslatorConfig) -> nn.Module:
        """A fresh model for the vocabularies."""
        return TranslatorModel(model, len(self.source_words), len(self.target_words))

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross-entropy in nats, mean over the target's tokens, and the penalty on the chain."""
        logits = model(batch["source"], batch["lengths"], batch["target"][:, :-1])
        want = batch["target"][:, 1:]
        loss = cross_entropy(logits.flatten(0, 1), want.flatten(), ignore_index=PAD)
        return loss + cast(TranslatorModel, model).penalty(), {"perplexity": loss.detach().exp()}

    def evaluation(self) -> Evaluation:
        """Loss, perplexity and BLEU of beam search."""
        return _Translations(self)

    def exhibits(self, model: nn.Module, split: Split = "test") -> list[Exhibit]:
        """BLEU and coverage, translations, alignments, the learned table of neighbours."""
        from lawful.tasks.translation._exhibits import translation_exhibits

        return translation_exhibits(self, cast(TranslatorModel, model), split)

    def translate(
        self, model: TranslatorModel, sources: Sequence[Sequence[str]]
    ) -> tuple[list[list[str]], list[float]]:
        """Tokens of the best translation of each source sentence, and its log-probability."""
        place = next(model.parameters()).device
        rows = padded([self.source_words.encode(s) for s in sources], PAD)
        return self._search(
            model, rows.to(place), torch.tensor([len(s) for s in sources], device=place)
        )

    def _search(
        self, model: TranslatorModel, source: Tensor, lengths: Tensor
    ) -> tuple[list[list[str]], list[float]]:
        said, score = model.generate(
            source,
            lengths,
            start=START,
            end=END,
            limit=2 * source.shape[1] + 10,
            width=min(self.config.beam, len(self.target_words)),
        )
        return [self.target_words.decode(row) for row in said.tolist()], score.tolist()

    def join(self, tokens: Sequence[str]) -> str:
        """A target sentence as text."""
        return ("" if self.config.target_unit == "char" else " ").join(tokens)

    def predict(self, model: nn.Module, path: Path) -> Iterator[dict[str, Any]]:
        """The translation of each line of a text file."""
        model = cast(TranslatorModel, model.eval())
        for number, line in text_lines(path, "sentences"):
            tokens = units(line, self.config.source_unit)
            said, score = self.translate(model, [tokens])
            unknown = sorted({t for t in tokens if t not in self.source_words.number})
            row = {"line": number, "input": line, "output": self.join(said[0])}
            yield {**row, "log_probability": score[0]} | ({"unknown": unknown} if unknown else {})

    def state(self) -> dict[str, Any]:
        """The vocabularies."""
        first = len(SPECIAL)
        return {
            "source": self.source_words.tokens[first:],
            "target": self.target_words.tokens[first:],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned."""
        try:
            self.source_words = Vocabulary([str(t) for t in state["source"]])
            self.target_words = Vocabulary([str(t) for t in state["target"]])
        except (KeyError, TypeError) as error:
            raise InputError(f"task state: expected two vocabularies, got {error}") from error


def _numbers(seed: int) -> Corpus:
    made = number_names(sum(_NUMBERS.values()), seed)
    parts: dict[Split, list[tuple[str, str]]] = {}
    for name, count in _NUMBERS.items():
        parts[name], made = made[:count], made[count:]
    return Corpus(parts, "numbers by name", 0)


def corpus_bleu(said: Sequence[str], wanted: Sequence[str]) -> float:
    """BLEU in percent of sentences whose tokens are separated by spaces, one reference each."""
    from sacrebleu.metrics.bleu import BLEU

    # The text comes in tokens already; force only silences the warning that says so.
    measure = BLEU(tokenize="none", force=True)
    return float(measure.corpus_score(list(said), [list(wanted)]).score)


class _Translations(Evaluation):
    """Teacher-forced loss, and BLEU of what beam search says."""

    def __init__(self, task: TranslationTask) -> None:
        self.task = task
        self.said: list[str] = []
        self.wanted: list[str] = []
        self.total, self.tokens = 0.0, 0
        self.mass, self.settled, self.places = 0.0, 0, 0

    def update(self, model: nn.Module, batch: Batch) -> None:
        model = cast(TranslatorModel, model)
        logits = model(batch["source"], batch["lengths"], batch["target"][:, :-1])
        want = batch["target"][:, 1:]
        each = cross_entropy(logits.transpose(1, 2), want, ignore_index=PAD, reduction="none")
        self.total += float(each.double().sum())
        self.tokens += int((want != PAD).sum())
        chances = model.marginals(batch["source"], batch["lengths"], batch["target"][:, :-1])
        if chances is not None:
            self._weigh(chances, want != PAD, batch["lengths"])
        said, _ = self.task._search(model, batch["source"], batch["lengths"])
        self.said += [" ".join(s) for s in said]
        # The reference as it was written: what the model cannot say counts as a mistake.
        self.wanted += [" ".join(self.task.every[i][1]) for i in batch["pair"].tolist()]

    def _weigh(self, chances: Tensor, real: Tensor, lengths: Tensor) -> None:
        steps = torch.arange(chances.shape[-1], device=lengths.device)
        places = real[..., None] & (steps < lengths[:, None])[:, None]
        settled = (chances < SETTLED) | (chances > 1 - SETTLED)
        self.mass += float(torch.where(places, chances, 0.0).double().sum())
        self.settled += int((settled & places).sum())
        self.places += int(places.sum())

    def compute(self) -> dict[str, float]:
        """All of them; "attended" is the mean number of positions a step attends to.

        "saturated" is the share of positions whose chance of that is within 1 % of 0 or 1.
        """
        loss = self.total / max(self.tokens, 1)
        exact = sum(s == w for s, w in zip(self.said, self.wanted, strict=True))
        seen = {} if not self.places else {
            "attended": self.mass / max(self.tokens, 1),
            "saturated": self.settled / self.places,
        }  # fmt: skip
        return {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "bleu": corpus_bleu(self.said, self.wanted),
            "exact": exact / max(len(self.said), 1),
            **seen,
        }
