"""The tagging task: part-of-speech tags, named entities, or any other column of a treebank."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lawful.errors import InputError
from lawful.models import CRFTaggerConfig, SoftmaxTaggerConfig, Tagger, TagScores
from lawful.tasks._base import Batch, Evaluation, Split, batches
from lawful.tasks.exhibits import Exhibit
from lawful.tasks.treebank import ENDINGS, Lexicon, Sentence, Table, TagColumn, is_bio, spans
from lawful.tasks.treebank._task import (
    Column,
    TreebankConfig,
    TreebankTask,
    inputs,
    most_frequent,
    write_sentences,
)

UNKNOWN = 1


@dataclass(frozen=True)
class TaggingConfig(TreebankConfig):
    """What is tagged."""

    column: str = "auto"
    """Where the tags are: auto (UPOS of CoNLL-U, else the last column), a column of CoNLL-U (upos,
    xpos, feats, deprel, ...), feats:KEY or misc:KEY for one attribute, or a column's number."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        super().__post_init__()
        TagColumn(self.column)


class TaggingTask(TreebankTask[TaggingConfig]):
    """Tag the words of a sentence."""

    name = "tagging"
    summary = "tag words (part of speech, names, any column) with a linear-chain CRF"
    data_help = (
        "CoNLL-U, or columns of words and tags: one file, or a folder or zip with train, dev and "
        "test files; without: a small treebank of our own"
    )
    Config = TaggingConfig
    models: ClassVar[Mapping[str, type[Any]]] = {
        "crf": CRFTaggerConfig,
        "softmax": SoftmaxTaggerConfig,
    }
    default_model = "crf"
    metric = "accuracy"
    output_suffixes = ENDINGS

    tags: list[str]

    @property
    def column(self) -> TagColumn:
        """Where the tags are."""
        return TagColumn(self.config.column)

    def add(self, table: Table, sentence: Sentence) -> None:
        """Words and tags."""
        table.add(sentence.forms, {"tags": self.column.tags(sentence)})

    def learn(self, train: Table) -> None:
        """The tags, most frequent first."""
        counts = train.strings["tags"].counts()
        self.tags = sorted(counts, key=lambda tag: (-counts[tag], tag))
        if len(self.tags) < 2:
            only = self.tags[0] if self.tags else "none"
            where = self.config.column
            raise InputError(f"data: column {where} holds a single tag, {only!r}; see --column")

    def columns(self, table: Table) -> dict[str, Column]:
        """Tags as numbers; -1 for one that training did not have."""
        ids = {tag: i for i, tag in enumerate(self.tags)}
        return {"tags": Column(table.strings["tags"].mapped(ids))}

    def build(self, model: Any) -> Tagger:
        """A fresh tagger."""
        known, chained = self.known(), isinstance(model, CRFTaggerConfig)
        return Tagger(model, known.word_ids, known.char_ids, len(self.tags), chained=chained)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Negative log-likelihood in nats per word."""
        scores: TagScores = model(*inputs(batch))
        loss = -scores.chain(batch["lengths"]).log_prob(batch["tags"])
        words = batch["lengths"].sum()
        return loss.sum() / words, {}

    def evaluation(self) -> "TaggingEvaluation":
        """Accuracy, also on unknown words; span scores where tags mark spans."""
        return TaggingEvaluation(self.tags)

    def baselines(self) -> dict[str, float]:
        """Accuracy of giving every word its most frequent tag."""
        usual = most_frequent(self.source("train"), "tags", len(self.tags), self.known().word_ids)
        right = total = 0
        for batch in batches(self.source("test"), 256):
            right += int((usual[batch["words"]] == batch["tags"]).sum())
            total += int(batch["lengths"].sum())
        return {"most frequent tag": right / max(total, 1)}

    def exhibits(self, model: nn.Module, split: Split = "test") -> list[Exhibit]:
        """Scores by tag, confusions, transitions, and tagged sentences."""
        from lawful.tasks.tagging._exhibits import tagging_exhibits

        return tagging_exhibits(self, model, split)

    def _predicted(self, model: nn.Module, path: Path) -> Iterator[tuple[Sentence, list[str]]]:
        def decode(model: nn.Module, batch: Batch) -> list[list[str]]:
            found = model(*inputs(batch)).chain(batch["lengths"]).argmax
            rows = zip(found.tolist(), batch["lengths"].tolist(), strict=True)
            return [[self.tags[t] for t in row[:n]] for row, n in rows]

        return self.decoded(model, path, decode, single=True)

    def predict(self, model: nn.Module, path: Path) -> Iterator[dict[str, Any]]:
        """One row {"words", "tags"} for each sentence of a file."""
        for sentence, tags in self._predicted(model, path):
            yield {"words": sentence.forms, "tags": tags}

    def write_predictions(self, model: nn.Module, path: Path, out: Path) -> None:
        """The file with the tags filled in and everything else as it was."""
        found = self._predicted(model, path)
        write_sentences((self.column.written(s, tags) for s, tags in found), out)

    def state(self) -> dict[str, Any]:
        """The words, characters and tags of training."""
        return {"lexicon": self.known().state(), "tags": self.tags}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned."""
        if not isinstance(state.get("tags"), list):
            raise InputError("task state: expected the tags of a tagging run, got none")
        self.lexicon = Lexicon.from_state(state.get("lexicon", {}))
        self.tags = state["tags"]


class TaggingEvaluation(Evaluation):
    """Counts right tags, right tags of unknown words, and spans.

    A tag that training did not have counts as missed; its sentence is left out of the loss.
    """

    def __init__(self, tags: list[str]) -> None:
        self.tags = tags
        self.bio = is_bio(tags)
        self.loss = self.loss_words = 0.0
        self.words = self.right = self.unknown = self.unknown_right = 0
        self.gold_spans = self.found_spans = self.right_spans = 0

    def update(self, model: nn.Module, batch: Batch) -> None:
        """Adds a batch."""
        lengths, gold = batch["lengths"], batch["tags"]
        found_chain = model(*inputs(batch)).chain(lengths)
        valid = torch.arange(gold.shape[1], device=gold.device) < lengths[:, None]
        known = ((gold >= 0) | ~valid).all(1)
        log_prob = found_chain.log_prob(gold.masked_fill(valid & (gold < 0), 0))
        self.loss -= float(log_prob[known].sum())
        self.loss_words += float(lengths[known].sum())
        found = found_chain.argmax
        right, rare = (found == gold) & valid, (batch["words"] == UNKNOWN) & valid
        self.words += int(valid.sum())
        self.right += int(right.sum())
        self.unknown += int(rare.sum())
        self.unknown_right += int((right & rare).sum())
        if self.bio:
            self._spans(found, gold, lengths)

    def _spans(self, found: Tensor, gold: Tensor, lengths: Tensor) -> None:
        rows = zip(found.tolist(), gold.tolist(), lengths.tolist(), strict=True)
        for f, g, n in rows:
            # A tag that training did not have: a kind of its own, never found.
            want = spans([self.tags[t] if t >= 0 else "B-?" for t in g[:n]])
            have = spans([self.tags[t] for t in f[:n]])
            self.gold_spans += len(want)
            self.found_spans += len(have)
            self.right_spans += len(want & have)

    def compute(self) -> dict[str, float]:
        """Loss in nats per word, and shares of what is right."""
        values = {
            "loss": self.loss / max(self.loss_words, 1),
            "accuracy": self.right / max(self.words, 1),
        }
        if self.unknown:
            values["unknown_accuracy"] = self.unknown_right / self.unknown
        if self.bio:
            values["span_precision"] = self.right_spans / max(self.found_spans, 1)
            values["span_recall"] = self.right_spans / max(self.gold_spans, 1)
            values["span_f1"] = 2 * self.right_spans / max(self.found_spans + self.gold_spans, 1)
        return values
