"""What a person wants to see of a model that reads pictures pixel by pixel."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lawful.models import Recalling
from lawful.tasks._base import Split, batches
from lawful.tasks._sequence import credit_scale, place, recall_views, run
from lawful.tasks.exhibits import Array, Exhibit, Heatmap, Images, Table

if TYPE_CHECKING:
    from lawful.tasks.pixels._task import PixelsTask

_SHOWN = 12
_RED = np.array([0.84, 0.15, 0.16])


def pixel_exhibits(task: "PixelsTask", model: nn.Module, split: Split) -> list[Exhibit]:
    """Accuracy by class, confusion, examples right and wrong, recall and credit."""
    model.eval()
    part = getattr(task.images, split)
    chances = _chances(task, model, split)
    said = chances.argmax(1)
    result: list[Exhibit] = [
        _by_class(task, part.labels, said, split),
        _confusion(task, part.labels, said),
    ]
    result += _examples(task, part.images, part.labels, chances)
    x = task.source(split).batch(range(min(64, len(part))))["x"].to(place(model))
    unit = "pixel" if task.chunk == 1 else f"group of {task.chunk} pixels"
    result += recall_views(model, x, unit=unit)
    result += _over_pictures(task, model, split, said)
    return result


def _chances(task: "PixelsTask", model: nn.Module, split: Split) -> Array:
    found: list[Tensor] = []
    with torch.no_grad():
        for batch in batches(task.source(split), 256):
            x = batch["x"].to(place(model))
            found.append(run(model, {"x": x}).softmax(-1).cpu())
    chances: Array = torch.cat(found).numpy()
    return chances


def _by_class(task: "PixelsTask", labels: Array, said: Array, split: str) -> Table:
    rows: list[tuple[str, int, float]] = []
    for index, name in enumerate(task.facts.classes):
        own = labels == index
        rows.append(
            (name, int(own.sum()), float((said[own] == index).mean()) if own.any() else 0.0)
        )
    rows.append(("all", len(labels), float((said == labels).mean())))
    return Table("Accuracy by class", ("class", "pictures", "accuracy"), rows, f"The {split} part.")


def _confusion(task: "PixelsTask", labels: Array, said: Array) -> Heatmap:
    classes = task.facts.classes
    counts = np.zeros((len(classes), len(classes)), dtype=np.int64)
    np.add.at(counts, (labels, said), 1)
    return Heatmap(
        "Confusion", counts, "predicted", "true", classes, classes, annotate=len(classes) <= 20
    )


def _examples(task: "PixelsTask", images: Array, labels: Array, chances: Array) -> list[Exhibit]:
    said = chances.argmax(1)
    right, wrong = np.flatnonzero(said == labels), np.flatnonzero(said != labels)
    # The surest mistakes tell the most.
    wrong = wrong[np.argsort(-chances.max(1)[wrong], kind="stable")]
    result: list[Exhibit] = []
    for title, chosen in (("Right", right[:_SHOWN]), ("Wrong, the surest first", wrong[:_SHOWN])):
        if not len(chosen):
            continue
        names = task.facts.classes
        captions = [
            f"{names[said[i]]} ({chances[i].max():.0%})"
            + ("" if said[i] == labels[i] else f", is {names[labels[i]]}")
            for i in chosen
        ]
        good = [bool(said[i] == labels[i]) for i in chosen]
        result.append(Images(title, images[chosen] / task.facts.peak, captions, good))
    return result


def _over_pictures(
    task: "PixelsTask", model: nn.Module, split: Split, said: Array
) -> list[Exhibit]:
    """Recall and credit of some pictures, laid over them in red."""
    if not isinstance(model, Recalling):
        return []
    count = min(_SHOWN, len(said))
    batch = task.source(split).batch(range(count))
    x, y = batch["x"].to(place(model)), batch["y"].to(place(model))
    received = model.recalled(x).sum(1).cpu().numpy()  # (n, T): weight each step received
    received = received / np.maximum(received.max(1, keepdims=True), 1e-12)
    credit = _input_credit(model, x, y)
    part = getattr(task.images, split)
    pictures = part.images[:count] / task.facts.peak
    names = task.facts.classes
    captions = [f"{names[part.labels[i]]}, read as {names[said[i]]}" for i in range(count)]
    good = [bool(said[i] == part.labels[i]) for i in range(count)]
    return [
        Images(
            "Recalled pixels",
            _overlay(pictures, task.to_picture(received)),
            captions,
            good,
            "Red: how much the state after this pixel was recalled later, summed over all steps.",
        ),
        Images(
            "Pixels that get credit",
            _overlay(pictures, task.to_picture(credit_scale(credit))),
            captions,
            good,
            "Red: the gradient of the loss of this picture at each pixel, on a logarithmic scale.",
        ),
    ]


def _input_credit(model: nn.Module, x: Tensor, y: Tensor) -> Array:
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        loss = cross_entropy(run(model, {"x": x}), y, reduction="sum")
        (grad,) = torch.autograd.grad(loss, x)
    norm: Array = grad.norm(dim=-1).cpu().numpy()
    return norm


def _overlay(pictures: Array, strength: Array) -> Array:
    """Colour pictures (n, h, w, 3) with red laid over them where ``strength`` (n, h, w) is high."""
    colour = pictures if pictures.ndim == 4 else np.repeat(pictures[..., None], 3, -1)
    alpha = 0.85 * np.clip(strength, 0, 1)[..., None]
    mixed: Array = (1 - alpha) * colour + alpha * _RED
    return mixed.astype(np.float32)
