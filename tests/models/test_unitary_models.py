"""Sequence models on lattices: filter and recurrence agree, frozen kernels stay, rasters."""

import pytest
import torch

from lawful.errors import InputError
from lawful.laws import check
from lawful.models import (
    SEQUENCE_MODELS,
    ConvOrthogonalConfig,
    ConvUnitaryConfig,
    InputSpec,
    OutputSpec,
    RasterModel,
    build_sequence_model,
)
from lawful.training._config import TrainConfig
from lawful.training._optim import Schedule, make_optimizer

VALUES = InputSpec("values", 3)


def make(config, per_step=True, dtype=None):
    torch.manual_seed(0)
    return build_sequence_model(config, VALUES, OutputSpec(4, per_step), dtype=dtype)


@pytest.mark.parametrize("kind", [ConvUnitaryConfig, ConvOrthogonalConfig])
@pytest.mark.parametrize("readout", [0, 5])
def test_the_filter_gives_what_the_recurrence_gives(kind, readout):
    models = [
        make(kind(sites=10, readout=readout, scheme=s)).double() for s in ("auto", "recurrent")
    ]
    models[1].load_state_dict(models[0].state_dict())
    x = torch.randn(3, 40, 3, dtype=torch.float64)
    outs = [m(x) for m in models]
    torch.testing.assert_close(*outs, rtol=1e-9, atol=1e-11)
    for out in outs:
        out.square().sum().backward()
    for (name, a), b in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-8, atol=1e-9, msg=name)


def test_the_filter_is_taken_only_where_it_is_right():
    x = torch.randn(2, 6, 3)
    assert make(ConvUnitaryConfig(sites=8)).rnn.respond(x) is not None
    assert make(ConvUnitaryConfig(sites=8, channels=2)).rnn.respond(x) is None
    assert make(ConvUnitaryConfig(sites=8, activation="fold")).rnn.respond(x) is None
    assert make(ConvOrthogonalConfig(sites=8, form="full")).rnn.respond(x) is None
    assert make(ConvUnitaryConfig(sites=8)).rnn.respond(x[:0]) is None


def test_the_filter_does_not_drift():
    """At lag 20,000 the single-precision response still equals the double-precision one."""
    model = make(ConvUnitaryConfig(sites=16)).double()
    x = torch.zeros(1, 20_000, 3, dtype=torch.float64)
    x[0, 0, 0] = 1.0
    want = model(x)[0, -50:]
    single = make(ConvUnitaryConfig(sites=16))
    single.load_state_dict(model.float().state_dict())
    double = make(ConvUnitaryConfig(sites=16)).double()
    double.load_state_dict(single.state_dict())
    want = double(x)[0, -50:]
    got = single(x.float())[0, -50:]
    assert (got - want).abs().max() < 1e-4 * want.abs().max()


@pytest.mark.parametrize("name", ["conv-unitary", "conv-orthogonal"])
def test_a_frozen_kernel_stays_and_the_rest_learns(name):
    model = make(SEQUENCE_MODELS[name](sites=8, freeze_kernel=True))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    config = TrainConfig(lr=0.1)
    optimiser = make_optimizer(model.parameters(), config, model.learning_rates())
    model(torch.randn(2, 5, 3)).square().sum().backward()
    optimiser.step()
    same = {k for k, v in model.state_dict().items() if torch.equal(v, before[k])}
    assert same == {k for k in before if k.startswith("rnn.conv.")}


def test_kernels_learn_at_their_own_rate_through_every_schedule():
    model = make(ConvUnitaryConfig(sites=8, kernel_rate=0.25))
    for kind in ("constant", "cosine", "plateau", "halving"):
        config = TrainConfig(lr=0.1, steps=4, schedule=kind)
        optimiser = make_optimizer(model.parameters(), config, model.learning_rates())
        schedule = Schedule(optimiser, 4, config)
        assert [g["lr"] for g in optimiser.param_groups] == pytest.approx([0.1, 0.025])
        assert len(optimiser.param_groups[1]["params"]) == 1
        optimiser.step()
        schedule.after_step()
        schedule.after_evaluation(1.0)
        schedule.after_evaluation(2.0)
        rates = [g["lr"] for g in optimiser.param_groups]
        assert rates[1] == pytest.approx(rates[0] / 4)


def assert_kept(certificate, layer, *laws):
    kept = {(r.layer, r.law) for r in certificate.rows if r.holds}
    assert {(layer, law) for law in laws} <= kept


@pytest.mark.parametrize("name", ["conv-unitary", "conv-orthogonal"])
def test_laws_hold_in_a_model(name):
    model = make(SEQUENCE_MODELS[name](sites=8)).eval()
    certificate = check(model, run=lambda: model(torch.randn(2, 12, 3)))
    assert_kept(certificate, "rnn", "chunks")
    assert_kept(certificate, "rnn.conv", "norm", "inverse", "spectrum", "flow", "drift")
    assert not certificate.broken


@pytest.mark.parametrize(
    "bad",
    [
        {"sites": 0},
        {"channels": 0},
        {"features": -1},
        {"kernel_rate": -1.0},
        {"kernel_rate": float("nan")},
    ],
)
def test_impossible_settings_are_refused(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        ConvUnitaryConfig(**bad)
    with pytest.raises(InputError, match="channels"):
        ConvOrthogonalConfig(channels=3)
    with pytest.raises(InputError, match="kernel_size"):
        make(ConvUnitaryConfig(taps=4))


def raster(kind=ConvUnitaryConfig, **settings):
    torch.manual_seed(0)
    places = torch.tensor([[5, 0], [1, 2], [3, 4]])
    config = kind(**{"channels": 2, "taps": 3, "readout": 7, **settings})
    return RasterModel(config, places, (2, 3), 3, 4)


def test_pixels_enter_at_their_own_sites():
    model = raster()
    x = torch.arange(18.0).view(1, 3, 6) + 1
    fields = model.fields(x)
    assert fields.shape == (1, 3, 3, 2, 3)
    assert torch.equal(fields[0, 0, :, 1, 2], torch.tensor([1.0, 2.0, 3.0]))  # site 5, first
    assert torch.equal(fields[0, 0, :, 0, 0], torch.tensor([4.0, 5.0, 6.0]))  # site 0, second
    assert torch.equal(fields[0, 2, :, 1, 0], torch.tensor([13.0, 14.0, 15.0]))  # site 3
    assert int((fields != 0).sum()) == 18


@pytest.mark.parametrize("kind", [ConvUnitaryConfig, ConvOrthogonalConfig])
@pytest.mark.parametrize("activation", ["identity", "softnorm"])
def test_a_raster_without_rotation_is_a_classifier_of_the_picture(kind, activation):
    """With the identity as kernel and activation, order does not matter; otherwise it does."""
    model = raster(kind, activation=activation, kernel_gain=0.0)
    x = torch.randn(2, 3, 6)
    assert model(x).shape == (2, 4)
    other = raster(kind, activation=activation, kernel_gain=0.0)
    other.load_state_dict(model.state_dict())
    other.places = model.places[[2, 0, 1]]
    same = torch.allclose(other(x[:, [2, 0, 1]]), model(x), atol=1e-5)
    assert same == (activation == "identity")
    with pytest.raises(InputError, match="inputs"):
        model(x[:, :2])
