"""The recurrences against a plain loop of layers, and what they promise about time and memory."""

import copy

import pytest
import torch

from lawful.errors import InputError
from lawful.unitary import (
    ACTIVATIONS,
    ConvOrthogonalRNN,
    ConvUnitaryRNN,
    Fold,
    ModReLU,
    ReversalError,
    UnitaryConv,
    gradient_gain,
)
from lawful.unitary._activations import activation_of

UNITARY_CONV = [
    {"channels": 1},
    {"channels": 2},
    {"channels": 2, "mixing": False},
    {"channels": 1, "boundary": "zeros"},
]
ORTHOGONAL_CONV = [
    {"channels": 2},
    {"channels": 4},
    {"channels": 4, "mixing": False},
    {"channels": 2, "form": "symmetric"},
    {"channels": 2, "boundary": "dirichlet", "even": True},
    {"channels": 4, "boundary": "neumann", "even": True},
]
CASES = [(ConvUnitaryRNN, k) for k in UNITARY_CONV] + [
    (ConvOrthogonalRNN, k) for k in ORTHOGONAL_CONV
]


def complex_of(weight, axis, is_complex):
    return torch.complex(*weight.unbind(axis)) if is_complex else weight


def plain_loop(rnn, x, state=None, lengths=None):
    """One layer call per step on public fields; nothing shared with the fast paths."""
    is_complex = isinstance(rnn, ConvUnitaryRNN)
    size = rnn.size if rnn.input_map == "profile" else x.shape[3:]
    dtype = torch.complex128 if is_complex else torch.float64
    z = torch.zeros(len(x), rnn.channels, *size, dtype=dtype) if state is None else state
    outs = []
    for t in range(x.shape[1]):
        if rnn.input_map == "profile":
            drive = torch.tensordot(
                x[:, t].to(dtype), complex_of(rnn.input_weight, 1, is_complex), 1
            )
        elif rnn.input_map == "field":
            mix = complex_of(rnn.input_weight, 0, is_complex)
            drive = torch.einsum("oi,bi...->bo...", mix, x[:, t].to(dtype))
        else:
            drive = x[:, t]
        new = rnn.activation(rnn.conv(z) + drive)
        alive = torch.ones(len(x), dtype=torch.bool) if lengths is None else t < lengths
        z = torch.where(alive.view(-1, *[1] * (z.ndim - 1)), new, z)
        out = z
        if rnn.output_size is not None:
            profile = complex_of(rnn.output_weight, 1, is_complex)
            out = (z[:, None] * profile.conj()).real.flatten(2).sum(2) + rnn.output_bias
        outs.append(out * alive.view(-1, *[1] * (out.ndim - 1)))
    return torch.stack(outs, 1), z


def value_and_gradients(run, x, state, lengths, parameters):
    x, state = x.clone().requires_grad_(), state.clone().requires_grad_()
    out, last = run(x, state, lengths)
    g = torch.Generator().manual_seed(1)
    loss = 0
    for y in (out, last):
        loss = loss + (y * torch.randn(y.shape, dtype=y.dtype, generator=g)).real.sum()
    return out, last, *torch.autograd.grad(loss, [x, state, *parameters], allow_unused=True)


def name(value):
    return "-".join(map(str, value.values())) if isinstance(value, dict) else value.__name__


@pytest.mark.parametrize(("kind", "conv"), CASES, ids=name)
@pytest.mark.parametrize("activation", ["identity", "fold", "softnorm", "modrelu"])
@pytest.mark.parametrize("mode", ["store", "frame", "reverse"])
def test_every_mode_equals_the_plain_loop_with_its_gradients(kind, conv, activation, mode, backend):
    if mode == "frame" and activation != "identity":
        pytest.skip("the rotating frame is for linear recurrences")
    torch.manual_seed(0)
    is_complex = kind is ConvUnitaryRNN
    for size, input_map, output_size in [
        ((6,), "profile", 3),
        ((3, 4), "profile", None),
        ((5,), "field", None),
        ((4,), "direct", 2),
    ]:
        features = conv["channels"] if input_map == "direct" else 3
        act = ModReLU(0.1, dtype=torch.float64) if activation == "modrelu" else activation
        rnn = kind(
            features,
            size,
            activation=act,
            input_map=input_map,
            output_size=output_size,
            memory="reverse" if mode == "reverse" else "store",
            window=2 if mode == "reverse" else None,
            scan="frame" if mode == "frame" else "loop",
            dtype=torch.float64,
            **conv,
        )
        x = torch.randn(3, 5, features, *(() if input_map == "profile" else size)).double()
        state_dtype = torch.complex128 if is_complex else torch.float64
        state = torch.randn(3, conv["channels"], *size, dtype=state_dtype)
        for lengths in (None, torch.tensor([5, 0, 3])):
            got = value_and_gradients(rnn, x, state, lengths, list(rnn.parameters()))

            def oracle(x, state, lengths, rnn=rnn):
                return plain_loop(rnn, x, state, lengths)

            want = value_and_gradients(oracle, x, state, lengths, list(rnn.parameters()))
            for a, b in zip(got, want, strict=True):
                assert (a is None) == (b is None)
                if a is not None:
                    assert a.shape == b.shape
                    assert (a - b).abs().max() < 1e-9


@pytest.mark.parametrize("activation", ["identity", "fold"])
@pytest.mark.parametrize("memory", ["store", "reverse"])
@pytest.mark.parametrize("kind", [ConvUnitaryRNN, ConvOrthogonalRNN])
def test_carried_state_continues_the_sequence(kind, memory, activation):
    rnn = kind(3, 16, 2, activation=activation, memory=memory, output_size=4)
    x = torch.randn(2, 300, 3)
    whole, last = rnn(x)
    first, state = rnn(x[:, :123])
    second, end = rnn(x[:, 123:], state)
    assert torch.allclose(torch.cat([first, second], 1), whole, atol=1e-4)
    assert torch.allclose(end, last, atol=1e-4)
    nothing, same = rnn(x[:, :0], state)
    assert nothing.shape == (2, 0, 4)
    assert torch.equal(same, state)
    assert rnn(x[:0])[0].shape == (0, 300, 4)


def test_time_first_layout():
    rnn = ConvUnitaryRNN(3, 8, 1, output_size=2)
    other = copy.deepcopy(rnn)
    other.batch_first = False
    x = torch.randn(2, 5, 3)
    assert torch.equal(other(x.transpose(0, 1))[0].transpose(0, 1), rnn(x)[0])


@pytest.mark.parametrize("activation", ["identity", "fold"])
def test_kernel_is_exponentiated_once_whatever_the_length(monkeypatch, activation):
    built = []
    real = UnitaryConv.operator

    def counting(self, *args, **kwargs):
        built.append(1)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(UnitaryConv, "operator", counting)
    for memory in ("store", "reverse"):
        rnn = ConvUnitaryRNN(3, 8, 2, activation=activation, output_size=2, memory=memory)
        built.clear()
        rnn(torch.randn(2, 100, 3))[0].sum().backward()
        assert len(built) == 1


# --- drift ------------------------------------------------------------------------------------


def test_closed_form_keeps_norm_and_phase_over_a_million_steps():
    torch.manual_seed(0)
    rnn = ConvUnitaryRNN(1, 256, 1, gain=2.0).requires_grad_(False)
    state = torch.randn(2, 1, 256, dtype=torch.complex64)
    out = rnn.propagate(state, 10**6)
    assert abs(float(out.norm() / state.norm()) - 1) <= 1e-6
    exact = copy.deepcopy(rnn.conv).double()(state.to(torch.complex128), 1e6)
    assert float((out - exact).norm() / exact.norm()) <= 1e-6
    assert float((rnn.propagate(out, -(10**6)) - state).norm() / state.norm()) <= 1e-6
    blocks = ConvOrthogonalRNN(1, 64, 4).requires_grad_(False)
    real = torch.randn(2, 4, 64)
    assert abs(float(blocks.propagate(real, 10**6).norm() / real.norm()) - 1) <= 1e-6


def test_rotating_frame_is_as_good_after_many_steps_as_after_one():
    torch.manual_seed(0)
    rnn = ConvUnitaryRNN(2, 64, 1, output_size=None, scan="frame")
    x = torch.randn(1, 5000, 2)
    exact = copy.deepcopy(rnn).double()
    exact.scan = "loop"
    with torch.no_grad():
        want, _ = exact(x.double())
        errors = {}
        for scan in ("frame", "loop"):
            rnn.scan = scan
            out, _ = rnn(x)
            errors[scan] = float((out[:, -1] - want[:, -1]).norm() / want[:, -1].norm())
    assert errors["frame"] < 3e-6
    assert errors["loop"] > 3 * errors["frame"]


def test_nonlinear_step_drift_is_of_the_fft_only():
    torch.manual_seed(0)
    rnn = ConvUnitaryRNN(1, 256, 1, activation="fold")
    state = torch.randn(1, 1, 256, dtype=torch.complex64)
    with torch.no_grad():
        _, last = rnn(torch.zeros(1, 1000, 1), state)
    assert abs(float(last.norm() / state.norm()) - 1) < 2e-4


# --- activations ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(ACTIVATIONS) - {"modrelu"}))
def test_declared_gradient_gain_is_what_is_measured(name):
    activation = activation_of(name)
    for steps, declared in zip((10, 100), activation.gain, strict=False):
        found = gradient_gain(activation, steps)
        if activation.isometric:
            assert abs(found - 1) < 1e-10
        else:
            assert abs(found / declared - 1) < 0.05


@pytest.mark.parametrize("name", [n for n in ACTIVATIONS if ACTIVATIONS[n].invertible])
@pytest.mark.parametrize("is_complex", [True, False])
def test_invertible_activations_can_be_undone(name, is_complex):
    torch.manual_seed(0)
    activation = activation_of(name)
    if name == "modrelu":
        torch.nn.init.constant_(activation.bias, 0.3)
        activation = activation.double()
    z = torch.randn(3, 2, 7, dtype=torch.complex128 if is_complex else torch.float64)
    z[0] = 0
    y = activation(z)
    branch = activation.branch(z)
    assert torch.allclose(activation.undo(y, activation.tensors(), branch), z, atol=1e-12)
    if activation.isometric:
        assert torch.allclose(y.norm(), z.norm(), rtol=1e-14)


@pytest.mark.parametrize("name", list(ACTIVATIONS))
@pytest.mark.parametrize("is_complex", [True, False])
def test_activation_gradients_finite_at_zero_and_right_elsewhere(name, is_complex):
    torch.manual_seed(0)
    activation = activation_of(name).double()
    if name == "modrelu":
        torch.nn.init.constant_(activation.bias, 0.3)
    dtype = torch.complex128 if is_complex else torch.float64
    z = torch.randn(2, 2, 3, dtype=dtype, requires_grad=True)
    assert torch.autograd.gradcheck(activation, z)
    zero = torch.zeros(2, 2, 3, dtype=dtype, requires_grad=True)
    activation(zero).abs().sum().backward()
    assert zero.grad.isfinite().all()
    if name == "softnorm" and is_complex:
        assert torch.autograd.gradgradcheck(activation, z)


# --- reversal ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.float64, 1e-10)])
@pytest.mark.parametrize("kind", [ConvUnitaryRNN, ConvOrthogonalRNN])
def test_reversal_over_a_thousand_steps(kind, dtype, tolerance):
    torch.manual_seed(0)
    x = torch.randn(1, 1000, 3, dtype=dtype) * 0.1
    grads = []
    for memory in ("store", "reverse"):
        torch.manual_seed(1)
        rnn = kind(3, 32, 2, activation="fold", output_size=2, memory=memory, dtype=dtype)
        rnn(x)[0].square().mean().backward()
        grads.append(torch.cat([w.grad.flatten() for w in rnn.parameters()]))
    assert float((grads[0] - grads[1]).norm() / grads[0].norm()) < tolerance


def saved_bytes(rnn, x):
    held = {}

    def pack(t):
        held[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out, _ = rnn(x)
    extra = sum(b.numel() for b in getattr(out.grad_fn, "bits", []) or [])
    node = out.grad_fn
    while node is not None and not hasattr(node, "bits"):
        node = node.next_functions[0][0] if node.next_functions else None
    if node is not None:
        extra = sum(b.numel() for b in node.bits)
    return sum(held.values()) + extra


def test_reversal_memory_does_not_hold_the_states():
    rnn = ConvUnitaryRNN(1, 512, 1, activation="fold", output_size=1, memory="reverse")
    x = torch.zeros(1, 200, 1)
    reverse = saved_bytes(rnn, x)
    rnn.memory = "store"
    store = saved_bytes(rnn, x)
    assert store > 200 * 512 * 8
    assert reverse < 0.1 * store


def test_reversal_refuses_to_return_wrong_gradients():
    torch.manual_seed(0)
    rnn = ConvUnitaryRNN(
        1, 64, 1, activation="softnorm", output_size=1, memory="reverse", window=200
    )
    out, _ = rnn(torch.randn(1, 200, 1))
    with pytest.raises(ReversalError, match="window"):
        out.sum().backward()
    rnn.window = 4
    rnn(0.3 * torch.randn(1, 200, 1))[0].sum().backward()
    assert all(w.grad.isfinite().all() for w in rnn.parameters())


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: ConvUnitaryRNN(1, 8, activation="softnorm", memory="reverse"), "window"),
        (
            lambda: ConvUnitaryRNN(1, 8, activation="split_relu", memory="reverse"),
            "cannot be undone",
        ),
        (lambda: ConvUnitaryRNN(1, 8, activation="tanh"), "activation"),
        (lambda: ConvUnitaryRNN(1, 8, memory="disk"), "memory"),
        (lambda: ConvUnitaryRNN(1, 8, window=0), "window"),
        (lambda: ConvUnitaryRNN(1, 8, scan="fast"), "scan"),
        (lambda: ConvUnitaryRNN(0, 8), "input_size"),
        (lambda: ConvUnitaryRNN(1, 8, input_map="text"), "input_map"),
        (lambda: ConvUnitaryRNN(1, 8, 2, input_map="direct"), "input_size"),
        (lambda: ConvUnitaryRNN(1, 8, output_size=0), "output_size"),
        (lambda: ConvUnitaryRNN(1, 8)(torch.randn(2, 5)), r"\(B, T, 1\)"),
        (lambda: ConvUnitaryRNN(2, 8)(torch.randn(2, 5, 3)), r"\(B, T, 2\)"),
        (lambda: ConvUnitaryRNN(1, 8)(torch.randn(2, 5, 1), torch.zeros(2, 1, 7)), "state"),
        (lambda: ConvUnitaryRNN(1, 8)(torch.randn(2, 5, 1), None, torch.tensor([6, 1])), "lengths"),
        (lambda: ConvUnitaryRNN(1, 8)(torch.randn(2, 5, 1), None, torch.ones(3).long()), "lengths"),
        (lambda: ConvUnitaryRNN(1, 8)(torch.randn(2, 5, 1), None, torch.ones(2)), "lengths"),
        (lambda: ConvOrthogonalRNN(1, 8, 3, activation="fold"), "even number"),
        (lambda: ConvOrthogonalRNN(1, 8)(torch.randn(1, 2, 1, dtype=torch.cfloat)), "real"),
        (
            lambda: ConvUnitaryRNN(1, 8, activation="fold").propagate(torch.zeros(1, 1, 8), 3),
            "one by one",
        ),
        (
            lambda: ConvUnitaryRNN(1, 8, input_map="field", output_size=1)(torch.randn(1, 2, 1, 9)),
            "lattice",
        ),
    ],
)
def test_bad_input_is_refused(call, match):
    with pytest.raises(InputError, match=match):
        call()


def test_modrelu_with_negative_bias_cannot_be_undone():
    act = ModReLU(-0.1)
    rnn = ConvUnitaryRNN(1, 8, activation=act, output_size=1, memory="reverse", window=2)
    out, _ = rnn(torch.randn(1, 4, 1))
    with pytest.raises(InputError, match="b >= 0"):
        out.sum().backward()


def test_state_dict_and_copies():
    rnn = ConvOrthogonalRNN(3, (4, 4), 2, activation=Fold(), output_size=5)
    names = ["conv.weight", "conv.weight_p", "conv.weight_x", "input_weight", "output_bias"]
    assert sorted(rnn.state_dict()) == [*names, "output_weight"]
    twin = copy.deepcopy(rnn)
    x = torch.randn(2, 3, 3)
    assert torch.equal(rnn(x)[0], twin(x)[0])
    assert "input_map='profile'" in repr(rnn)


def test_autocast_leaves_the_recurrence_in_single_precision():
    rnn = ConvUnitaryRNN(3, 16, 1, output_size=2)
    x = torch.randn(2, 4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        out, _ = rnn(x)
    assert out.dtype == torch.float32
    assert torch.allclose(out, rnn(x)[0], atol=1e-6)
