"""What a person wants to see of a language model."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lawful.models import Carried, Recalling
from lawful.tasks._base import Split, batches
from lawful.tasks._sequence import place, recall_views
from lawful.tasks.charlm._grammar import Probe, probes
from lawful.tasks.charlm._model import generate, read
from lawful.tasks.charlm._text import out_of_form
from lawful.tasks.exhibits import Array, Curves, Exhibit, Table, Text

if TYPE_CHECKING:
    from lawful.tasks.charlm._task import CharLMTask

LN2 = float(np.log(2))
_MOST = 100_000  # characters of a split that the views read, at most
_DEAREST = 15
_SHOWN = 100  # steps of the maps
_SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥"}


def charlm_exhibits(task: "CharLMTask", model: nn.Module, split: Split) -> list[Exhibit]:
    """Samples, bits against context, the dearest characters, agreement, recall and credit."""
    model.eval()
    views: list[Exhibit] = [_samples(task, model), _by_context(task, model, split)]
    views.append(_dearest(task, model, split))
    if task.data is None:
        views.append(_agreement(task, model))
    net = model.net
    if isinstance(net, Recalling):
        x = _windows(task, split, min(_SHOWN, task.config.window), 16).to(place(model))
        names = [_sign(c) for c in task.alphabet.decode(x[0].tolist())]
        views.append(_recalled(net, x[:1], names))
        views += recall_views(net, x, names, unit="character")  # type: ignore[arg-type]
    return views


def _sign(character: str) -> str:
    return _SIGNS.get(character, character)


def _samples(task: "CharLMTask", model: nn.Module) -> Text:
    c, lines = task.config, []
    prompt = _opening(task, model)
    for temperature in (0.5, 0.8, 1.0):
        generator = torch.Generator().manual_seed(c.sample_seed)
        said = generate(model, prompt, c.sample_length, temperature, generator, c.window)
        text = out_of_form(task.alphabet.decode(said[0].tolist()), c.form)
        lines += [f"temperature {temperature:g}", *_wrapped(text), ""]
    note = f"After {prompt.shape[1]} characters of the test text."
    return Text("Written by the model", lines[:-1], note)


def _opening(task: "CharLMTask", model: nn.Module) -> Tensor:
    """The start of the test text (1, T), some windows long, up to the end of a line.

    Models that were trained with carried state are at a loss where there is none.
    """
    text = task.texts["test"][: 3 * task.config.window]
    codes = task.alphabet.encode(text[: text.rfind("\n") + 1] or text)
    return torch.from_numpy(codes)[None].to(place(model))


def _wrapped(text: str, width: int = 88) -> list[str]:
    """Lines of at most ``width`` characters, cut at blanks where there are some."""
    lines = []
    for line in text.split("\n"):
        while len(line) > width:
            at = line.rfind(" ", 0, width) + 1 or width
            lines.append(line[:at])
            line = line[at:]
        lines.append(line)
    return lines


def _windows(task: "CharLMTask", split: Split, length: int, most: int) -> Tensor:
    """(B, length') windows of a split, side by side; shorter where the text is."""
    codes = task.codes[split][:_MOST]
    length = min(length, len(codes))
    count = min(most, len(codes) // length)
    return torch.from_numpy(codes[: count * length].reshape(count, length))


def _bits(task: "CharLMTask", model: nn.Module, x: Tensor, y: Tensor, state: Carried = ()) -> Array:
    found = []
    with torch.no_grad():
        for start, logits in read(model, x, task.config.window, state):
            want = y[:, start : start + logits.shape[1]]
            each = cross_entropy(logits.transpose(1, 2).float(), want, reduction="none")
            found.append(each.cpu() / LN2)
    bits: Array = torch.cat(found, 1).numpy()
    return bits


def _by_context(task: "CharLMTask", model: nn.Module, split: Split) -> Curves:
    c = task.config
    length = c.window if c.carry == "never" else 4 * c.window
    text = _windows(task, split, length + 1, 256).to(place(model))
    bits = _bits(task, model, text[:, :-1], text[:, 1:]).mean(0)
    edges = sorted({min(round(2 ** (i / 2)), len(bits)) for i in range(40)})
    x, y, start = [], [], 0
    for stop in edges:
        x.append(float((start + 1 + stop) / 2))
        y.append(float(bits[start:stop].mean()))
        start = stop
    note = f"{len(text)} windows of the {split} text, each read from nothing."
    title, xlabel = "Bits per character against context", "characters read before"
    return Curves(title, {"model": (x, y)}, xlabel, "bits per character", log_x=True, note=note)


def _dearest(task: "CharLMTask", model: nn.Module, split: Split) -> Table:
    size = len(task.alphabet)
    count, total = np.zeros(size, np.int64), np.zeros(size)
    read_so_far = 0
    for batch in batches(task.source(split), 64):
        batch = {k: v.to(place(model)) for k, v in batch.items()}
        bits = _bits(task, model, batch["x"], batch["y"])
        real = np.arange(bits.shape[1]) < batch["lengths"].cpu().numpy()[:, None]
        want = batch["y"].cpu().numpy()[real]
        np.add.at(count, want, 1)
        np.add.at(total, want, bits[real])
        read_so_far += len(want)
        if read_so_far >= _MOST:
            break
    rows = [
        (
            _sign(task.alphabet.decode([code])) if code else "unknown",
            int(count[code]),
            float(total[code] / count[code]),
            float(total[code] / total.sum()),
        )
        for code in np.argsort(-total, kind="stable")[:_DEAREST]
        if count[code]
    ]
    columns = ("character", "times", "bits each", "share of all bits")
    note = f"{read_so_far:,} characters of the {split} text; ␣ is a blank, ⏎ the end of a line."
    return Table("Where the bits go", columns, rows, note)


def _agreement(task: "CharLMTask", model: nn.Module, count: int = 400) -> Table:
    right: dict[str, list[bool]] = {}
    state: Carried = ()
    with torch.no_grad():
        for piece in torch.split(_opening(task, model), task.config.window, 1):
            _, state = model(piece, *state)
    for probe in probes(count):
        words = "0" if not probe.distance else "1 to 4" if probe.distance <= 4 else "5 and more"
        right.setdefault(words, []).append(_agrees(task, model, probe, state))
    rows = [(k, len(v), float(np.mean(v))) for k, v in sorted(right.items())]
    note = (
        "The model reads the start of the test text and a sentence up to its verb; right is if "
        "the form that agrees with the subject is the likelier one. Guessing gives 0.5."
    )
    columns = ("words between subject and verb", "sentences", "right")
    return Table("Agreement of subject and verb", columns, rows, note)


def _agrees(task: "CharLMTask", model: nn.Module, probe: Probe, state: Carried) -> bool:
    costs = []
    for verb in (probe.right, probe.wrong):
        # A blank or a full stop may follow the verb; the blank alone settles where it ends.
        codes = torch.from_numpy(task.alphabet.encode(f"\n{probe.start}{verb} "))[None]
        codes = codes.to(place(model))
        bits = _bits(task, model, codes[:, :-1], codes[:, 1:], state)
        costs.append(bits[0, -len(verb) - 1 :].sum())
    return bool(costs[0] < costs[1])


def _recalled(net: Recalling, x: Tensor, names: list[str], count: int = 16) -> Text:
    """For steps along a window: the text so far, and the places it recalled."""
    weights = net.recalled(x)[0].cpu().numpy()
    lines = []
    for t in np.linspace(len(names) // 4, len(names) - 1, count).astype(int):
        best = [j for j in np.argsort(-weights[t], kind="stable")[:3] if weights[t, j] > 0]
        places = ", ".join(
            f"{''.join(names[max(j - 7, 0) : j + 1])}| {weights[t, j]:.2f}" for j in best
        )
        lines.append(f"{''.join(names[max(t - 19, 0) : t + 1]):>20}|   recalls   {places or '-'}")
    note = "Each recalled place is shown with the characters up to it, and its weight."
    return Text("What was recalled", lines, note)
