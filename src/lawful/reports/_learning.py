"""Learning curves of one run."""

import numpy as np

from lawful.reports import _curves
from lawful.reports._format import label
from lawful.reports._run import Run, Series
from lawful.tasks.exhibits import Curves

SPLITS = {"train": 0, "valid": 1, "test": 2}
PANELS = 12  # more metrics than this stay in the CSV of all metrics
_HIDDEN = {"seconds", "epoch"}
_NOISY = {"loss", "grad_norm"}


def panels(run: Run) -> list[tuple[str, Curves, _curves.Look]]:
    """(name, chart, look) of each logged metric: the loss first, then the run's own metric."""
    made = []
    for name in names(run)[:PANELS]:
        series = {
            split: (columns[name].steps.tolist(), columns[name].values.tolist())
            for split, columns in _drawn(run).items()
            if name in columns
        }
        values = np.concatenate([np.array(y) for _, y in series.values()])
        curves = Curves(
            label(name), series, xlabel="step", log_y=name != "lr" and _curves.wide(values)
        )
        places = {split: SPLITS.get(split, 3 + i) for i, split in enumerate(series)}
        smooth = [s for s in series if s == "train" and name in _NOISY]
        look = _curves.Look(places, smooth, mark=_best(run, name))
        made.append((name, curves, look))
    return made


def names(run: Run) -> list[str]:
    """The metrics worth a chart, in the order to show them."""
    logged = dict.fromkeys(n for c in _drawn(run).values() for n in c if n not in _HIDDEN)
    first = [n for n in ("loss", run.metric) if n in logged]
    last = [n for n in ("lr", "grad_norm") if n in logged]
    others = [n for n in logged if n not in (*first, *last)]
    return list(dict.fromkeys([*first, *(last if len(others) > 8 else []), *others, *last]))


def remark(look: _curves.Look, curves: Curves) -> str:
    """How a chart with smoothed lines is to be read."""
    for name in look.smooth:
        n = len(curves.series[name][0])
        if n > 80:
            if not look.pale:
                return f"Each line is a moving average over 1/{_curves.SHARE} of its values."
            width = _curves.window(n)
            return f"Pale: every logged value of {name}; strong: the mean over {width} of them."
    return ""


def _drawn(run: Run) -> dict[str, dict[str, Series]]:
    """The splits to draw: the test split, measured once at the end, is no curve."""
    return {s: c for s, c in run.metrics.items() if s != "test"} or run.metrics


def _best(run: Run, name: str) -> tuple[float, str] | None:
    best = run.result.get("best_step")
    if name != run.metric or not isinstance(best, int | float) or not np.isfinite(best):
        return None
    return float(best), "best"
