"""Timing that can be trusted on a shared machine: contestants take turns, ratios are of medians.

A benchmark builds a list of `Contestant` for each case, calls `race`, and hands all rows to
`report`, which prints a table and writes JSON with machine, versions, commit and date.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Contestant:
    """One entry of a race: a name and a function to time (its arguments already bound)."""

    name: str
    run: Callable[[], Any]
    note: str = ""


@dataclass
class Row:
    """What one contestant did in one case; times in milliseconds."""

    case: str
    name: str
    median_ms: float
    min_ms: float
    cpu_ms: float
    runs: int
    first_ms: float
    ratio: float = float("nan")
    extra: dict[str, Any] = field(default_factory=dict)


def race(
    case: str,
    contestants: Sequence[Contestant],
    *,
    seconds: float = 2.0,
    max_runs: int = 200,
    min_runs: int = 5,
    baseline: str | None = None,
) -> list[Row]:
    """Runs the contestants in turn, A B C A B C ..., and returns a row for each.

    Every contestant is called once before the race (warm-up, reported as ``first_ms``). Slow ones
    leave the race when their share of ``seconds`` is spent, but never before ``min_runs``.
    ``ratio`` is the baseline's (default: the first contestant's) median over the row's own.
    """
    first = {}
    for c in contestants:
        start = time.perf_counter()
        c.run()
        first[c.name] = (time.perf_counter() - start) * 1e3
    wall: dict[str, list[float]] = {c.name: [] for c in contestants}
    cpu: dict[str, list[float]] = {c.name: [] for c in contestants}
    active = list(contestants)
    while active:
        for c in list(active):
            cpu_start, start = time.process_time(), time.perf_counter()
            c.run()
            wall[c.name].append((time.perf_counter() - start) * 1e3)
            cpu[c.name].append((time.process_time() - cpu_start) * 1e3)
            done = len(wall[c.name])
            spent = sum(wall[c.name]) / 1e3 >= seconds
            if done >= max_runs or (spent and done >= min_runs):
                active.remove(c)
    rows = [
        Row(
            case,
            c.name,
            median(wall[c.name]),
            min(wall[c.name]),
            median(cpu[c.name]),
            len(wall[c.name]),
            first[c.name],
            extra={"note": c.note} if c.note else {},
        )
        for c in contestants
    ]
    reference = next(r for r in rows if r.name == (baseline or contestants[0].name))
    for row in rows:
        row.ratio = reference.median_ms / row.median_ms
    return rows


def matmul_gflops(m: int, k: int, n: int, *, batch: int = 1, repeats: int = 15) -> float:
    """The measured float32 matmul rate for this shape in GFLOP/s (median): the limit to quote."""
    a, b = torch.randn(batch, m, k), torch.randn(batch, k, n)
    torch.bmm(a, b)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        torch.bmm(a, b)
        times.append(time.perf_counter() - start)
    return 2 * batch * m * k * n / median(times) / 1e9


def copy_gbps(megabytes: int = 256, repeats: int = 9) -> float:
    """The measured memory bandwidth of a large copy in GB/s, reads and writes counted (median)."""
    source = torch.zeros(megabytes * 2**18)
    target = torch.empty_like(source)
    target.copy_(source)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        target.copy_(source)
        times.append(time.perf_counter() - start)
    return 2 * source.numel() * 4 / median(times) / 1e9


def machine() -> dict[str, Any]:
    """What a reader needs to judge the figures."""
    model = platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(x.partition(":")[2].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load_1min": os.getloadavg()[0],
    }


def commit() -> str:
    """The commit the figures belong to, marked when the tree holds uncommitted changes."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"


def report(name: str, rows: Sequence[Row], out: Path | None = None, **facts: Any) -> None:
    """Prints the rows as a table and, if ``out`` is given, writes everything as JSON."""
    print(f"{name}: {machine()}")
    for key, value in facts.items():
        print(f"  {key}: {value}")
    print(f"{'case':<28}{'contestant':<26}{'median ms':>11}{'min ms':>10}{'cpu ms':>10}{'x':>9}")
    for r in rows:
        extra = "  " + ", ".join(f"{k}={v}" for k, v in r.extra.items()) if r.extra else ""
        print(
            f"{r.case:<28}{r.name:<26}{r.median_ms:>11.3f}{r.min_ms:>10.3f}{r.cpu_ms:>10.3f}"
            f"{r.ratio:>9.2f}{extra}"
        )
    if out is not None:
        document = {
            "benchmark": name,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit(),
            "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "machine": machine(),
            "facts": facts,
            "rows": [asdict(r) for r in rows],
        }
        out.parent.mkdir(parents=True, exist_ok=True)
        scratch = out.with_name(out.name + ".tmp")
        scratch.write_text(json.dumps(document, indent=1) + "\n")
        scratch.replace(out)
