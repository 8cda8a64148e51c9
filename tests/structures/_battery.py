"""Laws every family must keep, checked against enumeration of all structures.

A test module lists instances of `Family` and subclasses `Laws`:

    class TestChains(Laws):
        families = (Family(...), Family(...))

Each law then runs for each family, with the plain torch path and with the compiled kernels. The
oracle knows nothing of the library: a family says which potentials a structure uses (`parts`), and
everything is computed by summing over all structures in float64.
"""

import copy
import functools
import itertools
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import kl_divergence

from lawful.errors import InputError
from lawful.structures import StructuredDistribution

INF = torch.inf


@dataclass(frozen=True)
class Family:
    """One row of the table: how to build a distribution and how to enumerate its structures."""

    name: str
    build: Callable[..., StructuredDistribution]  # build(*potentials, lengths=None, ...)
    shapes: Callable[[int], tuple[tuple[int, ...], ...]]  # event shape per potential, at size n
    structures: Callable[[int], list[Any]]  # every structure of length n
    parts: Callable[[Any], list[tuple[int, tuple[int, ...]]]]  # (potential, index), with repeats
    encode: Callable[[Any, int], Tensor]  # integer form, padded to size n
    count: Callable[[int], int]  # closed form of len(structures(n))
    shared: tuple[bool, ...] = (False,)  # potentials without batch dimensions
    # Sums of marginals that must be 1 (or, where given, another number), for length n.
    groups: Callable[[tuple[Tensor, ...], int], Tensor] | None = None
    # Positions of each potential that length n makes padding: bool per potential.
    padding: Callable[[int, int], tuple[Tensor, ...]] | None = None
    sizes: tuple[int, ...] = (1, 2, 3, 4)
    large: int = 30  # a size for float32 checks
    can_be_infeasible: bool = True
    fill: int = -1
    options: dict[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return self.name

    def random(self, n: int, batch=(), dtype=torch.float64, seed=0, scale=1.0):
        g = torch.Generator().manual_seed(seed)
        return tuple(
            scale
            * torch.randn(
                (() if shared else tuple(batch)) + shape, generator=g, dtype=torch.float64
            ).to(dtype)
            for shape, shared in zip(self.shapes(n), self.shared, strict=True)
        )

    def make(self, potentials, **keywords) -> StructuredDistribution:
        return self.build(*potentials, **{**self.options, **keywords})


@dataclass
class Truth:
    """All of a tiny distribution, by enumeration, for one batch element."""

    structures: list[Any]
    scores: Tensor
    indicators: Tensor  # (structures, all parts of all potentials flattened)
    shapes: list[tuple[int, ...]]

    @property
    def log_partition(self):
        return self.scores.logsumexp(0)

    @property
    def probs(self):
        return (self.scores - self.log_partition).exp()

    def marginals(self):
        return self.unflatten(self.probs @ self.indicators)

    def unflatten(self, flat):
        sizes = [math.prod(s) for s in self.shapes]
        return [x.reshape(s) for x, s in zip(flat.split(sizes), self.shapes, strict=True)]


@functools.cache
def _flat_parts(family: Family, n: int, shapes: tuple[tuple[int, ...], ...]) -> Tensor:
    """Flat indices of the parts of each structure, (structures, parts), padded by -1."""
    starts = [0, *itertools.accumulate(math.prod(s) for s in shapes)]
    rows = []
    for z in family.structures(n):
        row = []
        for which, index in family.parts(z):
            flat = 0
            for i, size in zip(index, shapes[which], strict=True):
                flat = flat * size + i
            row.append(starts[which] + flat)
        rows.append(row)
    width = max((len(r) for r in rows), default=0)
    padded = [r + [-1] * (width - len(r)) for r in rows]
    return torch.tensor(padded, dtype=torch.int64).reshape(len(rows), width)


def truth(family: Family, potentials, n: int) -> Truth:
    """Enumerates; ``potentials`` have no batch dimensions and may be larger than ``n``."""
    shapes = [tuple(p.shape) for p in potentials]
    parts = _flat_parts(family, n, tuple(shapes))
    flat = torch.cat([p.double().flatten() for p in potentials])
    used = parts >= 0
    scores = torch.where(used, flat[parts.clamp(min=0)], 0.0).sum(1)
    indicators = torch.zeros(len(parts), len(flat), dtype=torch.float64)
    indicators.scatter_add_(1, parts.clamp(min=0), used.double())
    return Truth(family.structures(n), scores, indicators, shapes)


def layout(x) -> tuple[Tensor, ...]:
    return tuple(x) if isinstance(x, tuple | list) else (x,)


def pick(family: Family, potentials, b):
    """Potentials of batch element ``b``."""
    return tuple(p if shared else p[b] for p, shared in zip(potentials, family.shared, strict=True))


def close(a, b, atol=1e-9, rtol=1e-9):
    for x, y in zip(layout(a), layout(b), strict=True):
        torch.testing.assert_close(x.double(), y.double(), atol=atol, rtol=rtol)


def leaves(potentials):
    return tuple(p.clone().requires_grad_() for p in potentials)


def weights_like(parts, seed=7):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(p.shape, generator=g, dtype=torch.float64).to(p.dtype) for p in parts]


def dot(a, b):
    return sum((x * y).sum() for x, y in zip(layout(a), layout(b), strict=True))


def assert_finite(*parts):
    for p in parts:
        assert p is None or torch.isfinite(p).all()


@pytest.mark.usefixtures("backend")
class Laws:
    """Inherit and set ``families``."""

    families: tuple[Family, ...] = ()

    # ---- against enumeration ------------------------------------------------------------------

    def test_number_of_structures(self, family):
        for n in family.sizes:
            assert len(family.structures(n)) == family.count(n)
            zeros = tuple(torch.zeros_like(p) for p in family.random(n))
            assert family.make(zeros).log_partition.item() == pytest.approx(
                math.log(family.count(n)), abs=1e-9
            )

    @pytest.mark.parametrize("scale", [1.0, 8.0])
    def test_log_partition_and_marginals(self, family, scale):
        for n in family.sizes:
            theta = family.random(n, scale=scale, seed=n)
            d, t = family.make(theta), truth(family, theta, n)
            close(d.log_partition, t.log_partition)
            close(d.marginals, t.marginals())

    def test_argmax_and_topk(self, family):
        for n in family.sizes:
            theta = family.random(n, seed=n)
            d, t = family.make(theta), truth(family, theta, n)
            order = t.scores.argsort(descending=True)
            k = min(len(order), 7)
            want = torch.stack([family.encode(t.structures[i], n) for i in order[:k]])
            structures, scores = d.topk(k + 3)
            assert torch.equal(structures[:k], want)
            close(scores[:k], t.scores[order[:k]])
            if k == len(order):
                assert (scores[k:] == -INF).all()
            assert torch.equal(d.argmax, want[0])
            assert torch.equal(d.mode, want[0])
            close(d.max_score, t.scores[order[0]])

    def test_topk_is_sorted_distinct_and_consistent(self, family):
        n = family.sizes[-1] + 3
        d = family.make(family.random(n, (2,), dtype=torch.float32))
        structures, scores = d.topk(8)
        assert (scores[:-1] >= scores[1:]).all()
        close(d.score(structures), scores, 1e-4, 1e-5)
        for b in range(2):
            assert len({tuple(s[b].flatten().tolist()) for s in structures}) == 8
        close(d.topk(3)[1], scores[:3], 1e-5, 1e-5)

    def test_log_prob_and_score_of_both_forms(self, family):
        for n in family.sizes:
            theta = family.random(n, seed=n)
            d, t = family.make(theta), truth(family, theta, n)
            zs = torch.stack([family.encode(z, n) for z in t.structures])
            close(d.score(zs), t.scores)
            close(d.log_prob(zs), t.scores - t.log_partition)
            for i in range(min(5, len(zs))):
                indicator = d.to_indicator(zs[i])
                close(indicator, t.unflatten(t.indicators[i]))
                assert torch.equal(d.from_indicator(indicator), zs[i])
                close(d.log_prob(indicator), t.scores[i] - t.log_partition)

    def test_entropy_cross_entropy_kl_expectation(self, family):
        for n in family.sizes:
            theta, phi = family.random(n, seed=n), family.random(n, seed=n + 50)
            p, q = family.make(theta), family.make(phi)
            tp, tq = truth(family, theta, n), truth(family, phi, n)
            log_q = tq.scores - tq.log_partition
            log_p = tp.scores - tp.log_partition
            close(p.entropy, -(tp.probs * log_p).sum())
            close(p.entropy(), p.entropy)
            close(p.cross_entropy(q), -(tp.probs * log_q).sum())
            close(kl_divergence(p, q), (tp.probs * (log_p - log_q)).sum())
            close(kl_divergence(p, p), torch.tensor(0.0))
            values = weights_like(p._marginals())
            close(p.expectation(tuple(values)), dot(tp.marginals(), values))

    def test_enumerate_support(self, family):
        n = family.sizes[-1]
        theta = family.random(n)
        d = family.make(theta)
        found = d.enumerate_support()
        close(d.log_prob(found).exp().sum(0), torch.tensor(1.0))
        zs = {tuple(family.encode(z, n).flatten().tolist()) for z in family.structures(n)}
        assert {tuple(z.flatten().tolist()) for z in found} == zs
        assert d.support.check(found).all()

    def test_samples_have_the_right_frequencies(self, family):
        n = family.sizes[-1]
        theta = family.random(n, (2,), seed=3)
        d = family.make(theta)
        count = 2000
        g = torch.Generator().manual_seed(5)
        drawn = d.sample((count,), generator=g)
        assert drawn.shape == (count, 2, *d.event_shape)
        again = d.sample((count,), generator=torch.Generator().manual_seed(5))
        assert torch.equal(drawn, again)
        for b in range(2):
            t = truth(family, pick(family, theta, b), n)
            zs = torch.stack([family.encode(z, n).flatten() for z in t.structures])
            same = (drawn[:, b].reshape(count, 1, -1) == zs).all(-1)
            assert same.any(1).all()
            seen = same.sum(0).float()
            common = t.probs * count >= 5
            want = torch.cat([t.probs[common], t.probs[~common].sum()[None]]) * count
            have = torch.cat([seen[common], seen[~common].sum()[None]])
            if want[-1] < 5:
                want[-2], have[-2] = want[-2] + want[-1], have[-2] + have[-1]
                want, have = want[:-1], have[:-1]
            if len(want) > 1:
                assert stats.chisquare(have.numpy(), want.numpy()).pvalue > 1e-4

    # ---- derivatives --------------------------------------------------------------------------

    def test_gradcheck_twice(self, family):
        n = family.sizes[-1]
        theta = leaves(family.random(n, (2,), seed=1))
        lengths = [n, n - 1]

        def log_partition(*parts):
            return family.make(parts, lengths=lengths).log_partition

        def marginals(*parts):
            return layout(family.make(parts, lengths=lengths).marginals)

        assert torch.autograd.gradcheck(log_partition, theta)
        assert torch.autograd.gradgradcheck(log_partition, theta)
        assert torch.autograd.gradcheck(marginals, theta)

    def test_third_order(self, family):
        theta = leaves(family.random(2, (), seed=1))

        def marginals(*parts):
            return layout(family.make(parts).marginals)

        assert torch.autograd.gradgradcheck(marginals, theta)

    def test_gradient_of_other_quantities(self, family):
        n = family.sizes[-1]
        theta, phi = leaves(family.random(n, seed=1)), leaves(family.random(n, seed=2))
        z = family.encode(family.structures(n)[0], n)

        def all_of_it(*parts):
            p, q = family.make(parts[: len(theta)]), family.make(parts[len(theta) :])
            parts = [p.log_prob(z), p.entropy(), p.cross_entropy(q), kl_divergence(p, q)]
            return torch.stack([*parts, p.max_score])

        assert torch.autograd.gradcheck(all_of_it, (*theta, *phi))

    def test_hessian_is_a_covariance(self, family):
        """Symmetric, positive semi-definite, equal to Cov(z_e, z_f), each row within its bound."""
        n = family.sizes[-1]
        theta = leaves(family.random(n, seed=4))
        mu = layout(family.make(theta).marginals)
        flat = torch.cat([m.flatten() for m in mu])
        rows = []
        for x in flat:
            grads = torch.autograd.grad(x, theta, retain_graph=True)
            rows.append(torch.cat([g.flatten() for g in grads]))
        H = torch.stack(rows)
        t = truth(family, [p.detach() for p in theta], n)
        centred = t.indicators - t.probs @ t.indicators
        cov = centred.T @ (t.probs[:, None] * centred)
        close(H, cov)
        assert torch.linalg.eigvalsh(H).min() > -1e-9
        g = weights_like([flat])[0]
        std = cov.diagonal().sqrt()
        assert ((H @ g).abs() <= std * (g @ cov @ g).sqrt() + 1e-9).all()

    def test_group_sums(self, family):
        if family.groups is None:
            pytest.skip("no normalised groups")
        n = family.large
        theta = leaves(family.random(n, (3,), dtype=torch.float32, seed=2, scale=2.0))
        mu = layout(family.make(theta).marginals)
        sums = family.groups(mu, n)
        torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-6 * 2, rtol=0)
        loss = dot(mu, weights_like(mu))
        grads = torch.autograd.grad(loss, theta)
        grads = tuple(
            g.new_zeros(m.shape) if s else g
            for g, m, s in zip(grads, mu, family.shared, strict=True)
        )
        if not any(family.shared):
            zero = family.groups(grads, n)
            torch.testing.assert_close(zero, torch.zeros_like(zero), atol=2e-5, rtol=0)

    @pytest.mark.parametrize("sign", [1.0, -1.0])
    def test_raw_loss_of_either_sign(self, family, sign):
        """The partition term keeps its sign: loss on unnormalised marginals, both signs of s."""
        n = family.sizes[-1]
        theta = leaves(family.random(n, seed=6))
        mu = layout(family.make(theta).marginals)
        v = [sign * w.abs() for w in weights_like(mu)]
        grads = torch.autograd.grad(dot(mu, v), theta)
        plain = leaves([p.detach() for p in theta])
        t = truth(family, plain, n)
        want = torch.autograd.grad(dot(t.marginals(), v), plain, allow_unused=True)
        for g, w in zip(grads, want, strict=True):
            close(g, torch.zeros_like(g) if w is None else w)

    # ---- extremes -----------------------------------------------------------------------------

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("scale", [30.0, 1e2, 1e4, 1e6])
    def test_large_potentials(self, family, scale, dtype):
        n = family.sizes[-1]
        theta = leaves(family.random(n, (3,), dtype=dtype, seed=8, scale=scale))
        d = family.make(theta)
        mu = layout(d.marginals)
        grads = torch.autograd.grad(dot(mu, weights_like(mu)), theta)
        assert_finite(*grads)
        for b in range(3):
            t = truth(family, pick(family, [p.detach() for p in theta], b), n)
            close(d.log_partition[b], t.log_partition, 1e-5, 1e-6)
            close(tuple(m[b] for m in mu), t.marginals(), 1e-5, 1e-5)

    def test_common_offset(self, family):
        """1e4 on every potential: float32 marginals stay those of the same rounded input."""
        n = family.sizes[-1]
        theta = tuple(p + 1e4 for p in family.random(n, (2,), dtype=torch.float32))
        d = family.make(theta)
        for b in range(2):
            t = truth(family, pick(family, theta, b), n)
            close(tuple(m[b] for m in layout(d.marginals)), t.marginals(), 2e-6, 1e-5)
            close(d.entropy[b], -torch.xlogy(t.probs, t.probs).sum(), 1e-3, 1e-4)
            z = family.encode(t.structures[0], n)
            shape = (2, *z.shape)
            close(d.log_prob(z.expand(shape))[b], t.scores[0] - t.log_partition, 1e-3, 1e-4)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_only_one_structure_left(self, family, dtype):
        """Everything else is -inf: its marginals are its indicator, entropy 0, no NaN anywhere."""
        n = family.sizes[-1]
        for z in family.structures(n)[:: max(1, family.count(n) // 5)]:
            theta = [torch.full_like(p, -INF) for p in family.random(n, dtype=dtype)]
            for which, index in family.parts(z):
                theta[which][index] = 0.5
            theta = leaves(theta)
            d = family.make(theta)
            t = truth(family, [p.detach() for p in theta], n)
            if (t.scores > -INF).sum() != 1:  # shared potentials may allow more
                close(d.log_partition.detach(), t.log_partition, 1e-5)
                continue
            mu = layout(d.marginals)
            close(tuple(m.detach() for m in mu), t.marginals(), 1e-6)
            assert d.entropy().item() == pytest.approx(0, abs=1e-6)
            assert torch.equal(d.argmax, family.encode(z, n))
            assert torch.equal(d.sample(), family.encode(z, n))
            loss = dot(mu, weights_like(mu)) + d.log_partition + d.entropy() + d.log_prob(d.argmax)
            grads = torch.autograd.grad(loss, theta, create_graph=True)
            assert_finite(*grads)
            assert_finite(*torch.autograd.grad(dot(grads, weights_like(grads)), theta))

    def test_forbidden_parts(self, family):
        """Random -inf patterns against enumeration, first and second order."""
        for seed in range(6):
            n = family.sizes[-1]
            g = torch.Generator().manual_seed(seed)
            theta = family.random(n, seed=seed)
            theta = leaves(
                p.masked_fill(torch.rand(p.shape, generator=g) < 0.25, -INF) for p in theta
            )
            d = family.make(theta)
            t = truth(family, [p.detach() for p in theta], n)
            if (t.scores == -INF).all():
                assert d.log_partition.item() == -INF
                continue
            close(d.log_partition.detach(), t.log_partition)
            close(tuple(m.detach() for m in layout(d.marginals)), t.marginals())
            mu = layout(d.marginals)
            grads = torch.autograd.grad(dot(mu, weights_like(mu)), theta, create_graph=True)
            assert_finite(*grads)
            assert_finite(*torch.autograd.grad(dot(grads, weights_like(grads)), theta))

    def test_nothing_possible(self, family):
        if not family.can_be_infeasible:
            pytest.skip("something is always possible")
        n = family.sizes[-1]
        theta = list(family.random(n, (2,)))
        for i, shared in enumerate(family.shared):
            if not shared:
                theta[i][1] = -INF
        theta = leaves(theta)
        d = family.make(theta)
        assert d.log_partition[1].item() == -INF
        assert d.max_score[1].item() == -INF
        assert d.entropy()[1].item() == 0
        mu = layout(d.marginals)
        assert all((m[1] == 0).all() for m in mu)
        loss = dot(mu, weights_like(mu)) + d.log_partition[0] + d.entropy().sum()
        grads = torch.autograd.grad(loss, theta, create_graph=True)
        assert_finite(*grads)
        assert_finite(*torch.autograd.grad(dot(grads, weights_like(grads)), theta))
        again = family.make(theta)
        (grad,) = torch.autograd.grad(again.log_partition[1], theta[:1])
        assert (grad == 0).all()
        good = family.make(family.random(n, (2,)))
        z = good.argmax
        assert d.log_prob(z)[1].item() == -INF
        for call in (lambda: d.argmax, d.sample):
            with pytest.raises(InputError, match=r"no structure .*\[1\]"):
                call()

    # ---- lengths ------------------------------------------------------------------------------

    def test_lengths_and_padding(self, family):
        """Each row equals the same row alone; NaN in the padding changes nothing."""
        n = family.sizes[-1]
        lengths = list(range(n, -1, -1))
        theta = family.random(n, (n + 1,), seed=9)
        d = family.make(theta, lengths=lengths)
        results = [d.log_partition, d.entropy(), d.max_score, *layout(d.marginals)]
        for b, length in enumerate(lengths):
            one = pick(family, theta, b)
            alone = family.make(one, lengths=length)
            t = truth(family, one, length)
            want = t.log_partition if length else torch.tensor(0.0)
            close(d.log_partition[b], want)
            close(d.log_partition[b], alone.log_partition, 1e-12)
            marginals = t.marginals() if length else [torch.zeros(s) for s in t.shapes]
            close(tuple(m[b] for m in layout(d.marginals)), marginals)
            assert torch.equal(d.argmax[b], alone.argmax)
            if length:
                assert torch.equal(d.argmax[b], family.encode(t.structures[t.scores.argmax()], n))
            assert d.max_score[b].item() == pytest.approx(t.scores.max().item() if length else 0.0)
        close(d.log_prob(d.argmax), d.max_score - d.log_partition)
        if family.padding is None:
            return
        dirty = []
        for which, (p, shared) in enumerate(zip(theta, family.shared, strict=True)):
            q = p.clone()
            if not shared:
                for b, length in enumerate(lengths):
                    q[b][family.padding(length, n)[which]] = torch.nan
            dirty.append(q)
        dirty = leaves(dirty)
        e = family.make(dirty, lengths=lengths)
        mu = layout(e.marginals)
        for x, y in zip([e.log_partition, e.entropy(), e.max_score, *mu], results, strict=True):
            close(x, y, 1e-12, 1e-12)  # products may round by the address they read from
        assert torch.equal(e.argmax, d.argmax)
        loss = dot(mu, weights_like(mu)) + e.log_partition.sum() + e.entropy().sum()
        loss = loss + e.log_prob(e.argmax).sum() + e.max_score.sum()
        for which, grad in enumerate(torch.autograd.grad(loss, dirty)):
            assert_finite(grad)
            if not family.shared[which]:
                for b, length in enumerate(lengths):
                    assert (grad[b][family.padding(length, n)[which]] == 0).all()

    def test_junk_after_the_end_of_a_structure_is_ignored(self, family):
        n = family.sizes[-1]
        theta = family.random(n, (2,))
        d = family.make(theta, lengths=[n - 1, n])
        z = d.argmax
        if z.dim() < 2 or family.fill is None:
            pytest.skip("structures have no padding")
        junk = z.clone()
        junk[0, -1] = -100
        close(d.log_prob(junk), d.log_prob(z), 0, 0)
        assert z[0, -1] == family.fill

    @pytest.mark.parametrize("batch", [(), (0,), (1,), (2, 3), (2, 1, 2)])
    def test_any_batch_rank(self, family, batch):
        n = family.sizes[-1]
        theta = family.random(n, batch, seed=5)
        d = family.make(theta)
        assert d.batch_shape == batch
        assert d.log_partition.shape == batch
        assert d.entropy.shape == batch
        assert d.max_score.shape == batch
        assert d.argmax.shape == (*batch, *d.event_shape)
        assert d.sample((2, 3)).shape == (2, 3, *batch, *d.event_shape)
        assert d.topk(2)[0].shape == (2, *batch, *d.event_shape)
        assert d.log_prob(d.sample((5,))).shape == (5, *batch)
        for m, shape in zip(layout(d.marginals), family.shapes(n), strict=True):
            assert m.shape == (*batch, *shape)
        for b in itertools.islice(itertools.product(*map(range, batch)), 3):
            one = family.make(pick(family, theta, b))
            close(d.log_partition[b], one.log_partition, 1e-12)

    def test_empty_size(self, family):
        try:
            theta = family.random(0, (2,))
        except (RuntimeError, ValueError):
            pytest.skip("size 0 is not defined")
        d = family.make(theta)
        assert torch.equal(d.log_partition, torch.zeros(2, dtype=torch.float64))
        assert torch.equal(d.max_score, torch.zeros(2, dtype=torch.float64))
        assert all((m == 0).all() for m in layout(d.marginals))
        assert d.sample((2,)).shape == (2, 2, *d.event_shape)

    # ---- as a citizen of torch ----------------------------------------------------------------

    def test_expand(self, family):
        n = family.sizes[-1]
        d = family.make(family.random(n, (3,)), lengths=[n, n - 1, 1])
        e = d.expand((2, 3))
        assert e.batch_shape == (2, 3)
        assert e.event_shape == d.event_shape
        close(e.log_partition, d.log_partition.expand(2, 3), 1e-12)
        close(e.marginals, tuple(m.expand(2, *m.shape) for m in layout(d.marginals)), 1e-12)

    def test_float32_against_float64(self, family):
        n = family.large
        exact = leaves(family.random(n, (3,), seed=2, scale=2.0))
        short = leaves([p.detach().float() for p in exact])
        a, b = family.make(short), family.make(exact)
        close(a.log_partition, b.log_partition, 0, 2e-6)
        mu, nu = layout(a.marginals), layout(b.marginals)
        for x, y, s in zip(mu, nu, family.shared, strict=True):
            close(x, y, 1e-5 * (n if s else 1), 0)
        v = weights_like(nu)
        g = torch.autograd.grad(dot(mu, [w.float() for w in v]), short)
        h = torch.autograd.grad(dot(nu, v), exact)
        for x, y in zip(g, h, strict=True):
            close(x, y, 5e-5 * max(1.0, y.abs().max().item()), 0)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_half_precision_is_computed_in_float32(self, family, dtype):
        n = family.sizes[-1]
        theta = leaves(family.random(n, (2,), dtype=dtype))
        d = family.make(theta)
        e = family.make([p.detach().float() for p in theta])
        assert d.log_partition.dtype == torch.float32
        close(d.log_partition, e.log_partition, 1e-6)
        for m, w in zip(layout(d.marginals), layout(e.marginals), strict=True):
            assert m.dtype == dtype
            close(m, w, 5e-3, 1e-2)
        (grad,) = torch.autograd.grad(dot(d.marginals, layout(d.marginals)), theta[:1])
        assert grad.dtype == dtype
        assert_finite(grad)

    def test_strided_input(self, family):
        n = family.sizes[-1]
        theta = family.random(n, (4,))
        strided = tuple(
            p.mT.contiguous().mT if p.dim() > 1 else torch.stack([p, p], -1)[..., 0] for p in theta
        )
        thin = tuple(p if s else p[::2] for p, s in zip(theta, family.shared, strict=True))
        close(family.make(strided).marginals, family.make(theta).marginals, 1e-12)
        close(family.make(thin).log_partition, family.make(theta).log_partition[::2], 1e-12)

    def test_input_and_class_are_left_alone(self, family):
        n = family.sizes[-1]
        theta = family.random(n, (2,))
        kept = [p.clone() for p in theta]
        state = dict(vars(type(family.make(theta))))
        for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            with mode():
                d = family.make(theta, lengths=[n, 1])
                assert not d.log_partition.requires_grad
                assert all(not m.requires_grad for m in layout(d.marginals))
                d.entropy(), d.argmax, d.topk(2), d.sample()
        assert dict(vars(type(d))) == state
        for p, k in zip(theta, kept, strict=True):
            assert torch.equal(p, k)
            assert not p.requires_grad

    def test_values_made_without_a_graph_are_not_served_to_training(self, family):
        theta = leaves(family.random(family.sizes[-1]))
        d = family.make(theta)
        with torch.no_grad():
            d.log_partition, d.marginals, d.entropy()
        assert all(m.requires_grad for m in layout(d.marginals))
        assert d.log_partition.requires_grad
        assert d.entropy().requires_grad
        d.log_partition.backward(retain_graph=True)
        dot(d.marginals, layout(d.marginals)).backward()

    def test_bad_input_is_refused(self, family):
        n = family.sizes[-1]
        theta = family.random(n, (2,))
        for bad in (torch.nan, INF):
            broken = [p.clone() for p in theta]
            broken[0].view(-1)[_some_valid(family, n)] = bad
            with pytest.raises(InputError, match="log-potentials"):
                family.make(broken)
        for lengths in ([n + 1, 1], [-1, 1]):
            with pytest.raises(InputError, match="lengths"):
                family.make(theta, lengths=lengths)
        with pytest.raises(InputError, match=r"lengths.*integers"):
            family.make(theta, lengths=torch.ones(2))
        with pytest.raises(InputError, match=r"lengths.*batch"):
            family.make(theta, lengths=[1, 1, 1])
        with pytest.raises(InputError, match="floating"):
            family.make([p.long() for p in theta])
        with pytest.raises(InputError, match="k:"):
            family.make(theta).topk(0)

    def test_vmap_and_func(self, family):
        n = family.sizes[-1]
        theta = family.random(n, (3,), seed=1)
        dims = tuple(None if s else 0 for s in family.shared)
        d = family.make(theta)

        def value(*parts):
            e = family.make(parts)
            return e.log_partition, layout(e.marginals)

        a, mu = torch.func.vmap(value, dims)(*theta)
        close(a, d.log_partition, 1e-12)
        close(mu, layout(d.marginals), 1e-12)

        v = weights_like([m[0] for m in layout(d.marginals)])

        def loss(*parts):
            return dot(family.make(parts).marginals, v)

        argnums = tuple(range(len(theta)))
        grads = torch.func.vmap(torch.func.grad(loss, argnums), dims)(*theta)
        for b in range(3):
            one = leaves(pick(family, theta, b))
            want = torch.autograd.grad(loss(*one), one)
            close(tuple(g[b] for g in grads), want, 1e-10)
        # All batched, the shared ones too.
        everyone = tuple(
            p if not s else torch.stack([p, 2 * p, 3 * p])
            for p, s in zip(theta, family.shared, strict=True)
        )
        a, mu = torch.func.vmap(value)(*everyone)
        for b in range(3):
            one = family.make(tuple(p[b] for p in everyone))
            close(a[b], one.log_partition, 1e-12)
            close(tuple(m[b] for m in mu), layout(one.marginals), 1e-12)

    def test_pickle_and_deepcopy(self, family):
        n = family.sizes[-1]
        d = family.make(family.random(n, (2,)), lengths=[n, 1])
        assert layout(d.marginals)  # fills the cache
        for e in (pickle.loads(pickle.dumps(d)), copy.deepcopy(d)):
            close(e.log_partition, d.log_partition, 0, 0)
            close(e.marginals, d.marginals, 0, 0)
            assert repr(e) == repr(d)


class CompileLaws:
    """Laws that call the compiler, which takes seconds: for one family of each kind."""

    families: tuple[Family, ...] = ()

    @pytest.mark.slow
    # Raised inside the compiler itself when it traces any autograd.Function.
    @pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
    def test_compiles_without_graph_breaks(self, family, backend):
        n = family.sizes[-1]
        theta = leaves(family.random(n, (2,), dtype=torch.float32))
        v = [w[0] for w in weights_like(layout(family.make(theta).marginals))]

        def loss(*parts):
            d = family.make(parts)
            return dot(d.marginals, v) + d.log_partition.sum() + d.entropy.sum()

        torch.compiler.reset()
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        close(compiled(*theta), loss(*theta), 1e-5, 1e-5)
        got = torch.autograd.grad(compiled(*theta), theta)
        close(got, torch.autograd.grad(loss(*theta), theta), 1e-5, 1e-5)


def _some_valid(family: Family, n: int) -> int:
    """Flat index, in the first potential, of a part that some structure uses."""
    for z in family.structures(n):
        for which, index in family.parts(z):
            if which == 0:
                flat = 0
                for i, size in zip(index, family.shapes(n)[0], strict=True):
                    flat = flat * size + i
                return flat
    raise AssertionError("no structure uses the first potential")
