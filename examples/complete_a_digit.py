"""Trains a small Energy Transformer to complete digits, and prints one while it settles.

Run:  python examples/complete_a_digit.py
"""

import torch
from torch import Tensor

from lawful.models import EnergyInpainterConfig
from lawful.tasks import get_task

SHADES = " .:-=+*#%@"


def text(pictures: list[Tensor]) -> str:
    """Pictures (H, W) of 0..1 beside each other."""
    rows = zip(*(p.clamp(0, 1).tolist() for p in pictures), strict=True)
    return "\n".join(
        "   ".join("".join(2 * SHADES[round(9 * v)] for v in part) for part in row) for row in rows
    )


def main(updates: int = 150) -> float:
    """Trains, prints a completion, and returns the error on the hidden patches of the test part."""
    torch.manual_seed(0)
    kind = get_task("inpaint")
    task = kind(kind.Config())
    task.load()
    model = task.build(EnergyInpainterConfig(width=32, heads=16))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    train = task.source("train")
    for _ in range(updates):
        batch = train.batch(torch.randint(len(train), (32,)).tolist())
        loss, _ = task.loss(model, batch)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    test = task.source("test").batch(range(359))
    with torch.no_grad():
        course = model.eval().course(test["x"], test["hidden"])
    shown, hidden = 3, test["hidden"][3, :, None]
    states = [torch.where(hidden, p[shown], test["x"][shown]) for p in course.path[::2]]
    frames = [test["x"][shown], test["x"][shown].masked_fill(hidden, 0.0), *states]
    pictures = task.facts.to_pictures(task.facts.from_patches(torch.stack(frames)))
    print("original, masked, then steps 0, 2 and 4:\n")
    print(text(list(torch.from_numpy(pictures))))
    print("\nenergy", *(f"{e:.1f}" for e in course.energies[:, shown].tolist()))
    error = float((course.completed - test["x"]).square()[test["hidden"]].mean())
    others = ", ".join(f"{k} {v:.3f}" for k, v in task.baselines().items())
    print(f"squared error on hidden patches {error:.3f} ({others})")
    return error


if __name__ == "__main__":
    main()
