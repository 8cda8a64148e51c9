"""What does structured attention cost, next to simple attention, in a training step?

At the sizes of the four experiments of Structured Attention Networks (where it cost about five
times as much): forward, backward, clipping and an SGD update for the transduction model; forward
and backward for the layers. Contestants take turns; "cost" is the ratio of median CPU times to the
simple one, the goal is below 1.5. The last cases are single small calls, where overhead is
everything.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from _harness import Contestant, Row, race, report
from lawful.attention import (
    ChainAttention,
    SegmentationAttention,
    SigmoidAttention,
    SoftmaxAttention,
    SyntacticAttention,
)
from lawful.kernels import native_status
from lawful.tasks import get_task
from lawful.tasks.transduction import TransductionTask

GOAL = 1.5
Case = tuple[str, list[Contestant], str]
TRANSDUCERS = {
    "simple": ("simple", {}),
    "no attention": ("none", {}),
    "structured": ("structured", {}),
    "spanning trees": ("structured", {"crossing": True}),
    "structured, 4 heads": ("structured", {"heads": 4}),
    "simple, 4 heads": ("simple", {"heads": 4}),
}


def update_of(task: TransductionTask, name: str, batch: dict[str, Tensor]) -> Contestant:
    kind, settings = TRANSDUCERS[name]
    torch.manual_seed(0)
    model = task.build(task.models[kind](**settings))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)

    def run() -> None:
        loss, _ = task.loss(model, batch)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    return Contestant(name, run)


def transduction(quick: bool) -> Iterator[Case]:
    Task = get_task("transduction")
    task = Task(Task.Config(train_per_depth=500, valid_per_depth=1, test_per_depth=1))
    task.load()
    source = task.source("train")
    order = source.sizes.argsort(kind="stable")
    for share in (0.5,) if quick else (0.1, 0.5, 0.9):
        first = int(share * (len(order) - 20))
        batch = source.batch(order[first : first + 20].tolist())
        n = batch["source"].shape[1]
        names = list(TRANSDUCERS)[: 3 if quick else None]
        contestants = [update_of(task, name, batch) for name in names]
        yield f"transduction 20x{n}", contestants, "simple"


def step_of(name: str, layer: nn.Module, args: Sequence[Tensor | None]) -> Contestant:
    inputs = [a if a is None else a.requires_grad_() for a in args]

    def run() -> None:
        layer.zero_grad()
        for x in inputs:
            if x is not None:
                x.grad = None
        layer(*inputs)[0].sum().backward()

    return Contestant(name, run)


def layers(quick: bool) -> Iterator[Case]:
    batch = 16 if quick else 128
    query, keys = torch.randn(batch, 50, 500), torch.randn(batch, 50, 500)
    contestants = [
        step_of("softmax", SoftmaxAttention(500), (query, keys)),
        step_of("sigmoid", SigmoidAttention(500), (query, keys)),
        step_of("segmentation", SegmentationAttention(500), (query, keys)),
    ]
    yield f"translation {batch}x50x50x500", contestants, "softmax"

    query, facts = torch.randn(32, 20), torch.randn(32, 25, 20)
    contestants = [
        step_of("two softmax hops", Hops(20), (query, facts)),
        step_of("unary chain", ChainAttention(20, pairwise=False, repeat=True), (query, facts)),
        step_of("binary chain", ChainAttention(20), (query, facts)),
    ]
    yield "questions 32x25, K=2", contestants, "two softmax hops"

    words = torch.randn(32, 20, 300)
    contestants = [
        step_of("simple", SyntacticAttention(300, 100, structure="softmax"), (words,)),
        step_of("structured", SyntacticAttention(300, 100), (words,)),
        step_of("spanning trees", SyntacticAttention(300, 100, structure="spanning"), (words,)),
    ]
    yield "inference 32x20x300", contestants, "simple"


class Hops(nn.Module):
    """Two hops of a memory network, the counterpart of a chain of two steps."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.attend = SoftmaxAttention()

    def forward(self, query: Tensor, facts: Tensor) -> tuple[Tensor, Tensor]:
        """Context and the weights of the second hop."""
        first, _ = self.attend(query, facts)
        second, weights = self.attend(query + first, facts)
        return first + second, weights


def small_calls() -> Iterator[Case]:
    query, keys = torch.randn(1, 8), torch.randn(1, 10, 8)
    kinds: dict[str, nn.Module] = {
        "softmax": SoftmaxAttention(8),
        "sigmoid": SigmoidAttention(8),
        "segmentation": SegmentationAttention(8),
        "chain": ChainAttention(8),
    }
    contestants = [Contestant(k, without_grad(m, query, keys)) for k, m in kinds.items()]
    tree = SyntacticAttention(8, None)
    contestants.append(Contestant("projective trees", without_grad(tree, keys)))
    yield "one call 1x10, no grad", contestants, "softmax"


def without_grad(layer: nn.Module, *args: Tensor) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            layer(*args)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller cases")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each contestant")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON file for the rows")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows: list[Row] = []
    for cases in (transduction(options.quick), layers(options.quick), small_calls()):
        for case, contestants, baseline in cases:
            found = race(case, contestants, seconds=options.seconds, baseline=baseline)
            base = next(r for r in found if r.name == baseline)
            for row in found:
                row.extra["cost"] = round(row.cpu_ms / base.cpu_ms, 3)
            rows += found
    report("attention", rows, options.out, goal=GOAL, kernels=native_status().describe())


if __name__ == "__main__":
    main()
