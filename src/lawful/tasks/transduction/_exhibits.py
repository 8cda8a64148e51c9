"""What a person wants to see of a transducer."""

from collections.abc import Sequence

import numpy as np
import torch

from lawful.attention import SyntacticAttention
from lawful.models import (
    SimpleTransducerConfig,
    TransducerConfig,
    TransducerModel,
    TreeTransducerConfig,
)
from lawful.structures import ProjectiveTree, SpanningTree
from lawful.tasks._base import Batch, Split, batches, to_device
from lawful.tasks.exhibits import Arcs, Exhibit, Heatmap, Table, Text
from lawful.tasks.transduction._grammar import BOS, EOS, NAMES, encode, infix, parse
from lawful.tasks.transduction._task import Pair, TransductionTask, collate, decode, failures

#: Table 2 of Kim et al. (2017), in percent, by depth.
PUBLISHED = {
    "none": {2: 7.6, 3: 4.1, 4: 2.8, 5: 2.1, 6: 1.5},
    "simple": {2: 87.4, 3: 49.6, 4: 23.3, 5: 15.0, 6: 8.5},
    "structured": {2: 99.2, 3: 87.0, 4: 64.5, 5: 30.8, 6: 18.2},
}
#: The paper's example of depth 3.
EXAMPLE = "( * ( + ( + 15 7 ) 1 8 ) ( + 19 0 11 ) )"
_SAMPLES = 8


def transduction_exhibits(
    task: TransductionTask, model: TransducerModel, split: Split
) -> list[Exhibit]:
    """Results by depth, samples, and for one formula: soft parents, trees, alignment."""
    model.eval()
    with torch.no_grad():
        views: list[Exhibit] = [_results(task, model, split), _samples(task, model, split)]
        batch, tokens = _formula(model)
        if model.parser is not None:
            views.append(_parents(model, batch, tokens))
            views += _trees(model, model.parser, batch, tokens)
        views.append(_alignment(model, batch, tokens))
    return views


def _kind(config: TransducerConfig) -> tuple[str, bool]:
    """Which row of the paper's table a model belongs to, and whether it is the paper's model."""
    if not isinstance(config, SimpleTransducerConfig):
        return "none", True
    plain = config.squash and config.heads == 1
    if not isinstance(config, TreeTransducerConfig):
        return "simple", plain
    return "structured", plain and not (config.crossing or config.uniform or config.single_root)


def by_depth(
    task: TransductionTask, model: TransducerModel, split: Split, width: int
) -> dict[int, float]:
    """Mean length to failure of beam search at each depth, in percent."""
    total: dict[int, list[float]] = {}
    place = next(model.parameters()).device
    for batch in batches(task.source(split), 100):
        batch = to_device(batch, place)
        want = batch["target"][:, 1:]
        said, _ = model.generate(
            batch["source"],
            batch["lengths"],
            start=BOS,
            end=EOS,
            limit=want.shape[1],
            width=width,
        )
        shares = failures(said, want).tolist()
        for depth, share in zip(batch["depth"].tolist(), shares, strict=True):
            total.setdefault(depth, []).append(100 * share)
    return {depth: float(np.mean(x)) for depth, x in sorted(total.items())}


def _results(task: TransductionTask, model: TransducerModel, split: Split) -> Table:
    row, same = _kind(model.config)
    width = task.config.beam
    ours = by_depth(task, model, split, width)
    greedy = ours if width == 1 else by_depth(task, model, split, 1)
    rows = [(d, ours[d], greedy[d], PUBLISHED[row].get(d)) for d in ours]
    note = (
        "Share of an output that is right before its first mistake, in percent. "
        f"The paper's column is its row {row!r}"
        + ("" if same else ", though this model differs from the paper's")
        + "; its expressions are not published, so the data are alike, not the same."
    )
    columns = ("depth", f"beam {width}", "greedy", "paper")
    return Table("Average length to failure", columns, rows, note)


def _samples(task: TransductionTask, model: TransducerModel, split: Split) -> Text:
    pairs = task.source(split).pairs
    chosen = pairs[:: max(1, len(pairs) // _SAMPLES)][:_SAMPLES]
    said, _ = task.translate(model, [decode(p.source[1:]) for p in chosen])
    lines = []
    for pair, got in zip(chosen, said, strict=True):
        want = decode(pair.target)
        lines += [f"given  {' '.join(decode(pair.source[1:]))}", f"want   {' '.join(want)}"]
        lines += [f"got    {' '.join(got)}  {'right' if got == want else 'wrong'}", ""]
    return Text("Samples", lines[:-1], "Outputs of beam search.")


def _formula(model: TransducerModel) -> tuple[Batch, list[str]]:
    symbols = EXAMPLE.split()
    expression = parse(symbols)
    assert expression is not None
    pair = Pair(tuple(encode(["$", *symbols])), tuple(encode(infix(expression))), 3)
    return to_device(collate([pair]), next(model.parameters()).device), ["$", *symbols]


def _parents(model: TransducerModel, batch: Batch, tokens: Sequence[str]) -> Heatmap:
    weights = model.parents(batch["source"], batch["lengths"])
    assert weights is not None
    values = weights[0].cpu().numpy()
    heads = None if len(values) == 1 else [f"head {i + 1}" for i in range(len(values))]
    return Heatmap(
        "Parents of each symbol",
        values[0] if heads is None else values,
        "parent",
        "symbol",
        tokens,
        tokens,
        note="Row: a symbol; how its attention falls on its possible parents.",
        panels=heads,
    )


def _trees(
    model: TransducerModel, parser: SyntacticAttention, batch: Batch, tokens: Sequence[str]
) -> list[Exhibit]:
    d = parser.distribution(model.source(batch["source"]), lengths=batch["lengths"])
    if not isinstance(d, ProjectiveTree | SpanningTree):
        return []
    views: list[Exhibit] = []
    # Of minimum Bayes risk: the most probable tree says little where all are improbable.
    found = d.mbr
    words = len(tokens) - 1
    agreed = (d.expectation(d.to_indicator(found)) / words).reshape(-1).tolist()
    for i, heads in enumerate(found.reshape(-1, words).tolist()):
        name = "Tree" if len(agreed) == 1 else f"Tree of head {i + 1}"
        # Heads count from the symbol behind $; -1 is $ itself, which is drawn as token 0.
        note = (
            "The tree whose arcs are the most probable ones, "
            f"{agreed[i]:.2f} each in the mean. Nobody has shown it the formula's."
        )
        views.append(Arcs(name, tokens, [-1, *(h + 1 for h in heads)], note=note))
    return views


def _alignment(model: TransducerModel, batch: Batch, tokens: Sequence[str]) -> Heatmap:
    target = batch["target"]
    weights = model.alignment(batch["source"], batch["lengths"], target[:, :-1])[0]
    spoken = [NAMES[c] for c in target[0, 1:].tolist()]
    note = "Where the decoder looks when it has to say each symbol of the right answer."
    return Heatmap("Alignment", weights.cpu().numpy(), "source", "says", tokens, spoken, note=note)
