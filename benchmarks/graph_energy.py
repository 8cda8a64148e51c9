"""Energy attention over the edges of a graph: against gather and scatter, and as edges grow.

    python benchmarks/graph_energy.py --data tolokers.npz --out results/graph-energy.json

Part one trains one step (forward, backward to all parameters) of the model that detects anomalies
in graphs, on Tolokers or a random graph of its size, in two forms of the same model: this
library's, and the usual message passing in plain torch, which makes a vector for each edge. Part
two takes steps on random graphs of 10^4 to 10^7 edges and fits the exponent of the time. Random
graphs have no locality, so the time of an edge rises where the nodes outgrow a cache. Memory is
what one step adds at its peak, in a process of its own (Linux).
"""

import argparse
import math
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from _harness import Contestant, Row, copy_gbps, race, report
from lawful.energy import Edges, GraphEnergyTransformer

TOLOKERS = (11_758, 519_000)
SIZES = {"D128 H3": (128, 3, 128, 256), "D64 H1": (64, 1, 64, 128)}


class MessagePassing(nn.Module):
    """The same step with the same weights, by gather, edge softmax and scatter."""

    def __init__(self, model: GraphEnergyTransformer, step_size: float) -> None:
        super().__init__()
        self.model, self.step_size = model, step_size

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """One step (N, D)."""
        norm, attention = self.model.norm, self.model.attention
        source, target = edge_index
        g = F.layer_norm(x, x.shape[-1:], eps=norm.eps) * norm.gamma + norm.delta
        q = torch.einsum("nd,hyd->nhy", g, attention.query)
        k = torch.einsum("nd,hyd->nhy", g, attention.key)
        score = (q[target] * k[source]).sum(-1) * attention.beta
        most = score.new_full((len(x), score.shape[1]), -math.inf)
        into = target[:, None].expand(score.shape)
        most = most.scatter_reduce(0, into, score.detach(), "amax")
        mass = (score - most[target]).exp()
        total = torch.zeros_like(most).index_add(0, target, mass)
        weight = (mass / total[target])[..., None]
        first = torch.zeros_like(q).index_add(0, target, weight * k[source])
        second = torch.zeros_like(k).index_add(0, source, weight * q[target])
        update = torch.einsum("nhy,hyd->nd", first, attention.query)
        update = update + torch.einsum("nhy,hyd->nd", second, attention.key)
        memories = self.model.hopfield.memories
        return x + self.step_size * (update + (g @ memories.T).relu() @ memories)


def random_graph(nodes: int, edges: int) -> Tensor:
    torch.manual_seed(0)
    one = torch.randint(nodes, (2, edges))
    return torch.cat([one, one.flip(0)], 1)


def tolokers(path: Path | None) -> tuple[int, Tensor]:
    if path is None:
        return TOLOKERS[0], random_graph(*TOLOKERS)
    import numpy as np

    with np.load(path) as found:
        one = torch.from_numpy(found["edges"]).long().T
        return len(found["node_features"]), torch.cat([one, one.flip(0)], 1)


def step(module: nn.Module, x: Tensor, edges: object) -> None:
    module.zero_grad(set_to_none=True)
    module(x, edges).square().mean().backward()


def against_scatter(nodes: int, index: Tensor, seconds: float) -> list[Row]:
    edges, rows = Edges.of(index, nodes), []
    for name, sizes in SIZES.items():
        torch.manual_seed(0)
        model, x = GraphEnergyTransformer(*sizes), torch.randn(nodes, sizes[0])
        other = MessagePassing(model, model.step_size)
        gap = (model(x, edges) - other(x, edges.edge_index)).abs().max().item()

        def ours(model: nn.Module = model, x: Tensor = x) -> None:
            step(model, x, edges)

        def theirs(other: nn.Module = other, x: Tensor = x) -> None:
            step(other, x, edges.edge_index)

        found = race(
            name,
            [Contestant("lawful", ours), Contestant("gather and scatter", theirs)],
            seconds=seconds,
            max_runs=30,
            min_runs=3,
            baseline="gather and scatter",
        )
        for row in found:
            row.extra |= {"edges": edges.edge_index.shape[1], "max difference": f"{gap:.1e}"}
        rows += found
    return rows


def growing(edges: int, degree: int = 20) -> tuple[GraphEnergyTransformer, Tensor, Edges]:
    nodes = edges // degree
    model = GraphEnergyTransformer(32, 1, 32, 64)
    torch.manual_seed(0)
    graph = Edges.of(torch.randint(nodes, (2, edges - nodes)), nodes)
    return model, torch.randn(nodes, 32), graph


def peak(form: str, edges: int) -> float:
    """What a step adds to the resident memory of a process that does this alone, in MB."""
    command = [sys.executable, __file__, "--peak", form, str(edges)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return round(float(done.stdout))


def resident(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(x.split()[1]) / 1024 for x in lines if x.startswith(field))


def print_peak(form: str, edges: int) -> None:
    model, x, graph = growing(edges)
    small, y, other = growing(100)
    scatter = form == "scatter"
    for m, t, g in ((small, y, other), (model, x, graph)):  # the first loads what a step needs
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before = resident("VmRSS")
        step(MessagePassing(m, m.step_size) if scatter else m, t, g.edge_index if scatter else g)
    print(resident("VmHWM") - before)


def by_edges(largest: float, seconds: float) -> tuple[list[Row], float]:
    rows: list[Row] = []
    for power in range(8, 1 + round(2 * largest)):
        edges = round(10 ** (power / 2))
        model, x, graph = growing(edges)
        run = Contestant("lawful", lambda m=model, x=x, g=graph: step(m, x, g))
        (row,) = race(f"{edges} edges", [run], seconds=seconds, min_runs=3)
        row.extra = {"edges": graph.edge_index.shape[1]}
        if power % 2 == 0:
            row.extra["MB"] = peak("lawful", edges)
            if edges <= 10**6:
                row.extra["MB by scatter"] = peak("scatter", edges)
        rows.append(row)
    return rows, exponent(rows)


def exponent(rows: list[Row]) -> float:
    """Slope of log processor time over log edges, least squares, from 10^5 edges on."""
    kept = [r for r in rows if r.extra["edges"] >= 0.9e5] or rows
    x = torch.tensor([math.log(r.extra["edges"]) for r in kept])
    y = torch.tensor([math.log(r.cpu_ms) for r in kept])
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / x.square().sum().clamp_min(1e-30))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=Path, help="tolokers.npz; default: a random graph")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each contestant")
    parser.add_argument("--largest", type=float, default=7.0, help="power of ten of the edges")
    parser.add_argument("--part", choices=["scatter", "edges", "both"], default="both")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.peak:
        return print_peak(args.peak[0], int(args.peak[1]))
    rows: list[Row] = []
    facts: dict[str, object] = {"copy GB/s": round(copy_gbps(64), 1)}
    if args.part != "edges":
        nodes, index = tolokers(args.data)
        rows += against_scatter(nodes, index, args.seconds)
        facts["graph"] = args.data.name if args.data else "random, of the size of Tolokers"
    if args.part != "scatter":
        grown, slope = by_edges(args.largest, args.seconds / 8)
        rows += grown
        facts["exponent of time over edges"] = round(slope, 3)
    return report("graph energy", rows, args.out, **facts)


if __name__ == "__main__":
    main()
