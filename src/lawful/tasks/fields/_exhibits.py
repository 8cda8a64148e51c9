"""What a person wants to see of a forecaster: films, errors, energy, spectrum."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from lawful.models import Forecaster
from lawful.tasks._base import Split
from lawful.tasks._lattice_views import impulse_response, norm_view, transition_views
from lawful.tasks._sequence import place
from lawful.tasks.exhibits import Array, Curves, Exhibit, Images, Table
from lawful.tasks.fields._measure import squares

if TYPE_CHECKING:
    from lawful.tasks.fields._task import FieldsTask

_FILMS = 16
_STRIP = 8  # pictures in a row of a film strip


def field_exhibits(task: "FieldsTask", model: nn.Module, split: Split) -> list[Exhibit]:
    """All views of a trained forecaster."""
    assert isinstance(model, Forecaster)
    model.eval()
    source = task.source(split)
    batch = source.batch(range(min(_FILMS, len(source))))
    x, y = batch["x"], batch["y"]
    with torch.no_grad():
        said = model(x.to(place(model)), y.shape[1]).cpu()
    views: list[Exhibit] = [_by_step(x, y, said)]
    if y.shape[1] > 1:
        views.append(_error_curve(x, y, said))
    if task.conserved:
        views.append(_energy_curve(y, said))
    views += film_strips(task.restored(x), task.restored(y), task.restored(said))
    return views + _inner_views(model, x)


def _relative(error: Tensor, truth: Tensor) -> Array:
    """Error by step, (T,): squares summed over films, over those of the truth."""
    result: Array = (squares(error).sum(0) / squares(truth).sum(0).clamp_min(1e-300)).numpy()
    return result


def _by_step(x: Tensor, y: Tensor, said: Tensor) -> Table:
    model, last = _relative(said - y, y), _relative(x[:, -1:] - y, y)
    steps = sorted({1, 2, 5, 10, 20, 50, 100, len(model)} & set(range(1, len(model) + 1)))
    rows = [(n, float(model[n - 1]), float(last[n - 1])) for n in steps]
    note = f"Squared error over the truth's squares; {len(y)} films, {x.shape[1]} frames observed."
    return Table("Error by step", ("step", "model", "persistence"), rows, note)


def _error_curve(x: Tensor, y: Tensor, said: Tensor) -> Curves:
    steps = [float(i) for i in range(1, y.shape[1] + 1)]
    series = {
        "model": (steps, np.maximum(_relative(said - y, y), 1e-16).tolist()),
        "persistence": (steps, np.maximum(_relative(x[:, -1:] - y, y), 1e-16).tolist()),
    }
    title = "Error against the step of the roll-out"
    return Curves(
        title, series, "step", "relative squared error", log_y=True, muted=("persistence",)
    )


def _energy_curve(y: Tensor, said: Tensor) -> Curves:
    ratio = squares(said) / squares(y)  # (B, T)
    low, high = ratio.amin(0), ratio.amax(0)
    steps = [float(i) for i in range(1, y.shape[1] + 1)]
    series = {
        "mean of the films": (steps, ratio.mean(0).tolist()),
        "exact": (steps, [1.0] * len(steps)),
    }
    bands = {"mean of the films": (low.tolist(), high.tolist())}
    note = "Energy of the forecast over that of the true solution; shaded: all films."
    return Curves(
        "Energy", series, "step", "energy ratio", note=note, muted=("exact",), bands=bands
    )


def film_strips(x: Array, y: Array, said: Array, films: int = 2) -> list[Exhibit]:
    r"""Truth beside forecast: strips of frames, or pictures of time by space in one dimension.

    Args:
        x: Observed frames (B, k, C, \*size).
        y: True frames (B, T, C, \*size).
        said: Forecast frames, likewise.
        films: How many examples.
    """
    dims = y.ndim - 3
    if dims == 3:  # the middle layer
        middle = y.shape[3] // 2
        return film_strips(x[:, :, :, middle], y[:, :, :, middle], said[:, :, :, middle], films)
    views: list[Exhibit] = []
    for film in range(min(films, len(y))):
        truth, guess = y[film, :, 0], said[film, :, 0]
        low, high = float(y[film, :, 0].min()), float(y[film, :, 0].max())
        span = max(high - low, 1e-12)
        wrong = 0.5 + (guess - truth) / (2 * span)
        rows = [(truth - low) / span, (guess - low) / span, wrong]
        rows = [np.clip(r, 0, 1) for r in rows]
        name = f"Film {film + 1}"
        if dims == 1:
            names = ("truth", "forecast", "difference (grey is none)")
            pictures = np.stack(rows)
            note = "The first field: space from left to right, time downwards."
            views.append(Images(name, pictures.astype(np.float32), names, None, note, 3))
            continue
        chosen = np.unique(np.linspace(0, len(truth) - 1, min(_STRIP, len(truth))).round())
        at = chosen.astype(int)
        pictures = np.concatenate([r[at] for r in rows])
        titles = [
            f"{what} {n + 1}" for what in ("truth", "forecast", "difference") for n in at.tolist()
        ]
        note = "The first field at some steps of the roll-out; difference: grey is none."
        strip = pictures.astype(np.float32)
        views.append(Images(f"{name}, roll-out", strip, titles, None, note, len(at)))
    return views


def _inner_views(model: Forecaster, x: Tensor) -> list[Exhibit]:
    """Spectrum and kernel of the transition, and the norm of the state in a free run."""
    hidden = getattr(model, "hidden", None)
    if hidden is None:
        return []
    size = tuple(x.shape[3:])
    with torch.no_grad():
        state = model.observe(x[:1].to(place(model)))
        states = model.states(state, 200)  # type: ignore[operator]
    norms = states.flatten(2).norm(dim=2)[0].cpu().numpy()
    note = "One film: the state of a roll-out of 200 steps."
    views: list[Exhibit] = [norm_view(norms, 1, "Norm over time", note)]
    if hidden * hidden * int(np.prod(size)) <= 16384:
        kernel = impulse_response(model.transition, hidden, size, state[0])
        if kernel is not None:
            views = transition_views(kernel, "the trained transition, one frame") + views
    return views
