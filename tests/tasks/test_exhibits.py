import dataclasses
import json

import numpy as np
import pytest

from lawful.errors import InputError
from lawful.tasks.exhibits import Arcs, Curves, Heatmap, Images, Table, Text, load, save

EVERY_KIND = [
    Table("t", ["a", "b"], [[1, 0.5], ["x", None]], "note"),
    Heatmap("h", np.arange(6.0).reshape(2, 3), xticks=["a", "b", "c"], panels=["only"]),
    Images("i", np.zeros((2, 3, 3)), ["one", "two"], [True, False], columns=2),
    Curves(
        "c",
        {"s": (np.arange(3), np.array([1.0, np.nan, 2.0]))},
        style="points",
        muted=["s"],
        bands={"s": (np.zeros(3), np.ones(3))},
    ),
    Arcs("a", ["x", "y"], np.array([-1, 0]), ["root", "obj"], [1, -1]),
    Text("w", ["line ", "ünïcode 中"]),
]


def plain(value):
    """Arrays and tuples as lists, for comparison; NaN as None."""
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return None if isinstance(value, float) and value != value else value


def test_every_kind_comes_back(tmp_path):
    save(EVERY_KIND, tmp_path)
    back = load(tmp_path)
    assert [type(e) for e in back] == [type(e) for e in EVERY_KIND]
    assert [plain(e) for e in back] == [plain(e) for e in EVERY_KIND]


def test_old_files_without_the_newer_fields_load(tmp_path):
    save([Images("i", np.zeros((1, 2, 2)), ["c"])], tmp_path)
    items = json.loads((tmp_path / "exhibits.json").read_text())
    del items[0]["columns"]
    (tmp_path / "exhibits.json").write_text(json.dumps(items))
    assert load(tmp_path)[0].columns is None


def test_more_than_ten_exhibits_keep_their_own_arrays(tmp_path):
    save([Heatmap(str(i), np.full((1, 1), float(i))) for i in range(12)], tmp_path)
    assert [float(h.values[0, 0]) for h in load(tmp_path)] == list(range(12))


def test_nothing_saved_is_an_empty_list(tmp_path):
    assert load(tmp_path) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: (f / "exhibits.json").write_text("{"),
        lambda f: (f / "exhibits.json").write_text('[{"kind": "Hologram", "title": "x"}]'),
        lambda f: (f / "exhibits.json").write_text('[{"kind": "Text", "title": "x", "odd": 1}]'),
        lambda f: (f / "exhibits.json").write_text('["text"]'),
        lambda f: (f / "exhibits.npz").write_bytes(b"PK\x03\x04 no archive"),
        lambda f: (f / "exhibits.npz").unlink(),
    ],
)
def test_damage_is_an_input_error_that_names_the_folder(tmp_path, damage):
    save(EVERY_KIND, tmp_path)
    damage(tmp_path)
    with pytest.raises(InputError, match="expected exhibits as lawful writes them"):
        load(tmp_path)


def test_what_cannot_be_stored_is_refused_and_leaves_the_old_file(tmp_path):
    save([Text("t", ["x"])], tmp_path)
    with pytest.raises(TypeError, match="cannot store object"):
        save([Table("t", ["a"], [[object()]])], tmp_path)
    assert load(tmp_path)[0].lines == ["x"]
