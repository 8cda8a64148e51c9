"""Trains a tiny dependency parser on made-up sentences: `python examples/projective_parser.py`.

Each word type has a hidden rank. The highest word of a sentence is the child of the root, and it
splits the rest in two, whose highest words are its dependents, and so on: a projective tree. The
parser sees words and trees, never ranks; it learns scores of head-word pairs by maximum likelihood
over trees, and decodes the tree with the most right heads expected.
"""

import torch
from torch import Tensor, nn

from lawful.structures import ProjectiveTree

WORDS = 20


class Parser(nn.Module):
    """Scores arcs by a bilinear form of head and word, roots by the word."""

    def __init__(self, size: int = 16) -> None:
        super().__init__()
        self.as_head = nn.Embedding(WORDS, size)
        self.as_word = nn.Embedding(WORDS, size)
        self.as_root = nn.Embedding(WORDS, 1)

    def forward(self, words: Tensor, lengths: Tensor) -> ProjectiveTree:
        """Words (B, N), lengths (B) -> a distribution over trees."""
        arcs = self.as_head(words) @ self.as_word(words).mT
        root = self.as_root(words)[..., 0]
        return ProjectiveTree(arcs, root, lengths=lengths, single_root=True)


def sentences(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Words (count, 9), lengths and heads; every rank occurs at most once in a sentence."""
    n = 9
    words = torch.stack([torch.randperm(WORDS, generator=generator)[:n] for _ in range(count)])
    lengths = torch.randint(2, n + 1, (count,), generator=generator)
    heads = torch.full((count, n), -2)
    for b in range(count):
        _hang(words[b], heads[b], 0, int(lengths[b]), -1)
    return words, lengths, heads


def _hang(words: Tensor, heads: Tensor, start: int, end: int, head: int) -> None:
    if start == end:
        return
    top = start + int(words[start:end].argmax())  # the word's number is its rank
    heads[top] = head
    _hang(words, heads, start, top, top)
    _hang(words, heads, top + 1, end, top)


def main(steps: int = 200, seed: int = 0) -> float:
    """Trains, prints the share of right heads on new sentences, and returns it."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    parser = Parser()
    optimiser = torch.optim.Adam(parser.parameters(), lr=0.05)
    for step in range(steps):
        words, lengths, heads = sentences(32, generator)
        loss = -parser(words, lengths).log_prob(heads).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 50 == 0:
            print(f"step {step:3d}  loss {loss.item():.3f} nats a sentence")
    words, lengths, heads = sentences(200, generator)
    found = parser(words, lengths).mbr
    right = (found == heads)[heads != -2].double().mean().item()
    print(f"right heads on new sentences: {100 * right:.1f} %")
    return right


if __name__ == "__main__":
    main()
