"""Readers of facts: the equations written out, copies that do not touch each other."""

import copy
import itertools
import pickle

import pytest
import torch

from lawful.errors import InputError
from lawful.models import (
    BinaryChainConfig,
    FactReader,
    MemoryNetworkConfig,
    ReaderConfig,
    UnaryChainConfig,
)
from lawful.models._fact_networks import Limit
from lawful.tasks.qa._babi import Question
from lawful.tasks.qa._data import Questions, Words

KINDS = {"memn2n": MemoryNetworkConfig, "binary": BinaryChainConfig, "unary": UnaryChainConfig}
every = pytest.mark.parametrize("kind", KINDS)
STORIES = [
    Question((("a", "b"), ("c", "a", "d"), ("b",)), ("d", "a"), "a", (0, 1)),
    Question((("b", "b"), ("a", "d", "c", "b")), ("c",), "b", (1, 0)),
]
KNOWN = Words(["a", "b", "c", "d"], ["a", "b"])


def make(kind, hops=2, restarts=2, **more):
    torch.manual_seed(0)
    config = KINDS[kind](width=3, hops=hops, restarts=restarts, init=0.7, **more)
    return FactReader(config, 4, 2, 5, dtype=torch.float64)


def batch():
    b = Questions(STORIES, KNOWN, 5, 3).batch([0, 1])
    return b["sentences"].double(), b["question"], b["facts"], b["lengths"]


def vector(table, words):
    """The sum of word vectors with the position encoding, as printed in the paper."""
    d, n = table.shape[1], len(words)
    out = torch.zeros(d, dtype=table.dtype)
    for j, word in enumerate(words, 1):
        for k in range(1, d + 1):
            weight = (1 - j / n) - (k / d) * (1 - 2 * j / n)
            out[k - 1] += weight * table[KNOWN.ids[word], k - 1]
    return out


def slow(model, copy_, story, linear):
    """One copy, one question, from the definitions; sequences are enumerated."""
    net, hops, n = model.network, model.config.hops, len(story.facts)
    words, ages = net.words[copy_], net.ages[copy_]
    seen = [
        torch.stack([vector(w, f) + a[n - 1 - i] for i, f in enumerate(story.facts)])
        for w, a in zip(words, ages, strict=True)
    ]
    q = vector(words[0], story.words)
    keys, values = seen[:hops], seen[-hops:]
    if isinstance(model.config, MemoryNetworkConfig):
        rows = []
        for x, o in zip(keys, values, strict=True):
            p = x @ q if linear else (x @ q).softmax(0)
            q = q + p @ o
            rows.append(p)
        return net.readout[copy_] @ q, torch.stack(rows)
    hop = net.attention.hop
    qs = [q]
    for _ in range(hops - 1):
        qs.append(hop.weight[copy_] @ qs[-1] + hop.bias[copy_])
    links = isinstance(model.config, BinaryChainConfig)
    if linear:
        rows = []
        for k in range(hops):
            w = keys[k] @ qs[k]
            for i, j in itertools.product(range(n), repeat=2):
                if k and links and i != j:
                    w[j] = w[j] + rows[-1][i] * (keys[k - 1][i] @ keys[k][j])
            rows.append(w)
        weights = torch.stack(rows)
    else:
        weights = torch.zeros(hops, n, dtype=q.dtype)
        total = 0.0
        for z in itertools.product(range(n), repeat=hops):
            if any(a == b for a, b in itertools.pairwise(z)):
                continue
            score = sum(keys[k][z[k]] @ qs[k] for k in range(hops))
            if links:
                score = score + sum(keys[k][z[k]] @ keys[k + 1][z[k + 1]] for k in range(hops - 1))
            total = total + score.exp()
            for k in range(hops):
                weights[k, z[k]] += score.exp()
        weights = weights / total
    context = sum(weights[k] @ values[k] for k in range(hops))
    return net.readout[copy_] @ (qs[-1] + context), weights


@every
@pytest.mark.parametrize("hops", [2, 3])
@pytest.mark.parametrize("linear", [False, True])
def test_the_equations(kind, hops, linear):
    model = make(kind, hops, linear_start=int(linear)).eval()
    with torch.no_grad():
        reading = model(*batch())
        for r, (i, story) in itertools.product(range(2), enumerate(STORIES)):
            logits, weights = slow(model, r, story, linear)
            torch.testing.assert_close(reading.logits[r, i], logits)
            torch.testing.assert_close(reading.weights[r, i, :, : len(story.facts)], weights)
            assert (reading.weights[r, i, :, len(story.facts) :] == 0).all()


@every
def test_the_likeliest_chain(kind):
    model = make(kind, linear_start=0).eval()
    with torch.no_grad():
        reading, chosen = model.choose(*batch())
        for r, (i, story) in itertools.product(range(2), enumerate(STORIES)):
            if kind == "memn2n":
                want = reading.weights[r, i].argmax(-1).tolist()
            else:
                score = model.chain(*batch()).log_prob
                n = len(story.facts)
                options = [z for z in itertools.product(range(n), repeat=2) if z[0] != z[1]]
                want = max(options, key=lambda z: one(score, z, r, i))
            assert chosen[r, i].tolist() == list(want)


def one(score, z, r, i):
    return float(score(torch.tensor(z).expand(2, 2, 2))[r, i])


@every
def test_copies_train_as_they_would_alone(kind):
    """Three copies side by side, and each by itself: the same weights after the same updates."""
    together = make(kind, restarts=3, gradient_limit=0.05, linear_start=2)
    alone = []
    for r in range(3):
        single = make(kind, restarts=1, gradient_limit=0.05, linear_start=2)
        with torch.no_grad():
            for a, b in zip(single.parameters(), together.parameters(), strict=True):
                a.copy_(b[r : r + 1])
        alone.append(single)
    answer = torch.tensor([0, 1])
    for model in (together, *alone):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        for _ in range(4):
            optimizer.zero_grad()
            logits = model(*batch()).logits
            target = answer.expand(len(logits), 2).flatten()
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), target).backward()
            optimizer.step()
    for r, single in enumerate(alone):
        for a, b in zip(single.parameters(), together.parameters(), strict=True):
            torch.testing.assert_close(a[0], b[r])


def test_each_copys_gradient_is_limited():
    a = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    b = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([1e-3, 1.0, 1e3], dtype=torch.float64)
    for limit in (0.0, 0.5):
        x, y = Limit.apply(limit, a, b)
        loss = (scale * (x.sum(1) + 2 * y.sum((1, 2)))).mean()
        ga, gb = torch.autograd.grad(loss, (a, b))
        norm = (ga.pow(2).sum(1) + gb.pow(2).sum((1, 2))).sqrt()
        free = scale * 20**0.5
        want = free.clamp(max=0.5) if limit else free
        torch.testing.assert_close(norm, want)
        torch.testing.assert_close(gb[:, 0, 0], 2 * ga[:, 0])


@every
def test_linear_start_ends_after_so_many_training_calls(kind):
    model = make(kind, linear_start=2)
    seen = []
    for _ in range(4):
        seen.append(model.linear is not None)
        model.eval()(*batch())  # measuring does not count
        model.train()(*batch())
    assert seen == [True, True, False, False]


@every
def test_padding_and_copies(kind):
    model = make(kind, linear_start=0).eval()
    b = batch()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(other(*b).logits, model(*b).logits)
    facts = torch.nn.functional.pad(b[2], (0, 2), value=1)
    torch.testing.assert_close(model(b[0], b[1], facts, b[3]).logits, model(*b).logits)


@every
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_share_of_the_copies_starts_linear(kind, share):
    model = make(kind, restarts=4, linear_share=share, linear_start=1).eval()
    whole = make(kind, restarts=4, linear_start=1).eval()
    none = make(kind, restarts=4, linear_start=0).eval()
    with torch.no_grad():
        for n, pair in enumerate(
            zip(model(*batch()), whole(*batch()), none(*batch()), strict=True)
        ):
            got, linear, chosen = pair
            assert n or not torch.allclose(linear, chosen)
            count = round(4 * share)
            torch.testing.assert_close(got, torch.cat([linear[:count], chosen[count:]]))


def test_impossible_settings():
    for bad in (
        {"hops": 0},
        {"init": 0.0},
        {"gradient_limit": -1.0},
        {"linear_start": -1},
        {"linear_share": 2.0},
    ):
        with pytest.raises(InputError, match=next(iter(bad))):
            BinaryChainConfig(**bad)
    with pytest.raises(InputError, match="config"):
        FactReader(ReaderConfig(), 4, 2, 5)
