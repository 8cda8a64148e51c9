"""Stratified folds, and the part of the training folds that models are selected on."""

import numpy as np

from lawful.errors import expected
from lawful.tasks._random import STREAMS, permutation
from lawful.tasks.graphdata._graphs import Ints


def folds_of(classes: Ints, folds: int, seed: int) -> Ints:
    """A fold 0..folds-1 for each graph (G,), a pure function of classes, folds and seed.

    The members of each class are shuffled and dealt out in turn, each class going on where the one
    before stopped: no two folds differ by more than one graph, in any class or in all.
    """
    shuffled = permutation(seed, len(classes), STREAMS["split"])
    order = shuffled[np.argsort(classes[shuffled], kind="stable")]
    found = np.empty(len(classes), np.int64)
    found[order] = np.arange(len(classes)) % folds
    return found


def divided(classes: Ints, folds: int, fold: int, seed: int, valid_share: float) -> dict[str, Ints]:
    """Graphs of "train", "valid" and "test", each ascending.

    The test part is the fold; of each class of the others about ``valid_share`` validates.

    Raises:
        InputError: A part would be empty, or a class would be missing from training.
    """
    test = folds_of(classes, folds, seed) == fold
    shuffled = permutation(seed, len(classes), STREAMS["show"])
    rest = shuffled[~test[shuffled]]
    rest = rest[np.argsort(classes[rest], kind="stable")]
    # Every 1/share-th of the others, class by class: shares hold to within one graph.
    steps = np.floor((np.arange(len(rest)) + 0.5) * valid_share + 0.5)
    chosen = np.diff(steps, prepend=0.0) > 0
    parts = {"train": rest[~chosen], "valid": rest[chosen], "test": np.flatnonzero(test)}
    for name, members in parts.items():
        if not len(members):
            raise expected("data", f"enough graphs for {folds} folds", f"none in the {name} part")
    missing = np.setdiff1d(classes, classes[parts["train"]])
    if len(missing):
        got = f"none of class number {missing[0]}"
        hint = "it has too few graphs, or --valid-share is too large"
        raise expected("data", "graphs of every class in the training part", got, hint)
    return {name: np.sort(members) for name, members in parts.items()}
