"""Training steps of structured distributions beside their peers; prints a table, writes JSON.

``python benchmarks/structures.py [--only chains] [--quick] [--out results/structures.json]``

Peers are optional (``pip install torch-struct==0.5 pytorch-crf supar``). Each group of cases lives
in a module of its own, which offers ``run(quick, seconds) -> rows``.
"""

import argparse
import importlib
import importlib.util
from pathlib import Path

import torch

from _harness import report
from lawful.kernels import native_status

GROUPS = {"chains": "_structures_chains", "trees": "_structures_trees"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=GROUPS, help="one group of cases")
    parser.add_argument("--quick", action="store_true", help="fewer peers and sizes")
    parser.add_argument("--seconds", type=float, default=3.0, help="time per contestant")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, help="where to write JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    for group, module in GROUPS.items():
        if options.only in (None, group) and importlib.util.find_spec(module):
            rows += importlib.import_module(module).run(options.quick, options.seconds)
    report("structures", rows, options.out, kernels=native_status().describe())


if __name__ == "__main__":
    main()
