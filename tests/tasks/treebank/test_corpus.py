import zipfile
from collections import Counter

import numpy as np
import pytest
import torch

from lawful.errors import InputError
from lawful.tasks.treebank import (
    EMBEDDED,
    Lexicon,
    Shares,
    Strings,
    Table,
    Words,
    divide,
    find_files,
    read_tables,
)

SENTENCES = [["The", "cat", "sat", "."], ["Cats", "sat"], ["1999", "THE", "supercalifragilistic"]]
SHARES = Shares(0.2, 0.2)


def add(table, sentence):
    table.add(
        sentence.forms, {"upos": sentence.column(3)}, {"length": [len(f) for f in sentence.forms]}
    )


def words(max_chars=10):
    forms = Strings(f for s in SENTENCES for f in s)
    lexicon = Lexicon.of(forms.counts(), 2, max_chars)
    return lexicon, Words.of(forms, [len(s) for s in SENTENCES], lexicon)


def test_lexicon_knows_frequent_words_in_lower_case():
    lexicon, _ = words()
    assert lexicon.words == ["sat", "the"]
    assert lexicon.word("The") == lexicon.word("tHE") == 3
    assert lexicon.word("dog") == 1
    assert Lexicon.of(Counter({"2021": 1, "1999": 1}), 2, 5).words == ["0000"]


def test_spelling_keeps_case_marks_ends_and_cuts_the_middle():
    lexicon = Lexicon([], list("abcdefg"), 5)
    a = lexicon.spell("a")[1]
    assert lexicon.spell("a") == [2, a, 3]
    assert lexicon.spell("Z") == [2, 1, 3]
    assert lexicon.spell("abcdefg") == [2, *(a + i for i in (0, 1, 2, 5, 6)), 3]
    assert lexicon.spell("abcde") == [2, *(a + i for i in range(5)), 3]


def test_state_restores_the_lexicon():
    lexicon, _ = words()
    again = Lexicon.from_state(lexicon.state())
    assert again.state() == lexicon.state()
    assert again.spell("The cat") == lexicon.spell("The cat")
    with pytest.raises(InputError, match="task state"):
        Lexicon.from_state({"words": []})


@pytest.mark.parametrize("rows", [[0, 1, 2], [1], [2, 1], [0, 0]])
def test_batches_hold_each_words_id_and_spelling(rows):
    lexicon, encoded = words()
    batch = encoded.batch(rows)
    longest = max(len(SENTENCES[i]) for i in rows)
    assert batch["words"].shape == batch["spelling"].shape == (len(rows), longest)
    distinct = {form for i in rows for form in SENTENCES[i]}
    assert len(batch["chars"]) == len(distinct)
    for b, i in enumerate(rows):
        assert batch["lengths"][b] == len(SENTENCES[i])
        for t, form in enumerate(SENTENCES[i]):
            assert batch["words"][b, t] == lexicon.word(form)
            spelt = batch["chars"][batch["spelling"][b, t]].tolist()
            want = lexicon.spell(form)
            assert spelt == want + [0] * (len(spelt) - len(want))
        assert (batch["words"][b, len(SENTENCES[i]) :] == 0).all()
    assert (batch["chars"][:, -1] != 0).any()  # no column of padding alone


def test_padding_a_column():
    _, encoded = words()
    flat = np.arange(9)
    assert encoded.pad(flat, [1, 0], -7).tolist() == [[4, 5, -7, -7], [0, 1, 2, 3]]


def test_taking_sentences_from_a_table():
    table = Table()
    for s in SENTENCES:
        table.add(s, {"tag": [f"t{w}" for w in s]}, {"n": [len(w) for w in s]})
    part = table.take(np.array([2, 0]))
    assert list(part.forms) == SENTENCES[2] + SENTENCES[0]
    assert list(part.strings["tag"]) == [f"t{w}" for w in SENTENCES[2] + SENTENCES[0]]
    assert list(part.numbers["n"]) == [len(w) for w in SENTENCES[2] + SENTENCES[0]]
    assert list(part.lengths) == [3, 4]
    assert part.strings["tag"].mapped({"tThe": 5}).tolist() == [-1, -1, -1, 5, -1, -1, -1]


def test_dividing_one_file_loses_and_repeats_nothing():
    parts = divide({"whole": 50}, SHARES, 3, whole=False)
    assert {split: len(at) for split, (_, at) in parts.items()} == {
        "train": 30, "valid": 10, "test": 10,
    }  # fmt: skip
    together = sorted(i for _, at in parts.values() for i in at.tolist())
    assert together == list(range(50))
    again = divide({"whole": 50}, SHARES, 3, whole=False)
    assert all((parts[s][1] == again[s][1]).all() for s in parts)
    other = divide({"whole": 50}, SHARES, 4, whole=False)
    assert any((parts[s][1] != other[s][1]).any() for s in parts)


def test_dividing_keeps_given_parts_and_cuts_missing_ones():
    parts = divide({"train": 10, "valid": 4}, SHARES, 0, whole=False)
    assert parts["valid"][0] == "valid"
    assert parts["valid"][1].tolist() == [0, 1, 2, 3]
    assert parts["test"][0] == parts["train"][0] == "train"
    assert sorted([*parts["test"][1], *parts["train"][1]]) == list(range(10))


def test_other_data_for_a_finished_run_is_used_in_full():
    parts = divide({"whole": 5}, SHARES, 0, whole=True)
    assert all(at.tolist() == list(range(5)) for _, at in parts.values())


def test_too_few_sentences_are_refused():
    with pytest.raises(InputError, match="at least 3 sentences, got 2"):
        divide({"whole": 2}, SHARES, 0, whole=False)


@pytest.mark.parametrize("shares", [(0.0, 0.1), (0.1, 0.0), (0.5, 0.5)])
def test_impossible_shares(shares):
    with pytest.raises(InputError, match="valid_share and test_share"):
        Shares(*shares)


def make_folder(path):
    text = EMBEDDED.read_text(encoding="utf-8").split("\n\n")
    for i, name in enumerate(("en_x-ud-train", "en_x-ud-dev", "en_x-ud-test")):
        (path / f"{name}.conllu").write_text("\n\n".join(text[i : i + 3 - i]) + "\n\n")
    (path / "README.txt").write_text("train your eyes on this\n")
    (path / "train.tsv").write_text("a\tB\n")


def test_folder_and_zip_give_the_same(tmp_path):
    folder, archive = tmp_path / "f", tmp_path / "f.zip"
    folder.mkdir()
    make_folder(folder)
    with zipfile.ZipFile(archive, "w") as z:
        for file in folder.iterdir():
            z.write(file, f"UD/{file.name}")
    a, b = read_tables(folder, add), read_tables(archive, add)
    assert {k: len(v) for k, v in a.items()} == {"train": 3, "valid": 2, "test": 1}
    for role in a:
        assert list(a[role].forms) == list(b[role].forms)
        assert list(a[role].strings["upos"]) == list(b[role].strings["upos"])


def test_one_file_in_a_folder_is_whole(tmp_path):
    (tmp_path / "my.conllu").write_bytes(EMBEDDED.read_bytes())
    assert {k: len(v) for k, v in read_tables(tmp_path, add).items()} == {"whole": 88}
    assert len(read_tables(None, add)["whole"]) == 88


def test_what_cannot_be_used_is_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        find_files(tmp_path / "no")
    with pytest.raises(InputError, match=r"files with train, dev and test .*got none"):
        find_files(tmp_path)
    (tmp_path / "a.conllu").touch()
    (tmp_path / "restraint.conllu").touch()
    with pytest.raises(InputError, match=r"got a.conllu, restraint.conllu"):
        find_files(tmp_path)
    (tmp_path / "x.zip").write_bytes(b"PK nonsense")
    with pytest.raises(InputError, match="cannot be read as a zip"):
        find_files(tmp_path / "x.zip")


def test_damaged_member_is_refused(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("a.conllu", EMBEDDED.read_text(encoding="utf-8"))
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"x.zip:a.conllu: cannot be read"):
        read_tables(path, add)


def test_long_batches_are_tensors_of_whole_numbers():
    _, encoded = words()
    assert all(v.dtype == torch.int64 for v in encoded.batch([0, 2]).values())
