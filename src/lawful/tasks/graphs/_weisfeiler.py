"""Fits the Weisfeiler-Lehman kernel: counts of colours, depth and penalty by validation."""

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from lawful.errors import InputError
from lawful.models import WLConfig, WLModel, histogram, refine
from lawful.tasks._base import Batch

if TYPE_CHECKING:
    from lawful.tasks.graphs._task import GraphsTask


def logits_of(model: Any, batch: Batch) -> torch.Tensor:
    """The model's answer to a batch that has colours."""
    names = ("colours", "edge_colours", "edge_index", "batch")
    found: torch.Tensor = model(*(batch[n] for n in names), len(batch["y"]))
    return found


def fitted(config: WLConfig, task: "GraphsTask") -> WLModel:
    """The machine with the best validation accuracy; the smallest depth and penalty of several.

    One machine for each class against the others, with squared hinges, on features of norm 1. It
    is trained on the training part only, and the test part is not looked at.

    Raises:
        InputError: scikit-learn is not installed.
    """
    train, valid = (task.source(s) for s in ("train", "valid"))
    batches = [train.batch(range(len(train))), valid.batch(range(len(valid)))]
    levels = [refine(b["colours"], b["edge_colours"], b["edge_index"], config.depth)
              for b in batches]  # fmt: skip
    best: tuple[float, Any, Any, int] | None = None
    for depth in range(config.depth + 1):
        vocabulary = torch.unique(torch.cat(levels[0][: depth + 1]))
        rows = [
            _counts(found[: depth + 1], batch, vocabulary)
            for found, batch in zip(levels, batches, strict=True)
        ]
        for penalty in config.penalties:
            machine = _machine(rows[0], batches[0]["y"].numpy(), penalty)
            score = float(machine.score(rows[1], batches[1]["y"].numpy()))
            if best is None or score > best[0]:
                best = (score, machine, vocabulary, depth)
    assert best is not None  # there is at least one depth and penalty
    model = _as_model(*best[1:], classes=len(task.facts.classes))
    _calibrate(model, batches[1])
    return model


def _calibrate(model: WLModel, valid: Batch) -> None:
    """Sets the scale of the margins, in 2^-8..2^4, by the validation part's loss."""
    with torch.no_grad():
        margins = logits_of(model, valid)
        scales = 2 ** torch.arange(-8.0, 4.5, 0.5)
        losses = torch.stack([cross_entropy(s * margins, valid["y"]) for s in scales])
        model.scale.copy_(scales[losses.argmin()])


def _counts(levels: list[torch.Tensor], batch: Batch, vocabulary: torch.Tensor) -> Any:
    """Counts of known colours over the norm of all counts of a graph: sparse (G, V)."""
    from scipy import sparse

    graph, colour, counts = histogram(levels, batch["batch"])
    norms = counts.new_zeros(len(batch["y"])).index_add(0, graph, counts**2).sqrt()
    place = torch.searchsorted(vocabulary, colour).clamp(max=len(vocabulary) - 1)
    known = vocabulary[place] == colour
    values = (counts / norms[graph])[known].double().numpy()
    where = (graph[known].numpy(), place[known].numpy())
    return sparse.csr_matrix((values, where), shape=(len(batch["y"]), len(vocabulary)))


def _machine(rows: Any, classes: Any, penalty: float) -> Any:
    try:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.svm import LinearSVC
    except ImportError as error:
        hint = 'pip install "lawful[train]"'
        raise InputError(f"model: wl needs scikit-learn; {hint}") from error
    machine = LinearSVC(C=penalty, max_iter=2000, random_state=0)
    with warnings.catch_warnings():
        # Not quite at the optimum is good enough: the validation part judges what was found.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return machine.fit(rows, classes)


def _as_model(machine: Any, vocabulary: torch.Tensor, depth: int, classes: int) -> WLModel:
    model = WLModel(len(vocabulary), classes)
    weight, bias = machine.coef_, machine.intercept_
    if len(weight) == 1:  # two classes share one margin
        weight, bias = np.concatenate([-weight, weight]), np.concatenate([-bias, bias])
    model.vocabulary.copy_(vocabulary)
    model.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight.T)))
    model.bias.copy_(torch.from_numpy(bias))
    model.rounds.fill_(depth)
    return model
