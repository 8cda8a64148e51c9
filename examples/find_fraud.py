"""Trains on a payment network in which rings of fraud hide, and asks why an account was flagged.

Run:  python examples/find_fraud.py
"""

import tempfile
from pathlib import Path

import numpy as np
import torch

from lawful.models import EnergyNodeConfig
from lawful.tasks import get_task
from lawful.tasks.graphdata import camouflaged_rings, write_tables


def main(updates: int = 60) -> float:
    """Trains, prints a suspicious account and why, and returns the test average precision."""
    folder = Path(tempfile.mkdtemp())
    write_tables(camouflaged_rings(1500, rings=25, seed=1), folder)  # nodes.csv, edges.csv
    torch.manual_seed(0)
    kind = get_task("anomaly")
    task = kind(kind.Config(trees=False, bootstrap=0), data=folder)
    task.load()
    model = task.build(EnergyNodeConfig(width=32, heads=2))
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(updates):
        loss, _ = task.loss(
            model, task.source("train").batch([0])
        )  # every batch is the whole graph
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    model.eval()
    test = task.source("test")
    scores = task.evaluation()
    with torch.no_grad():
        scores.update(model, test.batch([0]))
        logits = model(*task.whole(task.graph, torch.device("cpu")))
        why = model.reasons(*task.whole(task.graph, torch.device("cpu")))
    node = int(test.rows[logits[test.rows].argmax()])
    into = (why.edge_index[1] == node) & (why.edge_index[0] != node)
    found = scores.compute()
    raw, labels = task.graph.raw, task.graph.labels
    print(f"average precision {found['average_precision']:.3f}, chance {np.mean(labels == 1):.3f}")
    print(f"most suspicious: {raw.id_of(node)}, energy {why.energy[node]:.1f}; it attends to")
    near, weight = why.edge_index[0, into], why.weights[into]
    for i in weight.argsort(descending=True)[:5].tolist():
        other = int(near[i])
        word = ("normal", "fraudulent")[labels[other]]
        print(f"  {raw.id_of(other)} {weight[i]:6.1%}  {word}")
    return found["average_precision"]


if __name__ == "__main__":
    main()
