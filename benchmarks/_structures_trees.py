"""Tree cases of the structures benchmark: ours beside torch-struct, supar and plain torch.

Question: how long does one training step take, that is marginals, loss = sum(w * marginals), and
its gradient with respect to the potentials? Peers are optional; those that are not installed are
left out. Before a race all contestants must agree on the gradient.

``python benchmarks/_structures_trees.py [--quick] [--out results/structures-trees.json]`` runs the
tree cases alone.
"""

import argparse
import importlib
import importlib.util
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from _harness import Contestant, Row, race, report
from lawful.structures import ProjectiveTree, SpanningTree

TRAIN = ((32, 20), (16, 40), (8, 80))
SCALING = ((1, 20), (1, 40), (1, 80), (1, 160), (1, 320))
Step = Callable[[], tuple[Tensor, Tensor]]  # gradient for arcs [head, word] and for the root


@dataclass
class Problem:
    """Random scores and loss weights of one case."""

    arcs: Tensor
    root: Tensor
    arcs_weight: Tensor
    root_weight: Tensor

    @staticmethod
    def make(batch: int, n: int, seed: int = 0) -> "Problem":
        g = torch.Generator().manual_seed(seed)
        off_diagonal = 1 - torch.eye(n)
        shape = (batch, n, n)
        return Problem(
            torch.randn(shape, generator=g).requires_grad_(),
            torch.randn(batch, n, generator=g).requires_grad_(),
            torch.randn(shape, generator=g) * off_diagonal,
            torch.randn(batch, n, generator=g),
        )


def ours(p: Problem, family: type, backend: Any = "auto") -> Step:
    def step() -> tuple[Tensor, Tensor]:
        mu = family(p.arcs, p.root, backend=backend).marginals
        loss = (mu.arcs * p.arcs_weight).sum() + (mu.root * p.root_weight).sum()
        return torch.autograd.grad(loss, (p.arcs, p.root))

    return step


def _with_root(arcs: Tensor, root: Tensor) -> Tensor:
    """Supar's layout: (B, N + 1, N + 1), [dependent, head], index 0 is the root."""
    batch, n = root.shape
    out = arcs.new_zeros(batch, n + 1, n + 1)
    out[:, 1:, 1:] = arcs.detach().mT
    out[:, 1:, 0] = root.detach()
    return out


def torch_struct_step(p: Problem, projective: bool) -> Step:
    """torch-struct's layout is (B, N, N), [head, word], with the root scores on the diagonal."""
    module = importlib.import_module("torch_struct")
    make = module.DependencyCRF if projective else module.NonProjectiveDependencyCRF
    theta = p.arcs.detach().clone()
    theta.diagonal(0, 1, 2).copy_(p.root.detach())
    theta.requires_grad_()
    weight = p.arcs_weight + torch.diag_embed(p.root_weight)

    def step() -> tuple[Tensor, Tensor]:
        mu = make(theta, multiroot=True).marginals if projective else make(theta).marginals
        (grad,) = torch.autograd.grad((mu * weight).sum(), (theta,))
        root = grad.diagonal(0, 1, 2)
        return grad - torch.diag_embed(root), root

    return step


def supar_step(p: Problem, projective: bool) -> Step:
    module = importlib.import_module("supar.structs.tree")
    make = module.DependencyCRF if projective else module.MatrixTree
    theta = _with_root(p.arcs, p.root).requires_grad_()
    weight = _with_root(p.arcs_weight, p.root_weight)
    lens = torch.full((len(theta),), theta.shape[1] - 1)

    def step() -> tuple[Tensor, Tensor]:
        mu = make(theta, lens, multiroot=True).marginals
        (grad,) = torch.autograd.grad((mu * weight).sum(), (theta,))
        return grad[:, 1:, 1:].mT, grad[:, 1:, 0]

    return step


def plain_step(p: Problem) -> Step:
    """Matrix-tree as one would write it: log det of the Laplacian and autograd twice."""

    def step() -> tuple[Tensor, Tensor]:
        w = p.arcs.exp() * (1 - torch.eye(p.arcs.shape[-1]))
        r = p.root.exp()
        value = torch.logdet(torch.diag_embed(w.sum(1) + r) - w).sum()
        mu, mr = torch.autograd.grad(value, (p.arcs, p.root), create_graph=True)
        loss = (mu * p.arcs_weight).sum() + (mr * p.root_weight).sum()
        return torch.autograd.grad(loss, (p.arcs, p.root))

    return step


def _find_peers() -> set[str]:
    found = set()
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", category=UserWarning)
    warnings.filterwarnings("ignore", category=SyntaxWarning)
    if importlib.util.find_spec("torch_struct"):
        found.add("torch-struct")
    spec = importlib.util.find_spec("supar")
    if spec and spec.submodule_search_locations:
        # Only its structures: the package as a whole imports a dozen others.
        root = Path(next(iter(spec.submodule_search_locations)))
        for name in ("supar", "supar.utils"):
            stub = types.ModuleType(name)
            stub.__path__ = [str(root.joinpath(*name.split(".")[1:]))]  # type: ignore[attr-defined]
            sys.modules[name] = stub
        try:
            importlib.import_module("supar.structs.tree")
            found.add("supar")
        except ImportError as error:
            print(f"supar is left out: {error}")
    return found


def _agree(case: str, steps: dict[str, Step], tolerance: float) -> None:
    want = steps["lawful"]()
    for name, step in steps.items():
        for mine, theirs in zip(want, step(), strict=True):
            worst = (mine - theirs).abs().max().item()
            if not worst <= tolerance:
                raise SystemExit(f"{case}: {name} differs by {worst:.2g}")


def training_cases(quick: bool = False) -> Iterator[tuple[str, list[Contestant], str]]:
    """(case, contestants, baseline); the first contestant is ours."""
    peers = _find_peers()
    for batch, n in TRAIN[: 1 if quick else None]:
        p = Problem.make(batch, n)
        steps = {"lawful": ours(p, ProjectiveTree)}
        steps["lawful (plain torch)"] = ours(p, ProjectiveTree, "reference")
        if "torch-struct" in peers:
            steps["torch-struct"] = torch_struct_step(p, True)
        if "supar" in peers:
            steps["supar"] = supar_step(p, True)
        case = f"projective {batch}x{n}"
        _agree(case, steps, 2e-4)
        baseline = "torch-struct" if "torch-struct" in steps else "lawful (plain torch)"
        yield case, [Contestant(k, v) for k, v in steps.items()], baseline
    p = Problem.make(32, 40)
    steps = {"lawful": ours(p, SpanningTree), "plain torch": plain_step(p)}
    steps["lawful (plain torch)"] = ours(p, SpanningTree, "reference")
    _agree("matrix-tree 32x40", steps, 2e-4)
    if "torch-struct" in peers:  # biased by design (adds 1e-5), single root by its layout
        steps["torch-struct"] = torch_struct_step(p, False)
    if "supar" in peers:
        steps["supar"] = supar_step(p, False)
    yield "matrix-tree 32x40", [Contestant(k, v) for k, v in steps.items()], "plain torch"


def scaling_cases() -> Iterator[tuple[str, list[Contestant], str]]:
    """Cost of the training step against the length of one sentence."""
    for batch, n in SCALING:
        p = Problem.make(batch, n)
        steps = [
            Contestant("projective", ours(p, ProjectiveTree)),
            Contestant("spanning", ours(p, SpanningTree)),
        ]
        yield f"scaling {batch}x{n}", steps, "projective"


def run(quick: bool = False, seconds: float = 3.0) -> list[Row]:
    """All tree cases."""
    rows = []
    cases = list(training_cases(quick)) + ([] if quick else list(scaling_cases()))
    for case, contestants, baseline in cases:
        rows += race(case, contestants, seconds=seconds, baseline=baseline)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(2)
    report("structures: trees", run(options.quick), options.out)
