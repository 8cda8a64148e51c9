"""Is memory bounded by the batch? Sampled training on a made graph of 10^6 nodes and 10^7 edges.

Run:  python benchmarks/large_graph.py [--updates N] [--batch-size B] [--fanouts F ...] [--out FILE]

Prints wall and processor seconds and the peak of resident memory after each stage: the graph as it
would come from a file, the network that training needs, updates, and scores of some nodes. What
the updates add to the memory depends on the batch and the fanouts, not on the graph.
"""

import argparse
import json
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from _harness import commit, machine
from lawful.models import NODE_MODELS, NodeSpec, build_node_scorer
from lawful.tasks.anomaly._sources import Sampled
from lawful.tasks.anomaly._task import Prepared
from lawful.tasks.graphdata import RawGraph, connect

STAGES: list[dict[str, Any]] = []


def peak() -> float:
    """Highest resident memory so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


@contextmanager
def stage(name: str) -> Iterator[dict[str, Any]]:
    facts: dict[str, Any] = {"stage": name}
    wall, cpu = time.perf_counter(), time.process_time()
    yield facts
    facts["wall_s"] = round(time.perf_counter() - wall, 2)
    facts["cpu_s"] = round(time.process_time() - cpu, 2)
    facts["peak_gib"] = round(peak(), 3)
    STAGES.append(facts)
    print(", ".join(f"{k} {v}" for k, v in facts.items()), flush=True)


def make(nodes: int, edges: int) -> RawGraph:
    """Random edges, ten features, 3 % anomalous nodes whose features are shifted."""
    random = np.random.default_rng(0)
    labels = (random.random(nodes) < 0.03).astype(np.int8)
    x = random.standard_normal((nodes, 10), np.float32) + np.float32(0.3) * labels[:, None]
    ends = random.integers(0, nodes, (2, edges))
    names = tuple(f"x{i}" for i in range(10))
    return RawGraph("made", nodes, x, names, {"edges": ends}, labels=labels)


def train(model: torch.nn.Module, source: Sampled, updates: int, size: int) -> dict[str, Any]:
    random, drawing, drawn = np.random.default_rng(1), 0.0, []
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(updates):
        start = time.process_time()
        batch = source.batch(random.integers(0, len(source), size).tolist())
        drawing += time.process_time() - start
        drawn.append((len(batch["nodes"]), batch["edge_index"].shape[1]))
        logits = model(batch["x"], batch["edge_index"])[batch["at"]]
        loss = binary_cross_entropy_with_logits(logits, batch["y"])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    nodes, edges = np.mean(drawn, 0).round().astype(int).tolist()
    return {"drawing_cpu_s": round(drawing, 2), "batch_nodes": nodes, "batch_edges": edges}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=10**6)
    parser.add_argument("--edges", type=int, default=10**7)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--fanouts", type=int, nargs="+", default=[10, 10])
    parser.add_argument("--scored", type=int, default=4096, help="nodes scored at the end")
    parser.add_argument("--model", default="energy", choices=list(NODE_MODELS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print(f"{vars(options)}\n{machine()}", flush=True)
    with stage("graph made"):
        raw = make(options.nodes, options.edges)
    with stage("network connected") as facts:
        network, said = connect(raw)
        facts["said"] = "; ".join(said)
    graph = Prepared(raw, network, raw.numeric, raw.labels, said)
    source = Sampled(graph, np.arange(options.nodes), "train", options.fanouts, 0)
    torch.manual_seed(0)
    model = build_node_scorer(NODE_MODELS[options.model](), NodeSpec(10))
    before = peak()
    with stage(f"{options.updates} updates") as facts:
        facts |= train(model, source, options.updates, options.batch_size)
    with stage(f"{options.scored} nodes scored"), torch.no_grad():
        model.eval()
        for start in range(0, options.scored, options.batch_size):
            batch = source.batch(range(start, min(start + options.batch_size, options.scored)))
            model(batch["x"], batch["edge_index"])
    print(f"updates and scores took {peak() - before:.2f} GiB more than the graph had taken")
    if options.out is not None:
        facts = {"config": {k: v for k, v in vars(options).items() if k != "out"}, "stages": STAGES}
        facts |= {"benchmark": "large graph", "commit": commit(), "machine": machine()}
        facts["date"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        options.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
