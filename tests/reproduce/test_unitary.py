"""The demonstrations hold, and each of their figures can fail."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.ndimage
import scipy.special
import torch

from lawful import unitary as truth
from lawful.errors import InputError
from lawful.reproduce.unitary import (
    _automaton,
    _copying,
    _derivatives,
    _equations,
    _exact,
    _fields,
    _flows,
    _gating,
    _networks,
    _pairs,
    _spectrum,
    demonstrations,
)
from lawful.tasks import exhibits

KEYS = ["E1", "E2", "E3", "E4", "E5", "E6", "E7", "C1", "C2", "C3"]


@pytest.fixture(scope="module")
def found():
    return {d.key: d for d in demonstrations(quick=True)}


def test_all_are_there_and_come_one_by_one():
    stream = demonstrations(quick=True, seed=3)
    assert next(stream).key == "E1"
    assert next(stream).key == "E2"


def test_a_reader_without_gradients_gets_them_all():
    with torch.no_grad():
        stream = demonstrations(quick=True)
        assert [next(stream).key for _ in range(5)] == KEYS[:5]


@pytest.mark.parametrize("key", KEYS)
def test_every_figure_holds_and_is_finite(found, key):
    shown = found[key]
    broken = [(f.name, f.value) for f in shown.figures if f.holds is False]
    assert not broken
    assert all(math.isfinite(f.value) for f in shown.figures)
    assert sum(f.holds is True for f in shown.figures) >= 2
    names = [f.name for f in shown.figures]
    assert len(set(names)) == len(names)


def test_the_errata_are_named(found):
    notes = [f.note for d in found.values() for f in d.figures]
    assert sum("rratum" in note for note in notes) >= 8


@pytest.mark.parametrize("key", KEYS)
def test_pictures_survive_the_run_folder(found, key, tmp_path):
    shown = list(found[key].exhibits)
    assert shown
    exhibits.save(shown, tmp_path)
    again = exhibits.load(tmp_path)
    assert [type(e) for e in again] == [type(e) for e in shown]
    for e in shown:
        if isinstance(e, exhibits.Images):
            assert len(e.captions) == len(e.images)
            assert e.images.min() >= 0
            assert e.images.max() <= 1
        if isinstance(e, exhibits.Heatmap):
            assert np.isfinite(e.values).all()
        if isinstance(e, exhibits.Curves):
            assert all(len(x) == len(y) for x, y in e.series.values())
            assert set(e.muted) <= set(e.series)


# --- the other side of the comparisons ---------------------------------------------------------


@pytest.mark.parametrize("x", [0.5, 1.0, 8.0, 128.0, 1010.0])
def test_bessel_functions_agree_with_scipy(x):
    order = np.arange(300)
    assert np.allclose(_exact.bessel_j(x, 299), scipy.special.jv(order, x), rtol=0, atol=1e-13)
    assert np.allclose(_exact.bessel_i(x, 299), scipy.special.ive(order, x), rtol=0, atol=1e-14)


def test_dense_exponential_agrees_with_scipy():
    draw = torch.Generator().manual_seed(0)
    for scale in (1e-3, 0.04, 1.0, 6.0):
        m = scale * torch.randn(7, 7, dtype=torch.complex128, generator=draw)
        want = torch.from_numpy(scipy.linalg.expm(m.numpy()))
        assert (_exact.dense_exp(m) - want).abs().max() <= 1e-12 * want.abs().max()


@pytest.mark.parametrize("size", [(6,), (4, 5)])
def test_lifted_matrix_convolves(size):
    draw = torch.Generator().manual_seed(0)
    kernel = torch.randn(2, 3, *[3] * len(size), dtype=torch.float64, generator=draw)
    x = torch.randn(3, *size, dtype=torch.float64, generator=draw)
    want = truth.conv_apply(kernel, x, origin="centre", channels=True)
    assert torch.allclose(_exact.lifted(kernel, size) @ x.flatten(), want.flatten(), atol=1e-13)


def test_runge_kutta_is_of_fourth_order():
    start = torch.ones(1, dtype=torch.float64)
    errors = [
        abs(float(_exact.runge_kutta(lambda y: -y, start, 1.0, h)) - math.exp(-1))
        for h in (0.1, 0.05)
    ]
    assert 14 < errors[0] / errors[1] < 18


def test_flood_fill_agrees_with_scipy():
    draw = torch.Generator().manual_seed(0)
    region = torch.rand(20, 17, generator=draw) < 0.6
    seed = tuple(region.nonzero()[0].tolist())
    labels, _ = scipy.ndimage.label(region.numpy())
    assert np.array_equal(_exact.flood(region, seed).numpy(), labels == labels[seed])


def test_mazes_are_connected_until_a_passage_is_shut():
    draw = torch.Generator().manual_seed(0)
    for cells in (2, 4):
        whole, cut = _gating.maze(cells, draw)
        assert scipy.ndimage.label(whole.numpy())[1] == 1
        assert scipy.ndimage.label(cut.numpy())[1] == 2
        assert not (cut & ~whole).any()
        assert not whole[: _gating.WIDTH].any()
        assert not whole[-_gating.WIDTH :].any()


def test_moments_and_offsets_of_even_and_odd_rings():
    assert _fields.offsets(4).tolist() == [0, 1, -2, -1]
    assert _fields.offsets(5).tolist() == [0, 1, 2, -2, -1]
    kernel = torch.zeros(8, dtype=torch.float64)
    kernel[1], kernel[-1] = 0.75, 0.25
    assert _fields.moments(kernel) == pytest.approx((1.0, 0.5, 0.75, -0.75))


def test_a_translation_needs_an_odd_ring():
    with pytest.raises(InputError, match="odd"):
        _networks.translation_generator(8)


# --- every bound can fail ----------------------------------------------------------------------


def _reversed_generator(conv, kernel):
    _networks.set_generator(conv, -kernel)


def _doubled(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda kernel, *args, **kwargs: function(1.1 * kernel, *args, **kwargs)


def _reversed(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda kernel, *args, **kwargs: function(-kernel, *args, **kwargs)


def _flattened(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda kernel, *args, **kwargs: function(0 * kernel, *args, **kwargs)


def _negated(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: -function(*args, **kwargs)


def _lossy(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: 0.99 * function(*args, **kwargs)


def _one_sign(kernel, size, *args, **kwargs):
    xx, xp, px, pp = truth.xp_kernels(kernel, size, *args, **kwargs)
    return xx, xp, -px, pp


def _identity_pair(kernel, size, *args, **kwargs):
    return truth.xp_kernels(0 * kernel, size, *args)


def _lossy_gain(activation, steps, **kwargs):
    return 0.5


def _leaky_wave(sites, speed):
    rnn = _networks.wave_network(sites, speed)
    rnn.conv.weight *= 1.01
    return rnn


class _Lossy(torch.nn.Module):
    """A network that loses a little on every call."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, *args):
        out = self.net(*args)
        return tuple(0.999 * v for v in out) if isinstance(out, tuple) else 0.999 * out

    def propagate(self, state, steps):
        return 0.999 * self.net.propagate(state, steps)


def _decaying(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: _Lossy(function(*args))


class _Fading(_Lossy):
    """The same, step after step within a call."""

    def forward(self, *args):
        out, last = self.net(*args)
        return out * torch.linspace(1, 0.99, out.shape[1])[:, None, None], last


def _late(delay, symbols, length):
    rnn = _networks.copying_network(delay, symbols, length)
    rnn.output_weight.copy_(rnn.output_weight.roll(1, -1))
    return rnn


def _silent(delay, symbols, length):
    rnn = _networks.copying_network(delay, symbols, length)
    rnn.output_weight.zero_()
    return rnn


def _mirrored_embeddings():
    nets = _automaton.EMBEDDINGS
    return tuple(_automaton.Embedding(n.name, n.taps[::-1], n.activation, n.noise) for n in nets)


def _blunt(sharpness=15.0):
    return _networks.Unimodal(10.0 if sharpness == 15.0 else sharpness)


def _robust(net, cells, steps, *args, **kwargs):
    return torch.full((len(cells),), steps)


def _one_way_in_time(kernel, size, t=1.0, **kwargs):
    return truth.conv_exp(kernel, size, abs(t), **kwargs)


_listen, _gaussian = _gating.listen, _flows.gaussian


def _always_walled(rnn, opened, steps, wall, frames=()):
    return _listen(rnn, opened, steps, _gating.WALL, frames)


SABOTAGES: dict[str, tuple[Callable[..., Any], list[tuple[Any, str, Any]]]] = {
    "E1": (
        _flows.diffusion,
        [
            (_flows, "conv_exp", _doubled(truth.conv_exp)),
            (_flows, "conv_exp", _flattened(truth.conv_exp)),
            (_flows, "conv_exp", _lossy(truth.conv_exp)),
            (_flows, "gaussian", lambda sites, variance: _gaussian(sites, 2 * variance)),
        ],
    ),
    "E2": (
        _flows.translation,
        [
            (_flows, "conv_exp", _reversed(truth.conv_exp)),
            (_flows, "conv_exp", _lossy(truth.conv_exp)),
            (_flows, "conv_exp", _flattened(truth.conv_exp)),
            (_flows, "set_generator", _reversed_generator),
        ],
    ),
    "E3": (
        _spectrum.spectrum,
        [
            (_spectrum, "conv_exp", _reversed(truth.conv_exp)),
            (_spectrum, "conv_exp", _lossy(truth.conv_exp)),
            (_spectrum, "conv_exp", _flattened(truth.conv_exp)),
            (_spectrum, "from_antihermitian", lambda kernel: kernel.real),
            (_spectrum, "gradient_gain", _lossy_gain),
            (_spectrum, "symbol", lambda k, size, **kw: truth.symbol(k, size, origin="zero")),
            (_spectrum, "dense_exp", lambda m: _exact.dense_exp(1.01 * m + 0.01 * m.abs())),
            (_spectrum, "conv_exp", _one_way_in_time),
            (_spectrum, "UnitaryConv", lambda *a, **kw: _OneWay(*a, **kw)),
        ],
    ),
    "E4": (
        _pairs.pairs,
        [
            (_pairs, "xp_kernels", _one_sign),
            (_pairs, "xp_kernels", _identity_pair),
            (_pairs, "conv_sin", _flattened(truth.conv_sin)),
            (_pairs, "conv_cos", lambda k, size: truth.conv_exp(0 * k, size)),
            (_pairs, "conv_exp", _reversed(truth.conv_exp)),
            (_pairs, "dense_exp", lambda m: _exact.dense_exp(1.1 * m)),
            (_pairs, "gap", lambda a, b: 0.0),
        ],
    ),
    "E5": (
        _derivatives.derivatives,
        [
            (_derivatives, "conv_exp", _doubled(truth.conv_exp)),
            (_derivatives, "conv_sin", _negated(truth.conv_sin)),
            (_derivatives, "conv_exp", lambda kernel, size: _detuned(kernel, size)),
            (_derivatives, "conv_apply", _lossy(truth.conv_apply)),
            (_derivatives, "gap", lambda a, b: 0.0),
            (_derivatives, "conv_exp", lambda kernel, size: _Crooked.apply(kernel, size)),
        ],
    ),
    "E6": (
        _automaton.rule_110_network,
        [
            (_automaton, "EMBEDDINGS", _mirrored_embeddings()),
            (_automaton, "survival", _robust),
            (_automaton, "Unimodal", _blunt),
            (_automaton, "rule110", lambda cells: ~cells),
        ],
    ),
    "E7": (
        _gating.gating,
        [
            (_gating, "WALL", 0.0),
            (_gating, "REST", 0.0),
            (_gating, "listen", _always_walled),
        ],
    ),
    "C1": (
        _equations.waves,
        [
            (_equations, "wave_network", _leaky_wave),
            (_equations, "wave_network", _decaying(_networks.wave_network)),
            (_equations, "wave_layer", lambda speed: _networks.wave_layer(1.01 * speed)),
        ],
    ),
    "C2": (
        _equations.schroedinger,
        [
            (
                _equations,
                "schroedinger_network",
                lambda n, dt, *a: _networks.schroedinger_network(n, -dt, *a),
            ),
            (
                _equations,
                "schroedinger_network",
                lambda *a: _Fading(_networks.schroedinger_network(*a)),
            ),
        ],
    ),
    "C3": (
        _copying.copying,
        [(_copying, "copying_network", _late), (_copying, "copying_network", _silent)],
    ),
}


class _OneWay(truth.UnitaryConv):
    """A layer whose operator cannot be undone."""

    def operator(self, *args, **kwargs):
        made = super().operator(*args, **kwargs)

        class Made:
            inverse = staticmethod(lambda y: y)
            __call__ = staticmethod(made)

        return Made()


def _detuned(kernel, size):
    """Its value depends on the kernel in another way than the exponential's."""
    return truth.conv_exp(kernel, size) + 0.01 * truth.conv_exp(2 * kernel, size)


class _Crooked(torch.autograd.Function):
    """Right values, wrong gradients."""

    @staticmethod
    def forward(ctx, kernel, size):
        ctx.shape = kernel.shape
        return truth.conv_exp(kernel, size)

    @staticmethod
    def backward(ctx, grad):
        return torch.ones(ctx.shape, dtype=grad.dtype), None


@pytest.mark.parametrize("key", KEYS)
def test_each_bound_is_broken_by_some_fault(key, found, monkeypatch):
    run, faults = SABOTAGES[key]
    caught: set[str] = set()
    for place, name, fault in faults:
        with monkeypatch.context() as patch:
            patch.setattr(place, name, fault)
            broken = {f.name for f in run(True, 0).figures if f.holds is False}
        assert broken, f"nothing notices a wrong {name}"
        caught |= broken
    bounded = {f.name for f in found[key].figures if f.holds is not None}
    assert bounded <= caught, f"no fault breaks {sorted(bounded - caught)}"
