import pytest

from lawful.errors import InputError
from lawful.tasks.treebank import TagColumn, is_bio, read_columns, read_conllu, spans

NER = """\
-DOCSTART- -X- O

Anna NNP B-PER
Berg  NNP   I-PER
left VBD O@
Oslo\tNNP\tB-LOC

# NN O
ok NN O

-DOCSTART- -X- O

""".replace("@", " ")


def read(text, **options):
    data = [x + b"\n" for x in text.encode().split(b"\n")]
    data[-1] = data[-1][:-1]
    return list(read_columns([x for x in data if x], "x.tsv", **options))


@pytest.mark.parametrize("text", [NER, NER.replace("\n", "\r\n"), NER.rstrip("\n"), "\ufeff" + NER])
def test_round_trip_keeps_blanks_and_document_marks(text):
    sentences = read(text)
    assert [s.forms for s in sentences] == [["Anna", "Berg", "left", "Oslo"], ["#", "ok"]]
    assert "".join(s.text() for s in sentences) == text
    column = TagColumn("auto")
    same = [column.written(s, column.tags(s)).text() for s in sentences]
    assert "".join(same) == text
    new = "".join(column.written(s, ["Q"] * len(s)).text() for s in sentences)
    assert new == text.replace("B-PER", "Q").replace("I-PER", "Q").replace("B-LOC", "Q").replace(
        "D O ", "D Q "
    ).replace("NN O", "NN Q").replace("-X- Q", "-X- O")


def test_column_by_number():
    sentence = read(NER)[0]
    assert TagColumn("2").tags(sentence) == ["NNP", "NNP", "VBD", "NNP"]
    with pytest.raises(InputError, match=r"x.tsv, line 3: expected a column 4, got 3 columns"):
        TagColumn("4").tags(sentence)
    with pytest.raises(InputError, match="'upos' needs CoNLL-U"):
        TagColumn("upos").tags(sentence)


def test_bare_words_get_a_column():
    (sentence,) = read("one\ntwo\n", single=True)
    assert TagColumn("auto").written(sentence, ["A", "B"]).text() == "one\tA\ntwo\tB\n"
    with pytest.raises(InputError, match="line 1: expected a word and its tag, got one column"):
        read("one\ntwo\n")


def test_uneven_columns_are_refused():
    with pytest.raises(InputError, match=r"x.tsv, line 4: expected 2 columns as in line 1, got 3"):
        read("a X\nb Y\n\nc d Z\n")


@pytest.mark.parametrize("text", ["", "\n", "-DOCSTART- O\n\n"])
def test_files_without_words_are_refused(text):
    with pytest.raises(InputError, match="without sentences"):
        read(text)


@pytest.mark.parametrize("name", ["form", "head", "feats:", "upos:x", "1", "0", "", "Upos"])
def test_impossible_columns_are_refused(name):
    with pytest.raises(InputError, match="column"):
        TagColumn(name)


FEATS = [
    ("_", "Number", "_", "Sing", "Number=Sing"),
    ("Case=Nom|Person=3", "Number", "_", "Sing", "Case=Nom|Number=Sing|Person=3"),
    ("Case=Nom|Number=Plur", "Number", "Plur", "Sing", "Case=Nom|Number=Sing"),
    ("Case=Nom|Number=Plur", "Number", "Plur", "_", "Case=Nom"),
    ("Number=Plur", "Number", "Plur", "_", "_"),
    ("Number[psor]=Plur", "Number", "_", "_", "Number[psor]=Plur"),
]


@pytest.mark.parametrize(("old", "key", "tag", "new", "want"), FEATS)
def test_one_attribute_is_read_and_written(old, key, tag, new, want):
    line = f"1\ta\t_\tX\t_\t{old}\t0\troot\t_\t_\n".encode()
    (sentence,) = read_conllu([line, b"\n"], "x")
    column = TagColumn(f"feats:{key}")
    assert column.tags(sentence) == [tag]
    assert column.written(sentence, [new]).column(5) == [want]


def test_misc_keeps_its_order():
    line = b"1\ta\t_\tX\t_\t_\t0\troot\t_\tZ=1|NER=O|A=2\n"
    (sentence,) = read_conllu([line, b"\n"], "x")
    assert TagColumn("misc:NER").written(sentence, ["B-X"]).column(9) == ["Z=1|NER=B-X|A=2"]
    assert TagColumn("misc:Q").written(sentence, ["1"]).column(9) == ["Z=1|NER=O|A=2|Q=1"]


@pytest.mark.parametrize(
    ("tags", "want"),
    [
        ("O O", []),
        ("B-A I-A O B-A", [(0, 2, "A"), (3, 4, "A")]),
        ("B-A B-A I-A", [(0, 1, "A"), (1, 3, "A")]),
        ("B-A I-B I-B", [(0, 1, "A"), (1, 3, "B")]),
        ("I-A I-A O I-A", [(0, 2, "A"), (3, 4, "A")]),  # the older IOB
        ("I-A B-A I-A", [(0, 1, "A"), (1, 3, "A")]),
        ("S-A B-B I-B E-B S-A", [(0, 1, "A"), (1, 4, "B"), (4, 5, "A")]),
        ("B-A L-A U-C O", [(0, 2, "A"), (2, 3, "C")]),
        ("I-A S-A I-A", [(0, 1, "A"), (1, 2, "A"), (2, 3, "A")]),
        ("B-A U-A", [(0, 1, "A"), (1, 2, "A")]),
        ("E-A E-A", [(0, 1, "A"), (1, 2, "A")]),
        ("B-A-B I-A-B", [(0, 2, "A-B")]),
    ],
)
def test_spans(tags, want):
    assert spans(tags.split()) == set(want)


def test_what_looks_like_span_tags():
    assert is_bio(["O", "B-PER", "I-PER"])
    assert not is_bio(["O", "B-PER", "NOUN"])
    assert not is_bio(["O"])
    assert not is_bio(["NOUN", "VERB"])
