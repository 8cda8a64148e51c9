"""What the layers of the Energy Transformer promise, declared beside them."""

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lawful.energy._norm import EnergyLayerNorm
from lawful.energy._terms import EnergyTerm
from lawful.energy._transformer import EnergyTransformer
from lawful.laws import Call, Law, Measurement, declare

_PAPER = "Hoover et al. 2023"
_ROWS = 8  # tokens whose Jacobian is built in full
_DTYPES = {torch.float64: 1e-9, torch.float32: 2e-5, torch.bfloat16: 0.05, torch.float16: 5e-3}


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def _exact(call: Call) -> tuple[Any, list[Any], dict[str, Any]]:
    """The layer and its arguments in float64; the layer is a copy."""
    layer = copy.deepcopy(call.layer).double()
    return layer, [_double(a) for a in call.args], {k: _double(v) for k, v in call.kwargs.items()}


def _relative(got: Tensor, want: Tensor) -> Tensor:
    """Deviation of each entry against the largest of what is expected."""
    scale = want.abs().amax().clamp_min(1e-12) if want.numel() else 1.0
    return (got.double() - want).abs() / scale


def _update(call: Call) -> Measurement:
    """An energy term's update against minus the gradient of its energy, by autograd in float64."""
    layer, (g, *rest), kwargs = _exact(call)
    with torch.enable_grad():
        g = g.clone().requires_grad_()
        (slope,) = torch.autograd.grad(layer.energy(g, *rest, **kwargs).sum(), g)
    with torch.no_grad():
        return Measurement.worst(_relative(call.run(), -slope))


def _scene(call: Call) -> tuple[Any, Tensor, dict[str, Any]]:
    """Transformer, tokens, and the mask and adjacency of the call."""
    named = {**dict(zip(("tokens", "mask", "adjacency"), call.args, strict=False)), **call.kwargs}
    return call.layer, named["tokens"], {k: named.get(k) for k in ("mask", "adjacency")}


def _step(call: Call) -> Measurement:
    """The first step of each sample against the direction -dE/dg at g = LN(x), in float64.

    The length of the step is the least-squares fit, so the law holds for every step rule; a step
    of length 0 (a guaranteed rule that found no descent) fits any direction.
    """
    layer, tokens, where = _scene(call)
    exact = copy.deepcopy(layer).double()
    places = {k: _double(v) for k, v in where.items() if v is not None}
    block = exact._blocks()[0]
    with torch.enable_grad():
        g = block.norm(tokens.detach().double()).detach().requires_grad_()
        total = block.attention.energy(g, **places)
        total = total + block.hopfield.energy(g, places.get("mask"))
        for term in block.terms:
            total = total + term.energy(g, places.get("mask"))
        (slope,) = torch.autograd.grad(total.sum(), g)
    with torch.no_grad():
        path = layer.settle(tokens, **where, trajectory=True, steps=1, langevin=False).trajectory
    path = path if path.dim() == tokens.dim() + 1 else path[0]
    moved = (path[1].double() - path[0].double()).flatten(-2)
    along = -slope.flatten(-2)
    length = (moved * along).sum(-1, True) / along.square().sum(-1, True).clamp_min(1e-30)
    gap = (moved - length.clamp_min(0.0) * along).norm(dim=-1)
    # What a step adds is rounded to the precision of the state it is added to.
    noise = torch.finfo(tokens.dtype).eps * path[0].double().flatten(-2).norm(dim=-1)
    return Measurement.worst((gap - noise).clamp_min(0) / moved.norm(dim=-1).clamp_min(1e-30))


def _descent(call: Call) -> Measurement:
    """The largest rise of E in a step, relative to the largest |E| of the sample."""
    layer, tokens, where = _scene(call)
    with torch.no_grad():
        energies = layer.settle(tokens, **where, langevin=False).energies.double()
    return _descent_of(energies, -1 - (tokens.dim() - 2))


def _descent_of(energies: Tensor, steps: int) -> Measurement:
    """The same of the energies themselves; ``steps`` is the axis of the steps."""
    rises = energies.diff(dim=steps).clamp_min(0.0)
    size = energies.abs().amax() if energies.numel() else torch.ones(())
    return Measurement.worst(rises / size.clamp_min(1.0))


def _is_exact(call: Call) -> bool:
    """A causal layer lets each token descend its own term; there is no common energy."""
    attention = getattr(call.layer, "attention", call.layer)
    return not getattr(attention, "causal", False)


def _permutation(call: Call) -> Measurement:
    layer, tokens, where = _scene(call)
    order = torch.randperm(tokens.shape[-2], generator=call.generator)
    turned = {k: v for k, v in where.items() if v is not None}
    if "mask" in turned:
        turned["mask"] = turned["mask"][..., order]
    if "adjacency" in turned:
        turned["adjacency"] = turned["adjacency"][..., order, :][..., order]
    with torch.no_grad():
        plain = layer.settle(tokens, **where, langevin=False, energies=False).tokens
        other = layer.settle(tokens[..., order, :], **turned, langevin=False, energies=False).tokens
    return Measurement.worst(_relative(other, plain[..., order, :].double()))


def _padding(call: Call) -> Measurement:
    layer, tokens, where = _scene(call)
    mask = where.get("mask")
    if mask is None or bool(mask.all()):
        return Measurement(0.0, 0)
    real = mask.expand(tokens.shape[:-1])[..., None]
    noise = torch.randn(tokens.shape, generator=call.generator).to(tokens) * 10
    with torch.no_grad():
        outs = [
            layer.settle(x, **where, langevin=False, energies=False).tokens
            for x in (tokens, torch.where(real, tokens, noise))
        ]
    gap = torch.where(real, (outs[0] - outs[1]).abs(), 0.0)
    return replace(Measurement.worst(gap), cases=int((~mask).sum()))


def _jacobians(call: Call) -> Tensor:
    """Jacobians (rows, D, D) of the layer norm at the first tokens, in float64."""
    layer, (x, *_), _ = _exact(call)
    rows = x.reshape(-1, x.shape[-1])[:_ROWS]
    with torch.enable_grad():
        found: Tensor = torch.func.vmap(torch.func.jacrev(lambda x: layer(x[None])[0]))(rows)
    return found


def _symmetric(call: Call) -> Measurement:
    found = _jacobians(call)
    return Measurement.worst(_relative(found, found.mT))


def _positive(call: Call) -> Measurement:
    found = _jacobians(call)
    values = torch.linalg.eigvalsh((found + found.mT) / 2)
    return Measurement.worst((-values / values.abs().amax().clamp_min(1e-12)).clamp_min(0.0))


declare(
    EnergyTerm,
    Law(
        "update",
        "the update is minus the gradient of the energy (autograd in float64)",
        f"{_PAPER}, equations 3 to 6",
        _update,
        _DTYPES,
        applies=_is_exact,
    ),
)
declare(
    EnergyLayerNorm,
    Law(
        "symmetric",
        "the Jacobian of the layer norm is symmetric, so it is the gradient of a Lagrangian",
        f"{_PAPER}, equations 1 and 2",
        _symmetric,
        1e-10,
    ),
    Law(
        "positive",
        "the Jacobian of the layer norm is positive semi-definite",
        f"{_PAPER}, appendix on the Lagrangian",
        _positive,
        1e-10,
    ),
)
TRANSFORMER_LAWS = (
    Law(
        "step",
        "a step goes along minus the gradient of the energy (autograd in float64)",
        f"{_PAPER}, equation 6",
        _step,
        {torch.float64: 1e-8, torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.05},
        applies=_is_exact,
    ),
    Law(
        "descent",
        "the energy never rises from step to step",
        f"{_PAPER}, section 2; proven for the rules certified and backtracking",
        _descent,
        {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 0.02, torch.float16: 2e-3},
        applies=_is_exact,
    ),
    Law(
        "permutation",
        "permuted tokens give the permuted result",
        "design",
        _permutation,
        {torch.float64: 1e-10, torch.float32: 2e-4, torch.bfloat16: 0.1, torch.float16: 0.02},
        applies=_is_exact,
    ),
    Law("padding", "padding changes no bit of the real tokens", "design", _padding, 0.0),
)
declare(EnergyTransformer, *TRANSFORMER_LAWS)
