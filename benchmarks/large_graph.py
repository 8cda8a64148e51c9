"""Is memory bounded by the batch? Sampled training on a made graph of 10^6 nodes and 10^7 edges.

Prints seconds and peak memory of each stage.
"""

import argparse
import resource
import time

import numpy as np
import torch

from lawful.models import NODE_MODELS, NodeSpec, build_node_scorer
from lawful.tasks.anomaly._sources import Sampled
from lawful.tasks.anomaly._task import Prepared
from lawful.tasks.graphdata import RawGraph, connect


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def say(stage: str, start: float) -> None:
    print(f"{stage}: {time.perf_counter() - start:.1f} s, peak {peak():.2f} GiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10**6)
    parser.add_argument("--edges", type=int, default=10**7)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--fanouts", type=int, nargs="+", default=[10, 10])
    parser.add_argument("--model", default="energy", choices=list(NODE_MODELS))
    options = parser.parse_args()
    print(f"{options}; torch {torch.__version__}, {torch.get_num_threads()} threads")
    random, start = np.random.default_rng(0), time.perf_counter()
    n = options.nodes
    labels = (random.random(n) < 0.03).astype(np.int8)
    x = (random.normal(size=(n, 10)) + 0.3 * labels[:, None]).astype(np.float32)
    edges = random.integers(0, n, (2, options.edges))
    raw = RawGraph("made", n, x, tuple(f"x{i}" for i in range(10)), {"edges": edges}, labels=labels)
    say("made", start)
    start = time.perf_counter()
    network, said = connect(raw)
    say(f"connected ({'; '.join(said)})", start)
    graph = Prepared(raw, network, x, labels, said)
    source = Sampled(graph, np.arange(n), "train", options.fanouts, 0)
    torch.manual_seed(0)
    model = build_node_scorer(NODE_MODELS[options.model](), NodeSpec(10))
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    start, before, drawing, sizes = time.perf_counter(), peak(), 0.0, []
    for _ in range(options.updates):
        began = time.perf_counter()
        batch = source.batch(random.integers(0, n, options.batch_size).tolist())
        drawing += time.perf_counter() - began
        sizes.append(len(batch["nodes"]))
        logits = model(batch["x"], batch["edge_index"])[batch["at"]]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, batch["y"])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    say(f"{options.updates} updates ({drawing:.1f} s of them drawing)", start)
    print(f"{np.mean(sizes):,.0f} nodes a batch; {peak() - before:.2f} GiB more than the graph")


if __name__ == "__main__":
    main()
