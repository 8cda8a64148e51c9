"""What a person wants to see of a tagger."""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from lawful.models import Tagger
from lawful.tasks._base import Split, to_device
from lawful.tasks.exhibits import Array, Exhibit, Heatmap, Table, Text
from lawful.tasks.treebank._task import inputs

if TYPE_CHECKING:
    from lawful.tasks.tagging._task import TaggingTask

_SENTENCES = 2000  # enough for the tables; predictions of a whole large split would take long
_SHOWN_TAGS = 20
_EXAMPLES = 12


@dataclass
class _Seen:
    """Right and predicted tags of many words."""

    confusion: Array  # (gold, found)
    wrong: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)


def tagging_exhibits(task: "TaggingTask", model: nn.Module, split: Split) -> list[Exhibit]:
    """Scores by tag, confusions, frequent errors, transitions, and tagged sentences."""
    seen = _look(task, model, split)
    shown = min(_SHOWN_TAGS, len(task.tags))
    names = task.tags[:shown]
    counts = seen.confusion[:shown, :shown].astype(float)
    shares = counts / np.maximum(seen.confusion[:shown].sum(1, keepdims=True), 1)
    views: list[Exhibit] = [
        _by_tag(task.tags, seen.confusion),
        Heatmap(
            "Confusions", shares, "predicted", "right", names, names,
            note="Each row: how the words of a right tag were tagged, as shares of the row.",
        ),
        Table(
            "Most frequent errors",
            ("word", "right", "predicted", "times"),
            [(*key, n) for key, n in seen.wrong.most_common(15)],
        ),
    ]  # fmt: skip
    if isinstance(model, Tagger) and model.chained:
        views.append(_transitions(model, names))
    note = "Word/tag; a wrong tag is followed by the right one in brackets."
    views.append(Text("Tagged sentences", seen.lines, note))
    return views


def _look(task: "TaggingTask", model: nn.Module, split: Split) -> _Seen:
    source, n = task.source(split), len(task.tags)
    device = next(model.parameters()).device
    seen = _Seen(np.zeros((n, n), dtype=np.int64))
    sentences = task.sentences(split)
    for start in range(0, min(len(source), _SENTENCES), 64):
        batch = source.batch(range(start, min(start + 64, len(source), _SENTENCES)))
        batch = to_device(batch, device)
        with torch.no_grad():
            found = model(*inputs(batch)).chain(batch["lengths"]).argmax
        for g, f in zip(batch["tags"].tolist(), found.tolist(), strict=True):
            _count(seen, task.tags, next(sentences), g, f)
    return seen


def _count(
    seen: _Seen, tags: list[str], words: list[str], gold: list[int], found: list[int]
) -> None:
    pieces = []
    for word, g, f in zip(words, gold, found, strict=False):
        right = tags[g] if g >= 0 else "(new)"
        if g >= 0:
            seen.confusion[g, f] += 1
        if g != f:
            seen.wrong[word, right, tags[f]] += 1
        pieces.append(f"{word}/{tags[f]}" + (f" [{right}]" if g != f else ""))
    if len(seen.lines) < _EXAMPLES:
        seen.lines.append("  ".join(pieces))


def _by_tag(tags: list[str], confusion: Array) -> Table:
    rows = []
    for i, tag in enumerate(tags):
        gold, found, right = confusion[i].sum(), confusion[:, i].sum(), confusion[i, i]
        precision, recall = right / max(found, 1), right / max(gold, 1)
        f1 = 2 * right / max(gold + found, 1)
        if gold or found:
            rows.append((tag, int(gold), float(precision), float(recall), float(f1)))
    return Table("Scores by tag", ("tag", "words", "precision", "recall", "F1"), rows)


def _transitions(model: Tagger, names: list[str]) -> Heatmap:
    n = len(names)
    start, end = model.start[:n, None], model.end[None, :n]
    corner = torch.full((1, 1), torch.nan, device=start.device)
    values = torch.cat(
        [
            torch.cat([start.T, corner], 1),
            torch.cat([model.transition[:n, :n], end.T], 1),
        ]
    )
    values = values.nan_to_num(0.0).detach().float().cpu()
    return Heatmap(
        "Transitions", values.numpy(), "next tag", "tag", [*names, "(end)"], ["(start)", *names],
        "diverging",
        note="Log-potential of a tag followed by another; what the tagger learned of neighbours.",
    )  # fmt: skip
