"""A made but realistic run folder with every kind of exhibit, for the tests of the pages."""

import json
from pathlib import Path

import numpy as np

from lawful.tasks.exhibits import Arcs, Curves, Heatmap, Images, Table, Text, save

SENTENCE = ["the", "old", "parser", "reads", "a", "short", "sentence", "with", "great", "care"]
HEADS = [2, 2, 3, -1, 6, 6, 3, 3, 9, 7]
GUESS = [2, 2, 3, -1, 5, 6, 3, 6, 9, 7]
LABELS = ["det", "amod", "nsubj", "root", "det", "amod", "obj", "obl", "amod", "pobj"]


def metrics(steps: int = 2000, seed: int = 0, rate: float = 500.0) -> list[dict]:
    """What training logs: a noisy training loss, a validation pass now and then, one test."""
    rng = np.random.default_rng(seed)
    rows = []
    for step in range(5, steps + 1, 5):
        loss = 2.3 * np.exp(-step / rate) + 0.08 + 0.12 * rng.gamma(2.0) * np.exp(-step / 1500)
        rows.append(
            {
                "step": step,
                "seconds": step * 0.06,
                "split": "train",
                "loss": loss,
                "lr": 1e-3 * min(1, step / 100) * 0.5 * (1 + np.cos(np.pi * step / steps)) + 1e-6,
                "grad_norm": float(rng.gamma(4.0) * 0.3 * np.exp(-step / 2500) + 0.05),
            }
        )
        if step % 100 == 0:
            loss = 2.3 * np.exp(-step / rate) + 0.16 + 0.02 * rng.random()
            accuracy = 0.95 - 0.85 * np.exp(-step / rate) + 0.01 * rng.standard_normal()
            rows.append({"step": step, "split": "valid", "loss": loss, "accuracy": float(accuracy)})
    rows.append({"step": steps, "split": "test", "loss": 0.19, "accuracy": 0.941})
    return rows


def exhibits() -> list:
    """One exhibit or more of every kind."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    rng = np.random.default_rng(0)
    counts = np.diag(rng.integers(28, 36, 10)) + (rng.random((10, 10)) < 0.15) * 1
    names = [str(i) for i in range(10)]
    attention = rng.dirichlet(np.full(10, 0.3), 10) + 1.2 * np.eye(10)[np.clip(HEADS, 0, 9)]
    attention /= attention.sum(1, keepdims=True)
    credit = np.tril(rng.random((64, 64)) ** 8)
    heads = np.tril(rng.dirichlet(np.full(16, 0.4), (4, 16)))
    truth = [str(t) for t in digits.target[:24]]
    guesses = ["5" if i in (7, 18) else t for i, t in enumerate(truth)]
    strip = digits.images[:3, None] / 16 * np.linspace(0.2, 1, 6)[None, :, None, None]
    strip = np.clip(
        strip + rng.normal(0, 1, strip.shape) * np.linspace(0.35, 0, 6)[:, None, None], 0, 1
    )
    x = np.linspace(0, 1, 200)
    angle = np.linspace(0, 2 * np.pi, 181)
    eigen = rng.uniform(0, 2 * np.pi, 48)
    energy = {
        f"picture {i}": (range(13), -40 - 60 * (1 - np.exp(-np.arange(13) / (2 + i))))
        for i in (1, 2, 3)
    }
    return [
        Heatmap(
            "Confusion matrix of the test digits",
            counts,
            "predicted",
            "true",
            names,
            names,
            annotate=True,
        ),
        Heatmap(
            "Credit map: which past step a step's loss reaches",
            credit,
            "past step",
            "step",
            note="Darker cells receive more gradient.",
        ),
        Images(
            "Test digits and what the model read",
            digits.images[:24] / 16,
            [f"{g}" if g == t else f"{g}, true {t}" for g, t in zip(guesses, truth, strict=True)],
            [g == t for g, t in zip(guesses, truth, strict=True)],
            note="The first 24 of 360 test pictures.",
        ),
        Table(
            "Ours beside the published figures",
            ["Depth", "Ours", "Published", "Difference"],
            [
                [d, o, p, o - p]
                for d, o, p in [(2, 0.996, 0.992), (3, 0.927, 0.87), (4, 0.775, 0.645)]
            ],
            note="Share of target tokens before the first failure.",
        ),
        Heatmap(
            "Self-attention over the sentence", attention, "attended", "word", SENTENCE, SENTENCE
        ),
        Heatmap(
            "Weights that changed sign",
            rng.standard_normal((12, 30)),
            "input",
            "unit",
            scale="diverging",
        ),
        Arcs("Tree over the sentence", SENTENCE, GUESS, LABELS, HEADS),
        Heatmap(
            "Attention of each head",
            heads,
            "key",
            "query",
            panels=[f"head {i}" for i in range(4)],
        ),
        Curves(
            "ROC curve",
            {
                "model, area 0.91": (x, x**0.2),
                "features only, area 0.78": (x, x**0.45),
                "chance": (x, x),
            },
            "false positive rate",
            "true positive rate",
            equal_axes=True,
            muted=["chance"],
        ),
        Curves(
            "Spectrum of the recurrent operator",
            {"eigenvalues": (np.cos(eigen), np.sin(eigen))}
            | {"unit circle": (np.cos(angle), np.sin(angle))},
            "real part",
            "imaginary part",
            style="points",
            equal_axes=True,
            muted=["unit circle"],
        ),
        Curves(
            "Energy per settling step",
            {k: (list(a), b) for k, (a, b) in energy.items()},
            "step",
            "energy",
            bands={"picture 1": (energy["picture 1"][1] - 6, energy["picture 1"][1] + 6)},
        ),
        Curves(
            "Scores of normal and flagged nodes",
            {
                "normal": (np.linspace(0, 1, 30), 900 * np.exp(-np.linspace(0, 9, 30))),
                "flagged": (
                    np.linspace(0, 1, 30),
                    90 * np.exp(-((np.linspace(0, 1, 30) - 0.8) ** 2) * 30),
                ),
            },
            "score",
            "nodes",
            style="steps",
        ),
        Images(
            "From noise to picture: six steps of settling",
            strip.reshape(-1, 8, 8),
            [f"step {2 * i}" for _ in range(3) for i in range(6)],
            columns=6,
        ),
        Text("Samples", ["copy:   3 1 4 1 5 9 2 6", "model:  3 1 4 1 5 9 2 6", "        right ✓"]),
    ]


CERTIFICATE = {
    "holds": False,
    "rows": [
        {
            "law": "at most k_top recalled",
            "layer": "encoder.sab",
            "deviation": 0.0,
            "tolerance": 0.0,
            "holds": True,
            "cases": 4096,
            "witness": None,
            "statement": "No step attends to more than k_top memories.",
            "source": "Ke et al. 2018, section 2",
        },
        {
            "law": "weights sum to one",
            "layer": "encoder.sab",
            "deviation": 1.19e-7,
            "tolerance": 1e-5,
            "holds": True,
            "cases": 4096,
            "witness": None,
            "statement": "The recall weights are non-negative and sum to 1.",
            "source": "Ke et al. 2018, eq. 4",
        },
        {
            "law": "chunked run equals whole run",
            "layer": "encoder.sab",
            "deviation": 3.1e-3,
            "tolerance": 1e-5,
            "holds": False,
            "cases": 64,
            "witness": [3, 17],
            "statement": "Running a sequence in pieces gives what running it whole gives.",
            "source": "",
        },
    ],
}


def write_run(
    folder: Path,
    seed: int = 0,
    model: str = "sab",
    task: str = "pixels",
    k_top: int = 5,
    score: float = 0.941,
    full: bool = True,
) -> Path:
    """A finished run folder; with exhibits and certificate if ``full``."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "lawful": "0.1.0",
        "task": task,
        "model": model,
        "task_config": {"permuted": False, "data": None},
        "model_config": {"hidden_size": 128, "k_top": k_top, "k_att": 5, "k_trunc": 5},
        "train_config": {
            "steps": 2000,
            "batch_size": 32,
            "optimiser": {"name": "adamw", "lr": 1e-3, "weight_decay": 0.01},
            "clip": 1.0,
        },
        "seed": seed,
    }
    environment = {
        "commit": "1f135bc0c0ffee",
        "date": "2026-11-30T19:50:00",
        "command": f"lawful train {task} --model {model} --seed {seed}",
        "python": "3.11.2",
        "torch": "2.13.0",
        "cpu": "Some CPU at 2.8 GHz",
        "cores": 2,
        "threads": 1,
        "device": "cpu",
    }
    result = {
        "status": "finished",
        "steps": 2000,
        "best_step": 1800,
        "metric": "accuracy",
        "higher_is_better": True,
        "best_valid": {"loss": 0.17, "accuracy": score + 0.012},
        "test": {"loss": 0.19, "accuracy": score},
        "baselines": {"chance": 0.1, "nearest mean": 0.78},
        "parameters": 66890,
        "seconds": 203.4,
    }
    parts = {"config": config, "environment": environment, "result": result}
    if full:
        parts["certificate"] = CERTIFICATE
        save(exhibits(), folder / "exhibits")
    for name, content in parts.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    rows = metrics(seed=seed, rate=500.0 + 3000 * (0.941 - score))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return folder
