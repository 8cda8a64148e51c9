import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lawful.tasks.treebank import crossing_arc, is_punctuation, projective, read_conllu
from lawful.tasks.treebank._conllu import in_cycle


def trees(n):
    """All single-rooted trees of n words by brute force."""
    for heads in itertools.product(range(-1, n), repeat=n):
        if heads.count(-1) == 1 and all(_reaches_root(heads, i) for i in range(n)):
            yield list(heads)


def _reaches_root(heads, i):
    seen = set()
    while i >= 0:
        if i in seen:
            return False
        seen.add(i)
        i = heads[i]
    return True


def crosses(heads):
    """Two arcs cross, the root's arc (from left of all) included."""
    arcs = [tuple(sorted((h, m))) for m, h in enumerate(heads)]
    return any(a < c < b < d for (a, b), (c, d) in itertools.permutations(arcs, 2))


@pytest.mark.parametrize(("n", "count"), [(1, 1), (2, 2), (3, 9), (4, 64), (5, 625)])
def test_projective_is_exactly_without_crossings(n, count):
    found = list(trees(n))
    assert len(found) == count  # n^(n-1), Cayley
    for heads in found:
        assert (crossing_arc(heads) >= 0) == crosses(heads)


def test_lifting_gives_projective_trees_and_keeps_those_that_are():
    for heads in trees(5):
        lifted = projective(heads)
        assert crossing_arc(lifted) < 0
        assert lifted.count(-1) == 1
        assert in_cycle(lifted) < 0
        if not crosses(heads):
            assert lifted == heads


def test_lifting_moves_only_what_it_must():
    # "A man came yesterday who knew": the clause hangs on the man over the verb.
    assert projective([1, 2, -1, 2, 5, 1]) == [1, 2, -1, 2, 5, 2]


@given(
    st.integers(1, 30).flatmap(lambda n: st.lists(st.integers(-1, n - 1), min_size=n, max_size=n))
)
def test_cycles_are_found(heads):
    word = in_cycle(heads)
    free = all(_reaches_root(heads, i) for i in range(len(heads)))
    assert (word < 0) == free
    if word >= 0:
        at = heads[word]
        for _ in heads:
            if at == word:
                break
            at = heads[at]
        assert at == word


def test_punctuation_by_tag_or_by_sign():
    rows = [("x", "PUNCT"), (",", "SYM"), ("...", "_"), ("a.", "_"), ("«", "_"), ("$", "_")]
    text = "".join(f"{i}\t{f}\t_\t{u}\t_\t_\t_\t_\t_\t_\n" for i, (f, u) in enumerate(rows, 1))
    (sentence,) = read_conllu([x.encode() + b"\n" for x in text.split("\n")], "x")
    assert is_punctuation(sentence) == [True, False, True, False, True, False]
