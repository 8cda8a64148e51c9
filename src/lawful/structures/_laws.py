"""What every distribution over structures promises, declared on the base class."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lawful.laws import Call, Law, Measurement, declare
from lawful.structures._alignment import HMM
from lawful.structures._categorical import Categorical
from lawful.structures._chain import LinearChain
from lawful.structures._dependency import ProjectiveTree, SpanningTree
from lawful.structures._distribution import StructuredDistribution
from lawful.structures._semimarkov import SemiMarkov

Layout = tuple[Tensor, ...]
_DIRECTIONS = 4
_EPSILON = 1e-4  # of central differences in float64: truncation 1e-8, rounding 1e-12 times |A|
_PAPER = "Kim et al. 2017, section 2"


def _potentials(d: StructuredDistribution) -> Layout:
    """The potentials in float64, without a graph."""
    given = d.potentials
    parts = given if isinstance(given, tuple) else (given,)
    return tuple(p.detach().double() for p in parts if p is not None)


def _marginals(d: StructuredDistribution) -> Layout:
    with torch.no_grad():
        found = d.marginals
    parts = found if isinstance(found, tuple) else (found,)
    return tuple(p.double() for p in parts if p is not None)


def _with(d: StructuredDistribution, potentials: Layout) -> StructuredDistribution:
    """The same distribution with other potentials.

    An HMM normalises what it is given; as a function of potentials it is the chain it stands on.
    """
    if isinstance(d, HMM):
        unary, transition = potentials
        return LinearChain(unary, transition, d.lengths, start=d._ends[0], backend=d.backend)
    return d._rebuild(potentials, d.lengths)


def _dims(d: StructuredDistribution) -> Iterator[int]:
    yield from d._event_dims


def _dot(d: StructuredDistribution, a: Layout, b: Layout) -> Tensor:
    """Sum over one structure's parts of a * b, shape (B) with the batch broadcast."""
    total: Any = torch.zeros(d.batch_shape, dtype=torch.float64)
    for x, y, dims in zip(a, b, _dims(d), strict=True):
        product = x * y
        total = total + (product.sum(tuple(range(-dims, 0))) if dims else product)
    return total  # type: ignore[no-any-return]


def _direction(d: StructuredDistribution, call: Call) -> Layout:
    """A random direction of unit length per structure; 0 where a part is forbidden."""
    parts = tuple(
        torch.where(p.isfinite(), torch.randn(p.shape, generator=call.generator).double(), 0.0)
        for p in _potentials(d)
    )
    norm = _dot(d, parts, parts).sqrt().clamp_min(1e-12).amax() if d.batch_shape.numel() else 1.0
    return tuple(p / norm for p in parts)


def _moved(potentials: Layout, direction: Layout, by: float) -> Layout:
    return tuple(p + by * v for p, v in zip(potentials, direction, strict=True))


def _possible(d: StructuredDistribution) -> Tensor:
    with torch.no_grad():
        return d.log_partition > -torch.inf


def _range(call: Call) -> Measurement:
    d = call.layer
    parts = _marginals(d)
    # The marginals of transitions that steps share are counts, not probabilities.
    if isinstance(d, LinearChain):
        with torch.no_grad():
            parts = (parts[0], d.edge_marginals.double())
    elif isinstance(d, SemiMarkov):
        parts = parts[:1]
    outside = [torch.maximum(-p, p - 1).reshape(-1) for p in parts]
    return Measurement.worst(torch.cat(outside).clamp_min(0.0))


def _group_sums(d: StructuredDistribution) -> tuple[Tensor, Tensor] | None:
    """Sums over what is mutually exclusive (B, groups), and which of them must be 1."""
    parts = _marginals(d)
    possible = _possible(d)
    if isinstance(d, Categorical):
        return parts[0].sum(-1), possible
    mask = d._mask()
    if isinstance(d, ProjectiveTree | SpanningTree):
        sums = parts[0].sum(-2) + parts[1]
    elif isinstance(d, LinearChain):
        sums = parts[0].sum(-1)
    else:
        return None
    valid = possible[..., None].expand(sums.shape)
    return sums, valid if mask is None else valid & mask


def _sums(call: Call) -> Measurement:
    found = _group_sums(call.layer)
    if found is None:
        return Measurement(0.0, 0)
    sums, valid = found
    return Measurement.worst((sums - valid.double()).abs())


def _gradient(call: Call) -> Measurement:
    d = call.layer
    theta, mu = _potentials(d), _marginals(d)
    gaps = []
    for _ in range(_DIRECTIONS):
        v = _direction(d, call)
        with torch.no_grad():
            ends = [_with(d, _moved(theta, v, s * _EPSILON)).log_partition for s in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * _EPSILON)
        gap = (slope - _dot(d, mu, v)).abs()
        gaps.append(torch.where(_possible(d), gap, 0.0))
    return Measurement.worst(torch.stack(gaps))


def _gradient_tolerance(call: Call) -> float:
    """Rounding of marginals in their dtype, and of A in float64 under the difference."""
    d = call.layer
    with torch.no_grad():
        size = d.log_partition.double()
    size = size[size.isfinite()].abs()
    rounding = 1e-15 * float(size.max()) / _EPSILON if size.numel() else 0.0
    return (1e-7 if call.dtype == torch.float64 else 1e-4) + 8 * rounding


def _convexity(call: Call) -> Measurement:
    d = call.layer
    theta = _potentials(d)
    gaps = []
    with torch.no_grad():
        for scale in (0.1, 1.0, 10.0, 100.0)[:_DIRECTIONS]:
            v = _direction(d, call)
            a, m, b = (
                _with(d, _moved(theta, v, s * scale)).log_partition.double() for s in (-1, 0, 1)
            )
            size = torch.stack([a, m, b]).abs().amax(0).clamp_min(1.0)
            gap = ((m - (a + b) / 2) / size).clamp_min(0.0)
            gaps.append(torch.where(_possible(d), gap, 0.0))
    return Measurement.worst(torch.stack(gaps))


def _symmetry(call: Call) -> Measurement:
    """u·H v against v·H u, H the Hessian of A, in the distribution's own dtype."""
    d = call.layer
    dtype = call.dtype
    with torch.enable_grad():
        theta = tuple(p.to(dtype).requires_grad_() for p in _potentials(d))
        found = _with(d, theta).marginals
        mu = found if isinstance(found, tuple) else (found,)
        u, v = (tuple(x.to(dtype) for x in _direction(d, call)) for _ in range(2))
        sides = []
        for left, right in ((u, v), (v, u)):
            total = sum((a * b).sum() for a, b in zip(mu, left, strict=True))
            grads = torch.autograd.grad(total, theta, retain_graph=True)
            pairs = zip(grads, right, strict=True)
            sides.append(sum((a.double() * b.double()).sum() for a, b in pairs))
    return Measurement.worst(torch.as_tensor(sides[0] - sides[1]).abs().reshape(1))


def _padding(call: Call) -> Measurement:
    """What no structure can contain must not be read: it is filled with noise."""
    d = call.layer
    theta = _potentials(d)
    flat = tuple(torch.zeros_like(p) for p in theta)
    possible = _marginals(_with(d, flat))
    unread = [_everywhere(m == 0, p.shape) for m, p in zip(possible, theta, strict=True)]
    cases = sum(int(x.sum()) for x in unread)
    if not cases:
        return Measurement(0.0, 0)
    own = tuple(p.to(call.dtype) for p in theta)
    noisy = tuple(
        torch.where(x, torch.randn(p.shape, generator=call.generator).to(p) * 100, p)
        for p, x in zip(own, unread, strict=True)
    )
    plain, other = _with(d, own), _with(d, noisy)
    with torch.no_grad():
        gaps = [_finite(plain.log_partition - other.log_partition).abs().reshape(-1)]
    gaps += [
        (a - b).abs().reshape(-1) for a, b in zip(_marginals(plain), _marginals(other), strict=True)
    ]
    return replace(Measurement.worst(torch.cat(gaps)), cases=cases)


def _everywhere(x: Tensor, shape: torch.Size) -> Tensor:
    """Bool of that shape: true where x is, for every batch element that shares the entry."""
    return ~(~x).double().sum_to_size(shape).bool()


def _finite(x: Tensor) -> Tensor:
    """Differences of two equal infinities count as 0."""
    return torch.where(x.isnan(), 0.0, x)


def _order(call: Call) -> Measurement:
    """Score of samples <= score of argmax <= A, relative to the largest score."""
    d = call.layer
    if not bool(_possible(d).all()) or not d.batch_shape.numel():
        return Measurement(0.0, 0)
    with torch.no_grad():
        best, total = d.max_score.double(), d.log_partition.double()
        drawn = d.score(d.sample((16,), generator=call.generator)).double()
        reached = d.score(d.argmax).double()
    size = torch.stack([best.abs(), total.abs()]).amax(0).clamp_min(1.0)
    gaps = torch.stack([best - total, drawn.amax(0) - best, (reached - best).abs()])
    return Measurement.worst((gaps / size).clamp_min(0.0))


_ROUNDING = {torch.float64: 1e-10, torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}

STRUCTURE_LAWS = (
    Law("range", "marginals lie in [0, 1]", _PAPER, _range, _ROUNDING),
    Law(
        "sum",
        "marginals of what excludes each other sum to 1: one state a step, one head a word",
        f"{_PAPER}; design",
        _sums,
        {**_ROUNDING, torch.float32: 5e-6},
    ),
    Law(
        "gradient",
        "marginals are the gradient of the log-partition (central differences in float64)",
        _PAPER,
        _gradient,
        _gradient_tolerance,
    ),
    Law(
        "convex",
        "the log-partition is convex along random segments (in float64)",
        _PAPER,
        _convexity,
        1e-12,
    ),
    Law(
        "symmetric",
        "the derivative of the marginals is symmetric",
        "Kim et al. 2017, appendix B; Hessian of the log-partition",
        _symmetry,
        {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 0.05, torch.float16: 0.01},
    ),
    Law(
        "padding",
        "what no structure can contain, padding above all, has no effect beyond rounding",
        "design",
        _padding,
        _ROUNDING,
    ),
    Law(
        "order",
        "no sample scores above the argmax, and the argmax not above the log-partition",
        "design",
        _order,
        {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3},
    ),
)
declare(StructuredDistribution, *STRUCTURE_LAWS)
