"""Entailment models: the equations written out, padding, what a parser gives."""

import copy
import pickle

import pytest
import torch

from lawful.errors import InputError
from lawful.models import (
    EntailmentConfig,
    EntailmentModel,
    HardParentEntailmentConfig,
    ParsedEntailmentConfig,
    SentencePair,
    SimpleEntailmentConfig,
    TreeEntailmentConfig,
)

SMALL = {"width": 5, "embedding": 4, "dropout": 0.0}
MODELS = {
    "none": EntailmentConfig(**SMALL),
    "simple": SimpleEntailmentConfig(score_units=3, **SMALL),
    "structured": TreeEntailmentConfig(score_units=3, **SMALL),
    "crossing": TreeEntailmentConfig(score_units=3, crossing=True, squash=False, **SMALL),
    "hard-parent": HardParentEntailmentConfig(**SMALL),
    "parsed": ParsedEntailmentConfig(**SMALL),
}
every = pytest.mark.parametrize("name", MODELS)


def make(name, **more):
    torch.manual_seed(0)
    return EntailmentModel(MODELS[name], 9, 3, dtype=torch.float64, **more).eval()


def pairs():
    g = torch.Generator().manual_seed(1)
    parents = [torch.rand(2, n, n, generator=g, dtype=torch.float64) for n in (5, 4)]
    for square, lengths in zip(parents, ((5, 3), (2, 4)), strict=True):
        for row, n in zip(square, lengths, strict=True):
            row[n:], row[:, n:] = 0, 0
    return SentencePair(
        torch.tensor([[1, 4, 5, 6, 7], [1, 8, 3, 0, 0]]),
        torch.tensor([5, 3]),
        torch.tensor([[1, 6, 0, 0], [1, 2, 7, 8]]),
        torch.tensor([2, 4]),
        *parents,
    )


def slow(model, pair, row):
    """One pair, word by word."""

    def words(tokens, length, given):
        raw = model.table.weight[tokens[:length]]
        x = raw @ model.project.weight.T
        if isinstance(model.config, SimpleEntailmentConfig):
            given = model.parents(tokens[None, :length], torch.tensor([length]))[0]
        elif not model.config.wants:
            return list(x)
        rows = []
        for j in range(length):
            soft = sum(given[j, i] * x[i] for i in range(length))
            rows.append(torch.cat([x[j], soft]))
        return rows

    a = words(pair.premise[row], int(pair.premise_lengths[row]), pair.premise_parents[row])
    b = words(pair.hypothesis[row], int(pair.hypothesis_lengths[row]), pair.hypothesis_parents[row])
    e = torch.stack([torch.stack([model.attend(x) @ model.attend(y) for y in b]) for x in a])
    beta = [sum(p * y for p, y in zip(e[i].softmax(0), b, strict=True)) for i in range(len(a))]
    alpha = [sum(p * x for p, x in zip(e[:, j].softmax(0), a, strict=True)) for j in range(len(b))]
    v1 = sum(model.compare(torch.cat(t)) for t in zip(a, beta, strict=True))
    v2 = sum(model.compare(torch.cat(t)) for t in zip(b, alpha, strict=True))
    return model.readout(model.aggregate(torch.cat([v1, v2]))), e


@every
def test_the_equations_with_padding(name):
    model = make(name)
    with torch.no_grad():
        logits, looks = model(pairs()), model.alignment(pairs())
        for row in range(2):
            want, e = slow(model, pairs(), row)
            torch.testing.assert_close(logits[row], want)
            n, m = e.shape
            torch.testing.assert_close(looks[row, :m, :n], e.softmax(0).T)
            assert (looks[row, m:] == 0).all()
            assert (looks[row, :, n:] == 0).all()


@every
def test_gradients_reach_every_parameter_and_no_padding(name):
    model = make(name).train()
    model(pairs()).square().sum().backward()
    for key, p in model.named_parameters():
        assert p.grad is not None, key
        assert torch.isfinite(p.grad).all(), key
    assert all(p.grad.abs().sum() > 0 for p in model.attend.parameters() if p.dim() > 1)
    assert (model.table.weight.grad[0] == 0).all()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(other.eval()(pairs()), model.eval()(pairs()))


def test_given_vectors_are_fixed():
    vectors = torch.randn(9, 6, dtype=torch.float64)
    model = make("structured", vectors=vectors)
    assert "vectors" in model.state_dict()
    assert all(p.shape != vectors.shape for p in model.parameters())
    assert model(pairs()).shape == (2, 3)
    with pytest.raises(InputError, match="vectors"):
        make("none", vectors=vectors[:5])


@pytest.mark.parametrize("name", ["hard-parent", "parsed"])
def test_a_parsers_trees_are_wanted(name):
    bare = pairs()._replace(premise_parents=None)
    with pytest.raises(InputError, match=r"parents: expected .* of a parser"):
        make(name)(bare)


def test_impossible_settings():
    for kind, bad in (
        (EntailmentConfig, {"width": 0}),
        (EntailmentConfig, {"dropout": 1.0}),
        (TreeEntailmentConfig, {"score_units": 0}),
    ):
        with pytest.raises(InputError, match=next(iter(bad))):
            kind(**bad)
