"""Forecasters of fields: shapes, streaming, definitions, and what each of them keeps."""

import copy
import pickle

import pytest
import torch

from lawful.errors import InputError
from lawful.laws import check
from lawful.models import FIELD_MODELS, FieldSpec, build_forecaster
from lawful.models._field_layers import FieldConv

SIZES = {1: (9,), 2: (5, 6), 3: (3, 4, 3)}
VARIANTS = [
    ("conv-unitary", {}),
    ("conv-unitary", {"window": 3, "map_taps": 3, "features": 4, "activation": "fold"}),
    ("conv-orthogonal", {}),
    ("conv-orthogonal", {"channels": 4, "activation": "softnorm", "reverse": True}),
    ("conv-orthogonal", {"wrap": False, "taps": 3}),
    ("conv-rnn", {}),
    ("conv-rnn", {"nonlinearity": "tanh", "window": 2, "wrap": False}),
    ("convlstm", {"hidden": 3}),
    ("convlstm", {"hidden": 3, "wrap": False}),
]
variants = pytest.mark.parametrize(("name", "extra"), VARIANTS)


def make(name, extra, channels=2, dims=1, **place):
    torch.manual_seed(0)
    spec = FieldSpec(channels, SIZES[dims], 2)
    return build_forecaster(FIELD_MODELS[name](**{"taps": 3, **extra}), spec, **place)


def film(rows=3, frames=6, channels=2, dims=1, dtype=torch.float32):
    return torch.randn(rows, frames, channels, *SIZES[dims], dtype=dtype)


@variants
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_shapes_and_gradients(name, extra, dims):
    model = make(name, extra, dims=dims)
    out = model(film(dims=dims), 4)
    assert out.shape == (3, 4, 2, *SIZES[dims])
    (out - 1).square().sum().backward()
    for key, value in model.named_parameters():
        assert value.grad is not None, key
        assert value.grad.isfinite().all(), key


@variants
def test_observing_in_pieces_is_observing_the_whole(name, extra):
    model = make(name, extra).double()
    x = film(dtype=torch.float64)
    state = model.observe(x[:, :1])
    state = model.observe(x[:, 1:4], state)
    state = model.observe(x[:, 4:], state)
    torch.testing.assert_close(model.rollout(state, 5), model(x, 5), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(model(x, 3), model(x, 5)[:, :3], rtol=1e-9, atol=1e-11)


@variants
def test_copies_pickles_and_other_dtypes(name, extra):
    model = make(name, extra)
    x = film()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x, 2), model(x, 2))
    double = make(name, extra, dtype=torch.float64)
    assert double(x.double(), 2).dtype == torch.float64
    assert double.state_dict().keys() == model.state_dict().keys()


@pytest.mark.parametrize("name", list(FIELD_MODELS))
def test_wrapped_space_has_no_origin(name):
    """Turning a periodic lattice turns the forecast; nothing is told about places."""
    model = make(name, {}).double()
    x = film(dtype=torch.float64)
    torch.testing.assert_close(
        model(x.roll(2, -1), 4), model(x, 4).roll(2, -1), rtol=1e-9, atol=1e-11
    )


@pytest.mark.parametrize("name", ["conv-unitary", "conv-orthogonal"])
def test_states_of_a_rollout_keep_their_norm_and_other_models_do_not(name):
    model = make(name, {"kernel_gain": 2.0}).double()
    x = film(dtype=torch.float64)
    state = model.observe(x)
    norms = model.states(state, 50).flatten(2).norm(dim=2)
    torch.testing.assert_close(norms, state[0].flatten(1).norm(dim=1)[:, None].expand(-1, 50))
    control = make("conv-rnn", {}).double()
    norms = control.states(control.observe(x), 50).flatten(2).norm(dim=2)
    assert (norms[:, -1] / norms[:, 0] - 1).abs().max() > 0.01


def test_laws_of_a_forecaster_hold():
    model = make("conv-orthogonal", {})
    certificate = check(model, run=lambda: model(film(), 3))
    kept = {(r.layer, r.law) for r in certificate.rows if r.holds}
    assert {("rnn", "chunks"), ("rnn.conv", "norm"), ("rnn.conv", "spectrum")} <= kept
    assert not certificate.broken


def test_linear_maps_start_near_the_identity():
    model = make("conv-orthogonal", {"kernel_gain": 0.0})
    x = film(frames=2)
    forecast = model(x, 1)[:, 0]
    assert (forecast - x.mean(1)).abs().max() < 0.2  # each of 2 frames enters with weight 1/2


def test_convlstm_by_hand():
    """One site, one tap: the equations as they are written."""
    torch.manual_seed(0)
    spec = FieldSpec(1, (1,))
    model = build_forecaster(FIELD_MODELS["convlstm"](hidden=1, taps=1), spec)
    model.requires_grad_(False)
    (wi, wf, wo, wg), b = model.gates.weight[:, :, 0], model.gates.bias
    x = torch.tensor([[0.7]])
    h, c, frame = torch.zeros(()), torch.zeros(()), x[0, 0]
    for _ in range(2):
        inputs = torch.stack([frame, h])
        i, f, o = (torch.sigmoid(w @ inputs + b[n]) for n, w in enumerate((wi, wf, wo)))
        c = f * c + i * torch.tanh(wg @ inputs + b[3])
        h = o * torch.tanh(c)
        frame = frame + model.out.weight[0, 0, 0] * h + model.out.bias[0]
    got = model(x.view(1, 1, 1, 1), 2)
    assert got[0, 1, 0, 0].item() == pytest.approx(frame.item(), abs=1e-6)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("taps", [1, 3, 7])  # 7 reaches around the lattice
def test_wrapped_convolution_by_hand(dims, taps):
    conv = FieldConv(2, 1, taps, dims, dtype=torch.float64)
    x = torch.randn(1, 2, *SIZES[dims], dtype=torch.float64)
    want = torch.zeros(1, 1, *SIZES[dims], dtype=torch.float64)
    axes = list(range(-dims, 0))
    for at in torch.cartesian_prod(*[torch.arange(taps)] * dims).view(-1, dims).tolist():
        shift = [taps // 2 - a for a in at]
        w = conv.weight[(0, slice(None), *at)]
        want += (w.view(2, *[1] * dims) * x.roll(shift, axes)).sum(1, keepdim=True)
    torch.testing.assert_close(conv(x), want)


@pytest.mark.parametrize(
    "bad", [{"taps": 2}, {"map_taps": 0}, {"window": 0}, {"channels": -1}, {"kernel_rate": -1.0}]
)
def test_impossible_settings_are_refused(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        FIELD_MODELS["conv-unitary"](**bad)


@pytest.mark.parametrize("name", list(FIELD_MODELS))
def test_frames_of_another_shape_are_refused(name):
    model = make(name, {})
    for bad in (film(channels=1), film(dims=2), film(frames=0)):
        with pytest.raises(InputError, match="frames"):
            model(bad, 2)
    with pytest.raises(InputError, match="model config"):
        build_forecaster(object(), FieldSpec(1, (4,)))
