"""What a text costs, and how it could go on."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from lawful.errors import expected
from lawful.tasks._sequence import place
from lawful.tasks.charlm._model import generate
from lawful.tasks.charlm._sources import Pieces
from lawful.tasks.charlm._text import UNKNOWN, in_form, out_of_form, read_text

if TYPE_CHECKING:
    from lawful.tasks.charlm._task import CharLMTask

SUFFIXES = (".txt", ".gz")


def predictions(task: "CharLMTask", model: nn.Module, path: Path) -> Iterator[dict[str, Any]]:
    """One row for each text: its bits per character, and a continuation.

    A row holds "file", "characters" and "unknown" (counts), "bits_per_character" (None for a single
    character: the first is not predicted) and "continuation".

    Raises:
        InputError: For a path without texts, an unreadable or an empty one.
    """
    model.eval()
    for file in _texts(path):
        yield _one(task, model, file)


def _texts(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = [f for f in sorted(path.iterdir()) if f.suffix in SUFFIXES]
    if not files:
        raise expected(str(path), "texts (" + ", ".join(SUFFIXES) + ")", "none")
    return files


def _one(task: "CharLMTask", model: nn.Module, file: Path) -> dict[str, Any]:
    c = task.config
    # An editor's newline at the end of a prompt is no part of it.
    text = in_form(read_text(file), c.form, str(file)).removesuffix("\n")
    if not text:
        raise expected(str(file), "a text to go on from", "an empty file")
    codes = task.alphabet.encode(text)
    bits = None
    if len(codes) > 1:
        with torch.no_grad():
            evaluation = task.evaluation()
            batch = Pieces(codes, len(codes) - 1, str(file)).batch([0])
            evaluation.update(model, {k: v.to(place(model)) for k, v in batch.items()})
        bits = evaluation.compute()["bpc"]
    prompt = torch.from_numpy(codes)[None].to(place(model))
    generator = torch.Generator().manual_seed(c.sample_seed)
    said = generate(model, prompt, c.sample_length, c.temperature, generator, c.window)
    return {
        "file": str(file),
        "characters": len(codes),
        "unknown": int((codes == UNKNOWN).sum()),
        "bits_per_character": bits,
        "continuation": out_of_form(task.alphabet.decode(said[0].tolist()), c.form),
    }
