import re
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lawful.reports import _arcs, _curves, _heatmaps, _pictures
from lawful.reports._style import COLOURS
from lawful.reports._svg import inline
from lawful.tasks.exhibits import Arcs, Curves, Heatmap, Images

PNG = b"\x89PNG\r\n\x1a\n"


def test_drawing_leaves_matplotlibs_settings_alone():
    before = dict(matplotlib.rcParams)
    _curves.draw(Curves("c", {"a": ([0, 1], [0, 1])}))
    assert dict(matplotlib.rcParams) == before


def test_the_same_numbers_give_the_same_drawing():
    curves = Curves("c", {"a": ([0, 1], [0, 1])})
    assert _curves.draw(curves).svg == _curves.draw(curves).svg


@given(st.integers(1, 9000), st.integers(0, 2**32 - 1))
def test_thinning_keeps_the_ends_and_the_extremes(n, seed):
    y = np.random.default_rng(seed).standard_normal(n)
    y[n // 3 : n // 2] = np.nan
    x = np.arange(n, dtype=float)
    tx, ty = _curves.thin(x, y)
    assert tx.size <= _curves.POINTS + 2
    assert (tx[0], tx[-1]) == (0, n - 1)
    assert np.all(np.diff(tx) > 0)
    assert np.array_equal(ty, y[tx.astype(int)], equal_nan=True)
    if not np.isnan(y).all():
        assert (np.nanmin(ty), np.nanmax(ty)) == (np.nanmin(y), np.nanmax(y))
    if n > 6 * _curves.POINTS:
        assert np.isnan(ty).any()  # the gap stays a gap


def test_moving_average_against_a_loop():
    y = np.random.default_rng(0).standard_normal(50)
    y[7] = np.nan
    got = _curves.moving_average(y, 5)
    for i in range(50):
        part = y[max(0, i - 2) : i + 3]
        want = np.nan if i == 7 else np.nanmean(part)
        assert got[i] == pytest.approx(want, nan_ok=True)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    "y",
    [
        [],
        [1.0],
        [np.nan],
        [np.inf, -np.inf, np.nan],
        [0.0, 0.0],
        [-1.0, -2.0],
        [1e308, -1e308],
        [1e-320, 1.0],
        [5.0, 5.0, 5.0],
        [1.0, np.nan, 3.0],
    ],
)
@pytest.mark.parametrize("style", ["line", "points", "steps"])
def test_curves_of_any_values_are_drawn(y, log, style):
    curves = Curves("c", {"a": (range(len(y)), y)}, log_y=log, log_x=log, style=style)
    drawing = _curves.draw(curves)
    assert drawing.png.startswith(PNG)
    ElementTree.fromstring(drawing.svg)
    assert _curves.describe(curves)
    assert bool(_curves.lost(curves)) == any(not np.isfinite(v) for v in y)


def test_series_of_unequal_length_and_many_series():
    series = {f"series number {i} <&$_": (range(i + 2), range(i + 1)) for i in range(20)}
    drawing = _curves.draw(Curves("c", series, "x$", "$y$"))
    assert "series number 19 &lt;&amp;$_" in drawing.svg


@pytest.mark.parametrize(
    "text", ["a$b", "$x^$", r"\$", "_hidden", "中文 ☃", "a\x00b", "\ud800", ""]
)
def test_names_of_any_kind_are_written_as_they_are(text):
    fig = _curves.draw(Curves("c", {text: ([0, 1], [0, 1]), "b": ([0, 1], [1, 0])}, xlabel=text))
    root = ElementTree.fromstring(fig.svg)
    written = {t.text for t in root.iter("{http://www.w3.org/2000/svg}text")}
    if text in ("a$b", "$x^$", "中文 ☃"):
        assert text in written
    assert inline(fig.svg, "p", text)


def test_a_scale_with_two_decades_is_wide():
    assert _curves.wide(np.array([0.01, 2.0, np.nan]))
    assert not _curves.wide(np.array([0.01, 0.5]))
    assert not _curves.wide(np.array([0.0, 5.0]))
    assert not _curves.wide(np.array([np.nan]))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 12), st.integers(0, 99))
def test_pooling_averages_blocks(rows, columns, limit, seed):
    matrix = np.random.default_rng(seed).standard_normal((rows, columns))
    pooled = _heatmaps.pool(matrix, limit)
    assert max(pooled.shape) <= limit
    down, across = -(-rows // limit), -(-columns // limit)
    for i, j in np.ndindex(*pooled.shape):
        block = matrix[i * down : (i + 1) * down, j * across : (j + 1) * across]
        assert pooled[i, j] == pytest.approx(block.mean())


def test_colour_scales():
    def scale(values, kind="sequential"):
        heatmap = Heatmap("h", np.array([values]), scale=kind)
        got = _heatmaps.scale(heatmap, [m for _, m in _heatmaps.panels(heatmap)])
        return got.low, got.high

    assert scale([0.2, 0.7]) == (0, 0.7)
    assert scale([-0.5, 0.7]) == (-0.5, 0.7)
    assert scale([-0.5, 0.2], "diverging") == (-0.5, 0.5)
    assert scale([0.0, 0.0]) == (0, 1)
    assert scale([0.0, 0.0], "diverging") == (-1, 1)
    assert scale([np.nan, np.inf]) == (0, 1)


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (300, 1), (3, 4), (1000, 1000)])
@pytest.mark.parametrize("annotate", [False, True])
def test_heatmaps_of_any_shape_are_drawn(shape, annotate):
    heatmap = Heatmap("h", np.arange(np.prod(shape)).reshape(shape), annotate=annotate)
    ((_, matrix),) = _heatmaps.panels(heatmap)
    drawing = _heatmaps.draw(heatmap, matrix, _heatmaps.scale(heatmap, [matrix]))
    assert drawing.png.startswith(PNG)
    assert len(drawing.svg) < 400_000
    assert max(drawing.width, drawing.height) < 1200
    assert bool(_heatmaps.remarks(heatmap, [matrix])) == (max(shape) > _heatmaps.CELLS)


def test_annotations_are_the_counts():
    heatmap = Heatmap("h", np.array([[31, 1], [0, 1234]]), annotate=True)
    ((_, matrix),) = _heatmaps.panels(heatmap)
    svg = _heatmaps.draw(heatmap, matrix, _heatmaps.scale(heatmap, [matrix])).svg
    assert [w for w in ("31", "1,234") if f">{w}</text>" in svg] == ["31", "1,234"]


def test_heatmap_words_and_numbers():
    heatmap = Heatmap(
        "h", np.array([[0.1, np.nan], [0.9, 0.2]]), "key", "query", ["a", "b"], ["c", "d,e"]
    )
    ((_, matrix),) = _heatmaps.panels(heatmap)
    words = _heatmaps.describe(heatmap, "", matrix)
    assert "2 by 2" in words
    assert "0.1 to 0.9, the greatest at query d,e, key a" in words
    assert _heatmaps.numbers(heatmap, matrix) == ('query \\ key,a,b\nc,0.1,nan\n"d,e",0.9,0.2\n')
    assert _heatmaps.remarks(heatmap, [matrix]) == [
        "1 values are not finite and are drawn in grey."
    ]


def test_arcs_nest():
    levels = _arcs._levels({(0, 1), (0, 2), (3, 0), (2, 3)})
    assert levels == {(0, 1): 1, (2, 3): 1, (0, 2): 2, (3, 0): 3}


@pytest.mark.parametrize(
    "arcs",
    [
        Arcs("a", ["one"], [-1]),
        Arcs("a", ["one", "two"], [1, 0]),  # a cycle
        Arcs("a", ["one", "two"], [7, 1]),  # no such head, own head
        Arcs("a", ["one", "two", "three"], [-1]),  # heads missing
        Arcs("a", ["$a$", ""], [-1, 0], ["<x>", "y"], [1, -1]),
        Arcs("a", [f"word{i}" for i in range(80)], [i - 1 for i in range(80)]),
        Arcs("a", ["a", "b"], np.array([-1, 0]), None, np.array([1, -1])),
    ],
)
def test_arcs_of_any_tree_are_drawn(arcs):
    drawing = _arcs.draw(arcs)
    assert drawing.png.startswith(PNG)
    assert _arcs.describe(arcs)
    assert len(_arcs.numbers(arcs).splitlines()) >= 2


def test_arcs_say_how_they_compare_with_gold():
    arcs = Arcs("a", ["x", "y", "z"], [1, -1, 0], gold=[1, -1, 1])
    assert _arcs.remarks(arcs)[0].startswith("2 of 3 heads agree")
    assert _arcs.draw(arcs).height > _arcs.draw(Arcs("a", ["x", "y", "z"], [1, -1, 0])).height


def test_pictures_are_the_arrays():
    from io import BytesIO

    from PIL import Image

    values = np.random.default_rng(0).random((2, 5, 7))
    frames = _pictures.frames(Images("i", values, ["a", "b"]))
    back = np.asarray(Image.open(BytesIO(_pictures.png(frames[1]))))
    assert np.array_equal(back, (values[1] * 255).round().astype(np.uint8))
    assert Image.open(BytesIO(_pictures.sheet(frames, 1))).size[1] > 70


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        ((2, 4, 4, 3), 2),
        ((2, 4, 4, 1), 2),
        ((100, 2, 2), _pictures.SHOWN),
        ((0, 4, 4), 0),
        ((2, 0, 4), 0),
        ((4, 4), 0),
        ((1, 4, 4, 2), 0),
    ],
)
def test_pictures_of_any_shape(shape, count):
    values = np.full(shape, np.nan)
    assert len(_pictures.frames(Images("i", values, []))) == count


def test_large_pictures_are_made_smaller():
    from io import BytesIO

    from PIL import Image

    frames = _pictures.frames(Images("i", np.zeros((1, 700, 300)), [""]))
    assert Image.open(BytesIO(_pictures.png(frames[0]))).size == (110, 256)


def test_inline_svg_is_themed_and_free_of_stray_ids():
    svg = _curves.draw(Curves("c", {"a": ([0, 1], [0, 1]), "b": ([0, 1], [1, 0])})).svg
    page = inline(svg, "f1", 'alt "text" <&')
    root = ElementTree.fromstring(page)
    assert root.get("aria-label") == 'alt "text" <&'
    assert root.get("width") is None
    assert "metadata" not in page
    assert "var(--s0)" in page
    for light, _ in COLOURS.values():
        assert light not in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert ids
    assert all(i.startswith("f1-") for i in ids)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', page))
    assert used == set(ids)


@pytest.mark.parametrize("value", [1e-3, 1e-5, 0.5, 7.0, 4e5, 3e7])
def test_ticks_of_a_constant_line_are_told_apart(value):
    svg = _curves.draw(Curves("c", {"a": (range(5), [value] * 5)})).svg
    root = ElementTree.fromstring(svg)
    words = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert len(words) > 6
    assert words.count("0") == 1  # of the steps; none on the axis of values
    upright = words[5:]
    assert len(set(upright)) == len(upright)
