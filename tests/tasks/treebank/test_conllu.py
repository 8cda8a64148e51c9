from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lawful.errors import InputError
from lawful.tasks.treebank import EMBEDDED, File, gold_tree, read_conllu, read_sentences

GOOD = """\
# sent_id = a
# text = They don't run.
1\tThey\tthey\tPRON\tPRP\tCase=Nom|Number=Plur\t4\tnsubj\t4:nsubj\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t4:aux\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t4:advmod\t_
4\trun\trun\tVERB\tVB\t_\t0\troot\t0:root\tSpaceAfter=No
4.1\tfar\tfar\tADV\t_\t_\t_\t_\t4:advmod\t_
5\t.\t.\tPUNCT\t.\t_\t4\tpunct\t4:punct\t_

0.1\tshe\t_\tPRON\t_\t_\t_\t_\t1:nsubj\tNote=before the first word
1\t100 000\t_\tNUM\t_\t_\t0\troot\t_\tSpaces=\\u0020

"""


def lines(text):
    return text.encode().splitlines(keepends=True)


def read(text, name="x.conllu"):
    return list(read_conllu(lines(text), name))


def change(line, column, value, text=GOOD):
    """The good text with one field of a line (from 1) changed."""
    rows = text.split("\n")
    fields = rows[line - 1].split("\t")
    fields[column - 1] = value
    rows[line - 1] = "\t".join(fields)
    return "\n".join(rows)


def test_words_and_what_goes_with_them():
    first, second = read(GOOD)
    assert first.forms == ["They", "do", "n't", "run", "."]
    assert first.column(7) == ["nsubj", "aux", "advmod", "root", "punct"]
    assert gold_tree(first) == [3, 3, 3, -1, 3]
    assert second.forms == ["100 000"]
    assert (first.first, second.first) == (1, 11)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD.replace("\n", "\r\n"),
        "\ufeff" + GOOD,
        "\n\n" + GOOD + "\n\n\n",
        GOOD.rstrip("\n"),
        GOOD.replace("\n\n", "\n \t\n"),
        EMBEDDED.read_text(encoding="utf-8"),
    ],
    ids=["plain", "crlf", "bom", "blank lines", "no end", "blanks in blank lines", "embedded"],
)
def test_round_trip_is_exact_and_changes_only_the_column(text):
    sentences = read(text)
    assert "".join(s.text() for s in sentences) == text
    same = [s.replaced({6: s.column(6), 9: s.column(9)}).text() for s in sentences]
    assert "".join(same) == text
    changed = [s.replaced({3: ["TAG"] * len(s)}) for s in sentences]
    assert all(set(s.column(3)) == {"TAG"} for s in changed)
    again = read("".join(s.text() for s in changed))
    back = [a.replaced({3: s.column(3)}).text() for a, s in zip(again, sentences, strict=True)]
    assert "".join(back) == text


def test_empty_nodes_count_anew_after_each_word():
    ids = ("0.1", "0.2", "1", "1.1", "1.2", "2", "2.1", "3")
    text = "".join(f"{i}\tx" + "\t_" * 8 + "\n" for i in ids)
    assert len(read(text)[0]) == 3
    with pytest.raises(InputError, match=r"line 7: expected empty node 2.1, got 2.3"):
        read(text.replace("2.1", "2.3"))


def test_byte_order_mark_in_front_of_a_word_survives():
    text = "\ufeff1\tHi\t_\tINTJ\t_\t_\t0\troot\t_\t_\n\n"
    (sentence,) = read(text)
    assert sentence.replaced({0: ["1"], 3: ["X"]}).text() == text.replace("INTJ", "X")


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        (change(3, 1, "2"), 3, "expected word 1, got 2"),
        (change(7, 1, "5"), 7, "expected word 4, got 5"),
        (change(5, 1, "0"), 5, "expected an ID"),
        (change(5, 1, "x"), 5, "expected an ID"),
        (change(5, 1, "02"), 5, "expected an ID"),
        (change(4, 1, "3-4"), 4, "must stand before word 3"),
        (change(4, 1, "3-2"), 4, "is empty"),
        (change(4, 1, "2-9"), 9, "reaches to word 9, but the sentence has 5"),
        (change(5, 1, "2-3"), 5, "overlaps"),
        (change(8, 1, "4.2"), 8, "expected empty node 4.1, got 4.2"),
        (change(8, 1, "3.1"), 8, "expected empty node 4.1, got 3.1"),
        (change(3, 10, "_\t_"), 3, "expected 10 columns parted by tabs, got 11"),
        (GOOD.replace("\t", " "), 3, "expected 10 columns parted by tabs, got 1"),
        (change(3, 4, ""), 3, "column 4 is empty"),
        (change(7, 1, "# late\n4"), 7, "comments only before the words"),
        ("# alone\n\n" + GOOD, 1, "expected words"),
    ],
)
def test_malformed_input_is_refused_with_file_and_line(text, line, what):
    with pytest.raises(InputError, match=f"^dir/x.conllu, line {line}: .*{what}"):
        read(text, "dir/x.conllu")


@pytest.mark.parametrize(
    ("line", "head", "at", "what"),
    [
        (3, "6", 3, r"head 6 is outside 0..5"),
        (3, "_", 3, r"expected a head in 0..5, got '_'"),
        (3, "-1", 3, "expected a head"),
        (3, "1", 3, "word 1 is its own head"),
        (3, "0", 7, "exactly one root .* got 1 and 4"),
        (7, "3", 3, "exactly one root .* got none"),
    ],
)
def test_heads_that_are_no_tree_are_refused(line, head, at, what):
    first = read(change(line, 7, head))[0]
    with pytest.raises(InputError, match=f"^x.conllu, line {at}: .*{what}"):
        gold_tree(first)


def test_cycle_is_refused():
    text = change(5, 7, "3", change(6, 7, "2"))
    with pytest.raises(InputError, match=r"x.conllu, line [56]: word [23] is part of a cycle"):
        gold_tree(read(text)[0])


def test_bad_encoding_names_the_line_and_byte():
    data = lines(GOOD)
    data[5] = data[5].replace(b"not", b"n\xf6t")
    with pytest.raises(InputError, match=r"x, line 6: expected UTF-8, got byte 0xf6 at position 8"):
        list(read_conllu(data, "x"))
    with pytest.raises(InputError, match="line 1: expected UTF-8"):
        list(read_conllu(GOOD.encode("utf-16").splitlines(keepends=True), "x"))


@pytest.mark.parametrize("text", ["", "\n\n", " \n"])
def test_empty_file_is_refused(text):
    with pytest.raises(InputError, match=r"x.conllu: .*without sentences"):
        read(text)


def test_sentences_come_one_at_a_time():
    def endless():
        while True:
            yield from lines(GOOD)

    stream = read_conllu(endless(), "x")
    assert [len(next(stream)) for _ in range(6)] == [5, 1, 5, 1, 5, 1]


FIELD = st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"]), min_size=1)


@given(st.lists(st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=4), min_size=1, max_size=4))
def test_any_forms_and_notes_survive(sentences):
    """Forms may hold spaces, line separators other than LF, and any sign of any script."""
    text = "".join(
        "".join(
            f"{i}\t{form}\t_\t_\t_\t_\t_\t_\t_\t{note}\n" for i, (form, note) in enumerate(s, 1)
        )
        + "\n"
        for s in sentences
    )
    found = list(read_conllu(_split(text), "x"))
    assert [s.forms for s in found] == [[form for form, _ in s] for s in sentences]
    assert "".join(s.text() for s in found) == text


def _split(text):
    return [x + b"\n" for x in text.encode().split(b"\n")[:-1]]


def test_reading_from_disk(tmp_path):
    path = Path(tmp_path / "a.conllu")
    path.write_bytes(GOOD.encode())
    assert [len(s) for s in read_sentences(File(path))] == [5, 1]
    with pytest.raises(InputError, match="cannot be read"):
        list(File(tmp_path / "absent.conllu").lines())
