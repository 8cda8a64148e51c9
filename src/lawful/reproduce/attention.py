"""The tables of Structured Attention Networks (Kim et al. 2017, arXiv 1702.00887)."""

from lawful.reproduce._tables import Measure, Row, Table

_DEPTHS = (2, 3, 4, 5, 6)


def _depths(*values: float) -> dict[str, float]:
    return {f"depth_{d}": v for d, v in zip(_DEPTHS, values, strict=True)}


def _row(key: str, title: str, *options: str, note: str = "", **more: dict[str, float]) -> Row:
    return Row(
        key,
        title,
        ("transduction", *options),
        # Two passes over the same data: the separation of the models is plain by then.
        quick=("--epochs", "2", "--halve-from", "2"),
        note=note,
        published=more.get("published", {}),
    )


_PAPER_SIMPLE = _depths(87.4, 49.6, 23.3, 15.0, 8.5)

#: Table 2: prefix to infix trees, average length to failure by depth.
TRANSDUCTION = Table(
    name="transduction",
    title="Tree transduction",
    source="Kim et al. 2017, Table 2",
    text=(
        "Share of an output that is right before its first mistake, in percent, by the depth of "
        "the tree; depths 5 and 6 were never seen in training. The paper's expressions are not "
        "published: ours come from its grammar, 5,000 pairs of each of the depths 2 to 4. All "
        "rows have the same number of epochs, 13 in full. Greedy search."
    ),
    measures=[Measure(f"depth_{d}", f"depth {d}", 100.0) for d in _DEPTHS],
    rows=[
        _row("none", "no source attention", "--model", "none",
             published=_depths(7.6, 4.1, 2.8, 2.1, 1.5)),
        _row("simple", "simple attention", "--model", "simple", published=_PAPER_SIMPLE),
        _row("structured", "structured attention", "--model", "structured",
             published=_depths(99.2, 87.0, 64.5, 30.8, 18.2)),
        _row("uniform", "structured, a fixed uniform tree", "--model", "structured", "--uniform",
             note="control: no potential is learned"),
        _row("simple-no-squash", "simple, potentials not squashed", "--model", "simple",
             "--no-squash", note="control: without the tanh around the potentials"),
        _row("structured-no-squash", "structured, potentials not squashed", "--model",
             "structured", "--no-squash", note="control: without the tanh around the potentials"),
    ],
    cost="about 75 minutes of one core; --quick about 3",
    quick_text="2 epochs in place of 13, and one seed.",
)  # fmt: skip
