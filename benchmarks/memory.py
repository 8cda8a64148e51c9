"""How fast is a training step of SAB, and what does it keep in memory?

One forward and backward pass, batch 64, hidden 128, k_top = k_trunc = 5, against: the same
algorithm as a plain loop of torch operations; the released code's cell, ported; `nn.LSTM` with
dense self-attention over all its states (additive scores, as in the paper's baseline; and fused
dot-product attention); and `nn.LSTM` alone. Contestants take turns; the ratio is of medians.

    python benchmarks/memory.py [--quick] [--threads N] [--out results/benchmarks/memory.json]
    python benchmarks/memory.py --scaling      time and peak memory against length, one process each
    python benchmarks/memory.py --compare      the same for a training step of each sequence model
"""

import argparse
import gc
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from _harness import Contestant, matmul_gflops, race, report
from lawful.kernels import native_status
from lawful.memory import SAB, sparse_attention
from lawful.models import SEQUENCE_MODELS, InputSpec, OutputSpec, build_sequence_model

BATCH, WIDTH, K = 64, 128, 5
COMPARED = {
    "lstm": {},
    "lstm-tbptt": {"k_trunc": 20},
    "lstm-attention": {},
    "transformer": {
        "width": WIDTH,
        "feedforward": 4 * WIDTH,
        "layers": 1,
        "causal": True,
        "dropout": 0.0,
    },
    "sab": {"k_att": 5, "k_trunc": 20},
    "sab, k_att 20": {"k_att": 20, "k_trunc": 20},
}


class PlainLoop(nn.Module):
    """Sparse attentive backtracking as one would write it: a cell, torch.cat, and autograd."""

    def __init__(self, layer: SAB) -> None:
        super().__init__()
        self.sab = layer.layers[0]

    def forward(self, x):  # noqa: D102
        sab, config = self.sab, self.sab.config
        h = c = x.new_zeros(len(x), sab.hidden_size)
        memory, outputs = None, []
        for t in range(x.shape[1]):
            if t and t % config.k_trunc == 0:
                h, c = h.detach(), c.detach()
            h, c = sab.cell(x[:, t], (h, c))
            if memory is not None:
                hidden = torch.tanh(F.linear(memory, sab.key) + F.linear(h, sab.query)[:, None])
                weights = sparse_attention(hidden @ sab.score, config.k_top)
                h = h + (weights[:, None] @ memory)[:, 0]
            outputs.append(h)
            if (t + 1) % config.k_att == 0:
                new = h[:, None]
                memory = new if memory is None else torch.cat([memory, new], 1)
        return torch.stack(outputs, 1)


class ReleasedCell(nn.Module):
    """The published cell's algorithm: query-free scores of [h; m], k-th score as the threshold."""

    def __init__(self, size: int, k_att: int) -> None:
        super().__init__()
        self.cell, self.k_att = nn.LSTMCell(size, WIDTH), k_att
        self.score = nn.Parameter(torch.randn(2 * WIDTH, 1) * 0.01)

    def forward(self, x):  # noqa: D102
        h = c = x.new_zeros(len(x), WIDTH)
        memory, outputs = h[:, None], []
        for t in range(x.shape[1]):
            if (t + 1) % K == 0:
                h, c = h.detach(), c.detach()
            h, c = self.cell(x[:, t], (h, c))
            size = memory.shape[1]
            both = torch.cat([h[:, None].expand(-1, size, -1), memory], 2)
            scores = (torch.tanh(both).reshape(-1, 2 * WIDTH) @ self.score).view(len(x), size)
            if size > K:
                excess = torch.clamp(scores - scores.topk(K).values[:, -1:] - 1e-7, min=0)
                scores = excess / (excess.sum(1, keepdim=True) + 1e-7)
            h = h + (scores[:, None] @ memory)[:, 0]
            if (t + 1) % self.k_att == 0:
                memory = torch.cat([memory, h[:, None]], 1)
            outputs.append(h)
        return torch.stack(outputs, 1)


class DenseAttention(nn.Module):
    """`nn.LSTM`, and at each step attention over all its past states; full backpropagation."""

    def __init__(self, size: int, additive: bool) -> None:
        super().__init__()
        self.lstm, self.additive = nn.LSTM(size, WIDTH, batch_first=True), additive
        self.key, self.query = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in "kq")
        self.score = nn.Linear(WIDTH, 1, bias=False)

    def forward(self, x):  # noqa: D102
        h, _ = self.lstm(x)
        key, query = self.key(h), self.query(h)
        if not self.additive:
            heads = (t[:, None] for t in (query, key, h))
            return h + F.scaled_dot_product_attention(*heads, is_causal=True)[:, 0]
        outputs = []
        for t in range(x.shape[1]):
            scores = self.score(torch.tanh(key[:, : t + 1] + query[:, t : t + 1])).transpose(1, 2)
            outputs.append((scores.softmax(-1) @ h[:, : t + 1])[:, 0])
        return h + torch.stack(outputs, 1)


class PlainLSTM(nn.LSTM):
    """`nn.LSTM` that returns its output only."""

    def forward(self, x):  # noqa: D102
        return super().forward(x)[0]


def step(model, x, last):
    model.zero_grad(set_to_none=True)
    output = model(x)
    output = output[0] if isinstance(output, tuple) else output
    (output[:, -1] if last else output).sum().backward()


def contestants(size, k_att, x, last, slow):
    torch.manual_seed(0)
    layer = SAB(size, WIDTH, K, k_att, K)
    models = {
        "plain loop": PlainLoop(layer),
        "released cell": ReleasedCell(size, k_att),
        "lstm + additive attention": DenseAttention(size, True),
        "lstm + fused attention": DenseAttention(size, False),
        "nn.LSTM": PlainLSTM(size, WIDTH, batch_first=True),
        "SAB": layer,
    }
    if not slow:
        models = {n: m for n, m in models.items() if n in ("SAB", "nn.LSTM", "plain loop")}
    return [Contestant(n, lambda m=m: step(m, x, last)) for n, m in models.items()]


def floor_ms(steps, size, rate):
    """Matrix products alone, at the rate measured: 3 x (input, recurrence, key, query)."""
    flops = 3 * 2 * BATCH * steps * WIDTH * (4 * (size + WIDTH) + 2 * WIDTH)
    return flops / rate / 1e6


def speed(quick):
    rate = matmul_gflops(256, 128, 640)
    cases = [("copy 100", 120, 10, 1, False), ("copy 100, k_att 5", 120, 10, 5, False)]
    if not quick:
        cases += [("copy 200", 220, 10, 1, False), ("copy 300", 320, 10, 1, False)]
        cases += [("pixels 784, k_att 20", 784, 1, 20, True)]
    rows, limits = [], {}
    for name, steps, size, k_att, last in cases:
        x = torch.randn(BATCH, steps, size)
        slow = steps < 500
        made = race(
            name,
            contestants(size, k_att, x, last, slow),
            seconds=0.0,
            min_runs=3 if steps < 200 else 2,
            max_runs=5,
        )
        limits[name] = round(floor_ms(steps, size, rate), 1)
        ours = made[-1]
        ours.extra["limit_ms"] = limits[name]
        ours.extra["cpu_above_limit"] = round(ours.cpu_ms / limits[name], 2)
        rows += made
        gc.collect()
    return rows, {"gemm_gflops": round(rate), "native": native_status().describe()}


def network(mode):
    """What `one_length` measures: a layer, or a whole sequence model with one output a step."""
    if mode in COMPARED:
        config = SEQUENCE_MODELS[mode.split(",")[0]](**COMPARED[mode])
        return build_sequence_model(config, InputSpec("values", 10), OutputSpec(10, True))
    bound = 1000 if mode == "bounded inference" else None
    return SAB(10, WIDTH, K, 1 if mode == "training" else 5, K, max_memories=bound)


def one_length(mode, steps, batch):
    """Prints time and the growth of the peak resident size of one pass, for `scaling`."""
    torch.manual_seed(0)
    layer = network(mode)
    x = torch.randn(batch, steps, 10)
    step(layer, x[:, :20], False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    if mode == "training" or mode in COMPARED:
        step(layer, x, False)
    else:
        with torch.no_grad():
            state = None
            for piece in x.split(1000, 1):
                _, state = layer(piece, state)
    spent = time.process_time() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    row = {"mode": mode, "steps": steps, "batch": batch, "cpu_s": round(spent, 3)}
    row |= {"peak_mb": round(grown / 1e6, 1)}
    row |= {"floats_per_step": round(grown / (4 * WIDTH * batch * steps), 2)}
    print(json.dumps(row))


def scaling(quick):
    runs = [("training", t, 8) for t in (100, 1000, *(() if quick else (10_000,)))]
    runs += [("inference", t, 8) for t in (100, 1000, 10_000)]
    runs += [("bounded inference", t, 8) for t in (1000, 10_000, *(() if quick else (100_000,)))]
    return measured(runs)


def compare(quick):
    lengths = (100, 1000) if quick else (100, 300, 1000, 3000)
    return measured([(name, t, 8) for t in lengths for name in COMPARED])


def measured(runs):
    """One process for each run: what a process took before cannot hide what it takes."""
    found = []
    for run in runs:
        command = [sys.executable, __file__, "--one", *map(str, run)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout))
        print(found[-1], flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    if options.one:
        one_length(options.one[0], int(options.one[1]), int(options.one[2]))
        return
    if options.scaling:
        report("memory scaling", [], options.out, lengths=scaling(options.quick))
        return
    if options.compare:
        report("models against length", [], options.out, lengths=compare(options.quick))
        return
    rows, facts = speed(options.quick)
    report("memory", rows, options.out, batch=BATCH, hidden=WIDTH, k=K, **facts)


if __name__ == "__main__":
    main()
