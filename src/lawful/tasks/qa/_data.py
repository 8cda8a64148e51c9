"""Questions as tensors: each distinct sentence once, as sums over its words."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from lawful.errors import InputError
from lawful.tasks._base import Batch
from lawful.tasks.qa._babi import Question

__all__ = ["NOWHERE", "UNUSED", "Questions", "Words"]

NOWHERE = -1  # a supporting fact that the memory does not reach back to
UNUSED = -2  # no supporting fact


class Words:
    """The words of facts and questions, and the answers, as numbers."""

    def __init__(self, words: Sequence[str], answers: Sequence[str]) -> None:
        self.words, self.answers = list(words), list(answers)
        self.ids = {w: i for i, w in enumerate(self.words)}
        self.answer_ids = {a: i for i, a in enumerate(self.answers)}

    @classmethod
    def of(cls, questions: Sequence[Question]) -> "Words":
        """Those of training questions, sorted."""
        sentences = {s for q in questions for s in (*q.facts, q.words)}
        words = sorted({w for s in sentences for w in s})
        return cls(words, sorted({q.answer for q in questions}))

    def state(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"words": self.words, "answers": self.answers}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Words":
        """From what `state` returned."""
        if not (state.get("words") and state.get("answers")):
            raise InputError("task state: expected words and answers of a qa run, got none")
        return cls(state["words"], state["answers"])

    def features(self, sentence: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """(V, 2): for each word the sums of 1 - j/J and of 2j/J - 1 over its places j of J.

        Unknown words add nothing.
        """
        out = np.zeros((len(self.words), 2), np.float32)
        for j, word in enumerate(sentence, 1):
            if word in self.ids:
                place = j / len(sentence)
                out[self.ids[word]] += (1 - place, 2 * place - 1)
        return out


class Questions:
    """Questions as batches.

    Args:
        questions: The questions.
        known: Words and answers.
        memory: Facts kept of each question, the latest ones.
        hops: Columns of "support".
        held_out: Whether initialisations are chosen by these questions.
    """

    endless = False

    def __init__(
        self,
        questions: Sequence[Question],
        known: Words,
        memory: int,
        hops: int,
        held_out: bool = False,
    ) -> None:
        self.questions, self.known, self.memory, self.held_out = questions, known, memory, held_out
        table: dict[tuple[str, ...], int] = {}
        rows = [(table.setdefault(q.words, len(table)), self._kept(q)) for q in questions]
        self._asked = np.array([asked for asked, _ in rows], np.int64)
        self.counts = np.array([len(kept) for _, kept in rows], np.int64)
        self._facts = np.zeros((len(rows), int(self.counts.max(initial=1))), np.int64)
        for i, (_, kept) in enumerate(rows):
            self._facts[i, : len(kept)] = [table.setdefault(s, len(table)) for s in kept]
        self._features = np.stack([known.features(s) for s in table] or [known.features(())])
        answers = [known.answer_ids.get(q.answer, -1) for q in questions]
        self._answers = np.array(answers, np.int64)
        self._support = np.full((len(rows), hops), UNUSED, np.int64)
        self._number = np.array([len(q.support) for q in questions], np.int64)
        for i, q in enumerate(questions):
            gone = len(q.facts) - len(rows[i][1])
            places = [max(p - gone, NOWHERE) for p in q.support[:hops]]
            self._support[i, : len(places)] = places

    def _kept(self, question: Question) -> tuple[tuple[str, ...], ...]:
        return question.facts[-self.memory :]

    def __len__(self) -> int:
        """Number of questions."""
        return len(self.questions)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Tensors of these questions.

        "sentences" (S, V, 2) are the distinct sentences of the batch; "question" (B) and "facts"
        (B, N) say which they are, "lengths" (B) how many facts there are; "answer" (B) is -1 for
        one that training did not have; "support" (B, K) are places among the facts, or `NOWHERE`,
        or `UNUSED`, and "number" (B) is how many facts support the answer.
        """
        at = np.asarray(indices, np.int64)
        counts = self.counts[at]
        facts = self._facts[at, : int(counts.max(initial=1))].copy()
        asked = self._asked[at]
        facts[np.arange(facts.shape[1]) >= counts[:, None]] = asked[0] if len(at) else 0
        used, places = np.unique(np.concatenate([asked, facts.reshape(-1)]), return_inverse=True)
        question, rest = places[: len(at)], places[len(at) :]
        arrays = {
            "sentences": self._features[used],
            "question": question,
            "facts": rest.reshape(facts.shape),
            "lengths": counts,
            "answer": self._answers[at],
            "support": self._support[at],
            "number": self._number[at],
            "held_out": np.full(len(at), self.held_out),
        }
        return {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}
