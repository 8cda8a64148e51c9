"""What a person wants to see of a model that classifies graphs."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from lawful.models import EnergyGraphModel
from lawful.tasks._base import Split, batches, to_device
from lawful.tasks.exhibits import Array, Exhibit, Heatmap, Images, Table
from lawful.tasks.graphs._draw import picture
from lawful.tasks.graphs._store import Members, graphs_of

if TYPE_CHECKING:
    from lawful.tasks.graphs._task import GraphsTask

_DRAWN = 12
_LARGEST = 80  # nodes of a graph that is drawn


def graph_exhibits(task: "GraphsTask", model: nn.Module, split: Split) -> list[Exhibit]:
    """Scores by class, confusion, the data, and some graphs with what the network looks at."""
    model.eval()
    part = task.source(split)
    chances = _chances(task, model, part)
    said, true = chances.argmax(1), task.classes[part.members]
    titles = task.facts.titles
    result: list[Exhibit] = [
        _by_class(
            titles,
            true,
            said,
            f"The {split} part; fold {task.fold} of 0..{task.config.folds - 1} is tested on.",
        ),
        _confusion(titles, true, said),
        _data(task),
    ]
    return result + _drawn(task, model, part, chances)


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _chances(task: "GraphsTask", model: nn.Module, part: Members) -> Array:
    from lawful.tasks.graphs._task import run

    found: list[Tensor] = []
    with torch.no_grad():
        for batch in batches(part, 64):
            found.append(run(model, to_device(batch, _device(model))).softmax(-1).cpu())
    chances: Array = torch.cat(found).numpy()
    return chances


def _by_class(titles: list[str], true: Array, said: Array, note: str) -> Table:
    rows: list[tuple[str, int, float, float, float]] = []
    for index, title in enumerate(titles):
        own, named = true == index, said == index
        both = int((own & named).sum())
        precision, recall = both / max(int(named.sum()), 1), both / max(int(own.sum()), 1)
        f1 = 2 * both / max(int(own.sum() + named.sum()), 1)
        rows.append((title, int(own.sum()), precision, recall, f1))
    columns = ("class", "graphs", "precision", "recall", "F1")
    return Table("Scores by class", columns, rows, note)


def _confusion(titles: list[str], true: Array, said: Array) -> Heatmap:
    counts = np.zeros((len(titles), len(titles)), np.int64)
    np.add.at(counts, (true, said), 1)
    small = len(titles) <= 20
    return Heatmap("Confusion", counts, "predicted", "true", titles, titles, annotate=small)


def _data(task: "GraphsTask") -> Table:
    graphs = task.graphs
    rows: list[tuple[str, int, float, float, int]] = []
    for name, members in (("all", np.arange(graphs.count)), *task.parts.items()):
        sizes, counts = graphs.sizes[members], graphs.edge_counts[members] // 2
        row = (len(members), float(sizes.mean()), float(counts.mean()), int(sizes.max()))
        rows.append((name, *row))
    columns = ("part", "graphs", "mean nodes", "mean edges", "largest, nodes")
    isolated = int((graphs.degrees == 0).sum())
    notes = [*graphs.notes, f"{isolated:,} isolated nodes kept"] if isolated else graphs.notes
    return Table(f"Data: {graphs.name}", columns, rows, "; ".join(notes))


def _drawn(task: "GraphsTask", model: nn.Module, part: Members, chances: Array) -> list[Exhibit]:
    """Graphs, right and wrong in turn; their nodes by attention and energy if there are any."""
    graphs = task.graphs
    members = part.members
    true, said = task.classes[members], chances.argmax(1)
    small = graphs.sizes[members] <= _LARGEST
    right, wrong = np.flatnonzero(small & (said == true)), np.flatnonzero(small & (said != true))
    wrong = wrong[np.argsort(-chances.max(1)[wrong], kind="stable")][: _DRAWN // 2]
    chosen = np.concatenate([wrong, right[: _DRAWN - len(wrong)]])
    if not len(chosen):
        return []
    titles = task.facts.titles
    captions = [
        f"graph {graphs.ids[members[i]]}: {titles[said[i]]} ({chances[i].max():.0%})"
        + ("" if said[i] == true[i] else f", is {titles[true[i]]}")
        for i in chosen
    ]
    good = [bool(said[i] == true[i]) for i in chosen]
    batch = to_device(part.batch(chosen.tolist()), _device(model))
    if not isinstance(model, EnergyGraphModel):
        plain = np.full(len(batch["batch"]), 0.4)
        return [
            Images(
                "Graphs, the surest mistakes first",
                _pictures(batch, plain),
                captions,
                good,
                columns=6,
            )
        ]
    attention, energy = model.explain(graphs_of(batch))
    return [
        Images(
            "What the extra node attends to",
            _pictures(batch, attention.cpu().numpy()),
            captions,
            good,
            "Dark and large: much attention of the node that is linked to all, mean of the heads "
            "of the last block; within each graph from its least to its most. Mistakes first.",
            columns=6,
        ),
        Images(
            "Energy of the nodes",
            _pictures(batch, -energy.cpu().numpy()),
            captions,
            good,
            "Dark and large: low energy of attention, after the last block; within each graph from "
            "its highest to its lowest.",
            columns=6,
        ),
    ]


def _pictures(batch: dict[str, Tensor], strength: Array) -> Array:
    graph, edges = batch["batch"].cpu().numpy(), batch["edge_index"].cpu().numpy()
    found = []
    for i in range(len(batch["y"])):
        nodes = np.flatnonzero(graph == i)
        own = edges[:, graph[edges[1]] == i] - nodes[0]
        found.append(picture(len(nodes), own, _scaled(strength[nodes])))
    return np.stack(found)


def _scaled(values: Array) -> Array:
    low, high = values.min(), values.max()
    scaled: Array = (values - low) / (high - low) if high > low else np.full(len(values), 0.4)
    return scaled
