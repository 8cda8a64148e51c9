"""Finds the layers with laws inside any model, runs the model, and measures the laws."""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lawful.errors import InputError
from lawful.laws._any import ANY_LAWS
from lawful.laws._certificate import Certificate
from lawful.laws._law import Call, Law, Row, judge

_declared: dict[type, tuple[Law, ...]] = {}


def declare(kind: type, *laws: Law) -> None:
    """Declares laws for a class that is not yours to edit; adds to what it declares itself.

    A class of your own simply has a class attribute ``laws``, a sequence of `Law`.
    """
    known = _declared.get(kind, ())
    names = {law.name for law in laws}
    _declared[kind] = (*(law for law in known if law.name not in names), *laws)


def laws_of(layer: Any) -> list[Law]:
    """The laws that a layer's class declares, itself or by `declare`, base classes included."""
    found: dict[str, Law] = {}
    for kind in reversed(type(layer).__mro__):
        own = kind.__dict__.get("laws", ())
        own = own if isinstance(own, Sequence) else ()
        for law in (*own, *_declared.get(kind, ())):
            found[law.name] = law
    return list(found.values())


def unwrap(module: Any) -> Any:
    """The user's own module inside DistributedDataParallel, torch.compile or Fabric wrappers."""
    while isinstance(module, nn.Module):
        for name in ("_orig_mod", "_forward_module", "module"):
            inner = module._modules.get(name)
            wrapped = name != "module" or type(module).__name__.endswith("DataParallel")
            if isinstance(inner, nn.Module) and wrapped:
                module = inner
                break
        else:
            return module
    return module


def check(
    module: Any,
    *inputs: Any,
    run: Callable[[], Any] | None = None,
    max_calls: int = 2,
    seed: int = 0,
    **kwargs: Any,
) -> Certificate:
    """Measures every law of every layer inside a model, on what the layers really see.

    The model is run once on the inputs, in the mode (training or evaluation) it is in; each layer
    with laws is then called again on the inputs it received. Layers that the run does not reach
    use their own ``example_inputs``, if they have them; otherwise their rows say that there was no
    case. Weights, gradients, buffers and the random generators are left as they were.

    Args:
        module: Any `nn.Module`, also wrapped by DistributedDataParallel or torch.compile, or a
            distribution of `lawful.structures`.
        inputs: Arguments for the model; none to use the layers' ``example_inputs`` only.
        run: Runs the model in place of ``module(*inputs, **kwargs)``, for models that are called
            in a way of their own.
        max_calls: Calls of each layer that are measured (a layer may run many times).
        seed: Seed for the laws that draw cases.
        kwargs: Keyword arguments for the model.

    Returns:
        A `Certificate`; a law measured on several calls has one row, that of the worst.

    Raises:
        InputError: ``module`` is neither a module nor an object with laws.
    """
    module = unwrap(module)
    if not isinstance(module, nn.Module):
        if not laws_of(module):
            raise InputError(
                f"module: expected a torch.nn.Module or an object with laws, "
                f"got {type(module).__name__}"
            )
        return Certificate(_measure("(itself)", [_call(module, (), {}, seed)], laws_of(module)))
    layers = {name or "(itself)": m for name, m in module.named_modules() if laws_of(m)}
    with _untouched(module):
        calls = _capture(layers, run or _runner(module, inputs, kwargs), max_calls, seed)
        rows: list[Row] = []
        for name, layer in layers.items():
            rows += _measure(name, calls[name], [*laws_of(layer), *ANY_LAWS])
    return Certificate(rows)


def _runner(
    module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[], Any] | None:
    return (lambda: module(*inputs, **kwargs)) if inputs or kwargs else None


def _capture(
    layers: dict[str, nn.Module],
    run: Callable[[], Any] | None,
    max_calls: int,
    seed: int,
) -> dict[str, list[Call]]:
    calls: dict[str, list[Call]] = {name: [] for name in layers}

    def hook_for(name: str) -> Callable[..., None]:
        def hook(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if len(calls[name]) < max_calls:
                calls[name].append(_call(layer, args, kwargs, seed))

        return hook

    handles = [
        layer.register_forward_pre_hook(hook_for(name), with_kwargs=True)
        for name, layer in layers.items()
    ]
    try:
        if run is not None:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                run()
    finally:
        for handle in handles:
            handle.remove()
    for name, layer in layers.items():
        examples: Any = getattr(layer, "example_inputs", None)
        if not calls[name] and examples is not None:
            args = tuple(examples(generator=torch.Generator().manual_seed(seed)))
            calls[name].append(_call(layer, args, {}, seed))
    return calls


def _call(layer: Any, args: Any, kwargs: Any, seed: int) -> Call:
    return Call(layer, _detached(args), _detached(kwargs), torch.Generator().manual_seed(seed))


def _detached(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, dict):
        return {k: _detached(v) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_detached(v) for v in value))
    if isinstance(value, list | tuple):
        return type(value)(_detached(v) for v in value)
    if hasattr(value, "detach"):
        return value.detach()
    return value


def _measure(name: str, calls: list[Call], laws: list[Law]) -> list[Row]:
    rows = []
    for law in laws:
        with torch.random.fork_rng(devices=[]):
            tried = [judge(law, name, _fresh(call)) for call in calls if law.applies(call)]
        if not calls:
            none = float("nan")
            rows.append(Row(law.name, name, none, none, None, 0, None, law.statement, law.source))
        elif tried:
            rows.append(_worst(tried))
    return rows


def _fresh(call: Call) -> Call:
    """The call with an unused generator, so that a law's cases do not depend on other laws."""
    generator = torch.Generator().manual_seed(call.generator.initial_seed())
    return dataclasses.replace(call, generator=generator)


def _worst(rows: list[Row]) -> Row:
    def badness(row: Row) -> float:
        if row.holds is None:
            return -1.0
        excess = row.deviation / row.tolerance if row.tolerance > 0 else row.deviation
        return float("inf") if excess != excess else excess

    return max(rows, key=badness)


@contextmanager
def _untouched(module: nn.Module) -> Iterator[None]:
    """Puts gradients, buffers and training flags back after the block."""
    grads = {p: p.grad for p in module.parameters()}
    buffers = {b: copy.deepcopy(b.detach()) for b in module.buffers()}
    modes = {m: m.training for m in module.modules()}
    for parameter in grads:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, grad in grads.items():
            parameter.grad = grad
        with torch.no_grad():
            for buffer, value in buffers.items():
                buffer.copy_(value)
        for inner, training in modes.items():
            inner.training = training
