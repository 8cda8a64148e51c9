"""What users of other libraries reported about trees, each as a test of ours."""

import math

import pytest
import torch

from lawful.errors import InputError
from lawful.structures import ProjectiveTree, SpanningTree, marginalise_labels

BOTH = [ProjectiveTree, SpanningTree]
pytestmark = pytest.mark.usefixtures("backend")


def column_sums(mu):
    return mu.arcs.sum(-2) + mu.root


def finite(*parts):
    return all(torch.isfinite(p).all() for p in parts)


@pytest.mark.parametrize("family", BOTH)
def test_one_object_does_not_change_another(family):
    """The number of root children is a property of an object, not of a class."""
    arcs = torch.randn(3, 3)
    fresh = family(arcs).log_partition, family(arcs, single_root=True).log_partition
    for order in ((False, True), (True, False)):
        made = {single: family(arcs, single_root=single) for single in order}
        assert torch.equal(made[False].log_partition, fresh[0])
        assert torch.equal(made[True].log_partition, fresh[1])
    single = family(arcs, single_root=True).marginals
    assert single.root.sum().item() == pytest.approx(1)


def test_both_kinds_of_root_with_lengths():
    zeros = torch.zeros(2, 4, 4)
    multi = SpanningTree(zeros, lengths=[3, 4]).log_partition.exp()
    single = SpanningTree(zeros, lengths=[3, 4], single_root=True).log_partition.exp()
    torch.testing.assert_close(multi, torch.tensor([16.0, 125.0]))
    torch.testing.assert_close(single, torch.tensor([9.0, 64.0]))


@pytest.mark.parametrize("family", BOTH)
def test_labelled_arcs(family):
    """Trees with labels: log-partition and marginals equal those of all labelled trees together."""
    scores = torch.randn(3, 3, 2, dtype=torch.float64, requires_grad=True)
    root_scores = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    arcs, label = marginalise_labels(scores)
    root, root_label = marginalise_labels(root_scores)
    d = family(arcs, root)
    total = torch.zeros((), dtype=torch.float64)
    for tree in d.enumerate_support():
        weight = torch.ones((), dtype=torch.float64)
        for m, h in enumerate(tree.tolist()):
            weight = weight * (root_scores[m] if h < 0 else scores[h, m]).exp().sum()
        total = total + weight
    torch.testing.assert_close(d.log_partition, total.log())
    want = torch.autograd.grad(total.log(), (scores, root_scores))
    torch.testing.assert_close(d.marginals.arcs[..., None] * label, want[0])
    torch.testing.assert_close(d.marginals.root[..., None] * root_label, want[1])


def test_labels_that_are_impossible():
    scores = torch.full((2, 3), -torch.inf)
    scores[0, 1] = 2.0
    scores.requires_grad_()
    arcs, posterior = marginalise_labels(scores)
    assert arcs.tolist() == [2.0, -torch.inf]
    assert posterior.tolist() == [[0, 1, 0], [0, 0, 0]]
    (grad,) = torch.autograd.grad(arcs[0] + posterior.sum(), scores)
    assert finite(grad)


@pytest.mark.parametrize("family", BOTH)
def test_a_word_that_cannot_be_root(family):
    arcs = torch.randn(4, 4, requires_grad=True)
    root = torch.tensor([0.0, -torch.inf, 0.0, 0.0], requires_grad=True)
    mu = family(arcs, root).marginals
    assert mu.root[1] == 0
    torch.testing.assert_close(column_sums(mu), torch.ones(4))
    assert finite(*torch.autograd.grad((mu.arcs**2).sum() + (mu.root**2).sum(), (arcs, root)))


@pytest.mark.parametrize("family", BOTH)
@pytest.mark.parametrize("scale", [1e2, 1e4, 1e6])
@pytest.mark.parametrize("offset", [0.0, 100.0, -100.0, 1e4])
def test_scores_of_any_size(family, scale, offset):
    g = torch.Generator().manual_seed(2)
    arcs = (scale * torch.randn(2, 12, 12, generator=g) + offset).requires_grad_()
    d = family(arcs)
    mu = d.marginals
    torch.testing.assert_close(column_sums(mu), torch.ones(2, 12), atol=1e-5, rtol=0)
    best = d.argmax
    assert (d.log_prob(best) <= 0).all()
    # At this scale a few trees have all of the probability.
    assert (d.log_prob(best) > -3).all()
    (grad,) = torch.autograd.grad((mu.arcs**2).sum(), arcs)
    assert finite(grad)
    assert grad.abs().max() <= 0.5 * 12


def test_one_word_with_scores_far_below_the_others():
    """A shift by the largest of all arcs underflows; one for each word does not."""
    arcs, root = torch.zeros(5, 5), torch.zeros(5)
    arcs[:, 2] -= 200
    root[2] -= 200
    d, flat = SpanningTree(arcs, root), SpanningTree(torch.zeros(5, 5))
    torch.testing.assert_close(column_sums(d.marginals), torch.ones(5))
    torch.testing.assert_close(d.marginals.arcs, flat.marginals.arcs)
    assert d.log_partition.item() == pytest.approx(4 * math.log(6) - 200)


@pytest.mark.parametrize("family", BOTH)
def test_no_legal_tree(family):
    arcs = torch.full((2, 3, 3), -torch.inf)
    arcs[0] = 0.0
    root = torch.tensor([0.0, -torch.inf, -torch.inf]).expand(2, 3).clone().requires_grad_()
    arcs.requires_grad_()
    d = family(arcs, root)
    assert d.log_partition.tolist()[1] == -torch.inf
    assert (d.marginals.arcs[1] == 0).all()
    grads = torch.autograd.grad((d.marginals.arcs**2).sum() + d.entropy().sum(), (arcs, root))
    assert finite(*grads)
    for call in (lambda: d.argmax, d.sample, lambda: d.mbr):
        with pytest.raises(InputError, match=r"\[1\]"):
            call()
    cycle = torch.full((2, 2), -torch.inf)
    cycle[0, 1] = cycle[1, 0] = 0.0
    alone = family(cycle, torch.full((2,), -torch.inf), single_root=True)
    assert alone.log_partition.item() == -torch.inf


@pytest.mark.parametrize("family", BOTH)
def test_length_zero_and_padding(family):
    arcs = torch.randn(3, 4, 4)
    arcs[1, 2:], arcs[1, :, 2:], arcs[2] = torch.nan, torch.nan, torch.nan
    root = torch.zeros(3, 4)
    root[1, 2:], root[2] = torch.nan, torch.nan
    for single in (False, True):
        d = family(arcs, root, lengths=[4, 2, 0], single_root=single)
        assert d.log_partition[2] == 0
        assert finite(d.log_partition, *d.marginals)
        assert d.argmax[2].tolist() == [-2] * 4
        alone = family(arcs[1, :2, :2], root[1, :2], single_root=single)
        torch.testing.assert_close(d.log_partition[1], alone.log_partition)


@pytest.mark.parametrize("family", BOTH)
def test_parts_in_the_padding_do_not_count(family):
    d = family(torch.randn(2, 4, 4), lengths=[3, 4])
    z = d.to_indicator(d.argmax)
    z.arcs[0, 1, 3] = 1
    z.root[0, 3] = 1
    torch.testing.assert_close(d.log_prob(z), d.log_prob(d.argmax))
    assert torch.equal(d.from_indicator(z), d.argmax)


@pytest.mark.parametrize("family", BOTH)
def test_gradient_through_marginals_is_bounded(family):
    """|d <g, mu> / d theta| is at most half the standard deviation of the loss."""
    g = torch.Generator().manual_seed(0)
    arcs = torch.randn(1, 50, 50, generator=g, requires_grad=True)
    weight = torch.randn(1, 50, 50, generator=g)
    (grad,) = torch.autograd.grad((family(arcs).marginals.arcs * weight).sum(), arcs)
    assert grad.abs().max() < 2.0
    assert grad.abs().max() > 0.01


def test_repeated_tokens():
    """All scores equal, long input, deterministic, no recursion limit."""
    n = 200
    d = SpanningTree(torch.zeros(1, n, n))
    assert torch.equal(d.argmax, SpanningTree(torch.zeros(1, n, n)).argmax)
    assert d.support.check(d.argmax).all()
    assert d.log_partition.item() == pytest.approx((n - 1) * math.log(n + 1), rel=1e-6)


@pytest.mark.parametrize("family", BOTH)
def test_a_tree_from_marginals(family):
    """Minimum Bayes risk: the tree with the largest expected number of right heads."""
    d = family(torch.randn(5, 5, dtype=torch.float64))
    trees = d.enumerate_support()
    expected = torch.stack(
        [
            sum((a * b).sum() for a, b in zip(d.to_indicator(z), d.marginals, strict=True))
            for z in trees
        ]
    )
    assert torch.equal(d.mbr, trees[expected.argmax()])


@pytest.mark.parametrize("family", BOTH)
def test_sample_shapes(family):
    d = family(torch.randn(2, 3, 3))
    assert d.sample().shape == (2, 3)
    assert d.sample(5).shape == (5, 2, 3)
    assert d.sample((5, 2)).shape == (5, 2, 2, 3)
    assert len({tuple(z.flatten().tolist()) for z in d.sample(50)}) > 1


@pytest.mark.parametrize("family", BOTH)
def test_bad_shapes_are_refused(family):
    with pytest.raises(InputError, match="square"):
        family(torch.zeros(2, 3))
    with pytest.raises(InputError, match="root: expected last dimension 3"):
        family(torch.zeros(3, 3), torch.zeros(4))
    with pytest.raises(InputError, match="root: expected a batch shape"):
        family(torch.zeros(2, 3, 3), torch.zeros(4, 3))
    with pytest.raises(InputError, match="root: expected dtype"):
        family(torch.zeros(3, 3), torch.zeros(3, dtype=torch.float64))
    with pytest.raises(InputError, match="not a valid structure"):
        family(torch.zeros(2, 2)).log_prob(torch.tensor([1, 0]))


def test_crossing_trees_are_not_projective():
    heads = torch.tensor([2, -1, 1, 1])  # arcs 2 -> 0 and root -> 1 cross
    assert not ProjectiveTree(torch.zeros(4, 4)).support.check(heads)
    assert SpanningTree(torch.zeros(4, 4)).support.check(heads)
