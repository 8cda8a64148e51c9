"""The task: bAbI stories, answers and the facts that support them."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lawful.errors import InputError, expected
from lawful.models import (
    BinaryChainConfig,
    FactReader,
    MemoryNetworkConfig,
    ReaderConfig,
    UnaryChainConfig,
)
from lawful.tasks._base import Batch, Evaluation, Split, Task, to_device
from lawful.tasks.exhibits import Exhibit
from lawful.tasks.qa._babi import Files, Question, find_stories, parse_story, read_text
from lawful.tasks.qa._data import Questions, Words
from lawful.tasks.qa._stories import story_text

__all__ = ["QAConfig", "QAEvaluation", "QATask", "inputs"]

_MOST_HOPS = 8  # columns of supporting facts in a batch
_GROUP = 256  # questions that are answered together in prediction


@dataclass(frozen=True)
class QAConfig:
    """Which stories, and how much of them is remembered."""

    story: str = ""
    """Kind of stories: the number N of qaN_... or a part of its name. Without data: 1 or 2, the
    number of facts that an answer needs; 2 if nothing is said."""
    memory: int = 25
    """Facts that are remembered, the latest ones."""
    questions: int = 1000
    """Training questions, and as many for testing, where no data are named."""
    valid_share: float = 0.1
    """Share of the training questions, the last ones, that are held out; no effect where there
    is a file for validation."""
    test_share: float = 0.2
    """Share of all questions, the last ones, that are kept for testing where data are one file."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        for name, least in (("memory", 1), ("questions", 10)):
            if getattr(self, name) < least:
                raise expected(name, f"a whole number of at least {least}", getattr(self, name))
        for name in ("valid_share", "test_share"):
            if not 0 < getattr(self, name) < 1:
                raise expected(name, "a number between 0 and 1", getattr(self, name))


def inputs(batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The arguments of a `FactReader`."""
    return batch["sentences"], batch["question"], batch["facts"], batch["lengths"]


class QATask(Task[QAConfig]):
    """Answers questions about short stories by choosing the facts that matter."""

    name = "qa"
    summary = "answer questions about stories from a chain of facts (bAbI)"
    data_help = (
        "bAbI format: a folder or zip with qaN_NAME_train.txt and qaN_NAME_test.txt, or one file; "
        "without: stories of our own, generated from the seed"
    )
    Config = QAConfig
    models: ClassVar[Mapping[str, type[Any]]] = {
        "memn2n": MemoryNetworkConfig,
        "binary-chain": BinaryChainConfig,
        "unary-chain": UnaryChainConfig,
    }
    default_model = "binary-chain"
    metric = "accuracy"
    higher_is_better = True
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "epochs": 100,
        "batch_size": 32,
        "optimizer": "sgd",
        "lr": 1.0,
        "schedule": "staircase",
        "halve_every": 700,  # 25 epochs
        "clip": 0.0,  # the models limit the gradient of each initialisation
        "eval_every": 28,  # an epoch of 900 questions
        "checkpoint_every": 280,
        "eval_batch_size": 100,
    }

    model_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # On some stories chains need the linear start, on others it is in their way.
        "binary-chain": {"linear_share": 0.5},
        "unary-chain": {"linear_share": 0.5},
    }

    parts: Mapping[Split, Sequence[Question]]
    known: Words | None = None
    story = ""  # qaN_NAME; "" for stories of our own
    restored = False

    def load(self) -> None:
        """Reads or makes the stories and, unless a state was restored, learns their words."""
        self.parts = self._ours() if self.data is None else self._read(self.data)
        for split, part in self.parts.items():
            if not part:
                raise InputError(f"data: no question is left for the {split} part")
        if self.known is None:
            self.known = Words.of(self.parts["train"])

    def _ours(self) -> Mapping[Split, Sequence[Question]]:
        def made(part: str) -> list[Question]:
            rng = random.Random(f"qa {self.seed} {part}")  # a text: its course never changes
            text = story_text(rng, self.config.story or "2", self.config.questions)
            return list(parse_story(text, "stories of our own"))

        return self._held_out(made("train")) | {"test": made("test")}

    def _read(self, path: Path) -> Mapping[Split, Sequence[Question]]:
        self.story, files = find_stories(path, self.config.story)
        found = {part: self._parse(files, part) for part in files}
        if "whole" in found:
            whole = found["whole"]
            cut = len(whole) - round(self.config.test_share * len(whole))
            found = {"train": whole[:cut], "test": whole[cut:]}
        if "test" not in found:
            raise expected(f"data: {path}", f"{self.story}_test.txt", ", ".join(sorted(files)))
        if "valid" in found:
            return {s: found[s] for s in ("train", "valid", "test")}
        return self._held_out(found["train"]) | {"test": found["test"]}

    def _parse(self, files: Files, part: str) -> list[Question]:
        path, member = files[part]
        name = f"{path}:{member}" if member else str(path)
        return list(parse_story(read_text(path, member), name))

    def _held_out(self, train: list[Question]) -> dict[Split, Sequence[Question]]:
        cut = len(train) - max(round(self.config.valid_share * len(train)), 1)
        return {"train": train[:cut], "valid": train[cut:]}

    def source(self, split: Split) -> Questions:
        """The questions of a part."""
        chosen_by = split == "valid" and not self.restored
        return self._questions(self.parts[split], chosen_by)

    def _questions(self, questions: Sequence[Question], held_out: bool = False) -> Questions:
        assert self.known is not None, "load the task first"
        return Questions(questions, self.known, self.config.memory, _MOST_HOPS, held_out)

    def build(self, model: ReaderConfig) -> FactReader:
        """A fresh reader."""
        assert self.known is not None, "load the task first"
        if model.hops > _MOST_HOPS:
            raise expected("hops", f"at most {_MOST_HOPS}", model.hops)
        sizes = len(self.known.words), len(self.known.answers), self.config.memory
        return FactReader(model, *sizes)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross-entropy of the answer in nats, mean over questions and initialisations."""
        logits = model(*inputs(batch)).logits
        answer = batch["answer"].expand(logits.shape[:2])
        right = (logits.detach().argmax(-1) == answer).float().mean()
        return cross_entropy(logits.flatten(0, 1), answer.flatten()), {"accuracy": right}

    def evaluation(self) -> "QAEvaluation":
        """Answers and chains of facts."""
        return QAEvaluation()

    def baselines(self) -> dict[str, float]:
        """Accuracy of always giving the most frequent answer of training."""
        train = [q.answer for q in self.parts["train"]]
        usual = max(sorted(set(train)), key=train.count)
        test = [q.answer for q in self.parts["test"]]
        return {"most frequent answer": test.count(usual) / len(test)}

    def exhibits(self, model: nn.Module, split: Split = "test") -> list[Exhibit]:
        """Results beside the paper's, chains of facts, mistakes."""
        from lawful.tasks.qa._exhibits import qa_exhibits

        return qa_exhibits(self, cast(FactReader, model), split)

    def predict(self, model: nn.Module, path: Path) -> Iterator[dict[str, Any]]:
        """Answer and chain of facts for every question of a file in bAbI format."""
        if not path.is_file():
            raise expected("input", "a file in bAbI format", str(path))
        found = list(parse_story(read_text(path), str(path), answers=False))
        if not found:
            raise expected(str(path), "at least one question", "none")
        for start in range(0, len(found), _GROUP):
            yield from self._answers(cast(FactReader, model), found[start : start + _GROUP])

    def _answers(
        self, model: FactReader, questions: Sequence[Question]
    ) -> Iterator[dict[str, Any]]:
        assert self.known is not None
        source = self._questions(questions)
        batch = to_device(source.batch(range(len(source))), model.ranking.device)
        with torch.no_grad():
            reading, chosen = model.eval().choose(*inputs(batch))
        best = int(model.ranking[0])
        p = reading.logits[best].softmax(-1)
        for i, question in enumerate(questions):
            kept = question.facts[-self.config.memory :]
            places = chosen[best, i].tolist()
            row: dict[str, Any] = {
                "question": " ".join(question.words),
                "answer": self.known.answers[int(p[i].argmax())],
                "probability": float(p[i].max()),
                "facts": [" ".join(kept[k]) for k in places],
                "weights": [float(reading.weights[best, i, s, k]) for s, k in enumerate(places)],
            }
            unknown = {w for s in (*kept, question.words) for w in s if w not in self.known.ids}
            if unknown:
                row["unknown_words"] = sorted(unknown)
            if question.answer:
                row["right"] = row["answer"] == question.answer
            yield row

    def state(self) -> dict[str, Any]:
        """The words and answers of training."""
        assert self.known is not None
        return self.known.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned; from then on no initialisation is chosen anew."""
        self.known, self.restored = Words.from_state(state), True


class QAEvaluation(Evaluation):
    """Answers and chains of facts of the best initialisation.

    "accuracy": right answers. "fact_accuracy": chains that are the supporting facts, all of them
    and in the data's order, among the questions with as many as the model has hops; left out where
    there are none. "fact_accuracy_half": the same, mean over the better half of initialisations,
    as the paper does. Held-out questions also rank the initialisations, by answers and then loss.
    """

    def __init__(self) -> None:
        self.questions = self.chains = 0
        self.sums: dict[str, Tensor] = {}  # of each copy
        self.model: FactReader | None = None
        self.held_out = False

    def update(self, model: nn.Module, batch: Batch) -> None:
        """Adds a batch."""
        model = cast(FactReader, model)
        reading, chosen = model.choose(*inputs(batch))
        answer = batch["answer"].expand(reading.logits.shape[:2])
        each = cross_entropy(
            reading.logits.transpose(1, 2), answer, ignore_index=-1, reduction="none"
        )
        hops = chosen.shape[-1]
        whole = batch["number"] == hops
        same = (chosen == batch["support"][:, :hops]).all(-1) & whole
        found = {
            "loss": each.double().sum(1),
            "accuracy": (reading.logits.argmax(-1) == answer).double().sum(1),
            "fact_accuracy": same.double().sum(1),
        }
        for name, value in found.items():
            self.sums[name] = self.sums.get(name, torch.zeros_like(value)) + value
        self.questions += len(batch["answer"])
        self.chains += int(whole.sum())
        self.model, self.held_out = model, bool(batch["held_out"].any())

    def compute(self) -> dict[str, float]:
        """Loss in nats per question, and shares."""
        assert self.model is not None
        if self.held_out:
            right, loss = self.sums["accuracy"].tolist(), self.sums["loss"].tolist()
            order = sorted(range(len(right)), key=lambda i: (-right[i], loss[i]))
            self.model.ranking.copy_(torch.tensor(order))
        ranking = self.model.ranking.tolist()
        counts = {"fact_accuracy": self.chains}
        found = {
            name: float(each[ranking[0]]) / counts.get(name, self.questions)
            for name, each in self.sums.items()
            if counts.get(name, 1)
        }
        if self.chains:
            half = ranking[: max(len(ranking) // 2, 1)]
            mean = self.sums["fact_accuracy"][half].mean() / self.chains
            found["fact_accuracy_half"] = float(mean)
        return found
