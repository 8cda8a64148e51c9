"""Heads and soft parents of words by a parser that a run of the task `parsing` has trained."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lawful.errors import InputError, expected
from lawful.models import BiaffineParser
from lawful.tasks.parsing import ParsingTask
from lawful.tasks.parsing._decode import best_heads, marginals
from lawful.tasks.treebank import Strings, Words
from lawful.tasks.treebank._task import inputs

__all__ = ["TrainedParser"]

_TOGETHER = 128  # sentences
Floats = npt.NDArray[np.float32]


class TrainedParser:
    """The best parser of a run folder.

    Args:
        run: Folder of a run of the task `parsing`.

    Raises:
        InputError: There is none.
    """

    def __init__(self, run: Path) -> None:
        config = _read(run / "config.json")
        if config.get("task") != ParsingTask.name:
            raise expected(f"parser: {run}", "a run of the task parsing", config.get("task"))
        self.task = ParsingTask(ParsingTask.Config(**config["task_config"]), config["seed"])
        self.task.load_state(_read(run / "task_state.json"))
        kind = ParsingTask.models[config["model"]]
        self.model: BiaffineParser = self.task.build(kind(**config["model_config"])).eval()
        _load(self.model, run)

    @torch.no_grad()
    def parents(self, sentences: Sequence[Sequence[str]], *, hard: bool) -> Iterator[Floats]:
        """For each sentence (N + 1, N + 1): how far token i is the parent of token j, [j, i].

        Token 0 is the root, whose own row is 0; the others sum to 1.

        Args:
            sentences: Words, at least one each.
            hard: The best tree in place of probabilities.
        """
        for start in range(0, len(sentences), _TOGETHER):
            group = sentences[start : start + _TOGETHER]
            forms = Strings(w for s in group for w in s)
            words = Words.of(forms, [len(s) for s in group], self.task.known())
            batch = words.batch(range(len(group)))
            lengths = batch["lengths"]
            arcs, root = self.model.arcs(self.model.states(*inputs(batch)))
            if hard:
                heads = best_heads(self.model, arcs, root, lengths)
                places = torch.arange(arcs.shape[-1])
                arcs = (heads[:, None, :] == places[:, None]).float()  # (B, head, word)
                root = (heads == -1).float()
            else:
                arcs, root = marginals(self.model, arcs, root, lengths)
            for s, a, r in zip(group, arcs.numpy(), root.numpy(), strict=True):
                n = len(s)
                out = np.zeros((n + 1, n + 1), np.float32)
                out[1:, 1:], out[1:, 0] = a[:n, :n].T, r[:n]
                yield out


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"parser: expected a run folder with {path.name}: {error}") from None
    return found


def _load(model: BiaffineParser, run: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_model

    index = _read(run / "checkpoints" / "index.json")
    name = index.get("best") or index.get("last") or ""
    path = run / "checkpoints" / name / "model.safetensors"
    try:
        load_model(model, str(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise InputError(f"parser: cannot load {path}: {str(error).splitlines()[0]}") from None
