"""Numbers, durations and names as a reader wants them."""

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import numpy as np

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
_NAMES = {
    "lr": "Learning rate",
    "grad_norm": "Gradient norm",
    "mse": "MSE",
    "cpu": "CPU",
    "f1": "F1",
    "macro_f1": "Macro F1",
    "auroc": "AUROC",
    "bleu": "BLEU",
    "uas": "UAS",
    "las": "LAS",
}


def clean(text: Any) -> str:
    """The text without what neither XML nor UTF-8 can hold (control codes, lone surrogates)."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(text))


def shorten(text: Any, limit: int) -> str:
    """At most ``limit`` characters, with an ellipsis where some were cut."""
    whole = clean(text).replace("\n", " ")
    return whole if len(whole) <= limit else whole[: limit - 1] + "…"


def slug(text: str) -> str:
    """A short file name of plain letters, digits and hyphens; never empty."""
    plain = unicodedata.normalize("NFKD", clean(text)).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:48].strip("-") or "exhibit"


def number(value: Any) -> str:
    """Four significant digits, thousands apart, small and large ones with an exponent.

    >>> number(0.123456), number(1234567), number(1.5e-7), number(float("nan"))
    ('0.1235', '1,234,567', '1.5e-7', 'nan')
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return "\N{EN DASH}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", "\N{MINUS SIGN}")
    if isinstance(value, float):
        return _decimal(value).replace("-", "\N{MINUS SIGN}", 1) if value < 0 else _decimal(value)
    if isinstance(value, list | tuple | dict):
        return clean(json.dumps(value, ensure_ascii=False, default=str))
    return clean(value)


def _decimal(value: float) -> str:
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    if 1e-4 <= abs(value) < 1e6:
        digits = max(0, 3 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return re.sub(r"e([+-])0*(\d)", lambda m: f"e{m[1].strip('+')}{m[2]}", f"{value:.3g}")


def metric(name: str, value: Any) -> str:
    """A metric's value: accuracies in per cent, everything else as `number` writes it."""
    if is_fraction(name) and isinstance(value, int | float) and math.isfinite(value):
        return f"{100 * value:.1f} %"
    return number(value)


def is_fraction(name: str) -> bool:
    """Whether a metric of this name is a share in [0, 1] that reads best in per cent."""
    return "accuracy" in name.lower()


def label(name: str) -> str:
    """A metric's name for people: ``grad_norm`` becomes "Gradient norm"."""
    known = _NAMES.get(name.lower())
    if known:
        return known
    text = clean(name).replace("_", " ").strip()
    return text[:1].upper() + text[1:]


def duration(seconds: float) -> str:
    """Seconds as "45 s", "3 min 20 s" or "2 h 05 min".

    >>> duration(3.21), duration(200), duration(7500)
    ('3.2 s', '3 min 20 s', '2 h 05 min')
    """
    if not math.isfinite(seconds):
        return number(seconds)
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level of dotted names."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def as_number(value: Any) -> float | None:
    """The value as a float if it is a number (not a bool), NaN for null, else None.

    "NaN", "inf" and the like, as strict JSON writers put them, count as numbers.
    """
    if value is None:
        return math.nan
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def finite(value: Any) -> float | None:
    """The value as a float if it is a finite number, else None."""
    found = as_number(value)
    return found if found is not None and math.isfinite(found) else None
