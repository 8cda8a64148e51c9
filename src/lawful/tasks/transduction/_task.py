"""The task: data by nesting depth, average length to failure, greedy and beam search."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lawful.errors import expected
from lawful.models import (
    SimpleTransducerConfig,
    TransducerConfig,
    TransducerModel,
    TreeTransducerConfig,
)
from lawful.tasks._base import Batch, Evaluation, MeanEvaluation, Split, Task
from lawful.tasks._lines import text_lines
from lawful.tasks._padding import padded
from lawful.tasks.exhibits import Exhibit
from lawful.tasks.transduction._grammar import (
    BOS,
    EOS,
    NAMES,
    PAD,
    draw,
    encode,
    infix,
    parse,
    prefix,
    words_of,
)

__all__ = ["Pair", "Pairs", "TransductionConfig", "TransductionTask", "failures"]

TRAINED, TESTED = (2, 3, 4), (2, 3, 4, 5, 6)  # depths
BEAM = 5  # width of the paper's search


@dataclass(frozen=True)
class TransductionConfig:
    """How many expressions, and how they grow."""

    train_per_depth: int = 5000
    """Training expressions of each depth 2, 3 and 4."""
    valid_per_depth: int = 200
    """Validation expressions of each depth 2, 3 and 4."""
    test_per_depth: int = 200
    """Test expressions of each depth 2 to 6; none of them is in the training part."""
    nest: float = 0.1
    """Chance that an argument is nested, besides the one that makes the depth. The paper does not
    tell; 0.1 gives sequences as long as its results imply."""
    beam: int = BEAM
    """Width of the beam search of predictions and of the table of results; 1 is greedy search."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        for name in ("train_per_depth", "valid_per_depth", "test_per_depth", "beam"):
            if getattr(self, name) < 1:
                raise expected(name, "a whole number of at least 1", getattr(self, name))
        if not 0 <= self.nest <= 1:
            raise expected("nest", "a number in [0, 1]", self.nest)


@dataclass(frozen=True)
class Pair:
    """One example: codes of the prefix form behind $, of the infix form, and the depth."""

    source: tuple[int, ...]
    target: tuple[int, ...]
    depth: int


class Pairs:
    """Pairs as padded batches. ``lengths`` lets the trainer put pairs of like length together."""

    endless = False

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = pairs
        self.lengths: npt.NDArray[np.int64] = np.array([len(p.source) for p in pairs], np.int64)

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.pairs)

    def batch(self, indices: Sequence[int]) -> Batch:
        """See `collate`."""
        return collate([self.pairs[i] for i in indices])


def collate(pairs: Sequence[Pair]) -> Batch:
    """Padded "source" (B, N), "lengths" (B), "target" (B, T) from <s> to </s>, "depth" (B)."""
    return {
        "source": padded([p.source for p in pairs], PAD),
        "lengths": torch.tensor([len(p.source) for p in pairs]),
        "target": padded([(BOS, *p.target, EOS) for p in pairs], PAD),
        "depth": torch.tensor([p.depth for p in pairs]),
    }


def failures(said: Tensor, target: Tensor) -> Tensor:
    """Share of each target that is right before the first mistake, (B).

    Args:
        said: Tokens (B, T'), any length.
        target: Tokens (B, T) without <s>, with </s> (it counts), then padding.

    Source: the "average length to failure" of Kim et al. (2017), section 4.1, and Grefenstette et
    al. (2015). Whether </s> counts is not told there.
    """
    steps = target.shape[1]
    said = said[:, :steps]
    if said.shape[1] < steps:
        said = torch.nn.functional.pad(said, (0, steps - said.shape[1]), value=PAD)
    real = target != PAD
    right = ((said == target) & real).long().cumprod(1).sum(1)
    return right / real.sum(1)


class TransductionTask(Task[TransductionConfig]):
    """Rewrites arithmetic expressions from prefix to infix notation."""

    name = "transduction"
    summary = "rewrite nested expressions from prefix to infix (trees)"
    data_help = "none: expressions are generated from the seed"
    Config = TransductionConfig
    models: ClassVar[Mapping[str, type[Any]]] = {
        "none": TransducerConfig,
        "simple": SimpleTransducerConfig,
        "structured": TreeTransducerConfig,
    }
    default_model = "structured"
    metric = "length_to_failure"
    higher_is_better = True
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "epochs": 13,
        "batch_size": 20,
        "optimizer": "sgd",
        "lr": 1.0,
        "schedule": "halving",
        "halve_from": 9,
        "clip": 1.0,
        "eval_every": 750,  # an epoch
        "checkpoint_every": 750,
        "eval_batch_size": 100,
    }

    parts: Mapping[str, Pairs]

    def load(self) -> None:
        """Draws the expressions; none occurs twice, in whatever part."""
        if self.data is not None:
            raise expected("data", "nothing: the expressions are generated", str(self.data))
        c = self.config
        seen: set[tuple[int, ...]] = set()
        plan = (
            ("train", TRAINED, c.train_per_depth),
            ("valid", TRAINED, c.valid_per_depth),
            ("test", TESTED, c.test_per_depth),
        )
        self.parts = {
            name: Pairs([p for d in depths for p in self._draw(name, d, count, seen)])
            for name, depths, count in plan
        }

    def _draw(
        self, part: str, depth: int, count: int, seen: set[tuple[int, ...]]
    ) -> Iterator[Pair]:
        made = tried = 0
        while made < count:
            # The generator is seeded by a text that names the example, so it never changes.
            rng = random.Random(f"transduction {self.seed} {part} {depth} {tried}")
            expression = draw(rng, depth, self.config.nest)
            tried += 1
            source = tuple(encode(["$", *prefix(expression)]))
            if source in seen:
                continue
            seen.add(source)
            made += 1
            yield Pair(source, tuple(encode(infix(expression))), depth)

    def source(self, split: Split) -> Pairs:
        """The pairs of a part, by depth."""
        return self.parts[split]

    def build(self, model: TransducerConfig) -> nn.Module:
        """A fresh model."""
        return TransducerModel(model, len(NAMES))

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross-entropy in nats, summed over the tokens of a sequence, mean over sequences."""
        logits = model(batch["source"], batch["lengths"], batch["target"][:, :-1])
        want = batch["target"][:, 1:]
        loss = cross_entropy(
            logits.flatten(0, 1), want.flatten(), ignore_index=PAD, reduction="sum"
        )
        share = failures(logits.detach().argmax(-1), want).mean()
        return loss / len(want), {"length_to_failure": share}

    def evaluation(self) -> Evaluation:
        """Loss and length to failure of greedy search, over all and by depth."""
        return MeanEvaluation(_measure)

    def baselines(self) -> dict[str, float]:
        """Length to failure of saying "(" without end."""
        test = self.parts["test"].pairs
        runs = [_opening(p.target) / (len(p.target) + 1) for p in test]
        return {"always (": float(np.mean(runs))}

    def exhibits(self, model: nn.Module, split: Split = "test") -> list[Exhibit]:
        """Results by depth beside the paper's, samples, soft parents, best trees, alignment."""
        from lawful.tasks.transduction._exhibits import transduction_exhibits

        return transduction_exhibits(self, cast(TransducerModel, model), split)

    def predict(self, model: nn.Module, path: Path) -> Iterator[dict[str, Any]]:
        """The infix form of each line, an expression in prefix notation."""
        model = cast(TransducerModel, model.eval())
        for number, line in text_lines(path, "expressions in prefix notation"):
            words = words_of(line, f"{path}:{number}")
            said, score = self.translate(model, [words])
            row: dict[str, Any] = {
                "line": number,
                "input": " ".join(words),
                "output": " ".join(said[0]),
                "log_probability": float(score[0]),
            }
            expression = parse(words)
            if expression is not None:
                row["right"] = infix(expression) == said[0]
            yield row

    def translate(
        self, model: TransducerModel, sources: Iterable[Sequence[str]], width: int | None = None
    ) -> tuple[list[list[str]], Tensor]:
        """Outputs for prefix expressions (without $), and their log-probabilities (B)."""
        pairs = [Pair(tuple(encode(["$", *s])), (), 0) for s in sources]
        batch = collate(pairs)
        place = next(model.parameters()).device
        said, score = model.generate(
            batch["source"].to(place),
            batch["lengths"].to(place),
            start=BOS,
            end=EOS,
            limit=2 * batch["source"].shape[1] + 2,
            width=width or self.config.beam,
        )
        return [decode(row) for row in said.tolist()], score.cpu()


def decode(codes: Sequence[int]) -> list[str]:
    """Names of tokens up to </s>."""
    end = list(codes).index(EOS) if EOS in codes else len(codes)
    return [NAMES[c] for c in codes[:end]]


def _opening(target: Sequence[int]) -> int:
    code = NAMES.index("(")
    return next((i for i, c in enumerate(target) if c != code), len(target))


def _measure(model: nn.Module, batch: Batch) -> dict[str, tuple[float, float]]:
    """Greedy search needs no search: up to its first mistake it has been fed the right tokens."""
    logits = model(batch["source"], batch["lengths"], batch["target"][:, :-1])
    want, depth = batch["target"][:, 1:], batch["depth"]
    share = failures(logits.argmax(-1), want).double()
    each = cross_entropy(logits.transpose(1, 2), want, ignore_index=PAD, reduction="none")
    found: dict[str, tuple[float, float]] = {
        "loss": (float(each.double().sum()), len(want)),
        "length_to_failure": (float(share.sum()), len(want)),
        "exact": (float((share == 1).sum()), len(want)),
    }
    for d in sorted(set(depth.tolist())):
        chosen = share[depth == d]
        found[f"depth_{d}"] = (float(chosen.sum()), len(chosen))
    return found
