"""The published weights load by name, with their quirks as choices."""

import numpy as np
import pytest
import torch
from tests.reference import energy as oracle

from lawful.energy import load_published
from lawful.errors import InputError

D, H, Y, M, N, P = 6, 2, 3, 8, 4, 5


def arrays():
    rng = np.random.default_rng(0)
    shapes = {
        "Wq": (H, Y, D), "Wk": (H, Y, D), "Xi": (D, M), "LNORM_gamma": (), "LNORM_bias": (D,),
        "Wenc": (P, D), "Benc": (D,), "Wdec": (D, P), "Bdec": (P,), "CLS_token": (1, D),
        "MASK_token": (1, D), "POS_embed": (1, N + 1, D),
    }  # fmt: skip
    return {k: rng.normal(size=s) for k, s in shapes.items()}


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("self_attention", [True, False])
def test_pipeline_step_by_step(self_attention, double, tmp_path):
    a = arrays()
    np.savez(tmp_path / "w.npz", **a)
    model = load_published(tmp_path / "w.npz", self_attention=self_attention, steps=2)
    t = {k: torch.tensor(v) for k, v in a.items()}
    patches = torch.randn(N, P)
    masked = torch.tensor([False, True, False, True])
    x = patches @ t["Wenc"] + t["Benc"]
    x[masked] = t["MASK_token"]
    x = torch.cat([t["CLS_token"], x]) + t["POS_embed"][0]
    beta = torch.full((H,), Y**-0.5)
    for _ in range(2):
        g = oracle.layer_norm(x, t["LNORM_gamma"], t["LNORM_bias"], 1e-5).requires_grad_()
        e = oracle.attention_energy(g, t["Wq"], t["Wk"], beta, self_attention=self_attention)
        e = e + oracle.memory_energy(g, t["Xi"].T, lambda h: 0.5 * h.relu().square().sum())
        x = x - 0.1 * torch.autograd.grad(e, g)[0]
    g = oracle.layer_norm(x[1:], t["LNORM_gamma"], t["LNORM_bias"], 1e-5)
    want = g @ t["Wdec"] + t["Bdec"]
    torch.testing.assert_close(model(patches, masked), want)
    torch.testing.assert_close(model(patches[None], masked[None])[0], want)


def test_defaults_are_those_the_weights_were_trained_with():
    model = load_published(arrays())
    assert model.block.attention.self_attention
    assert model.block.steps == 12
    assert model.block.step_size == 0.1
    # Patch 0 is shown and must not be overwritten.
    patches, masked = torch.randn(N, P), torch.tensor([False, True, False, False])
    tokens = model.tokens(patches, masked)
    torch.testing.assert_close(tokens[1], model.encoder(patches[0]) + model.positions[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Wq": None}, "none for \\['Wq'\\]"),
        ({"Wk": np.zeros((H, Y, D + 1))}, "Wq, Wk: expected one shape"),
        ({"Xi": np.zeros((M, D))}, "Xi: expected shape \\(6, M\\)"),
        ({"Benc": np.zeros(D + 1)}, "Benc: expected 6 values"),
        ({"CLS_token": np.zeros(D + 1)}, "CLS_token"),
    ],
)
def test_wrong_arrays_are_refused(change, message):
    a = {k: v for k, v in {**arrays(), **change}.items() if v is not None}
    with pytest.raises(InputError, match=message):
        load_published(a)


def test_wrong_inputs_are_refused():
    model = load_published(arrays())
    with pytest.raises(InputError, match="patches: expected"):
        model(torch.zeros(N + 1, P), torch.zeros(N + 1).bool())
    with pytest.raises(InputError, match="masked: expected bool"):
        model(torch.zeros(N, P), torch.zeros(N))
