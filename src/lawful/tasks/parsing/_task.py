"""The parsing task: heads and labels of the words of a treebank."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from lawful.errors import InputError, expected
from lawful.models import BiaffineParser, LocalParserConfig, TreeParserConfig
from lawful.tasks._base import Batch, Evaluation, Split, batches
from lawful.tasks.exhibits import Exhibit
from lawful.tasks.parsing._decode import (
    PADDING,
    ROOT,
    best_heads,
    best_labels,
    head_loss,
    label_loss,
)
from lawful.tasks.treebank import (
    Lexicon,
    Sentence,
    Table,
    gold_tree,
    is_punctuation,
    projective,
)
from lawful.tasks.treebank._sentence import DEPREL, HEAD
from lawful.tasks.treebank._task import (
    Column,
    TreebankConfig,
    TreebankTask,
    inputs,
    most_frequent,
    write_sentences,
)


@dataclass(frozen=True)
class ParsingConfig(TreebankConfig):
    """What is parsed and how it is scored."""

    punctuation: bool = True
    """Count punctuation in the scores, as the UD evaluation does."""
    max_length: int = 400
    """Longest sentence, in words; a longer one is refused (the cost grows with its cube)."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        super().__post_init__()
        if self.max_length < 1:
            raise expected("max_length", "a whole number of at least 1", self.max_length)


class ParsingTask(TreebankTask[ParsingConfig]):
    """Find the head of every word, and how it depends on it."""

    name = "parsing"
    summary = "dependency parsing (projective or not) with distributions over trees"
    data_help = (
        "CoNLL-U with heads: one file, or a folder or zip with train, dev and test files; "
        "without: a small treebank of our own"
    )
    Config = ParsingConfig
    models: ClassVar[Mapping[str, type[Any]]] = {
        "biaffine": TreeParserConfig,
        "local": LocalParserConfig,
    }
    default_model = "biaffine"
    metric = "las"
    output_suffixes = (".conllu",)

    labels: list[str]
    root_label: int  # the label of root arcs and no others; -1 where there is none such

    def add(self, table: Table, sentence: Sentence) -> None:
        """Words, heads and labels."""
        self._check(sentence)
        heads = gold_tree(sentence)
        numbers: dict[str, Sequence[int]] = {
            "heads": heads,
            "lifted": projective(heads),
            "scored": [self.config.punctuation or not p for p in is_punctuation(sentence)],
        }
        table.add(sentence.forms, {"labels": sentence.column(DEPREL)}, numbers)

    def _check(self, sentence: Sentence) -> None:
        if not sentence.conllu:
            raise sentence.error(0, "expected CoNLL-U with 10 columns parted by tabs")
        if len(sentence) > self.config.max_length:
            limit = self.config.max_length
            raise sentence.error(limit, f"a sentence of {len(sentence)} words; see --max-length")

    def learn(self, train: Table) -> None:
        """The labels, most frequent first, and which of them the root has."""
        column = train.strings["labels"]
        counts = column.counts()
        self.labels = sorted(counts, key=lambda label: (-counts[label], label))
        ids = column.mapped({label: i for i, label in enumerate(self.labels)})
        at_root = np.asarray(train.numbers["heads"]) == ROOT
        own = set(ids[at_root].tolist())
        apart = len(own) == 1 and not own & set(ids[~at_root].tolist())
        self.root_label = own.pop() if apart else -1

    def columns(self, table: Table) -> dict[str, Column]:
        """Heads, the same lifted to projective, labels as numbers, and which words are scored.

        "coarse" are labels without their subtypes, those unknown to training included.
        """
        labels = table.strings["labels"]
        ids = {label: i for i, label in enumerate(self.labels)}
        coarse = {label: self._coarse_ids().get(label.split(":")[0], -1) for label in labels.ids}
        numbers = {k: np.asarray(v, dtype=np.int64) for k, v in table.numbers.items()}
        return {
            "heads": Column(numbers["heads"], PADDING),
            "lifted": Column(numbers["lifted"], PADDING),
            "scored": Column(numbers["scored"], 0),
            "labels": Column(labels.mapped(ids)),
            "coarse": Column(labels.mapped(coarse)),
        }

    def _coarse_ids(self) -> dict[str, int]:
        names = dict.fromkeys(label.split(":")[0] for label in self.labels)
        return {name: i for i, name in enumerate(names)}

    def coarse(self) -> Tensor:
        """For each label, the number of its universal part."""
        ids = self._coarse_ids()
        return torch.tensor([ids[label.split(":")[0]] for label in self.labels])

    def build(self, model: Any) -> BiaffineParser:
        """A fresh parser."""
        known = self.known()
        return BiaffineParser(model, known.word_ids, known.char_ids, len(self.labels))

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Negative log-likelihood of trees and labels, in nats per word."""
        scores = model(*inputs(batch), batch["heads"])
        words = batch["lengths"].sum()
        parser: Any = model  # or Fabric's wrapper around it, which passes attributes on
        heads = head_loss(parser.local, parser.structure, scores.arcs, scores.root, batch).sum()
        labels = label_loss(scores.labels, batch["labels"]).sum()
        parts = {"head_loss": heads.detach() / words, "label_loss": labels.detach() / words}
        return (heads + labels) / words, parts

    def evaluation(self) -> "ParsingEvaluation":
        """Attachment scores."""
        return ParsingEvaluation(self.coarse(), self.root_label)

    def exhibits(self, model: nn.Module, split: Split = "test") -> list[Exhibit]:
        """Scores by relation, length and distance; trees beside the right ones."""
        from lawful.tasks.parsing._exhibits import parsing_exhibits

        return parsing_exhibits(self, model, split)

    def baselines(self) -> dict[str, float]:
        """LAS of hanging every word on its neighbour, with the word's most frequent label."""
        train = self.source("train")
        usual = most_frequent(train, "labels", len(self.labels), self.known().word_ids)
        before, after = self.evaluation(), self.evaluation()
        for batch in batches(self.source("test"), 256):
            steps, labels = torch.arange(batch["heads"].shape[1]), usual[batch["words"]]
            last = steps == batch["lengths"][:, None] - 1
            before.count((steps - 1).expand_as(last), labels, batch)
            after.count(torch.where(last, ROOT, steps + 1), labels, batch)
        return {
            "previous word": before.compute()["las"],
            "next word": after.compute()["las"],
        }

    def parse(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Predicted heads and labels, (B, N) each."""
        assert isinstance(model, BiaffineParser)
        states = model.states(*inputs(batch))
        heads = best_heads(model, *model.arcs(states), batch["lengths"])
        return heads, best_labels(model.labels(states, heads), heads, self.root_label)

    def _predicted(
        self, model: nn.Module, path: Path
    ) -> Iterator[tuple[Sentence, tuple[list[int], list[str]]]]:
        def decode(model: nn.Module, batch: Batch) -> list[tuple[list[int], list[str]]]:
            heads, labels = self.parse(model, batch)
            rows = zip(heads.tolist(), labels.tolist(), batch["lengths"].tolist(), strict=True)
            return [(h[:n], [self.labels[i] for i in ls[:n]]) for h, ls, n in rows]

        return self.decoded(model, path, decode, check=self._check)

    def predict(self, model: nn.Module, path: Path) -> Iterator[dict[str, Any]]:
        """One row {"words", "heads", "labels"} for each sentence; heads count from 1, root is 0."""
        for sentence, (heads, labels) in self._predicted(model, path):
            yield {"words": sentence.forms, "heads": [h + 1 for h in heads], "labels": labels}

    def write_predictions(self, model: nn.Module, path: Path, out: Path) -> None:
        """The file with HEAD and DEPREL filled in and everything else as it was."""
        found = self._predicted(model, path)
        write_sentences(
            (s.replaced({HEAD: [str(h + 1) for h in hs], DEPREL: ls}) for s, (hs, ls) in found),
            out,
        )

    def state(self) -> dict[str, Any]:
        """The words, characters and labels of training."""
        lexicon = self.known().state()
        return {"lexicon": lexicon, "labels": self.labels, "root_label": self.root_label}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned."""
        if not isinstance(state.get("labels"), list):
            raise InputError("task state: expected the labels of a parsing run, got none")
        self.lexicon = Lexicon.from_state(state.get("lexicon", {}))
        self.labels, self.root_label = state["labels"], int(state.get("root_label", -1))


class ParsingEvaluation(Evaluation):
    """Attachment scores over all scored words.

    "uas": right heads. "las": right heads and labels, where labels are compared without subtypes
    (``nsubj`` for ``nsubj:pass``), as the CoNLL 2018 evaluation of UD does. "las_subtypes": whole
    labels. "exact": sentences with every scored head right.
    """

    def __init__(self, coarse: Tensor, root_label: int) -> None:
        self.coarse, self.root_label = coarse, root_label
        self.loss = 0.0
        self.words = self.scored = self.sentences = 0
        self.right = {"uas": 0, "las": 0, "las_subtypes": 0}
        self.exact = 0

    def update(self, model: nn.Module, batch: Batch) -> None:
        """Adds a batch."""
        assert isinstance(model, BiaffineParser)
        arcs, root, labels, states = model(*inputs(batch), batch["heads"])
        loss = head_loss(model.local, model.structure, arcs, root, batch)
        loss = loss + label_loss(labels, batch["labels"])
        self.loss += float(loss.sum())
        self.words += int(batch["lengths"].sum())
        heads = best_heads(model, arcs, root, batch["lengths"])
        self.count(heads, best_labels(model.labels(states, heads), heads, self.root_label), batch)

    def count(self, heads: Tensor, labels: Tensor, batch: Batch) -> None:
        """Compares predicted heads and labels (B, N) with those of a batch."""
        scored = batch["scored"] > 0
        right = (heads == batch["heads"]) & scored
        coarse = self.coarse.to(labels.device)[labels]
        self.right["uas"] += int(right.sum())
        self.right["las"] += int((right & (coarse == batch["coarse"])).sum())
        self.right["las_subtypes"] += int((right & (labels == batch["labels"])).sum())
        self.scored += int(scored.sum())
        self.exact += int((right == scored).all(1).sum())
        self.sentences += len(heads)

    def compute(self) -> dict[str, float]:
        """Loss in nats per word, and shares of what is right."""
        scores = {name: count / max(self.scored, 1) for name, count in self.right.items()}
        exact = self.exact / max(self.sentences, 1)
        return {"loss": self.loss / max(self.words, 1), **scores, "exact": exact}
