"""Chain cases of the structures benchmark: ours beside torch-struct, pytorch-crf, synjax and torch.

Question: how long does one training step take, that is marginals, loss = sum(w * marginals), and
its gradient with respect to scores and transitions? Peers are optional; those not installed are
left out. Before a race all contestants must agree on the gradients. torch-struct and synjax take a
tensor of edges, whose making is not counted; synjax is compiled, with its type checker off.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from _harness import Contestant, Row, race
from lawful.structures import LinearChain

TRAIN = ((32, 50, 2), (32, 200, 20), (8, 1000, 50), (64, 3, 50))
MEASURED = ("lawful", "torch forward-backward", "torch-struct")  # whose memory is measured
SCALING = (1_000, 10_000, 100_000)
Step = Callable[[], tuple[Any, ...]]  # gradients of scores (B, N, C) and transitions (C, C)


@dataclass
class Problem:
    """Random scores and loss weights of one case."""

    unary: Tensor
    transition: Tensor
    weight: Tensor

    @staticmethod
    def make(batch: int, steps: int, states: int, seed: int = 0) -> "Problem":
        g = torch.Generator().manual_seed(seed)
        return Problem(
            torch.randn(batch, steps, states, generator=g).requires_grad_(),
            torch.randn(states, states, generator=g).requires_grad_(),
            torch.randn(batch, steps, states, generator=g),
        )

    def edges(self) -> Tensor:
        """(B, N-1, C, C), [from, to], as peers that know no unary scores want it."""
        u, t = self.unary.detach(), self.transition.detach()
        edges = t + u[:, 1:, None, :]
        edges[:, 0] += u[:, 0, :, None]
        return edges

    def edge_weights(self) -> Tensor:
        edges = torch.zeros_like(self.edges()) + self.weight[:, 1:, None, :]
        edges[:, 0] += self.weight[:, 0, :, None]
        return edges

    @staticmethod
    def from_edges(grad: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients that belong to a gradient of edges."""
        unary = torch.cat([grad[:, :1].sum(-1), grad.sum(-2)], 1)
        return unary, grad.sum((0, 1))


def ours(p: Problem, backend: Any = "auto") -> Step:
    def step() -> tuple[Tensor, ...]:
        mu = LinearChain(p.unary, p.transition, backend=backend).marginals
        return torch.autograd.grad((mu.unary * p.weight).sum(), (p.unary, p.transition))

    return step


def plain(p: Problem) -> Step:
    """A log-space loop, marginals by autograd, their gradient by autograd again."""

    def step() -> tuple[Tensor, ...]:
        alpha = p.unary[:, 0]
        for t in range(1, p.unary.shape[1]):
            alpha = (alpha[:, :, None] + p.transition).logsumexp(1) + p.unary[:, t]
        total = alpha.logsumexp(1).sum()
        (mu,) = torch.autograd.grad(total, p.unary, create_graph=True)
        return torch.autograd.grad((mu * p.weight).sum(), (p.unary, p.transition))

    return step


def plain_forward_backward(p: Problem) -> Step:
    """Both recursions written out in log space, one backward through them."""

    def step() -> tuple[Tensor, ...]:
        N = p.unary.shape[1]
        alpha, beta = [p.unary[:, 0]], [torch.zeros_like(p.unary[:, 0])]
        for t in range(1, N):
            alpha.append((alpha[-1][:, :, None] + p.transition).logsumexp(1) + p.unary[:, t])
        for t in range(N - 1, 0, -1):
            onward = (beta[-1] + p.unary[:, t])[:, None, :] + p.transition
            beta.append(onward.logsumexp(2))
        mu = (torch.stack(alpha, 1) + torch.stack(beta[::-1], 1)).softmax(-1)
        return torch.autograd.grad((mu * p.weight).sum(), (p.unary, p.transition))

    return step


def torch_struct_step(p: Problem) -> Step:
    import torch_struct

    edges = p.edges().mT.contiguous().requires_grad_()
    weights = p.edge_weights().mT.contiguous()

    def step() -> tuple[Tensor, ...]:
        mu = torch_struct.LinearChainCRF(edges).marginals
        (grad,) = torch.autograd.grad((mu * weights).sum(), edges)
        return (grad,)

    return step


def pytorch_crf_step(p: Problem) -> Step:
    """It has no marginals: those are the gradient of its (private) normaliser."""
    import torchcrf

    crf = torchcrf.CRF(p.unary.shape[-1])
    with torch.no_grad():
        crf.start_transitions.zero_()
        crf.end_transitions.zero_()
        crf.transitions.copy_(p.transition)
    emissions = p.unary.detach().transpose(0, 1).contiguous().requires_grad_()
    mask = torch.ones(emissions.shape[:2], dtype=torch.bool)
    weight = p.weight.transpose(0, 1).contiguous()

    def step() -> tuple[Tensor, ...]:
        total = crf._compute_normalizer(emissions, mask).sum()
        (mu,) = torch.autograd.grad(total, emissions, create_graph=True)
        unary, pair = torch.autograd.grad((mu * weight).sum(), (emissions, crf.transitions))
        return unary.transpose(0, 1), pair

    return step


def synjax_step(p: Problem) -> Step:
    os.environ.setdefault("JAXTYPING_DISABLE", "1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    import synjax

    # Step 0 holds the scores of the first state, in row 0.
    first = torch.full((p.unary.shape[0], 1, *p.transition.shape), -1e9)
    first[:, 0, 0] = p.unary.detach()[:, 0]
    onward = p.transition.detach() + p.unary.detach()[:, 1:, None, :]
    edges = jax.numpy.asarray(torch.cat([first, onward], 1).numpy())
    weights = torch.zeros_like(torch.cat([first, onward], 1)) + p.weight[:, :, None, :]
    weights = jax.numpy.asarray(weights.numpy())

    def loss(x: Any) -> Any:
        return (synjax.LinearChainCRF(x).marginals() * weights).sum()

    run = jax.jit(jax.grad(loss))

    def step() -> tuple[Any, ...]:
        return (run(edges).block_until_ready(),)

    return step


def _gradients(p: Problem, name: str, out: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """A contestant's answer in our layout."""
    if name == "torch-struct":
        return Problem.from_edges(out[0].mT)
    if name == "synjax (compiled)":
        import numpy

        grad = torch.from_numpy(numpy.array(out[0]))
        return grad.sum(-2), grad[:, 1:].sum((0, 1))
    return out[0], out[1]


def contestants(p: Problem, quick: bool) -> dict[str, Callable[[Problem], Step]]:
    """Everyone who can run this case; torch-struct, O(N C^3) memory, is spared the largest."""
    makers: dict[str, Callable[[Problem], Step]] = {
        "lawful": ours,
        "lawful (plain torch)": lambda p: ours(p, "reference"),
        "torch log-space loop": plain,
        "torch forward-backward": plain_forward_backward,
    }
    small = p.unary.numel() * p.unary.shape[-1] ** 2 < 1e9
    if importlib.util.find_spec("torch_struct") and small:
        makers["torch-struct"] = torch_struct_step
    if importlib.util.find_spec("torchcrf"):
        makers["pytorch-crf"] = pytorch_crf_step
    if importlib.util.find_spec("synjax") and not quick:
        makers["synjax (compiled)"] = synjax_step
    return makers


def _agree(case: str, p: Problem, steps: dict[str, Step]) -> dict[str, float]:
    """Largest deviation of each contestant's gradients from float64's; stops on nonsense."""
    exact = Problem(*(x.detach().double() for x in (p.unary, p.transition, p.weight)))
    exact.unary.requires_grad_()
    exact.transition.requires_grad_()
    want = ours(exact, "reference")()
    errors = {}
    for name, step in steps.items():
        got = _gradients(p, name, step())
        deviations = [
            float((g.double() - w).abs().max() / w.abs().max().clamp(min=1))
            for g, w in zip(got, want, strict=True)
        ]
        errors[name] = max(deviations)
        if not errors[name] < 2e-2:
            raise SystemExit(f"{case}: {name} disagrees by {errors[name]:.1e}")
    return errors


def peak_memory(shape: tuple[int, int, int], name: str) -> float:
    """Peak resident MB above idle of one training step, in a process of its own."""
    command = [sys.executable, str(Path(__file__)), *map(str, shape), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout.split()[-1]) if done.returncode == 0 else float("nan")


def _report_memory(shape: tuple[int, int, int], name: str) -> None:
    def field(key: str) -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(float(x.split()[1]) / 1024 for x in lines if x.startswith(key))

    tiny, p = Problem.make(1, 3, 2), Problem.make(*shape)
    make = contestants(tiny, False)[name]
    make(tiny)()  # what is loaded and allocated once does not count
    step = make(p)
    Path("/proc/self/clear_refs").write_text("5")
    before = field("VmRSS")
    step()
    print(round(field("VmHWM") - before, 1))


def run(quick: bool = False, seconds: float = 3.0) -> list[Row]:
    """All races; ratios are against torch-struct where it takes part, else the plain loop."""
    rows = []
    for shape in TRAIN:
        p = Problem.make(*shape)
        case = "chain {}x{}x{}".format(*shape)
        steps = {name: make(p) for name, make in contestants(p, quick).items()}
        errors = _agree(case, p, steps)
        baseline = "torch-struct" if "torch-struct" in steps else "torch forward-backward"
        entries = [Contestant(name, step) for name, step in steps.items()]
        found = race(case, entries, seconds=seconds, baseline=baseline, min_runs=3)
        for row in found:
            row.extra["error"] = f"{errors[row.name]:.0e}"
            if row.name in MEASURED and not quick and sys.platform == "linux":
                row.extra["peak_mb"] = peak_memory(shape, row.name)
            print(f"{case}: {row.name} {row.median_ms:.3f} ms, min {row.min_ms:.3f}", flush=True)
        rows += found
    return rows + scaling(quick, seconds)


def scaling(quick: bool, seconds: float) -> list[Row]:
    """One sequence per length, 20 states: milliseconds must grow as the length does."""
    rows = []
    for n in SCALING[:2] if quick else SCALING:
        step = ours(Problem.make(2, n, 20))
        (row,) = race(f"chain 2x{n}x20", [Contestant("lawful", step)], seconds=seconds, min_runs=3)
        row.extra["us_per_step"] = round(1e3 * row.min_ms / n, 3)
        rows.append(row)
    return rows


if __name__ == "__main__":
    _report_memory((int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])), sys.argv[4])
