"""A report page for a model that this library did not train.

Anything that writes the files of a run folder gets a page: here, softmax regression on
scikit-learn's handwritten digits, in plain torch. Run it and open the page that it names:

    python examples/report_page.py runs/softmax
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.reports import write_report
from lawful.tasks.exhibits import Heatmap, Images, save

STEPS, EVERY, BATCH = 300, 20, 64


def data(seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """The digits as (pictures (n, 64) in [0, 1], labels (n,)) for train, valid and test."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    x = torch.tensor(digits.data[order] / 16, dtype=torch.float32)
    y = torch.tensor(digits.target[order])
    cuts = {"train": slice(0, 1200), "valid": slice(1200, 1500), "test": slice(1500, None)}
    return {name: (x[cut], y[cut]) for name, cut in cuts.items()}


def measure(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, float]:
    """Loss and accuracy."""
    with torch.no_grad():
        logits = model(x)
    accuracy = (logits.argmax(-1) == y).double().mean()
    return {"loss": F.cross_entropy(logits, y).item(), "accuracy": accuracy.item()}


def train(model: nn.Module, splits: dict[str, tuple[Tensor, Tensor]], log: Path) -> int:
    """Trains, writes one JSON line a record, and goes back to the best step, which it returns."""
    best, best_step, best_state = -1.0, 0, model.state_dict()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    x, y = splits["train"]
    with log.open("w", encoding="utf-8") as stream:
        for step in range(1, STEPS + 1):
            rows = torch.randint(len(y), (BATCH,))
            loss = F.cross_entropy(model(x[rows]), y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            records = [{"step": step, "split": "train", "loss": loss.item()}]
            if step % EVERY == 0:
                found = measure(model, *splits["valid"])
                records.append({"step": step, "split": "valid", **found})
                if found["accuracy"] > best:
                    best, best_step = found["accuracy"], step
                    best_state = {k: v.clone() for k, v in model.state_dict().items()}
            stream.writelines(json.dumps(r) + "\n" for r in records)
    model.load_state_dict(best_state)
    return best_step


def main(folder: Path, seed: int = 0) -> Path:
    """Trains, writes the run folder, and makes its page."""
    torch.manual_seed(seed)
    folder.mkdir(parents=True, exist_ok=True)
    splits, model = data(seed), nn.Linear(64, 10)
    config = {"task": "digits", "model": "softmax regression", "seed": seed}
    config["train_config"] = {"steps": STEPS, "batch_size": BATCH, "lr": 0.01}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    start = time.perf_counter()
    best_step = train(model, splits, folder / "metrics.jsonl")
    result = {
        "status": "finished",
        "steps": STEPS,
        "best_step": best_step,
        "metric": "accuracy",
        "higher_is_better": True,
        "best_valid": measure(model, *splits["valid"]),
        "test": measure(model, *splits["test"]),
        "baselines": {"chance": 0.1},
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": time.perf_counter() - start,
    }
    (folder / "result.json").write_text(json.dumps(result, indent=1))
    environment = {"command": f"python examples/report_page.py {folder}"}
    environment["torch"] = str(torch.__version__)
    (folder / "environment.json").write_text(json.dumps(environment, indent=1))
    x, y = splits["test"]
    guess = model(x).argmax(-1)
    counts = torch.zeros(10, 10).index_put_((y, guess), torch.ones(len(y)), accumulate=True)
    names = [str(i) for i in range(10)]
    templates = model.weight.detach().reshape(10, 8, 8).numpy()
    save(
        [
            Heatmap(
                "Confusion matrix", counts.numpy(), "guess", "digit", names, names, annotate=True
            ),
            Heatmap("What speaks for each digit", templates, scale="diverging", panels=names),
            Images(
                "Test digits and guesses",
                x[:20].reshape(-1, 8, 8).numpy(),
                [str(int(g)) for g in guess[:20]],
                [bool(g) for g in guess[:20] == y[:20]],
            ),
        ],
        folder / "exhibits",
    )
    return write_report(folder)


if __name__ == "__main__":
    print(main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/softmax")))
