"""What a person wants to see of a reader of facts."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import torch

from lawful.models import BinaryChainConfig, FactReader
from lawful.tasks._base import Batch, Split, batches, to_device
from lawful.tasks.exhibits import Exhibit, Heatmap, Table
from lawful.tasks.qa._babi import Question
from lawful.tasks.qa._data import Questions
from lawful.tasks.qa._published import HOPS, PUBLISHED, published_row
from lawful.tasks.qa._task import QAEvaluation, QATask, inputs

_LOOKED_AT = 200  # questions among which examples are found
_CHAINS = 3
_MISTAKES = 12
_MOST_FACTS = 14  # of a story that is drawn


class _Answered(NamedTuple):
    """A question, the answer given and its probability, and the chosen facts."""

    number: int
    question: Question
    answer: str
    probability: float
    chosen: list[int]

    @property
    def right(self) -> bool:
        """Whether the answer is."""
        return self.answer == self.question.answer


def qa_exhibits(task: QATask, model: FactReader, split: Split) -> list[Exhibit]:
    """Results beside the paper's, the initialisations, chains of facts, mistakes."""
    model.eval()
    source = task.source(split)
    with torch.no_grad():
        evaluation = QAEvaluation()
        for batch in batches(source, 100):
            # Whatever part is shown, showing it must not choose an initialisation.
            batch["held_out"].zero_()
            evaluation.update(model, to_device(batch, model.ranking.device))
        found = _answered(task, model, source)
        views: list[Exhibit] = [_results(task, model, evaluation.compute())]
        if model.config.restarts > 1:
            views.append(_copies(model, evaluation))
        views += [_chain(model, source, a) for a in _examples(found)]
        views += _pairs(model, source, found)
        views.append(_mistakes(task, found))
    return views


def _results(task: QATask, model: FactReader, ours: dict[str, float]) -> Table:
    number = re.match(r"qa(\d+)_", task.story)
    story = int(number[1]) if number else 0
    row = published_row(model)
    paper = PUBLISHED[row].get(story) if len(task.parts["test"]) == 1000 else None
    titles = {"accuracy": "answers", "fact_accuracy_half": "chains of facts"}
    theirs = dict(zip(titles, paper or (None, None), strict=True))
    rows = [(t, 100 * ours[k], theirs[k]) for k, t in titles.items() if k in ours]
    note = (
        "Right answers, and chains that are the supporting facts, all and in order, in percent. "
        "Answers are those of the initialisation that did best on held-out questions; chains are "
        "a mean over the better half of the initialisations, as in the paper. "
    )
    if paper is None:
        note += "The paper has no number for these stories."
    else:
        note += f"Paper: Kim et al. 2017, Table 4, {row}, 20 initialisations, one model each."
        if model.config.hops != HOPS[story]:
            note += f" It chose {HOPS[story]} facts, not {model.config.hops}."
    return Table("Results", ("measure", "ours", "paper"), rows, note)


def _copies(model: FactReader, evaluation: QAEvaluation) -> Table:
    right = evaluation.sums["accuracy"] / max(evaluation.questions, 1)
    chains = evaluation.sums["fact_accuracy"] / max(evaluation.chains, 1)
    rows = [
        (place, 100 * float(right[i]), 100 * float(chains[i]) if evaluation.chains else None)
        for place, i in enumerate(model.ranking.tolist(), 1)
    ]
    note = "By their rank on held-out questions, at the update where the best of them was best."
    return Table("Initialisations", ("rank", "answers", "chains of facts"), rows, note)


def _answered(task: QATask, model: FactReader, source: Questions) -> list[_Answered]:
    assert task.known is not None
    count = min(_LOOKED_AT, len(source))
    batch = to_device(source.batch(range(count)), model.ranking.device)
    reading, chosen = model.choose(*inputs(batch))
    best = int(model.ranking[0])
    top, said = reading.logits[best].softmax(-1).max(-1)
    return [
        _Answered(
            i,
            source.questions[i],
            task.known.answers[int(said[i])],
            float(top[i]),
            chosen[best, i].tolist(),
        )
        for i in range(count)
    ]


def _examples(found: Sequence[_Answered]) -> list[_Answered]:
    """Right ones, of different questions, and one that is wrong, in small stories."""
    small = [a for a in found if len(a.question.facts) <= _MOST_FACTS] or list(found)
    right = list({a.question.words: a for a in reversed(small) if a.right}.values())
    return [*right[: _CHAINS - 1], *[a for a in small if not a.right][:1]]


def _one(model: FactReader, source: Questions, number: int) -> tuple[Batch, list[str]]:
    batch = to_device(source.batch([number]), model.ranking.device)
    question = source.questions[number]
    gone = len(question.facts) - int(batch["lengths"][0])
    marks = [" *" if i in question.support else "" for i in range(len(question.facts))]
    labels = [" ".join(f) + m for f, m in zip(question.facts, marks, strict=True)]
    return batch, labels[gone:]


def _chain(model: FactReader, source: Questions, answered: _Answered) -> Heatmap:
    batch, labels = _one(model, source, answered.number)
    weights = model(*inputs(batch)).weights[int(model.ranking[0]), 0].mT.cpu().numpy()
    question = answered.question
    verdict = "right" if answered.right else f"wrong: {question.answer}"
    return Heatmap(
        f"{' '.join(question.words)}? {answered.answer} ({verdict})",
        weights,
        "step",
        "facts, oldest first",
        [str(k + 1) for k in range(weights.shape[1])],
        labels,
        annotate=True,
        note=f"How much each step attends to each fact; * supports the answer. Probability of "
        f"the answer: {answered.probability:.2f}.",
    )


def _pairs(model: FactReader, source: Questions, found: Sequence[_Answered]) -> list[Heatmap]:
    """Probabilities of neighbouring choices in one story, as figure 5 of the paper."""
    small = [a for a in _examples(found) if a.right]
    if not (small and isinstance(model.config, BinaryChainConfig) and model.config.hops > 1):
        return []
    batch, labels = _one(model, source, small[0].number)
    chain = model.chain(*inputs(batch))
    assert chain is not None
    pairs = chain.edge_marginals[int(model.ranking[0]), 0].cpu().numpy()
    steps = [f"steps {k + 1} and {k + 2}" for k in range(len(pairs))]
    one = len(pairs) == 1
    return [
        Heatmap(
            "Pairs of facts: " + " ".join(small[0].question.words) + "?",
            pairs[0] if one else pairs,
            "next step",
            "step",
            labels,
            labels,
            note="Probability that one fact is chosen and then the other; * supports the answer.",
            panels=None if one else steps,
        )
    ]


def _mistakes(task: QATask, found: Sequence[_Answered]) -> Table:
    wrong = [a for a in found if not a.right]
    rows = []
    for a in wrong[:_MISTAKES]:
        facts = a.question.facts[-task.config.memory :]
        gone = len(a.question.facts) - len(facts)
        chosen = "; ".join(" ".join(facts[k]) for k in a.chosen)
        support = "; ".join(" ".join(a.question.facts[k]) for k in a.question.support)
        if any(k < gone for k in a.question.support):
            support += " (partly beyond the memory)"
        row = (" ".join(a.question.words), a.answer, a.question.answer, chosen, support)
        rows.append(row)
    note = f"{len(wrong)} of the first {len(found)} questions."
    columns = ("question", "answer", "right answer", "chosen facts", "supporting facts")
    return Table("Mistakes", columns, rows, note)
