"""Trains a linear-chain CRF tagger and the same network without transitions, and compares them.

The data are made: sentences of a small grammar whose words are often ambiguous, so that the right
tag depends on the tags around it. Run it with `python examples/crf_tagger.py`; it takes seconds.
"""

import torch
from torch import Tensor

from lawful.structures import LinearChain

TAGS = ["DET", "ADJ", "NOUN", "VERB"]
NEXT = {"DET": ["ADJ", "NOUN", "NOUN"], "ADJ": ["NOUN"], "NOUN": ["VERB"], "VERB": ["DET"]}
WORDS = 12  # words 0..2 belong to DET, 3..5 to ADJ, ..., and any word may stand for another tag


def sentences(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Words (count, 10), tags (count, 10) with -1 in padding, lengths (count)."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, 11, (count,), generator=g)
    words, tags = torch.zeros(count, 10, dtype=torch.int64), torch.full((count, 10), -1)
    for row, length in enumerate(lengths.tolist()):
        tag = "DET"
        for t in range(length):
            tags[row, t] = TAGS.index(tag)
            clear = torch.rand((), generator=g) < 0.6
            own = 3 * TAGS.index(tag) + torch.randint(3, (), generator=g)
            words[row, t] = own if clear else torch.randint(WORDS, (), generator=g)
            choices = NEXT[tag]
            tag = choices[int(torch.randint(len(choices), (), generator=g))]
    return words, tags, lengths


def train(use_transitions: bool, steps: int = 60) -> float:
    """Fits on one set and returns the share of right tags on another."""
    torch.manual_seed(0)
    emission = torch.nn.Embedding(WORDS, len(TAGS))
    transition = torch.nn.Parameter(torch.zeros(len(TAGS), len(TAGS)))
    optimiser = torch.optim.Adam([*emission.parameters(), transition], lr=0.1)
    words, tags, lengths = sentences(200, seed=1)
    for _ in range(steps):
        crf = LinearChain(emission(words), transition if use_transitions else None, lengths)
        loss = -crf.log_prob(tags).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    words, tags, lengths = sentences(200, seed=2)
    with torch.no_grad():
        crf = LinearChain(emission(words), transition if use_transitions else None, lengths)
    inside = tags >= 0
    return float((crf.argmax == tags)[inside].double().mean())


def main() -> tuple[float, float]:
    """Prints and returns both accuracies, without and with transitions."""
    alone, chain = train(False), train(True)
    print(f"tags right: {alone:.3f} each word by itself, {chain:.3f} with a chain over them")
    return alone, chain


if __name__ == "__main__":
    main()
