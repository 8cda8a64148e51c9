"""Table 4 of Kim et al. (2017): accuracies of answers and of whole chains of facts, in percent."""

from lawful.models import BinaryChainConfig, FactReader, MemoryNetworkConfig

__all__ = ["HOPS", "PUBLISHED", "TITLES", "published_row"]

#: Number of facts that the paper's models choose, by story.
HOPS = {2: 2, 3: 3, 7: 3, 8: 3, 11: 2, 13: 2, 14: 2, 15: 2, 16: 3, 17: 2, 18: 2, 19: 2}
TITLES = {
    2: "two supporting facts",
    3: "three supporting facts",
    7: "counting",
    8: "lists/sets",
    11: "basic coreference",
    13: "compound coreference",
    14: "time reasoning",
    15: "basic deduction",
    16: "basic induction",
    17: "positional reasoning",
    18: "size reasoning",
    19: "path finding",
}
Cell = tuple[float, float | None]  # answers, chains of facts (none where their number varies)
#: By model, then story.
PUBLISHED: dict[str, dict[int, Cell]] = {
    "memn2n": {
        2: (87.3, 46.8), 3: (52.6, 1.4), 7: (83.2, None), 8: (94.1, None), 11: (97.8, 38.2),
        13: (95.6, 14.8), 14: (99.9, 77.6), 15: (100.0, 59.3), 16: (97.1, 91.0),
        17: (61.1, 23.9), 18: (86.4, 3.3), 19: (21.3, 10.2),
    },
    "binary-chain": {
        2: (84.7, 81.8), 3: (40.5, 0.1), 7: (83.5, None), 8: (93.3, None), 11: (97.7, 80.8),
        13: (97.0, 36.4), 14: (99.7, 98.2), 15: (100.0, 89.5), 16: (97.9, 85.6),
        17: (60.6, 49.6), 18: (92.2, 3.9), 19: (24.4, 11.5),
    },
    "unary-chain": {
        2: (43.5, 22.3), 3: (28.2, 0.0), 7: (79.3, None), 8: (87.1, None), 11: (88.6, 0.0),
        13: (94.4, 9.3), 14: (90.5, 30.2), 15: (100.0, 51.4), 16: (98.0, 41.4),
        17: (59.7, 10.5), 18: (92.0, 1.4), 19: (24.3, 7.8),
    },
}  # fmt: skip


def published_row(model: FactReader) -> str:
    """The row of the table that a model belongs to."""
    if isinstance(model.config, MemoryNetworkConfig):
        return "memn2n"
    return "binary-chain" if isinstance(model.config, BinaryChainConfig) else "unary-chain"
