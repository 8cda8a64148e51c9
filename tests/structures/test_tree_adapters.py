import pytest
import torch

from lawful.errors import InputError
from lawful.structures import ProjectiveTree, SpanningTree
from lawful.structures.adapters import (
    tree_from_supar,
    tree_from_torch_struct,
    tree_to_supar,
    tree_to_torch_struct,
)

# Two words. The best tree is root -> word 1 -> word 0, and nothing is symmetric.
ROOT_0, ROOT_1, HEAD_0_OF_1, HEAD_1_OF_0 = 0.1, 2.0, 0.3, 4.0
ALL = {(-1, -1): ROOT_0 + ROOT_1, (-1, 0): ROOT_0 + HEAD_0_OF_1, (1, -1): ROOT_1 + HEAD_1_OF_0}


@pytest.mark.parametrize("family", [ProjectiveTree, SpanningTree])
@pytest.mark.parametrize("layout", ["torch-struct", "supar"])
def test_two_words(family, layout):
    if layout == "torch-struct":
        scores = torch.tensor([[ROOT_0, HEAD_0_OF_1], [HEAD_1_OF_0, ROOT_1]])
        d = family(*tree_from_torch_struct(scores))
    else:
        scores = torch.tensor([[9.0, 9, 9], [ROOT_0, 9, HEAD_1_OF_0], [ROOT_1, HEAD_0_OF_1, 9]])
        d = family(*tree_from_supar(scores))
    for heads, score in ALL.items():
        assert d.score(torch.tensor(heads)).item() == pytest.approx(score)
    assert d.argmax.tolist() == [1, -1]
    want = torch.tensor(list(ALL.values())).logsumexp(0).item()
    assert d.log_partition.item() == pytest.approx(want)


def test_there_and_back():
    arcs, root = torch.randn(2, 3, 3), torch.randn(2, 3)
    for there, back in (
        (tree_to_supar, tree_from_supar),
        (tree_to_torch_struct, tree_from_torch_struct),
    ):
        parts = back(there(arcs, root))
        off = ~torch.eye(3, dtype=torch.bool)
        assert torch.equal(parts.arcs[:, off], arcs[:, off])
        assert torch.equal(parts.root, root)


def test_gradients_come_back_in_the_foreign_layout():
    scores = torch.randn(4, 4, requires_grad=True)
    ProjectiveTree(*tree_from_supar(scores)).log_partition.backward()
    assert torch.allclose(scores.grad[1:].sum(1), torch.ones(3))  # one head for each word
    assert (scores.grad[0] == 0).all()


def test_shapes_are_checked():
    with pytest.raises(InputError, match="square"):
        tree_from_supar(torch.zeros(2, 3))
    with pytest.raises(InputError, match="square"):
        tree_from_torch_struct(torch.zeros(2, 3))
    with pytest.raises(InputError, match=r"N \+ 1"):
        tree_from_supar(torch.zeros(0, 0))
