"""What a person wants to see of a translator."""

from collections.abc import Sequence

import torch

from lawful.attention import SegmentationAttention
from lawful.models import TranslatorModel
from lawful.tasks._base import Split
from lawful.tasks.exhibits import Exhibit, Heatmap, Table, Text
from lawful.tasks.translation._task import TranslationTask, corpus_bleu
from lawful.tasks.translation._vocabulary import END, START

_SAMPLES, _ALIGNED = 12, 3
_MOST = 400  # sentences behind the figures by length


def translation_exhibits(
    task: TranslationTask, model: TranslatorModel, split: Split
) -> list[Exhibit]:
    """Data and coverage, BLEU by length, translations, alignments, the table of neighbours."""
    model.eval()
    pairs = task.source(split).pairs
    with torch.no_grad():
        said = _said(task, model, [s for s, _ in pairs[:_MOST]])
        views: list[Exhibit] = [
            _data(task),
            _by_length(task, split, said),
            _samples(task, split, said),
        ]
        views += [_alignment(task, model, split, i) for i in range(min(_ALIGNED, len(pairs)))]
        if isinstance(model.attention, SegmentationAttention):
            views.append(_neighbours(model.attention))
    return views


def _said(
    task: TranslationTask, model: TranslatorModel, sources: Sequence[Sequence[str]]
) -> list[list[str]]:
    found: list[list[str]] = []
    for start in range(0, len(sources), 100):
        found += task.translate(model, sources[start : start + 100])[0]
    return found


def _data(task: TranslationTask) -> Table:
    rows = []
    for name in ("train", "valid", "test"):
        pairs = task.source(name).pairs
        source, target = [s for s, _ in pairs], [t for _, t in pairs]
        known = (task.source_words.unknown(source), task.target_words.unknown(target))
        size = (sum(map(len, source)), sum(map(len, target)))
        rows.append((name, len(pairs), *size, *(100 * u for u in known)))
    columns = ("part", "pairs", "source tokens", "target tokens", "unknown source %",
               "unknown target %")  # fmt: skip
    c, n = task.config, task.corpus.dropped
    note = (
        f"Source by {c.source_unit}, target by {c.target_unit}; {len(task.source_words):,} and "
        f"{len(task.target_words):,} known tokens."
    )
    return Table("Data", columns, rows, note + (f" {n:,} pairs had an empty side." if n else ""))


def _by_length(task: TranslationTask, split: Split, said: Sequence[Sequence[str]]) -> Table:
    pairs = task.source(split).pairs[: len(said)]
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]))
    cuts = [order[len(order) * k // 4 : len(order) * (k + 1) // 4] for k in range(4)]
    rows = []
    for cut in (c for c in [*cuts, order] if c):
        ours = [" ".join(said[i]) for i in cut]
        wanted = [" ".join(pairs[i][1]) for i in cut]
        sizes = sorted(len(pairs[i][0]) for i in cut)
        ratio = sum(len(said[i]) for i in cut) / sum(len(pairs[i][1]) for i in cut)
        exact = 100 * sum(a == b for a, b in zip(ours, wanted, strict=True)) / len(cut)
        name = f"{sizes[0]} to {sizes[-1]}" if cut is not order else "all"
        rows.append((name, len(cut), corpus_bleu(ours, wanted), exact, ratio))
    columns = ("source tokens", "sentences", "BLEU", "exact %", "length ratio")
    note = (
        "Corpus BLEU in percent over the given tokens, one reference, cased, beam "
        f"{task.config.beam}. The paper's scores are on data that are not public."
    )
    return Table("Quality by length of the source", columns, rows, note)


def _samples(task: TranslationTask, split: Split, said: Sequence[Sequence[str]]) -> Text:
    pairs = task.source(split).pairs[: len(said)]
    lines = []
    gap = "" if task.config.source_unit == "char" else " "
    step = max(1, len(pairs) // _SAMPLES)
    for i in range(0, len(pairs), step)[:_SAMPLES]:
        source, target = pairs[i]
        lines += [
            f"source     {gap.join(source)}",
            f"reference  {task.join(target)}",
            f"ours       {task.join(said[i])}",
            "",
        ]
    return Text("Translations", lines[:-1])


def _alignment(task: TranslationTask, model: TranslatorModel, split: Split, index: int) -> Heatmap:
    source, _ = task.source(split).pairs[index]
    said = task.translate(model, [source])[0][0]
    place = next(model.parameters()).device
    codes = torch.tensor([task.source_words.encode(source)], device=place)
    target = torch.tensor([[START, *task.target_words.encode(said)]], device=place)
    lengths = torch.tensor([len(source)], device=place)
    weights = model.alignment(codes, lengths, target)[0].cpu().numpy()
    note = "Where the decoder looks when it says each token of its own translation."
    return Heatmap(
        f"Alignment {index + 1}", weights, "source", "says", source,
        [*said, task.target_words.tokens[END]], note=note,
    )  # fmt: skip


def _neighbours(attention: SegmentationAttention) -> Heatmap:
    names = ("outside", "inside")
    note = (
        "Learned scores b of neighbouring positions; a large value of inside to inside draws "
        "attention into segments."
    )
    values = attention.transition.detach().cpu().numpy()
    return Heatmap("Scores of neighbours", values, "next position", "position", names, names,
                   scale="diverging", annotate=True, note=note)  # fmt: skip
