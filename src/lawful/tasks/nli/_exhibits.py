"""What a person wants to see of an entailment model."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from lawful.models import EntailmentModel
from lawful.structures import ProjectiveTree, SpanningTree
from lawful.tasks._base import Split, batches, to_device
from lawful.tasks.exhibits import Arcs, Exhibit, Heatmap, Table
from lawful.tasks.nli._pairs import LABELS, Pair
from lawful.tasks.nli._published import PUBLISHED, published_row
from lawful.tasks.nli._task import NLITask, Pairs, pair_of

Ints = npt.NDArray[np.int64]
_SHOWN = 3  # pairs, one of each label
_MISTAKES = 10
_LONGEST = 16  # words of a premise that is drawn
_FIRST = 2000  # pairs among which examples and mistakes are found
_FULL = 549_367  # labelled training pairs of SNLI


def nli_exhibits(task: NLITask, model: EntailmentModel, split: Split) -> list[Exhibit]:
    """Results beside the paper's, confusions, trees, parents, alignments, mistakes."""
    model.eval()
    source = task.source(split)
    with torch.no_grad():
        said = _predictions(model, source)
        right = np.array([LABELS.index(p.label) for p in source.pairs])
        views: list[Exhibit] = [_results(task, model, said, right), _confusions(said, right)]
        for number in _examples(source.pairs):
            views += _one(model, source, number, said)
    views.append(_mistakes(source.pairs, said, right))
    return views


def _predictions(model: EntailmentModel, source: Pairs) -> Ints:
    place = next(model.parameters()).device
    found = [model(pair_of(to_device(b, place))).argmax(-1).cpu() for b in batches(source, 128)]
    result: Ints = torch.cat(found).numpy()
    return result


def _results(task: NLITask, model: EntailmentModel, said: Ints, right: Ints) -> Table:
    own = published_row(model.config)
    ours = 100 * float((said == right).mean())
    rows = [(name, ours if name == own else None, value) for name, value in PUBLISHED.items()]
    pairs = len(task.parts["train"])
    note = (
        f"Accuracy in percent. Trained on {pairs:,} pairs; the paper's models on {_FULL:,} of "
        "SNLI, with GloVe vectors of 300 numbers. "
    )
    if task.data is None:
        note += "These are pairs of our own, so the columns do not compare."
    elif not task.config.vectors:
        note += "Word vectors here are trained on those pairs alone."
    return Table("Results", ("attention inside sentences", "ours", "paper"), rows, note)


def _confusions(said: Ints, right: Ints) -> Heatmap:
    counts = np.zeros((3, 3))
    np.add.at(counts, (right, said), 1)
    return Heatmap("Confusions", counts, "said", "right", LABELS, LABELS, annotate=True)


def _examples(pairs: Sequence[Pair]) -> list[int]:
    """Of each label the first pair that is not too long to draw."""
    first: dict[str, int] = {}
    for i, p in enumerate(pairs[:_FIRST]):
        if 4 <= len(p.premise) <= _LONGEST and len(p.hypothesis) <= _LONGEST:
            first.setdefault(p.label, i)
    return [first[name] for name in LABELS if name in first][:_SHOWN]


def _one(model: EntailmentModel, source: Pairs, number: int, said: Ints) -> list[Exhibit]:
    pair = pair_of(to_device(source.batch([number]), next(model.parameters()).device))
    words = source.pairs[number]
    premise, hypothesis = ["ROOT", *words.premise], ["ROOT", *words.hypothesis]
    name = f"{words.label}, {'found' if LABELS[said[number]] == words.label else 'missed'}"
    views: list[Exhibit] = []
    for side, tokens, lengths, given, shown in (
        ("premise", pair.premise, pair.premise_lengths, pair.premise_parents, premise),
        (
            "hypothesis",
            pair.hypothesis,
            pair.hypothesis_lengths,
            pair.hypothesis_parents,
            hypothesis,
        ),
    ):
        views += _tree(model, tokens, lengths, given, shown, f"of a {side} ({name})")
    looks = model.alignment(pair)[0].cpu().numpy()
    note = "Row: a word of the hypothesis; where it looks in the premise."
    title = f"Alignment ({name})"
    views.append(Heatmap(title, looks, "premise", "hypothesis", premise, hypothesis, note=note))
    return views


def _tree(
    model: EntailmentModel,
    tokens: torch.Tensor,
    lengths: torch.Tensor,
    given: torch.Tensor | None,
    words: Sequence[str],
    name: str,
) -> list[Exhibit]:
    weights = given if given is not None else model.parents(tokens, lengths)
    if weights is None:
        return []
    views: list[Exhibit] = []
    heads = _heads(model, tokens, lengths, given)
    if heads is not None:
        note = "The tree of the parser." if given is not None else (
            "The tree whose arcs are the most probable ones. Nobody has shown it one."
        )  # fmt: skip
        views.append(Arcs(f"Tree {name}", words, [-1, *heads], note=note))
    note = "Row: a word; how its attention falls on its possible parents."
    values = weights[0].cpu().numpy()
    views.append(Heatmap(f"Parents {name}", values, "parent", "word", words, words, note=note))
    return views


def _heads(
    model: EntailmentModel, tokens: torch.Tensor, lengths: torch.Tensor, given: torch.Tensor | None
) -> list[int] | None:
    """Heads of the words behind the root, as places in the sentence with it."""
    if given is not None:
        found: list[int] = given[0, 1:].argmax(-1).tolist()
        return found
    d = model.trees(tokens, lengths)
    if not isinstance(d, ProjectiveTree | SpanningTree):
        return None
    return [h + 1 for h in d.mbr[0].tolist()]


def _mistakes(pairs: Sequence[Pair], said: Ints, right: Ints) -> Table:
    wrong = [i for i in range(min(_FIRST, len(pairs))) if said[i] != right[i]]
    rows = [
        (" ".join(pairs[i].premise), " ".join(pairs[i].hypothesis), LABELS[said[i]], pairs[i].label)
        for i in wrong[:_MISTAKES]
    ]
    note = f"{len(wrong)} of the first {min(_FIRST, len(pairs))} pairs."
    return Table("Mistakes", ("premise", "hypothesis", "said", "right"), rows, note)
