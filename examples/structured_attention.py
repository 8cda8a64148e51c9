"""Learns to find each closing bracket's partner, by softmax and by projective trees.

Both models see the same random brackets and are trained alike: a bracket has to point at its
partner. Softmax attention lets every bracket choose alone; trees must not cross, as brackets do
not. After a few updates they are far ahead; with hundreds of updates both arrive. Run it with
`python examples/structured_attention.py`; it takes seconds and needs no download.
"""

import torch
from torch import Tensor, nn

from lawful.attention import SyntacticAttention

LENGTH = 12  # brackets; token 0 is the root


def brackets(rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Tokens (rows, 1 + LENGTH): 0 root, 1 opening, 2 closing; and each closing one's partner."""
    tokens = torch.zeros(rows, 1 + LENGTH, dtype=torch.int64)
    partner = torch.full((rows, 1 + LENGTH), -1)
    dice = torch.rand(rows, LENGTH, generator=generator)
    for row in range(rows):
        stack: list[int] = []
        for place in range(1, 1 + LENGTH):
            left = 1 + LENGTH - place
            opens = not stack or (len(stack) < left and dice[row, place - 1] < 0.5)
            if opens:
                stack.append(place)
            else:
                partner[row, place] = stack.pop()
            tokens[row, place] = 1 if opens else 2
    return tokens, partner


class Matcher(nn.Module):
    """Embeds brackets, and lets each attend to one other."""

    def __init__(self, structure: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(3, 16)
        self.attend = SyntacticAttention(16, 16, structure=structure, squash=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Probability (B, N, N) that token j attends to token i."""
        return self.attend(self.embed(tokens))[1]


def main(updates: int = 25) -> dict[str, float]:
    """Trains both, prints and returns the share of closing brackets matched on fresh data."""
    results = {}
    for structure in ("softmax", "projective"):
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(1)
        model = Matcher(structure)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
        for _ in range(updates):
            tokens, partner = brackets(16, generator)
            row, closing = (partner >= 0).nonzero(as_tuple=True)
            chance = model(tokens)[row, closing, partner[row, closing]]
            loss = -chance.clamp(min=1e-6).log().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        tokens, partner = brackets(200, torch.Generator().manual_seed(2))
        with torch.no_grad():
            guess = model(tokens).argmax(-1)
            trees = model.attend.distribution(model.embed(tokens[:1]))
            best, chance = trees.argmax, trees.log_prob(trees.argmax).exp()
        right = (guess == partner)[partner >= 0].float().mean()
        results[structure] = float(right)
        print(f"{structure:<12} {100 * results[structure]:.1f} % of closing brackets matched")
    # Heads count from the first bracket; -1 is the root.
    print(f"best tree {best[0].tolist()}, probability {float(chance[0]):.2f}")
    return results


if __name__ == "__main__":
    main()
