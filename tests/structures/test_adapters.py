import importlib.util
from itertools import pairwise

import pytest
import torch

from lawful.errors import InputError
from lawful.structures.adapters import (
    chain_from_pytorch_crf,
    chain_from_torch_struct,
    lengths_from_mask,
)
from tests.structures._battery import close


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int64, torch.uint8, torch.float32, torch.bfloat16]
)
def test_masks_of_any_type(dtype):
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0]]).to(dtype)
    assert lengths_from_mask(mask).tolist() == [3, 1, 0]


def test_holes_left_padding_and_odd_values_are_refused():
    with pytest.raises(InputError, match=r"row \[1\] is true at step 2"):
        lengths_from_mask(torch.tensor([[1, 1, 1], [1, 0, 1]]))
    with pytest.raises(InputError, match="padding on the left"):
        lengths_from_mask(torch.tensor([False, True, True]))
    with pytest.raises(InputError, match="only 0 and 1"):
        lengths_from_mask(torch.tensor([2, 1, 0]))
    with pytest.raises(InputError, match="mask"):
        lengths_from_mask([1, 0])


def crf(B=3, N=6, C=4):
    torch.manual_seed(0)
    return torch.randn(N, B, C), torch.randn(C, C), torch.randn(C), torch.randn(C)


def brute_crf(emissions, transitions, start, end, tags):
    score = start[tags[0]] + end[tags[-1]] + sum(emissions[t, c] for t, c in enumerate(tags))
    return score + sum(transitions[i, j] for i, j in pairwise(tags))


def test_pytorch_crf_layout():
    emissions, transitions, start, end = crf()
    lengths = torch.tensor([6, 1, 3])
    mask = torch.arange(6)[:, None] < lengths
    d = chain_from_pytorch_crf(emissions, transitions, start, end, mask)
    tags = torch.randint(4, (3, 6))
    for b, n in enumerate(lengths.tolist()):
        want = brute_crf(emissions[:, b], transitions, start, end, tags[b, :n].tolist())
        close(d.score(tags)[b], want, 1e-5)
    e = chain_from_pytorch_crf(
        emissions.transpose(0, 1), transitions, start, end, mask.T, batch_first=True
    )
    close(d.log_partition, e.log_partition)
    with pytest.raises(InputError, match="mask: expected shape"):
        chain_from_pytorch_crf(emissions, transitions, start, end, mask[:5])


def test_junk_tags_in_padding():
    """-100 in padding crashes or corrupts elsewhere."""
    emissions, transitions, start, end = crf()
    mask = torch.arange(6)[:, None] < torch.tensor([6, 2, 0])
    d = chain_from_pytorch_crf(emissions, transitions, start, end, mask)
    tags = torch.randint(4, (3, 6))
    junk = tags.masked_fill(~mask.T, -100)
    assert torch.equal(d.log_prob(junk), d.log_prob(tags))
    assert d.log_prob(junk)[2] == 0
    assert (d.argmax.masked_select(~mask.T) == -1).all()


def test_torch_struct_layout():
    torch.manual_seed(0)
    edges = torch.randn(2, 3, 4, 4)  # [n, to, from]
    d = chain_from_torch_struct(edges, [4, 3])
    tags = torch.tensor([[0, 1, 2, 3], [3, 1, 0, 0]])
    want = [
        edges[0, 0, 1, 0] + edges[0, 1, 2, 1] + edges[0, 2, 3, 2],
        edges[1, 0, 1, 3] + edges[1, 1, 0, 1],
    ]
    close(d.score(tags), torch.stack(want), 1e-6)


@pytest.mark.skipif(importlib.util.find_spec("torch_struct") is None, reason="needs torch-struct")
@pytest.mark.filterwarnings("ignore")
def test_against_torch_struct_itself():
    import torch_struct

    edges = torch.randn(2, 5, 3, 3, requires_grad=True)
    theirs = torch_struct.LinearChainCRF(edges, lengths=torch.tensor([6, 4]))
    d = chain_from_torch_struct(edges, [6, 4])
    close(d.log_partition, theirs.partition, 1e-5)
    close(d.marginals.transition.mT, theirs.marginals, 1e-5)


@pytest.mark.skipif(importlib.util.find_spec("torchcrf") is None, reason="needs pytorch-crf")
@pytest.mark.filterwarnings("ignore")
def test_against_pytorch_crf_itself():
    import torchcrf

    emissions, *_ = crf()
    mask = torch.arange(6)[:, None] < torch.tensor([6, 2, 4])
    model = torchcrf.CRF(4)
    tags = torch.randint(4, (6, 3))
    d = chain_from_pytorch_crf(
        emissions, model.transitions, model.start_transitions, model.end_transitions, mask
    )
    close(d.log_prob(tags.T).sum(), model(emissions, tags, mask), 1e-5)
    for b, path in enumerate(model.decode(emissions, mask)):
        assert d.argmax[b, : len(path)].tolist() == path
