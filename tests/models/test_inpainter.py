"""Networks that complete pictures: shapes, what they may see, and how they settle."""

import copy
import pickle

import pytest
import torch

from lawful.errors import InputError
from lawful.models import (
    EnergyInpainter,
    EnergyInpainterConfig,
    PatchSpec,
    TiedViTInpainterConfig,
    ViTInpainterConfig,
    build_inpainter,
)

SPEC = PatchSpec(3, 4, 5)
CONFIGS = {
    "energy": EnergyInpainterConfig(16, 2, head_dim=6, settle_steps=4),
    "energy-cls": EnergyInpainterConfig(16, 2, cls=True, settle_steps=4, step_rule="backtracking"),
    "energy-blocks": EnergyInpainterConfig(16, 2, cls=True, settle_steps=3, blocks=2),
    "vit": ViTInpainterConfig(16, 2),
    "tied": TiedViTInpainterConfig(16, 2, cls=True, repeats=3),
}


@pytest.fixture(params=CONFIGS)
def model(request):
    torch.manual_seed(0)
    return build_inpainter(CONFIGS[request.param], SPEC)


def example(batch=3, seed=1):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, SPEC.count, SPEC.size, generator=g)
    return x, torch.rand(batch, SPEC.count, generator=g) < 0.5


def is_energy(model):
    return isinstance(model, EnergyInpainter)


def test_what_is_hidden_is_never_read(model):
    x, hidden = example()
    plain = model(x, hidden)
    assert plain.shape == x.shape
    poisoned = x.masked_fill(hidden[..., None], float("nan"))
    assert torch.equal(model(poisoned, hidden), plain)
    model(poisoned, hidden).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    # What is visible is read.
    other = torch.where(hidden[..., None], x, x + 1)
    assert not torch.allclose(model(other, hidden)[hidden], plain[hidden])


def test_pictures_do_not_mix(model):
    x, hidden = example(4)
    model.eval()
    alone = torch.cat([model(x[i : i + 1], hidden[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(model(x, hidden), alone)


def test_places_matter(model):
    x, hidden = example(1)
    hidden[:] = True
    out = model(x, hidden)[0]
    assert (out - out[:1]).abs().amax(1)[1:].min() > 1e-3


def test_the_course_ends_where_the_call_does(model):
    model.eval()
    x, hidden = example()
    with torch.no_grad():
        course = model.course(x, hidden)
        torch.testing.assert_close(course.completed, model(x, hidden))
        steps, count = model.steps, len(model.body.blocks) if is_energy(model) else 1
        assert course.path.shape == (count * steps + 1, *x.shape)
        torch.testing.assert_close(course.path[0], model.read(model.embed(x, hidden)))
    if is_energy(model):
        energies = course.energies
        assert energies.shape == ((steps + 1, 3) if count == 1 else (count, steps + 1, 3))
        assert (energies.diff(dim=-2) < 0).all()
    else:
        assert course.energies is None


def test_more_steps(model):
    x, hidden = example()
    model.eval()
    if is_energy(model) and len(model.body.blocks) > 1:  # that many steps of each
        with torch.no_grad():
            first, second = (model.body.blocks[i] for i in (0, 1))
            tokens = model.embed(x, hidden)
            for block in (first, second):
                for _ in range(2):
                    g = block.norm(tokens)
                    tokens = tokens + block.step_size * (block.attention(g) + block.hopfield(g))
            torch.testing.assert_close(model(x, hidden, steps=2), model.read(tokens))
            torch.testing.assert_close(
                model.read(tokens), model.decoder(second.norm(tokens[:, 1:]))
            )
    elif getattr(model, "tied", True):
        with torch.no_grad():
            assert len(model.course(x, hidden, steps=9).path) == 10
            torch.testing.assert_close(
                model(x, hidden, steps=2), model.course(x, hidden, steps=9).path[2]
            )
    else:
        with pytest.raises(InputError, match="steps: expected 2, the number of layers, got 9"):
            model(x, hidden, steps=9)


def test_random_steps_are_drawn_in_training_only():
    torch.manual_seed(0)
    config = EnergyInpainterConfig(16, 2, settle_steps=4, random_steps=(2, 6))
    model = build_inpainter(config, SPEC)
    x, hidden = example()
    with torch.no_grad():
        path = model.course(x, hidden, steps=6).path
        drawn = set()
        for _ in range(40):
            out = model(x, hidden)
            near = [(p - out).abs().max() for p in path]
            drawn.add(min(range(7), key=near.__getitem__))
        assert drawn == {2, 3, 4, 5, 6}
        model.eval()
        torch.testing.assert_close(model(x, hidden), path[4])


def count(config, spec=None):
    return sum(p.numel() for p in build_inpainter(config, spec or PatchSpec(4, 4, 4)).parameters())


@pytest.mark.parametrize("width", [32, 64, 128])
def test_equal_parameters_at_half_the_width_and_three_layers(width):
    energy = count(EnergyInpainterConfig(width, 32, head_dim=width // 8))
    assert count(ViTInpainterConfig(width // 2, 4, layers=3)) == pytest.approx(energy, rel=0.03)


def test_equal_parameters_of_two_blocks_with_half_the_weights_each():
    one = count(EnergyInpainterConfig(64, 32, head_dim=8))
    two = count(EnergyInpainterConfig(64, 16, head_dim=8, memories=32, blocks=2))
    assert two == pytest.approx(one, rel=0.01)


def test_the_tied_layer_is_one_layer():
    one = count(ViTInpainterConfig(16, 2, layers=1))
    assert count(TiedViTInpainterConfig(16, 2, repeats=7)) == one
    assert count(ViTInpainterConfig(16, 2, layers=2)) > one


def test_copies_and_pickles(model):
    x, hidden = example()
    model.eval()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x, hidden), model(x, hidden))


def test_layers_start_differently():
    model = build_inpainter(ViTInpainterConfig(16, 2, layers=2), SPEC)
    assert not torch.equal(model.layers[0].linear1.weight, model.layers[1].linear1.weight)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: EnergyInpainterConfig(random_steps=(5, 2)), "random_steps"),
        (lambda: EnergyInpainterConfig(random_steps=(0, 2)), "random_steps"),
        (lambda: EnergyInpainterConfig(settle_steps=0), "settle_steps"),
        (lambda: EnergyInpainterConfig(width=0), "width"),
        (lambda: EnergyInpainterConfig(blocks=0), "blocks"),
        (lambda: ViTInpainterConfig(width=10, heads=4), "multiple of heads"),
        (lambda: ViTInpainterConfig(layers=0), "layers"),
        (lambda: TiedViTInpainterConfig(repeats=0), "repeats"),
    ],
)
def test_impossible_settings(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_wrong_inputs(model):
    x, hidden = example()
    with pytest.raises(InputError, match=r"patches: expected floats of shape \(batch, 12, 5\)"):
        model(x[:, 1:], hidden)
    with pytest.raises(InputError, match="hidden: expected booleans"):
        model(x, hidden.float())
