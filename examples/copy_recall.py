"""Copy digits across a gap: SAB recalls them, a truncated LSTM of the same size cannot.

    python examples/copy_recall.py [--updates 400] [--gap 6]

Three digits, a gap of blanks, a marker, then the digits again. Credit along the recurrence ends
after three steps, so whoever answers right has recalled.
"""

import argparse

import torch
from torch import nn

from lawful.memory import SAB

DIGITS, COUNT, BATCH = 4, 3, 64


def examples(gap: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs one-hot (B, T, DIGITS + 2) and the digits to be said at the end (B, COUNT)."""
    digits = torch.randint(1, DIGITS + 1, (BATCH, COUNT), generator=generator)
    x = torch.zeros(BATCH, 2 * COUNT + gap, dtype=torch.long)
    x[:, :COUNT] = digits
    x[:, COUNT + gap - 1] = DIGITS + 1
    return nn.functional.one_hot(x, DIGITS + 2).float(), digits


def train(recall: bool, gap: int, updates: int, seed: int = 0) -> float:
    """Share of digits right on fresh sequences after training."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    k_att = 1 if recall else 10_000  # nothing stored, nothing recalled
    layer = SAB(DIGITS + 2, 48, k_top=3, k_att=k_att, k_trunc=3, preset="stable", output="concat")
    readout = nn.Linear(layer.output_size, DIGITS + 1)
    weights = [*layer.parameters(), *readout.parameters()]
    optimiser = torch.optim.Adam(weights, 5e-3)
    for _ in range(updates):
        x, digits = examples(gap, generator)
        answer = readout(layer(x)[0])[:, -COUNT:]
        loss = nn.functional.cross_entropy(answer.flatten(0, 1), digits.flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0, error_if_nonfinite=True)
        optimiser.step()
    x, digits = examples(gap, generator)
    with torch.no_grad():
        return float((readout(layer(x)[0])[:, -COUNT:].argmax(-1) == digits).float().mean())


def main() -> None:
    """Trains both and prints what they got right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--gap", type=int, default=6)
    options = parser.parse_args()
    for name, recall in (("truncated LSTM", False), ("SAB", True)):
        right = train(recall, options.gap, options.updates)
        print(f"{name:<15} {right:.0%} of the digits right (chance {1 / DIGITS:.0%})")


if __name__ == "__main__":
    main()
