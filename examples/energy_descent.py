"""Tokens settle in an energy: prints the energy at each step, for a step too long and a safe one.

Run:  python examples/energy_descent.py
"""

import torch

from lawful.energy import EnergyTransformer


def curve(energies: torch.Tensor, width: int = 50) -> str:
    """One line of text for each reading of one sample's energy."""
    low, high = energies.min(), energies.max()
    bars = ((energies - low) / (high - low).clamp(min=1e-12) * width).round().int()
    marks = ["", *("  rises" if d > 0 else "" for d in energies.diff())]
    rows = zip(energies, bars, marks, strict=True)
    return "\n".join(f"{t:>4} {e:>10.4f} {'#' * b}{m}" for t, (e, b, m) in enumerate(rows))


def main() -> None:
    """Prints two curves of the same energy from the same tokens."""
    torch.manual_seed(10)
    tokens = 0.003 * torch.randn(10, 12)
    fixed = EnergyTransformer(12, heads=2, head_dim=6, memories=0, steps=12, step_size=1.0)
    with torch.no_grad():
        # Tokens that repel each other: the case in which a long step overshoots.
        fixed.attention.key.copy_(-fixed.attention.query)
    for rule in ("fixed", "certified", "backtracking"):
        model = EnergyTransformer(
            12, heads=2, head_dim=6, memories=0, steps=12, step_size=1.0, step_rule=rule
        )
        model.load_state_dict(fixed.state_dict())
        with torch.no_grad():
            _, energies = model(tokens, return_energy=True)
        print(f"{rule} steps\n{curve(energies)}\n")


if __name__ == "__main__":
    main()
