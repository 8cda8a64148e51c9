import copy
import json

import pytest
import torch
from torch import nn

import lawful
from lawful.errors import InputError
from lawful.laws import Certificate, Law, Measurement, assert_lawful, declare, laws_of


def norm_deviation(call):
    y = call.run()
    return Measurement.worst((y.norm(dim=-1) - call.args[0].norm(dim=-1)).abs())


NORM = Law(
    "norm",
    "the output is as long as the input",
    "test",
    norm_deviation,
    {torch.float32: 1e-5, torch.float64: 1e-12},
)


class Rotation(nn.Module):
    """Turns pairs; ``stretch`` breaks the law of the norm."""

    laws = (NORM,)

    def __init__(self, stretch=1.0):
        super().__init__()
        self.angle = nn.Parameter(torch.tensor(0.3))
        self.register_buffer("calls", torch.zeros(()))
        self.stretch = stretch

    def forward(self, x):
        self.calls += 1
        c, s = self.angle.cos(), self.angle.sin()
        return self.stretch * torch.stack(
            (c * x[..., 0] - s * x[..., 1], s * x[..., 0] + c * x[..., 1]), -1
        )


class Model(nn.Module):
    def __init__(self, **kwargs):
        super().__init__()
        self.inside = Rotation(**kwargs)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(2, 1)

    def forward(self, x):
        return self.head(self.drop(self.inside(x)))


def rows(certificate):
    return {(r.layer, r.law): r for r in certificate}


def test_a_lawful_layer_inside_a_model_holds():
    certificate = lawful.check(Model(), torch.randn(7, 2))
    assert certificate
    assert set(rows(certificate)) == {
        ("inside", n) for n in ("norm", "deterministic", "finite", "float64")
    }
    assert rows(certificate)["inside", "norm"].cases == 7


def test_a_broken_layer_is_caught_with_a_witness():
    x = torch.randn(3, 4, 2)
    x[1, 2] *= 100
    certificate = lawful.check(Model(stretch=1.01), x)
    assert not certificate.holds
    row = rows(certificate)["inside", "norm"]
    assert row.holds is False
    assert row.witness == {"index": [1, 2]}
    assert row.deviation == pytest.approx(0.01 * float(x[1, 2].norm()), rel=1e-3)
    assert "BROKEN inside: the output is as long as the input" in str(certificate)


@pytest.mark.parametrize("kind", ["compiled", "parallel", "twice"])
def test_wrappers_are_seen_through(kind):
    model = Model(stretch=2.0)
    if kind == "compiled":
        wrapped = torch.compile(model, backend="eager")
    elif kind == "parallel":
        wrapped = nn.DataParallel(model)
    else:
        wrapped = torch.compile(nn.DataParallel(model), backend="eager")
    broken = lawful.check(wrapped, torch.randn(3, 2)).broken
    assert [(r.layer, r.law) for r in broken] == [("inside", "norm")]


def test_checking_leaves_no_trace():
    model = Model()
    model.train()
    model(torch.randn(2, 2)).sum().backward()
    before = copy.deepcopy(model.state_dict())
    grad = model.head.weight.grad
    torch.manual_seed(5)
    want = torch.rand(1)
    torch.manual_seed(5)
    lawful.check(model, torch.randn(3, 2, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(torch.rand(1), want)
    assert model.head.weight.grad is grad
    assert model.training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not model.inside._forward_pre_hooks


def test_a_layer_that_is_not_reached_has_no_case():
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = Rotation(), Rotation()

        def forward(self, x):
            return self.used(x)

    certificate = lawful.check(Idle(), torch.randn(2, 2))
    assert rows(certificate)["idle", "norm"].holds is None
    assert certificate.holds
    assert "without a case" in certificate.summary()


def test_example_inputs_serve_layers_without_a_call():
    class Example(Rotation):
        def example_inputs(self, generator):
            return (torch.randn(5, 2, generator=generator),)

    assert rows(lawful.check(Example(stretch=3.0)))["(itself)", "norm"].holds is False
    assert not lawful.check(nn.Linear(2, 2), torch.randn(1, 2)).holds  # nothing was tried


def test_nan_and_exceptions_break_a_law():
    class Nan(Rotation):
        def forward(self, x):
            return super().forward(x) * torch.nan

    broken = {r.law for r in lawful.check(Nan(), torch.randn(2, 2)).broken}
    assert {"norm", "finite"} <= broken

    def fails(call):
        raise ZeroDivisionError("by zero")

    class Failing(Rotation):
        laws = (Law("fails", "never fails", "test", fails, 0.0),)

    row = rows(lawful.check(Failing(), torch.randn(2, 2)))["(itself)", "fails"]
    assert row.holds is False
    assert row.witness == "ZeroDivisionError: by zero"


def test_randomness_that_no_seed_rules_is_caught():
    counter = iter(range(1000))

    class Drifting(Rotation):
        def forward(self, x):
            return super().forward(x) + next(counter)

    assert "deterministic" in {r.law for r in lawful.check(Drifting(), torch.randn(2, 2)).broken}


def test_lost_precision_is_caught():
    class Coarse(Rotation):
        def forward(self, x):
            y = super().forward(x)
            return y.half().float() if x.dtype == torch.float32 else y

    x = torch.randn(50, 2) * 1e-3 + 1
    assert rows(lawful.check(Rotation(), x))["(itself)", "float64"].holds
    Coarse.laws = ()
    declare(Coarse, Law("float64 strict", "tight", "test", lawful.laws.ANY_LAWS[2].measure, 1e-5))
    assert {r.law for r in lawful.check(Coarse(), x).broken} == {"float64 strict", "norm"}


def test_laws_can_be_declared_for_foreign_classes_and_replaced():
    class Foreign(nn.Linear):
        pass

    size = Law("size", "small weights", "test", lambda c: Measurement(9.0, 1), 1.0)
    declare(Foreign, size)
    declare(Foreign, size)
    assert [law.name for law in laws_of(Foreign(2, 2))] == ["size"]
    assert not laws_of(nn.Linear(2, 2))
    with pytest.raises(AssertionError, match="small weights"):
        assert_lawful(Foreign(2, 2), torch.randn(1, 2))


def test_certificates_survive_json(tmp_path):
    certificate = lawful.check(Model(stretch=float("nan")), torch.randn(3, 2))
    certificate.save(tmp_path / "certificate.json")
    json.loads((tmp_path / "certificate.json").read_text(), parse_constant=pytest.fail)
    again = Certificate.load(tmp_path / "certificate.json")
    assert again.holds == certificate.holds
    assert [r.law for r in again.broken] == [r.law for r in certificate.broken]


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(InputError, match=r"expected a torch\.nn\.Module .* got int"):
        lawful.check(3)


def test_assert_lawful_passes_quietly():
    assert_lawful(Rotation(), torch.randn(2, 2))
    assert_lawful(Rotation().double(), torch.randn(2, 2, dtype=torch.float64))
