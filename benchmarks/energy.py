"""The Energy Transformer against a plain port, encoder layers, and the machine's matmul rate.

Run:  python benchmarks/energy.py [--size small|large|all] [--threads N] [--out FILE.json]

Peers: a port that differentiates the energy inside the forward pass (what public PyTorch ports do),
T layers of torch.nn.TransformerEncoder of the same sizes, and, when jax is installed, the energy's
jitted gradient in a scan. Results are compared for equality first. The limit is the time that
torch's own matmuls of the step's shapes take, measured in the same run. On a machine that others
use, read the columns by processor time, and run with one thread: threads that wait spin.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from _harness import Contestant, race, report
from lawful.energy import EnergyTransformer
from lawful.kernels import native_status


def matmul_rate(batch: int, m: int, k: int, n: int, repeats: int = 9) -> float:
    """Float32 GFLOP for each second of processor time and thread: the best of some runs."""
    a, b, times = torch.randn(batch, m, k), torch.randn(batch, k, n), []
    out = torch.empty(batch, m, n)
    for _ in range(repeats):
        start = time.process_time()
        torch.bmm(a, b, out=out)
        times.append(time.process_time() - start)
    return 2 * batch * m * k * n / min(times[1:]) / 1e9 * torch.get_num_threads()


@dataclass(frozen=True)
class Size:
    """One configuration."""

    name: str
    batch: int
    tokens: int
    dim: int
    heads: int
    width: int
    memories: int
    steps: int = 12

    @property
    def flops(self) -> float:
        """Of one forward pass, in GFLOP: matmuls only."""
        n, span = self.tokens, self.heads * self.width
        one = 8 * n * self.dim * span + 6 * n * n * span + 4 * n * self.dim * self.memories
        return self.steps * self.batch * one / 1e9

    def limit_ms(self) -> tuple[float, dict[str, float]]:
        """Time of the forward pass's matmuls alone, and the rates measured for their shapes."""
        rows, stack = self.batch * self.tokens, 2 * self.heads * self.width + self.memories
        pairs, n, y = self.batch * self.heads, self.tokens, self.width
        shapes = [(1, rows, self.dim, stack), (1, rows, stack, self.dim)]
        shapes += [(pairs, n, y, n), (pairs, n, n, y), (pairs, n, n, y)]
        total, rates = 0.0, {}
        for b, m, k, width in shapes:
            rate = matmul_rate(b, m, k, width)
            rates[f"{b}x{m}x{k}x{width}"] = round(rate, 1)
            total += 2 * b * m * k * width / rate / 1e6
        return total * self.steps, rates


SIZES = {
    "small": Size("small", 32, 64, 128, 4, 32, 512),
    "large": Size("large", 4, 196, 768, 12, 64, 3072),
    "tiny": Size("tiny", 2, 16, 32, 2, 8, 64, 3),
}


class PlainPort(nn.Module):
    """The energy, differentiated inside the forward pass."""

    def __init__(self, ours: EnergyTransformer) -> None:
        super().__init__()
        self.norm, self.steps, self.alpha = ours.norm, ours.steps, ours.step_size
        self.query, self.key = ours.attention.query, ours.attention.key
        self.memories, self.beta = ours.hopfield.memories, ours.attention.beta

    def energy(self, g: Tensor) -> Tensor:
        """One number for the batch."""
        q = torch.einsum("hyd,bnd->bhny", self.query, g)
        k = torch.einsum("hyd,bnd->bhny", self.key, g)
        s = torch.einsum("bhcy,bhky->bhck", q, k) * self.beta[:, None, None]
        s = s.masked_fill(torch.eye(g.shape[1], dtype=torch.bool), float("-inf"))
        attention = -(s.logsumexp(-1) / self.beta[:, None]).sum()
        return attention - 0.5 * (g @ self.memories.T).relu().square().sum()

    def forward(self, x: Tensor) -> Tensor:
        """T steps."""
        with torch.enable_grad():
            for _ in range(self.steps):
                g = self.norm(x)
                g = g if g.requires_grad else g.requires_grad_()
                (slope,) = torch.autograd.grad(self.energy(g), g, create_graph=self.training)
                x = x - self.alpha * slope
        return x


def build(size: Size, **options: Any) -> EnergyTransformer:
    """The module of this size, with the same weights each time."""
    torch.manual_seed(0)
    sizes = (size.dim, size.heads, size.width, size.memories, size.steps)
    return EnergyTransformer(*sizes, **options)


def encoder(size: Size) -> nn.Module:
    """T encoder layers of the same width, heads and inner width."""
    layer = nn.TransformerEncoderLayer(
        size.dim, size.heads, size.memories, dropout=0.0, batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, size.steps, enable_nested_tensor=False)


def makers(size: Size) -> dict[str, Callable[[], nn.Module]]:
    """How to build every torch contestant."""
    return {
        "lawful": lambda: build(size),
        "lawful, recompute": lambda: build(size, recompute=True),
        "plain port": lambda: PlainPort(build(size)),
        f"{size.steps} encoder layers": lambda: encoder(size),
    }


def models(size: Size) -> dict[str, nn.Module]:
    """Every torch contestant."""
    return {name: make() for name, make in makers(size).items()}


def forward(model: nn.Module, x: Tensor) -> Callable[[], Any]:
    """A forward pass without gradients."""

    def run() -> None:
        model.eval()
        with torch.no_grad():
            model(x)

    return run


def training(model: nn.Module, x: Tensor) -> Callable[[], Any]:
    """A forward and a backward pass, to the input and every parameter."""

    def run() -> None:
        model.train()
        model.zero_grad()
        model(x.clone().requires_grad_()).square().mean().backward()

    return run


def jax_contestants(ours: EnergyTransformer, x: Tensor) -> tuple[Contestant, Contestant] | None:
    """The same descent and loss in jax, jitted; None without jax."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return None
    names = ("query", "key")
    w = {n: jnp.asarray(getattr(ours.attention, n).detach().numpy()) for n in names}
    w["memories"] = jnp.asarray(ours.hopfield.memories.detach().numpy())
    w["gamma"], w["delta"] = jnp.ones(()), jnp.zeros(ours.dim)
    beta, off = float(ours.attention.beta[0]), jnp.where(jnp.eye(x.shape[1]) > 0, -jnp.inf, 0.0)

    def norm(w: Any, x: Any) -> Any:
        c = x - x.mean(-1, keepdims=True)
        return w["gamma"] * c / jnp.sqrt((c * c).mean(-1, keepdims=True) + 1e-5) + w["delta"]

    def energy(g: Any, w: Any) -> Any:
        q = jnp.einsum("hyd,bnd->bhny", w["query"], g)
        k = jnp.einsum("hyd,bnd->bhny", w["key"], g)
        s = beta * jnp.einsum("bhcy,bhky->bhck", q, k) + off
        h = jax.nn.relu(g @ w["memories"].T)
        return -jax.nn.logsumexp(s, axis=-1).sum() / beta - 0.5 * (h * h).sum()

    def descend(w: Any, x: Any) -> Any:
        step = lambda x, _: (x - ours.step_size * jax.grad(energy)(norm(w, x), w), None)  # noqa: E731
        return jax.lax.scan(step, x, None, length=ours.steps)[0]

    start = jnp.asarray(x.numpy())
    run = jax.jit(descend)
    train = jax.jit(jax.grad(lambda w, x: (descend(w, x) ** 2).mean(), argnums=(0, 1)))
    with torch.no_grad():
        gap = abs(torch.tensor(run(w, start).tolist()) - ours(x)).max().item()
    if gap > 1e-2:
        raise SystemExit(f"jax differs by {gap}")
    return (
        Contestant("jax, jit + scan", lambda: run(w, start).block_until_ready()),
        Contestant("jax, jit + scan", lambda: jax.block_until_ready(train(w, start))),
    )


def peak_memory(size: Size, name: str) -> float:
    """MB that one forward and backward pass needs beyond model, input and gradients."""
    command = [sys.executable, __file__, "--measure-memory", name, "--size", size.name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def peak() -> float:
    """Largest resident size of this process so far, in MB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(x for x in lines if x.startswith("VmHWM")).split()[1]) / 1024


def measure_memory(size: Size, name: str) -> None:
    """Prints the growth of the peak resident size; run in a process of its own."""
    model, x = makers(size)[name](), torch.randn(size.batch, size.tokens, size.dim)
    (x @ torch.randn(size.dim, size.dim)).sum()
    before = peak()
    training(model, x)()
    grads = sum(p.numel() for p in model.parameters()) * 4 / 2**20
    print(f"{peak() - before - grads:.1f}")


def check_equal(all_models: dict[str, nn.Module], x: Tensor) -> None:
    """Refuses to time contestants that do not compute the same."""
    ours, plain = all_models["lawful"], all_models["plain port"]
    with torch.no_grad():
        gap = (ours.eval()(x) - plain.eval()(x)).abs().max().item()
    if gap > 1e-2:
        raise SystemExit(f"the plain port differs by {gap}")


def compare(
    size: Size, seconds: float, runs: int, memory: bool
) -> tuple[list[Any], dict[str, Any]]:
    """Races everything at one size."""
    x = torch.randn(size.batch, size.tokens, size.dim, generator=torch.Generator().manual_seed(1))
    entries = models(size)
    check_equal(entries, x)
    limit, rates = size.limit_ms()
    facts = {f"{size.name}: GFLOP forward": round(size.flops, 2), f"{size.name}: matmul": rates}
    facts[f"{size.name}: limit forward ms"] = round(limit, 1)
    baseline, rows = f"{size.steps} encoder layers", []
    others = jax_contestants(entries["lawful"], x)  # type: ignore[arg-type]
    for i, (kind, make, factor) in enumerate((("forward", forward, 1), ("training", training, 3))):
        field = [Contestant(n, make(m, x)) for n, m in entries.items()]
        field = field[:1] + field[2:] if kind == "forward" else field
        field += [others[i]] if others else []
        found = race(
            f"{size.name} {kind}", field, seconds=seconds, min_runs=runs, baseline=baseline
        )
        again, _ = size.limit_ms()
        base = next(row for row in found if row.name == baseline)
        for row in found:
            row.extra["x by cpu"] = round(base.cpu_ms / row.cpu_ms, 2)
            if row is not base:
                busy = row.cpu_ms / torch.get_num_threads()
                row.extra["GFLOP/s by cpu"] = round(factor * size.flops / busy * 1e3, 1)
                row.extra["of limit"] = round(factor * (limit + again) / 2 / busy, 2)
            if memory and kind == "training" and row.name in entries:
                row.extra["peak MB"] = peak_memory(size, row.name)
        rows += found
    return rows, facts


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="all", choices=["all", *SIZES])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--runs", type=int, default=5, help="at least so many of each")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure-memory", metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.measure_memory:
        measure_memory(SIZES[options.size], options.measure_memory)
        return
    chosen = ["small", "large"] if options.size == "all" else [options.size]
    rows, facts = [], {"kernels": native_status().describe(), "seed": 0}
    for name in chosen:
        found, about = compare(SIZES[name], options.seconds, options.runs, not options.no_memory)
        rows += found
        facts.update(about)
    report("energy", rows, options.out, **facts)


if __name__ == "__main__":
    main()
