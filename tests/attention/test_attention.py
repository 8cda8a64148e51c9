import copy
import math
import pickle

import pytest
import torch
from torch import nn

import lawful
from lawful.attention import (
    ChainAttention,
    SegmentationAttention,
    SigmoidAttention,
    SoftmaxAttention,
    SyntacticAttention,
)
from lawful.errors import InputError
from lawful.kernels import force_backend, native_status

from . import oracles

D, K, V, N, Q = 3, 4, 2, 5, 6
ITEMS = {
    "softmax": lambda **kw: SoftmaxAttention(D, K, **kw),
    "softmax-mlp": lambda **kw: SoftmaxAttention(D, K, score="mlp", hidden=5, **kw),
    "sigmoid": lambda **kw: SigmoidAttention(D, K, **kw),
    "segmentation": lambda **kw: SegmentationAttention(D, K, **kw),
    "segmentation-eq2": lambda **kw: SegmentationAttention(D, K, total=None, **kw),
    "segmentation-ends": lambda **kw: SegmentationAttention(D, K, ends=True, **kw),
    "chain": lambda **kw: ChainAttention(D, key_size=K, score="bilinear", **kw),
    "chain-3": lambda **kw: ChainAttention(D, 3, key_size=K, score="bilinear", **kw),
    "chain-unary": lambda **kw: ChainAttention(
        D, key_size=K, score="bilinear", pairwise=False, repeat=True, **kw
    ),
}
TREES = {
    "projective": {},
    "spanning": {"structure": "spanning", "hidden": None},
    "simple": {"structure": "softmax"},
    "learned-root": {"root": "learned", "squash": False},
    "heads": {"heads": 2, "score_size": 3},
    "children": {"children": True},
    "single-root": {"single_root": True, "hidden": None},
}


def make(name, dtype=torch.float64, **kwargs):
    torch.manual_seed(0)
    if name in ITEMS:
        layer = ITEMS[name](dtype=dtype, **kwargs)
    else:
        layer = SyntacticAttention(K, **{"hidden": 3, "dtype": dtype, **TREES[name], **kwargs})
    if isinstance(layer, SegmentationAttention):
        nn.init.normal_(layer.transition)
    return layer


def draw(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)), dtype=dtype)


def example(name, dtype=torch.float64, lead=(2,)):
    """Arguments of a call: query, keys, values."""
    keys, values = draw(*lead, N, K, dtype=dtype), draw(*lead, N, V, dtype=dtype)
    return (draw(*lead, Q, D, dtype=dtype), keys, values) if name in ITEMS else (keys, None, values)


def close(a, b, tolerance=1e-10):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


items = pytest.mark.parametrize("name", ITEMS)
every = pytest.mark.parametrize("name", [*ITEMS, *TREES])


# ---- against enumeration -------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in ITEMS if not n.startswith("chain")])
@pytest.mark.parametrize("length", [1, 3, N])
def test_items_by_enumeration(name, length, backend):
    layer = make(name)
    query, keys, values = example(name)
    lengths = torch.tensor([length, N])
    context, weights = layer(query, keys, values, lengths)
    with torch.no_grad():
        theta = layer.score(query, keys)
    for j in range(Q):
        t = theta[0, j, :length].tolist()
        if name.startswith("softmax"):
            total = sum(math.exp(x) for x in t)
            want = torch.tensor([math.exp(x) / total for x in t], dtype=torch.float64)
        elif name == "sigmoid":
            want = torch.tensor([1 / (1 + math.exp(-x)) for x in t], dtype=torch.float64)
        else:
            b = layer.transition.detach()
            ends = (b.mean(0).tolist(), b.mean(1).tolist()) if layer.ends else ()
            want = oracles.segmentation(t, b.tolist(), *ends)
            if layer.total:
                want = want * layer.total / want.sum()
        close(weights[0, j, :length], want)
        close(context[0, j], want @ values[0, :length])
    assert (weights[0, :, length:] == 0).all()


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("pairwise", [True, False])
@pytest.mark.parametrize("repeat", [True, False])
@pytest.mark.parametrize("own", [True, False], ids=["own facts", "shared facts"])
def test_chain_by_enumeration(steps, pairwise, repeat, own, backend):
    torch.manual_seed(0)
    layer = ChainAttention(D, steps, pairwise=pairwise, repeat=repeat).double()
    query = draw(2, Q, D)
    facts = [draw(2, N, D) + k * own for k in range(steps)]
    values = [draw(2, N, V) * (k + 1) if own else draw(2, N, V) for k in range(steps)]
    given = (facts, values) if own else (facts[0], values[0])
    lengths = torch.tensor([3, 1])
    context, weights = layer(query, *given, lengths)
    for b, length in enumerate([3, 1]):
        for j in range(Q):
            q = [query[b, j]]
            for _ in range(steps - 1):
                q.append(layer.hop(q[-1]).detach())
            x = [f[b, :length] for f in facts]
            theta = [(x[k] @ q[k]).tolist() for k in range(steps)]
            links = [(x[k] @ x[k + 1].T).tolist() for k in range(steps - 1)] if pairwise else None
            want = oracles.chain(theta, links, repeat)
            close(weights[b, j, :, :length], want)
            close(context[b, j], sum(want[k] @ values[k][b, :length] for k in range(steps)))
    assert (weights[0, :, :, 3:] == 0).all()


@pytest.mark.parametrize("structure", ["projective", "spanning"])
@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("squash", [True, False])
def test_parents_by_enumeration(structure, single_root, squash, backend):
    torch.manual_seed(0)
    layer = SyntacticAttention(
        K, 3, structure=structure, single_root=single_root, squash=squash, dtype=torch.float64
    )
    tokens = 3 * draw(3, N, K)
    lengths = torch.tensor([N, 3, 2])
    context, weights = layer(tokens, lengths=lengths)
    for b, n in enumerate(lengths.tolist()):
        x = tokens[b : b + 1, :n]
        h = layer.encoder(x)[0]
        mlp = layer.score
        theta = [[0.0] * n for _ in range(n)]
        for i in range(n):
            for j in range(n):
                inner = mlp.query.weight @ h[i] + mlp.key.weight @ h[j] + mlp.key.bias
                score = mlp.out[0] @ inner.tanh()
                theta[i][j] = (score.tanh() if squash else score).item()
        want = oracles.parents(theta, structure == "projective", single_root)
        close(weights[b, :n, :n], want)
        close(context[b, :n], want @ tokens[b, :n])
        assert (weights[b, n:] == 0).all()
        assert (weights[b, :, n:] == 0).all()


def test_several_heads_are_independent_trees():
    layer = make("heads")
    tokens = draw(2, N, K)
    context, weights = layer(tokens)
    assert weights.shape == (2, 2, N, N)
    assert context.shape == (2, N, 2 * K)
    h = layer.encoder(tokens)
    for head in range(2):
        part = slice(3 * head, 3 * head + 3)
        mlp = layer.score
        inner = (h @ mlp.query.weight[part].T)[:, :, None] + (
            h @ mlp.key.weight[part].T + mlp.key.bias[part]
        )[:, None]
        theta = (inner.tanh() @ mlp.out[head]).tanh()  # [parent, child]
        for b in range(2):
            close(weights[b, head], oracles.parents(theta[b].tolist(), True))
            close(context[b, :, K * head : K * head + K], weights[b, head] @ tokens[b])


def test_a_learned_root_takes_what_the_weights_lack():
    layer = make("learned-root")
    tokens = draw(2, 4, K)
    _, weights = layer(tokens)
    h = layer.encoder(tokens)
    rows = torch.cat([layer.root_vector.expand(2, 1, -1), h], 1)
    theta = layer.score(rows, h)  # [root and parents, child]
    for b in range(2):
        table = [[0.0, *row] for row in theta[b].tolist()]
        close(weights[b], oracles.parents(table, True)[1:, 1:])


def test_children_are_parents_seen_from_the_other_side():
    tokens = draw(2, N, K)
    down, up = make("children"), make("projective")
    down.load_state_dict(up.state_dict())
    close(down(tokens)[1], up(tokens)[1].mT)
    close(down(tokens)[0], down(tokens)[1] @ tokens)


@pytest.mark.parametrize(("tokens", "count"), [(2, 1), (3, 3), (4, 12), (5, 55), (6, 273)])
def test_uniform_trees_are_counted(tokens, count):
    layer = SyntacticAttention(K, uniform=True)
    assert not list(layer.parameters())
    d = layer.distribution(draw(tokens, K))
    assert float(d.log_partition) == pytest.approx(math.log(count), abs=1e-12)
    _, weights = layer(draw(tokens, K))
    close(weights, oracles.parents([[0.0] * tokens] * tokens, True))


# ---- the interface -------------------------------------------------------------------------------


@items
def test_several_queries_are_single_ones_side_by_side(name):
    layer = make(name)
    query, keys, values = example(name)
    lengths = torch.tensor([4, 2])
    context, weights = layer(query, keys, values, lengths)
    for j in range(Q):
        c, w = layer(query[:, j], keys, values, lengths)
        close(c, context[:, j])
        close(w, weights[:, j])


@every
@pytest.mark.parametrize("lead", [(), (1,), (2, 3), (0,), (2, 0)])
def test_leading_shapes(name, lead):
    layer = make(name)
    args = example(name, lead=lead)
    context, weights = layer(*args)
    flat = [a if a is None else a.reshape(-1, *a.shape[-2:]) for a in args]
    if 0 not in lead:
        c, w = layer(*flat)
        close(context, c.reshape(context.shape))
        close(weights, w.reshape(weights.shape))
    width = V * getattr(layer, "heads", 1)
    assert context.shape == (*lead, N if name in TREES else Q, width)


@every
def test_values_default_to_keys(name):
    layer = make(name)
    query, keys, _ = example(name)
    keys = query if keys is None else keys
    for a, b in zip(layer(query, keys), layer(query, keys, keys), strict=True):
        close(a, b)


@every
def test_padding_has_no_effect_and_no_gradient(name):
    layer = make(name)
    args = list(example(name))
    lengths = torch.tensor([3, 0])
    spans = [i for i, a in enumerate(args) if a is not None and not (i == 0 and name in ITEMS)]
    for i in spans:
        args[i] = args[i].clone()
        args[i][0, 3:] = torch.nan
        args[i][1] = torch.nan
    args = [a if a is None else a.requires_grad_() for a in args]
    context, weights = layer(*args, lengths)
    alone = [a if a is None else a[:1] for a in args]
    for i in spans:
        alone[i] = alone[i][:, :3]
    c, w = layer(*alone)
    if name in TREES:
        close(context[:1, :3], c)
        close(weights[:1, ..., :3, :3], w)
    else:
        close(context[:1], c)
        close(weights[:1, ..., :3], w)
    assert (context[1] == 0).all()
    assert (weights[1] == 0).all()
    context.square().sum().backward()
    for i in spans:
        assert (args[i].grad[0, 3:] == 0).all()
        assert (args[i].grad[1] == 0).all()
        assert args[i].grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters())


@every
@pytest.mark.parametrize("n", [0, 1])
def test_no_key_and_one_key(name, n):
    layer = make(name)
    query, keys, values = example(name)
    short = (query, keys[:, :n], values[:, :n]) if name in ITEMS else (query[:, :n], None, None)
    context, weights = layer(*short)
    assert context.isfinite().all()
    if n == 0:
        assert weights.shape[-1] == 0
        assert (context == 0).all()
    elif name == "softmax":
        close(context, values[:, :1].expand(context.shape))
    elif name in ("chain", "chain-3", "projective"):
        assert (weights == 0).all()  # no second fact; only the root


@every
def test_gradcheck(name, backend):
    layer = make(name)
    args = [a if a is None else a[:, :4].requires_grad_() for a in example(name)]
    lengths = torch.tensor([4, 2])
    names = list(dict(layer.named_parameters()))

    def run(*tensors):
        given = dict(zip(names, tensors[3:], strict=True))
        return torch.func.functional_call(layer, given, (*tensors[:3], lengths))

    parameters = [p.detach().clone().requires_grad_() for p in layer.parameters()]
    assert torch.autograd.gradcheck(run, (*args, *parameters), fast_mode=True)


@every
def test_every_parameter_learns(name):
    layer = make(name)
    context, _ = layer(*example(name))
    context.square().sum().backward()
    for key, p in layer.named_parameters():
        assert p.grad is not None, key
        assert p.grad.abs().max() > 0, key


@every
def test_hard_is_the_most_probable_structure(name):
    layer = make(name)
    args = example(name)
    lengths = torch.tensor([N, 3])
    layer.hard = True
    _, weights = layer(*args, lengths)
    d = layer.distribution(*args[:2], lengths)
    best, _ = d.topk(2)
    margin = d.score(best[0]) - d.score(best[1])
    margin = margin[..., :3] if name == "simple" else margin  # what is padding has no choice
    assert (margin > 0).all()
    if name in ("segmentation", "segmentation-ends"):
        some = weights.sum(-1) > 0
        close(weights.sum(-1)[some], torch.full_like(weights.sum(-1)[some], 2.0))
        assert torch.equal(weights > 0, d.argmax == 1)
    else:
        assert ((weights == 0) | (weights == 1)).all()
    assert not weights.requires_grad
    values = args[2].requires_grad_()
    layer(*args[:2], values, lengths)[0].sum().backward()
    assert values.grad.abs().max() > 0
    if name == "projective":
        heads = weights.argmax(-1) - 1
        assert torch.equal(heads[0, 1:], d.argmax[0])


@every
def test_the_distribution_belongs_to_the_weights(name):
    layer = make(name)
    args = example(name)
    lengths = torch.tensor([N, 2])
    _, weights = layer(*args, lengths)
    d = layer.distribution(*args[:2], lengths)
    if name in TREES:
        weights = weights if name == "children" else weights.mT
        if name == "simple":
            mu = d.marginals.mT
        elif name == "learned-root":
            mu = d.marginals.arcs
        else:
            close(weights[..., 0, 1:], d.marginals.root)
            mu, weights = d.marginals.arcs, weights[..., 1:, 1:]
    elif name.startswith("softmax") or name == "sigmoid":
        mu = d.marginals
    else:
        mu = d.marginals.unary
        if name.startswith("segmentation"):
            mu = mu[..., 1]
            mu = mu if layer.total is None else mu * 2 / mu.sum(-1, keepdim=True)
    close(weights, mu)
    assert d.sample((3,)).shape[0] == 3
    assert (d.entropy() >= 0).all()
    if name in ITEMS:
        single = layer.distribution(args[0][:, 0], args[1], lengths)
        close(single.log_partition, d.log_partition[:, 0])


@every
def test_float32_and_bfloat16(name):
    exact = make(name)
    args = example(name)
    want, _ = exact(*args)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.1)):
        layer = make(name, dtype=torch.float64).to(dtype)
        got, weights = layer(*(a if a is None else a.to(dtype) for a in args))
        assert got.dtype == weights.dtype == dtype
        close(got.double(), want, tolerance)


@every
def test_copies_pickles_and_state(name):
    layer = make(name)
    args = example(name)
    want = layer(*args)[0]
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(*args)[0], want)
    fresh = make(name)
    fresh.reset_parameters()
    fresh.load_state_dict(layer.state_dict())
    assert torch.equal(fresh(*args)[0], want)
    assert repr(layer)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize(
    "name", ["softmax", "sigmoid", "segmentation", "chain", "projective", "spanning", "heads"]
)
def test_compiles_into_one_graph(name):
    if name not in ("softmax", "sigmoid") and not native_status().live:
        pytest.skip("tracing the plain torch charts takes minutes")
    # torch.compile does not take LSTMs.
    layer = make(name, dtype=torch.float32, **({"hidden": None} if name in TREES else {}))
    args = example(name, torch.float32)
    lengths = torch.tensor([N, 2])
    layer(*args, lengths)  # the compiled kernels tell their shapes on first use
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for a, b in zip(compiled(*args, lengths), layer(*args, lengths), strict=True):
        close(a, b, 1e-5)
    compiled(*args, lengths)[0].square().sum().backward()
    got = {k: p.grad.clone() for k, p in layer.named_parameters()}
    layer.zero_grad()
    layer(*args, lengths)[0].square().sum().backward()
    for k, p in layer.named_parameters():
        close(got[k], p.grad, 1e-4)


def test_inputs_may_be_strided_and_are_left_alone():
    for name in ("segmentation", "chain", "projective"):
        layer = make(name)
        args = example(name)
        strided = [a if a is None else a.mT.contiguous().mT for a in args]
        before = [a if a is None else a.clone() for a in strided]
        close(layer(*strided)[0], layer(*args)[0])
        for a, b in zip(strided, before, strict=True):
            assert a is None or torch.equal(a, b)


def test_dot_scores_need_no_sizes():
    query, keys = draw(2, Q, K), draw(2, N, K)
    _, weights = SoftmaxAttention()(query, keys)
    close(weights, (query @ keys.mT).softmax(-1))
    _, weights = SoftmaxAttention(score="scaled_dot")(query, keys)
    close(weights, (query @ keys.mT / 2).softmax(-1))


def test_extreme_scores_stay_finite():
    for scale in (1e4, 1e6):
        for name in (*ITEMS, "projective", "spanning"):
            args = example(name, torch.float32)
            layer = make(name, dtype=torch.float32, **({"squash": False} if name in TREES else {}))
            context, weights = layer(*(a if a is None else a * scale for a in args))
            assert weights.isfinite().all()
            assert context.isfinite().all()
            context.sum().backward()
            assert all(p.grad.isfinite().all() for p in layer.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: SoftmaxAttention(D, K)(draw(2, D), draw(2, N, D)),
            "keys: expected last dimension",
        ),
        (lambda: SoftmaxAttention(D, K)(draw(2, K), draw(2, N, K)), "query: expected last dim"),
        (lambda: SoftmaxAttention()(draw(3, K), draw(2, N, K)), "query: expected leading dim"),
        (lambda: SoftmaxAttention()(draw(K), draw(2, N, K)), "query: expected"),
        (lambda: SoftmaxAttention()(draw(K), draw(K)), "keys: expected at least 2 dim"),
        (lambda: SoftmaxAttention()(draw(2, K), draw(2, N, K), draw(2, 3, V)), "values: expected"),
        (lambda: SoftmaxAttention()(draw(2, K), draw(2, N, K), None, [9, 1]), "lengths: expected"),
        (lambda: SoftmaxAttention()(draw(2, K), draw(2, N, K), None, [1]), None),
        (lambda: SoftmaxAttention()(draw(2, K).long(), draw(2, N, K)), "query: expected a float"),
        (lambda: SoftmaxAttention(score="best"), "score: expected auto"),
        (lambda: SoftmaxAttention(score="mlp"), "query_size: expected"),
        (lambda: SegmentationAttention(D, total=0.0), "total: expected"),
        (lambda: ChainAttention(D, 0), "steps: expected"),
        (lambda: ChainAttention(D, 2)(draw(D), [draw(N, D)]), "keys: expected a tensor, or 2"),
        (lambda: ChainAttention(D, 2)(draw(D), [draw(N, D), draw(2, D)]), "keys: expected tensors"),
        (lambda: SyntacticAttention(K, structure="tree"), "structure: expected"),
        (lambda: SyntacticAttention(K, root="none"), "root: expected"),
        (lambda: SyntacticAttention(K, heads=0), "heads: expected"),
        (lambda: SyntacticAttention(K)(draw(K)), "query: expected tokens"),
        (lambda: SyntacticAttention(K)(draw(N, D)), "query: expected last dimension 4"),
        (lambda: SyntacticAttention(K)(draw(N, K), draw(3, K)), "keys: expected"),
        (lambda: SyntacticAttention(K)(draw(N, K), None, draw(3, K)), "values: expected"),
    ],
)
def test_bad_arguments_are_refused_in_words(call, words):
    if words is None:
        call()  # one length for the whole batch
        return
    with pytest.raises(InputError, match=words):
        call()


# ---- laws ----------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("lengths", [None, [N, 2]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_laws_hold(name, lengths, dtype):
    layer = make(name, dtype=dtype)
    size = None if lengths is None else torch.tensor(lengths)
    certificate = lawful.check(layer, *example(name, dtype), lengths=size)
    assert certificate.holds, str(certificate)
    names = {row.law for row in certificate}
    assert {"range", "padding"} <= names
    assert {"gradient", "normalised gradient"} & names


def broken_by(layer, *args, **kwargs):
    return {row.law for row in lawful.check(layer, *args, **kwargs).broken}


def test_broken_layers_are_caught():
    class Doubled(SoftmaxAttention):
        def forward(self, *args, **kwargs):
            context, weights = super().forward(*args, **kwargs)
            return context, 2 * weights

    class Leaky(SoftmaxAttention):
        def _weights(self, scores, lengths):
            return scores.softmax(-1)

    class NotATree(SyntacticAttention):
        def _weights(self, scores, size, padding):
            from lawful.attention._syntactic import _softmax

            weights = _softmax(scores, padding)
            return torch.cat([torch.zeros_like(weights[..., :1]), weights[..., 1:]], -1)

    class Unlinked(SegmentationAttention):
        def _read(self, d):
            p = d.unary[..., 1].sigmoid()
            return 2 * p / p.sum(-1, keepdim=True)

    class Greedy(ChainAttention):
        def _read(self, d):
            return d.unary.softmax(-1)

    query, keys, values = example("softmax")
    lengths = torch.tensor([N, 2])
    cases = [
        (Doubled(D, K), (query, keys, values), {"sum", "gradient"}),
        (NotATree(K, 3), (keys,), {"gradient"}),
        (Unlinked(D, K), (query, keys, values), {"normalised gradient"}),
        (Greedy(D, key_size=K, score="bilinear"), (query, keys, values), {"gradient"}),
    ]
    for layer, args, laws in cases:
        layer = layer.double()
        if isinstance(layer, SegmentationAttention):
            nn.init.normal_(layer.transition)
        assert laws <= broken_by(layer, *args), type(layer).__name__
    assert "padding" in broken_by(Leaky(D, K).double(), query, keys, values, lengths=lengths)


# ---- inside larger machinery ---------------------------------------------------------------------


@every
def test_vmap_and_func_grad(name):
    layer = make(name, **({"hidden": None} if name in TREES else {}))  # torch's LSTM has no vmap
    args = example(name, lead=(3,))
    query, values = args[0], args[2]
    keys = query if args[1] is None else args[1]

    def loss(q, k, v):
        return layer(q, k, v)[0].square().sum()

    got = torch.vmap(torch.func.grad(loss, (0, 1, 2)))(query, keys, values)
    leaves = [x.clone().requires_grad_() for x in (query, keys, values)]
    want = torch.autograd.grad(loss(*leaves), leaves)
    for a, b in zip(got, want, strict=True):
        close(a, b)


@every
def test_autocast(name):
    layer = make(name, dtype=torch.float32)
    args = example(name, torch.float32)
    want, _ = layer(*args)
    with torch.autocast("cpu", torch.bfloat16):
        got, weights = layer(*args)
        loss = got.float().square().sum()
    assert weights.isfinite().all()
    close(got.float(), want, 0.15)
    loss.backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_two_threads_give_what_one_gives():
    layer = make("projective")
    tokens = draw(64, 20, K)
    one = layer(tokens)[0]
    torch.set_num_threads(2)
    try:
        close(layer(tokens)[0], one, 1e-12)
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("level", [-1e4, -200.0, -95.0, -80.0, -60.0, -45.0, -20.0, 60.0, 1e4])
def test_segments_of_any_level_have_finite_weights_and_gradients(backend, level):
    # A decoder step that wants to look nowhere drives all scores far below 0.
    if backend == "native" and not native_status().live:
        pytest.skip(native_status().describe())
    attend = SegmentationAttention(total=2.0)
    keys = (level + torch.tensor([[0.0], [0.5], [1.0], [-0.5]])).requires_grad_()
    with force_backend(backend):
        _, weights = attend(torch.ones(1), keys, torch.eye(4))
        (weights @ torch.tensor([1.0, 2.0, 3.0, 4.0])).backward()
    for found in (weights, keys.grad, attend.transition.grad):
        assert found.isfinite().all()
    if level >= -60:
        assert weights.sum().item() == pytest.approx(2.0, rel=1e-5)
    if -60 <= level < 0:  # the same odds at any level
        odds = torch.softmax(torch.tensor([0.0, 0.5, 1.0, -0.5]), 0)
        torch.testing.assert_close(weights.detach(), 2 * odds, rtol=1e-3, atol=1e-4)
