import doctest
import math

import numpy as np
import pytest

from lawful.reports import _format, _style
from lawful.reports._format import as_number, clean, duration, flatten, metric, number, slug

MINUS = "\N{MINUS SIGN}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1797, "1,797"),
        (-3, MINUS + "3"),
        (0.0, "0"),
        (0.5, "0.5"),
        (-0.25, MINUS + "0.25"),
        (123456.7, "123,457"),
        (2.5e7, "2.5e7"),
        (-1e-9, MINUS + "1e-9"),
        (math.inf, "inf"),
        (True, "yes"),
        (np.float32(0.5), "0.5"),
        (np.int64(12), "12"),
        ([1, 2], "[1, 2]"),
        ("a\x00b", "a\ufffdb"),
        (10**30, f"{10**30:,}"),
    ],
)
def test_number(value, text):
    assert number(value) == text


@pytest.mark.parametrize("module", [_format, _style])
def test_docstring_examples(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_accuracies_are_per_cent_and_nothing_else_is():
    assert metric("accuracy", 0.9415) == "94.2 %"
    assert metric("fact_accuracy", 1.0) == "100.0 %"
    assert metric("loss", 0.9415) == "0.9415"
    assert metric("accuracy", math.nan) == "nan"


def test_slug_is_a_safe_file_name():
    assert slug("../../etc/passwd") == "etc-passwd"
    assert slug("Énergie <b> & Co.") == "energie-b-co"
    assert slug("中文") == "exhibit"
    assert len(slug("x" * 400)) <= 48


def test_clean_drops_what_xml_and_utf8_cannot_hold():
    assert clean("a\x01\ud800\tz\n") == "a\ufffd\ufffd\tz\n"
    clean("x\udfff").encode("utf-8")


def test_flatten_and_durations():
    assert flatten({"a": {"b": {"c": 1}}, "d": {}}) == {"a.b.c": 1, "d": {}}
    assert [duration(s) for s in (0.04, 59.4, 60, 3600, 90061)] == [
        "0.0 s",
        "59 s",
        "1 min 0 s",
        "1 h 00 min",
        "25 h 01 min",
    ]


def test_as_number_knows_strict_json_spellings():
    assert math.isnan(as_number(None))
    assert as_number("Infinity") == math.inf
    assert as_number("word") is None
    assert as_number(True) is None
    assert as_number([1]) is None


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_colours_have_enough_contrast(dark):
    colours = {name: pair[dark] for name, pair in _style.COLOURS.items()}
    for ground in ("card", "page"):
        for words in ("ink", "muted", "good", "bad", "warn"):
            assert contrast(colours[words], colours[ground]) >= 4.5, (words, ground)
        for name in colours:
            if name[0] == "s":
                assert contrast(colours[name], colours[ground]) >= 3, (name, ground)


def test_light_colours_are_told_apart_by_name():
    light = [pair[0] for pair in _style.COLOURS.values()]
    assert len(set(light)) == len(light)  # else the page's variables would be mixed up
