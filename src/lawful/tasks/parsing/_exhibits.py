"""What a person wants to see of a parser."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from lawful.models import BiaffineParser
from lawful.tasks._base import Batch, Split, to_device
from lawful.tasks.exhibits import Arcs, Curves, Exhibit, Heatmap, Table
from lawful.tasks.parsing._decode import ROOT, marginals
from lawful.tasks.treebank._task import inputs

if TYPE_CHECKING:
    from lawful.tasks.parsing._task import ParsingTask

_SENTENCES = 2000
_TREES = 6
_BUCKETS = (5, 10, 15, 20, 30, 40, 60)  # upper ends of sentence lengths; more goes last
_FARTHEST = 10


@dataclass
class _Counts:
    """[words, right heads, right heads and labels] by some key."""

    by: dict[str, dict[int | str, list[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(lambda: [0, 0, 0]))
    )

    def add(self, kind: str, key: int | str, head: bool, label: bool) -> None:
        """One word."""
        entry = self.by[kind][key]
        entry[0] += 1
        entry[1] += head
        entry[2] += head and label


def parsing_exhibits(task: "ParsingTask", model: nn.Module, split: Split) -> list[Exhibit]:
    """Scores by relation, sentence length and arc length; trees; one sentence's marginals."""
    counts, trees = _look(task, model, split)
    relations = sorted(counts.by["relation"].items(), key=lambda item: -item[1][0])
    rows = [(name, n, uas / n, las / n) for name, (n, uas, las) in relations]
    note = "By the right relation. LAS compares labels without their subtypes."
    views: list[Exhibit] = [
        Table("Scores by relation", ("relation", "words", "UAS", "LAS"), rows, note),
        _curve(counts, "length", "UAS and LAS by length of sentence", "words, up to"),
        _curve(
            counts, "distance", "UAS and LAS by distance to the head", "words between, plus one"
        ),
        *trees,
    ]
    view = _probabilities(task, model, split)
    return [*views, view] if view else views


def _look(task: "ParsingTask", model: nn.Module, split: Split) -> tuple[_Counts, list[Arcs]]:
    source, counts = task.source(split), _Counts()
    device = next(model.parameters()).device
    sentences = task.sentences(split)
    trees: list[Arcs] = []
    for start in range(0, min(len(source), _SENTENCES), 64):
        batch = source.batch(range(start, min(start + 64, len(source), _SENTENCES)))
        with torch.no_grad():
            found = task.parse(model, to_device(batch, device))
        heads, labels = (x.cpu() for x in found)
        coarse = task.coarse()[labels]
        for i in range(len(heads)):
            words = next(sentences)
            row = {
                k: batch[k][i, : len(words)].tolist()
                for k in ("heads", "labels", "coarse", "scored")
            }
            _count(task, counts, row, heads[i].tolist(), coarse[i].tolist())
            if len(trees) < _TREES and 5 <= len(words) <= 16:
                names = [task.labels[t] for t in labels[i, : len(words)].tolist()]
                trees.append(_tree(words, heads[i].tolist(), names, row["heads"]))
    return counts, trees


def _count(
    task: "ParsingTask",
    counts: _Counts,
    row: dict[str, list[int]],
    heads: list[int],
    coarse: list[int],
) -> None:
    length = next((b for b in _BUCKETS if len(row["heads"]) <= b), 2 * _BUCKETS[-1])
    for m, gold in enumerate(row["heads"]):
        if not row["scored"][m]:
            continue
        head, label = heads[m] == gold, coarse[m] == row["coarse"][m]
        known = row["labels"][m]
        counts.add("relation", task.labels[known] if known >= 0 else "(new)", head, label)
        counts.add("length", length, head, label)
        distance = 0 if gold == ROOT else min(abs(gold - m), _FARTHEST)
        counts.add("distance", distance, head, label)


def _tree(words: list[str], heads: list[int], labels: list[str], gold: list[int]) -> Arcs:
    n = len(words)
    right = sum(h == g for h, g in zip(heads, gold, strict=False))
    return Arcs(
        f"{' '.join(words[:6])} ...: {right} of {n} heads right", words, heads[:n], labels, gold
    )


def _curve(counts: _Counts, kind: str, title: str, xlabel: str) -> Curves:
    points = sorted((int(k), v) for k, v in counts.by[kind].items())
    x = [float(k) for k, _ in points]
    series = {name: (x, [v[at] / v[0] for _, v in points]) for name, at in (("UAS", 1), ("LAS", 2))}
    note = {
        "length": f"The last point holds all longer sentences than {_BUCKETS[-1]}.",
        "distance": f"0 is the root; {_FARTHEST} holds all farther ones.",
    }[kind]
    return Curves(title, series, xlabel, "share right", note=note)


def _probabilities(task: "ParsingTask", model: nn.Module, split: Split) -> Heatmap | None:
    """The marginals of a sentence of middling length."""
    assert isinstance(model, BiaffineParser)
    source = task.source(split)
    fitting = [i for i, n in enumerate(source.lengths.tolist()) if 8 <= n <= 18]
    if not fitting:
        return None
    batch: Batch = to_device(source.batch(fitting[:1]), next(model.parameters()).device)
    with torch.no_grad():
        arcs, root = model.arcs(model.states(*inputs(batch)))
        arcs, root = marginals(model, arcs, root, batch["lengths"])
    values = torch.cat([root[:, None], arcs], 1)[0].float().cpu().numpy()
    words = next(w for i, w in enumerate(task.sentences(split)) if i == fitting[0])
    note = "Column: how probable each head of a word is; columns sum to 1. From the marginals."
    return Heatmap(
        "Probability of arcs",
        np.asarray(values),
        "word",
        "head",
        words,
        ["(root)", *words],
        note=note,
    )
