"""What a person wants to see of a network that completes pictures."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from lawful.models import EnergyInpainter, Inpainter
from lawful.tasks._base import Batch, Split, to_device
from lawful.tasks._sequence import place
from lawful.tasks.exhibits import Array, Curves, Exhibit, Heatmap, Images, Table

if TYPE_CHECKING:
    from lawful.tasks.inpaint._task import InpaintTask

_SHOWN = 8  # pictures of the grid
_HIDDEN = (0.36, 0.5, 0.72)  # the colour of what is hidden
_MEASURED = 256  # pictures behind the curves
_MEMORIES = 24
_HEADS = 16  # of these at most the attention is drawn
_BEYOND = 5  # the curve of the error goes to this many times the trained steps


def inpaint_exhibits(task: "InpaintTask", model: nn.Module, split: Split) -> list[Exhibit]:
    """Completions, errors, and, where there is an energy, how it falls and what it is made of."""
    assert isinstance(model, Inpainter)
    model.eval()
    source = task.source(split)
    batch = to_device(source.batch(range(min(_MEASURED, len(source)))), place(model))
    if "hidden" not in batch:
        mask = task.fixed_masks(split, range(len(batch["x"])))
        batch |= {"hidden": mask.hidden.to(place(model)), "scored": mask.scored.to(place(model))}
    with torch.no_grad():
        result: list[Exhibit] = [_errors(task, model, split, batch), _grid(task, model, batch)]
        if isinstance(model, EnergyInpainter):
            result += [_energy(model, batch), _film(task, model, batch)]
            result += [_against_steps(task, model, batch), _attention(model, batch)]
            result += [_gaze(task, model, batch), _memories(task, model, batch)]
        elif getattr(model, "tied", False):
            result.append(_against_steps(task, model, batch))
    return result


def _errors(task: "InpaintTask", model: Inpainter, split: Split, batch: Batch) -> Table:
    from lawful.tasks._base import batches

    found = task.evaluation()
    for part in batches(task.source(split), 256):
        found.update(model, to_device(part, place(model)))
    own = found.compute()
    rows = [("this network", own["masked_mse"], own["masked_mse_unit"])]
    rows += [
        (name, e["masked_mse"], e["masked_mse_unit"]) for name, e in task.fill_errors(split).items()
    ]
    note = (
        f"Mean squared error on the hidden patches of the {split} pictures, for pixels divided by "
        "the deviation of the training pictures (this selects the best network) and for pixels in "
        "0..1. Mean picture: the mean of the training pictures at each place. Neighbour fill: "
        "every hidden pixel is the mean of its four neighbours (Laplace's equation)."
    )
    return Table("Error on hidden patches", ("", "normalised", "pixels in 0..1"), rows, note)


def _grid(task: "InpaintTask", model: Inpainter, batch: Batch) -> Images:
    facts = task.facts
    x, hidden = batch["x"][:_SHOWN], batch["hidden"][:_SHOWN]
    filled = torch.where(hidden[..., None], model(x, hidden), x)
    near = task.neighbour_fill({"x": x, "hidden": hidden})
    kinds = {
        "original": x,
        "masked": x.masked_fill(hidden[..., None], 0.0),
        "completed": filled,
        "neighbour fill": near,
    }
    rows = [_coloured(_pictures(task, patches)) for patches in kinds.values()]
    rows[1][facts.spread(hidden).cpu().numpy()] = _HIDDEN
    images = np.stack(rows, 1).reshape(-1, *rows[0].shape[1:])
    errors = (filled - x).square()[hidden].mean()
    note = (
        f"Hidden patches are blue. Mean squared error of the ones shown: {float(errors):.3g} "
        "(normalised)."
    )
    captions = list(kinds) * len(x)
    return Images("Completions", images, captions, note=note, columns=len(kinds))


def _pictures(task: "InpaintTask", patches: Tensor) -> Array:
    return task.facts.to_pictures(task.facts.from_patches(patches))


def _coloured(pictures: Array) -> Array:
    """(B, H, W, 3)."""
    return pictures if pictures.ndim == 4 else np.repeat(pictures[..., None], 3, -1)


def _energy(model: EnergyInpainter, batch: Batch) -> Curves:
    values = _energies(model, batch)  # (S, T+1, B)
    count, taken, pictures = len(values), values.shape[1] - 1, values.shape[2]
    series, bands = {}, {}
    for i, block in enumerate(values):
        name = "mean" if count == 1 else f"mean, block {i + 1}"
        low, high = np.quantile(block, (0.1, 0.9), axis=1)
        series[name] = ([i * taken + t for t in range(taken + 1)], block.mean(1).tolist())
        bands[name] = (low.tolist(), high.tolist())
    rises = int((np.diff(values, axis=1) > 0).sum())
    note = (
        f"{pictures} pictures; the band holds the middle 80 %. The energy rose in {rises} "
        f"of {count * taken * pictures} steps."
    )
    if count > 1:
        note += " Each block has an energy of its own; their levels cannot be compared."
    return Curves("Energy while settling", series, "step", "energy", note=note, bands=bands)


def _energies(model: EnergyInpainter, batch: Batch) -> Array:
    """Energies (S, T+1, B) of S blocks."""
    found = model.course(batch["x"], batch["hidden"]).energies
    assert found is not None
    return found.double().cpu().numpy().reshape(len(model.body.blocks), -1, len(batch["x"]))


def _film(task: "InpaintTask", model: EnergyInpainter, batch: Batch) -> Images:
    x, hidden = batch["x"][:1], batch["hidden"][:1]
    course = model.course(x, hidden)
    energies = _energies(model, {"x": x, "hidden": hidden})[..., 0]
    values = [*energies[0], *energies[1:, 1:].ravel()]  # at the state that each picture shows
    path = torch.where(hidden[0, :, None], course.path[:, 0], x[0])
    captions = [f"step {i}, E {e:.1f}" for i, e in enumerate(values)]
    note = "What is read out before each step and at the end; visible patches as given."
    return Images("Settling of one picture", _pictures(task, path), captions, note=note, columns=7)


def _against_steps(task: "InpaintTask", model: Inpainter, batch: Batch) -> Curves:
    trained: int = model.steps  # type: ignore[assignment]
    hidden = batch["hidden"]
    path = _read_after(model, batch, _BEYOND * trained)
    errors = [float((p - batch["x"]).square()[hidden].mean()) for p in path]
    near = float((task.neighbour_fill(batch) - batch["x"]).square()[hidden].mean())
    steps = list(range(len(errors)))
    best = int(np.argmin(errors))
    series = {"masked MSE": (steps, errors), "neighbour fill": (steps, [near] * len(steps))}
    muted = ["neighbour fill"]
    top = max(errors[0], near)
    series[f"trained steps ({trained})"] = ([trained, trained], [min(errors), top])
    muted.append(f"trained steps ({trained})")
    note = (
        f"{len(hidden)} pictures. Smallest {errors[best]:.3g} after {best} steps; {errors[-1]:.3g} "
        f"after {len(steps) - 1}."
    )
    drawn = getattr(model, "random_steps", None)
    if drawn is not None:
        note += f" Trained with {drawn[0]} to {drawn[1]} steps."
    return Curves(
        "Error against the number of steps",
        series,
        "step",
        "masked MSE (normalised)",
        note=note,
        muted=muted,
    )


def _read_after(model: Inpainter, batch: Batch, last: int) -> Iterable[Tensor]:
    """What is read out (B, N, P) after 0 .. last steps, of every block where there are several."""
    if isinstance(model, EnergyInpainter) and len(model.body.blocks) > 1:
        return (model(batch["x"], batch["hidden"], steps=n) for n in range(last + 1))
    return model.course(batch["x"], batch["hidden"], steps=last).path


def _probabilities(model: EnergyInpainter, batch: Batch) -> Tensor:
    """Attention (heads, N, N) among the patches of the first picture at the end of settling.

    Of the first `_HEADS` heads.
    """
    tokens = model.course(batch["x"][:1], batch["hidden"][:1]).tokens
    n = model.patches.count
    weights = model.last.attention.weights(model.last.norm(tokens))[0]
    return weights[:_HEADS, -n:, -n:]


def _of_all(model: EnergyInpainter) -> str:
    heads, count = model.last.attention.heads, len(model.body.blocks)
    note = f" The first {_HEADS} of {heads} heads." if heads > _HEADS else ""
    return note + (f" The last of {count} blocks." if count > 1 else "")


def _attention(model: EnergyInpainter, batch: Batch) -> Heatmap:
    values = _probabilities(model, batch).cpu().numpy()
    heads = [f"head {h + 1}" for h in range(len(values))]
    note = "One picture, at the end of settling: row C is how query patch C weighs the others."
    note += _of_all(model)
    return Heatmap("Attention", values, "key patch", "query patch", note=note, panels=heads)


def _gaze(task: "InpaintTask", model: EnergyInpainter, batch: Batch) -> Heatmap:
    """Where one hidden patch of the first picture looks, laid out as the picture is."""
    spec = task.facts.spec
    middle = torch.tensor([(spec.rows - 1) / 2, (spec.columns - 1) / 2])
    places = torch.cartesian_prod(torch.arange(spec.rows), torch.arange(spec.columns))
    far = (places - middle).square().sum(-1).to(batch["x"])
    query = int(torch.where(batch["hidden"][0], far, torch.inf).argmin())
    values = _probabilities(model, batch)[:, query].reshape(-1, spec.rows, spec.columns)
    row, column = divmod(query, spec.columns)
    note = (
        f"The hidden patch in row {row + 1}, column {column + 1} of the same picture: the weight "
        "it gives to each place."
    ) + _of_all(model)
    heads = [f"head {h + 1}" for h in range(len(values))]
    return Heatmap(
        "Where a hidden patch looks",
        values.cpu().numpy(),
        "column",
        "row",
        note=note,
        panels=heads,
    )


def _memories(task: "InpaintTask", model: EnergyInpainter, batch: Batch) -> Images:
    """The most active memories: what each adds to a patch that settles towards it."""
    facts, p = task.facts, task.facts.patch
    hopfield = model.last.hopfield
    g = model.last.norm(model.course(batch["x"], batch["hidden"]).tokens)[:, -facts.spec.count :]
    h = hopfield.preactivations(g)
    activity = (h.relu() if hopfield.activation == "relu" else h.softmax(-1)).mean((0, 1))
    top = activity.argsort(descending=True)[:_MEMORIES]
    drawn = hopfield.memories[top] @ model.decoder.weight.mT  # (K, P)
    drawn = drawn / drawn.abs().amax(1, keepdim=True).clamp_min(1e-12)
    pictures = (drawn.cpu().reshape(-1, facts.channels, p, p).permute(0, 2, 3, 1) + 1) / 2
    images = pictures.numpy() if facts.channels == 3 else pictures[..., 0].numpy()
    share = activity / activity.sum().clamp_min(1e-12)
    captions = [f"{float(share[i]):.1%}" for i in top]
    note = (
        f"The {len(top)} most active of {len(activity)} memories, each mapped through the decoder "
        "and scaled to its own largest value: grey adds nothing, brighter brightens, darker "
        "darkens. The number is its share of all activity at the end of settling."
    )
    return Images("Memories", images, captions, note=note, columns=8)
