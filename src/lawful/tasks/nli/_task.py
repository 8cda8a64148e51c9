"""The task: pairs of sentences and whether the second follows from the first."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lawful.errors import InputError, expected
from lawful.models import (
    EntailmentConfig,
    EntailmentModel,
    HardParentEntailmentConfig,
    ParsedEntailmentConfig,
    SentencePair,
    SimpleEntailmentConfig,
    TreeEntailmentConfig,
)
from lawful.tasks._base import Batch, Evaluation, MeanEvaluation, Split, Task, to_device
from lawful.tasks.exhibits import Exhibit
from lawful.tasks.nli._ours import our_pairs
from lawful.tasks.nli._pairs import LABELS, Pair, read_pairs, read_parts, words_of
from lawful.tasks.nli._parser import TrainedParser
from lawful.tasks.nli._vocabulary import Vocabulary, read_vectors

__all__ = ["NLIConfig", "NLITask", "Pairs", "pair_of"]

_OURS: dict[Split, int] = {"train": 900, "valid": 150, "test": 150}
_GROUP = 256  # pairs that are predicted together


@dataclass(frozen=True)
class NLIConfig:
    """What is read, and what stands for words."""

    test_data: str = ""
    """Another file, folder or zip archive whose dev and test parts are used in place of those of
    --data."""
    label_names: str = ""
    """Where labels are numbers from 1 on: their names in that order, with commas between."""
    vectors: str = ""
    """Text file of word vectors (a word and its numbers on each line). They stay fixed, each scaled
    to length 1. Without, vectors are trained."""
    lowercase: bool = True
    """Take words in lower case; turn off for vectors that tell cases apart."""
    min_count: int = 2
    """Occurrences in training that give a word a trained vector of its own; rarer ones share one of
    100 by their hash, as all unknown words do."""
    parser: str = ""
    """Run folder of the task parsing, for the models hard-parent and parsed."""
    max_words: int = 100
    """Training pairs with a longer sentence are left out."""
    max_train: int = 0
    """Use only the first so many training pairs; 0 for all."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        for name, least in (("min_count", 1), ("max_words", 1), ("max_train", 0)):
            if getattr(self, name) < least:
                raise expected(name, f"a whole number of at least {least}", getattr(self, name))
        for name in self.names:
            if name not in LABELS:
                raise expected("label_names", ", ".join(LABELS) + " in some order", repr(name))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of numbered labels."""
        return tuple(n.strip() for n in self.label_names.split(",") if n.strip())


def pair_of(batch: Batch) -> SentencePair:
    """The argument of an `EntailmentModel`."""
    return SentencePair(
        batch["premise"],
        batch["premise_lengths"],
        batch["hypothesis"],
        batch["hypothesis_lengths"],
        batch.get("premise_parents"),
        batch.get("hypothesis_parents"),
    )


class Pairs:
    """Pairs as padded batches; `lengths` lets the trainer put pairs of like length together."""

    endless = False

    def __init__(
        self, pairs: Sequence[Pair], known: Vocabulary, parents: "dict[str, Any] | None"
    ) -> None:
        self.pairs, self._parents = pairs, parents
        self._ids = [(known.encode(p.premise), known.encode(p.hypothesis)) for p in pairs]
        longest = [max(len(a), len(b)) for a, b in self._ids]
        self.lengths: npt.NDArray[np.int64] = np.array(longest, np.int64)
        self._labels = [LABELS.index(p.label) if p.label else -1 for p in pairs]

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.pairs)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Tensors of these pairs.

        Token ids "premise" (B, N) and "hypothesis" (B, M) behind the root symbol, their
        "..._lengths" (B); "label" (B), -1 for none; with a parser, "..._parents" (B, N, N).
        """
        batch: Batch = {"label": torch.tensor([self._labels[i] for i in indices])}
        for side, name in enumerate(("premise", "hypothesis")):
            rows = [self._ids[i][side] for i in indices]
            n = max(map(len, rows), default=1)
            ids = np.zeros((len(rows), n), np.int64)
            for row, values in zip(ids, rows, strict=True):
                row[: len(values)] = values
            batch[name] = torch.from_numpy(ids)
            batch[f"{name}_lengths"] = torch.tensor([len(r) for r in rows])
            if self._parents is not None:
                square = np.zeros((len(rows), n, n), np.float32)
                for k, i in enumerate(indices):
                    given = self._parents[" ".join(getattr(self.pairs[i], name))]
                    square[k, : len(given), : len(given)] = given
                batch[f"{name}_parents"] = torch.from_numpy(square)
        return batch


class NLITask(Task[NLIConfig]):
    """Tells whether one sentence follows from another."""

    name = "nli"
    summary = "does a sentence follow from another (SNLI), with trees inside sentences"
    data_help = (
        "SNLI's jsonl or txt, or tab-separated label, premise, hypothesis: one file, or a folder "
        "or zip with train, dev and test in the names; without: small pairs of our own"
    )
    Config = NLIConfig
    models: ClassVar[Mapping[str, type[Any]]] = {
        "none": EntailmentConfig,
        "simple": SimpleEntailmentConfig,
        "structured": TreeEntailmentConfig,
        "hard-parent": HardParentEntailmentConfig,
        "parsed": ParsedEntailmentConfig,
    }
    default_model = "structured"
    metric = "accuracy"
    higher_is_better = True
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "epochs": 10,
        "batch_size": 32,
        "optimizer": "adam",
        "lr": 2e-3,
        "schedule": "cosine",
        "clip": 5.0,
        "eval_batch_size": 128,
    }

    parts: Mapping[Split, Sequence[Pair]]
    known: Vocabulary | None = None
    table: npt.NDArray[np.float32] | None = None  # fixed vectors
    vector_size = 0  # of fixed vectors that a checkpoint holds
    _sources: dict[Split, Pairs]
    _wants = ""  # what the model that was built asks of a parser
    _trained: TrainedParser | None = None

    def load(self) -> None:
        """Reads or makes the pairs and, unless a state was restored, learns the words."""
        self.parts = self._ours() if self.data is None else self._read(self.data)
        self._sources = {}
        for split, part in self.parts.items():
            if not part:
                raise InputError(f"data: no labelled pair is left for the {split} part")
        if self.known is None:
            self._learn()

    def _ours(self) -> dict[Split, Sequence[Pair]]:
        if self.config.test_data:
            raise expected("test_data", "nothing where --data is not given", self.config.test_data)
        rng = random.Random(f"nli {self.seed}")  # a text: its course never changes
        made = iter(our_pairs(rng, sum(_OURS.values())))
        found: dict[Split, Sequence[Pair]] = {}
        for split, count in _OURS.items():
            rows = [next(made) for _ in range(count)]
            found[split] = [Pair(words_of(a), words_of(b), label) for a, b, label in rows]
        return found

    def _read(self, path: Path) -> dict[Split, Sequence[Pair]]:
        c = self.config
        found = read_parts(path, c.names)
        if c.test_data:
            other = read_parts(Path(c.test_data), c.names)
            train = found.get("train") or found.get("whole") or []
            found = {"train": train} | {k: v for k, v in other.items() if k in ("valid", "test")}
        if "whole" in found:
            whole = found["whole"]
            order = np.random.default_rng(self.seed).permutation(len(whole)).tolist()
            found["train"] = [whole[i] for i in order]
        train = found.get("train", [])
        for split in ("test", "valid"):
            if split not in found:  # the last tenth of what is there
                cut = len(train) - max(len(train) // 10, 1)
                train, found[split] = train[:cut], train[cut:]
        train = [p for p in train if max(len(p.premise), len(p.hypothesis)) <= c.max_words]
        train = train[: c.max_train] if c.max_train else train
        return {"train": train, "valid": found["valid"], "test": found["test"]}

    def _learn(self) -> None:
        c = self.config
        if not c.vectors:
            words = (s for p in self.parts["train"] for s in (p.premise, p.hypothesis))
            self.known = Vocabulary.of(words, c.lowercase, c.min_count)
            return
        pairs = [p for part in self.parts.values() for p in part]
        everywhere = (s for p in pairs for s in (p.premise, p.hypothesis))
        wanted = Vocabulary.of(everywhere, c.lowercase, 1).words
        found = read_vectors(Path(c.vectors), set(wanted))
        self.known = Vocabulary([w for w in wanted if w in found], c.lowercase)
        self.table = self.known.table(found)
        self.vector_size = self.table.shape[1]

    def source(self, split: Split) -> Pairs:
        """The pairs of a part; parsed at the first call, where the model wants it."""
        if split not in self._sources:
            self._sources[split] = self._pairs(self.parts[split])
        return self._sources[split]

    def _pairs(self, pairs: Sequence[Pair]) -> Pairs:
        assert self.known is not None, "load the task first"
        parents = None
        if self._trained is not None:
            sentences = {" ".join(s): s for p in pairs for s in (p.premise, p.hypothesis)}
            found = self._trained.parents(list(sentences.values()), hard=self._wants == "heads")
            parents = dict(zip(sentences, found, strict=True))
        return Pairs(pairs, self.known, parents)

    def build(self, model: EntailmentConfig) -> EntailmentModel:
        """A fresh model; a parser is loaded where it wants one."""
        assert self.known is not None, "load the task first"
        self._wants, self._sources = model.wants, {}
        if model.wants and not self.config.parser:
            raise expected("parser", "a run folder of the task parsing for this model", "nothing")
        self._trained = TrainedParser(Path(self.config.parser)) if model.wants else None
        vectors = None
        if self.vector_size:
            empty = np.zeros((len(self.known), self.vector_size), np.float32)  # for a checkpoint
            vectors = torch.from_numpy(empty if self.table is None else self.table)
        return EntailmentModel(model, len(self.known), len(LABELS), vectors)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross-entropy in nats, mean over pairs."""
        logits = model(pair_of(batch))
        right = (logits.detach().argmax(-1) == batch["label"]).float().mean()
        return cross_entropy(logits, batch["label"]), {"accuracy": right}

    def evaluation(self) -> Evaluation:
        """Loss and accuracy."""
        return MeanEvaluation(_measure)

    def baselines(self) -> dict[str, float]:
        """Accuracy of always saying the most frequent label of training."""
        train = [p.label for p in self.parts["train"]]
        usual = max(LABELS, key=train.count)
        test = [p.label for p in self.parts["test"]]
        return {"most frequent label": test.count(usual) / len(test)}

    def exhibits(self, model: nn.Module, split: Split = "test") -> list[Exhibit]:
        """Results beside the paper's, confusions, trees, alignments, mistakes."""
        from lawful.tasks.nli._exhibits import nli_exhibits

        return nli_exhibits(self, cast(EntailmentModel, model), split)

    def predict(self, model: nn.Module, path: Path) -> Iterator[dict[str, Any]]:
        """Label and probabilities for every pair of a file; see `read_pairs`."""
        if not path.is_file():
            raise expected("input", "a file with pairs of sentences", str(path))
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"input: {path} cannot be read as text: {error}") from None
        found = read_pairs(text, str(path), self.config.names, labelled=False)
        for start in range(0, len(found), _GROUP):
            yield from self._labelled(cast(EntailmentModel, model), found[start : start + _GROUP])

    def _labelled(self, model: EntailmentModel, pairs: Sequence[Pair]) -> Iterator[dict[str, Any]]:
        batch = self._pairs(pairs).batch(range(len(pairs)))
        with torch.no_grad():
            p = model.eval()(pair_of(to_device(batch, next(model.parameters()).device))).softmax(-1)
        for pair, row in zip(pairs, p.tolist(), strict=True):
            said = LABELS[row.index(max(row))]
            out: dict[str, Any] = {
                "premise": " ".join(pair.premise),
                "hypothesis": " ".join(pair.hypothesis),
                "label": said,
                **dict(zip(LABELS, row, strict=True)),
            }
            if pair.label:
                out["right"] = said == pair.label
            yield out

    def state(self) -> dict[str, Any]:
        """The words, and the size of fixed vectors."""
        assert self.known is not None
        return {**self.known.state(), "vector_size": self.vector_size}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned."""
        self.known = Vocabulary.from_state(state)
        self.vector_size = int(state.get("vector_size", 0))


def _measure(model: nn.Module, batch: Batch) -> dict[str, tuple[float, float]]:
    logits, label = model(pair_of(batch)), batch["label"]
    return {
        "loss": (float(cross_entropy(logits, label, reduction="sum")), len(label)),
        "accuracy": (float((logits.argmax(-1) == label).sum()), len(label)),
    }
