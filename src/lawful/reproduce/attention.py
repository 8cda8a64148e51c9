"""The tables of Structured Attention Networks (Kim et al. 2017, arXiv 1702.00887)."""

from lawful.reproduce._tables import Measure, Row, Table
from lawful.tasks.nli import PUBLISHED as NLI_PUBLISHED
from lawful.tasks.qa import HOPS, PUBLISHED, TITLES

_DEPTHS = (2, 3, 4, 5, 6)


def _depths(*values: float) -> dict[str, float]:
    return {f"depth_{d}": v for d, v in zip(_DEPTHS, values, strict=True)}


def _row(
    key: str,
    title: str,
    *options: str,
    note: str = "",
    published: dict[str, float] | None = None,
    quick: bool = True,
) -> Row:
    return Row(
        key,
        title,
        ("transduction", *options),
        # Two passes over the same data: the separation of the models is plain by then.
        quick=("--epochs", "2", "--halve-from", "2"),
        note=note,
        published=published or {},
        in_quick=quick,
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
        _row("simple-heads", "simple, not squashed, 4 heads", "--model", "simple", "--no-squash",
             "--heads", "4", quick=False),
        _row("structured-heads", "structured, not squashed, 4 heads", "--model", "structured",
             "--no-squash", "--heads", "4", quick=False),
        _row("crossing", "any spanning tree, not squashed", "--model", "structured",
             "--no-squash", "--crossing", quick=False, note="arcs may cross: matrix-tree theorem"),
        _row("crossing-heads", "any spanning tree, not squashed, 4 heads", "--model", "structured",
             "--no-squash", "--crossing", "--heads", "4", quick=False),
    ],
    cost="about 2 hours of one core; --quick about 3 minutes",
    quick_text="2 epochs in place of 13, one seed, and only the models up to the controls.",
)  # fmt: skip


def _translation(key: str, title: str, *options: str, note: str = "") -> Row:
    whole = ("--source", "ja", "--target", "en", "--epochs", "6", "--batch-size", "64",
             "--eval-every", "782", "--checkpoint-every", "391")  # fmt: skip
    return Row(
        key,
        title,
        ("translation", *options, *whole),
        quick=("--max-train", "8000", "--epochs", "4", "--eval-every", "125"),
        note=note,
        in_quick=key.startswith("char"),
    )


#: Table 3: Japanese to English, on pairs that anybody can get.
TRANSLATION = Table(
    name="translation",
    title="Translation",
    source="Kim et al. 2017, Table 3",
    text=(
        "BLEU of beam search with width 5. The paper's data (ASPEC, 500,000 pairs) are not public, "
        "so its numbers are not comparable: by characters 12.6 with simple, 13.1 with sigmoid and "
        "14.6 with structured attention, by words 14.1, 13.8 and 14.3. Ours are 50,000 short pairs "
        "of the Tanaka corpus, two layers of 128 units in place of 500, 6 epochs. Attended: how "
        "many source positions a step attends to; saturated: the share of positions whose "
        "probability of that is within 1 % of 0 or 1."
    ),
    measures=[
        Measure("bleu", "BLEU"),
        Measure("perplexity", "perplexity", digits=2),
        Measure("attended", "attended", digits=2),
        Measure("saturated", "saturated, %", 100.0),
    ],
    rows=[
        _translation("char-simple", "characters, simple", "--model", "simple"),
        _translation("char-sigmoid", "characters, sigmoid", "--model", "sigmoid"),
        _translation("char-segmentation", "characters, segmentation", "--model", "segmentation"),
        _translation(
            "char-plain", "characters, segmentation, plain marginals", "--model", "segmentation",
            "--total", "0", note="eq. 2 without the division, which the paper found to saturate",
        ),
        _translation("word-simple", "words, simple", "--model", "simple", "--source-unit", "word"),
        _translation("word-sigmoid", "words, sigmoid", "--model", "sigmoid",
                     "--source-unit", "word"),
        _translation("word-segmentation", "words, segmentation", "--model", "segmentation",
                     "--source-unit", "word"),
    ],
    cost="about 70 minutes of one core for each seed; --quick about 8",
    data="a folder or zip file of train, dev and test pairs (.ja and .en)",
    quick_text="8,000 pairs, 4 epochs, one seed, characters only.",
)  # fmt: skip


_QA_NAMES = {
    "memn2n": "memory network",
    "binary-chain": "binary chain",
    "unary-chain": "unary chain",
}
_QA_QUICK = (2, 15)  # stories of the scaled-down form
# The released code's start and rate (0.01 a question), 8 questions an update: better on these.
_QA_SLOW = ((16, "memn2n"), (17, "memn2n"))
_QA_PUBLISHED = ("--batch-size", "8", "--lr", "0.08", "--init", "0.316", "--gradient-limit", "5",
                 "--linear-start", "2250", "--halve-every", "2813", "--eval-every", "563",
                 "--checkpoint-every", "1126", "--epochs", "60")  # fmt: skip


def _qa_row(story: int, model: str) -> Row:
    answers, chains = PUBLISHED[model][story]
    published = {"accuracy": answers}
    if chains is not None:
        published["fact_accuracy_half"] = chains
    options = ("--story", str(story), "--model", model, "--hops", str(HOPS[story]))
    slow = (story, model) in _QA_SLOW
    return Row(
        f"{story}-{model}",
        f"{story} {TITLES[story]}, {_QA_NAMES[model]}",
        ("qa", *options, "--restarts", "20", *(_QA_PUBLISHED if slow else ())),
        quick=("--restarts", "10", "--epochs", "60"),
        note="with the published rate and start, 8 questions an update" if slow else "",
        published=published,
        in_quick=story in _QA_QUICK,
    )


#: Table 4: question answering by chains of facts, bAbI with 1,000 training questions a story.
QA = Table(
    name="qa",
    title="Question answering",
    source="Kim et al. 2017, Table 4",
    text=(
        "Right answers, and chains of facts that are the supporting facts, all and in order, in "
        "percent, on the same stories as the paper: bAbI version 1.2 with 1,000 training questions "
        "(the paper says 1.0), of which the last tenth is held out. As in the paper, 20 "
        "initialisations are trained for each row; answers are those of the one that is best on "
        "held-out questions, chains a mean over the better half. Ours are trained side by side, "
        "with 32 questions an update where the released code has one, at three times its rate "
        "where no note says otherwise, and half of the chains' initialisations have a linear start "
        "of ours. Chains of stories 7 and 8, whose number of supporting facts varies, are counted "
        "among questions with three."
    ),
    measures=[
        Measure("accuracy", "answers", 100.0),
        Measure("fact_accuracy_half", "chains of facts", 100.0),
    ],
    rows=[_qa_row(story, model) for story in HOPS for model in PUBLISHED],
    cost="about 45 minutes of one core; --quick about 2",
    seeds=(1,),
    data="the bAbI stories: a zip or folder with qa2_two-supporting-facts_train.txt and so on",
    quick_text="Stories 2 and 15, 10 initialisations in place of 20, 60 epochs in place of 100.",
)


def _nli_row(model: str, title: str, *options: str, paper: bool = True, note: str = "") -> Row:
    return Row(
        "-".join([model, *(o.removeprefix("--") for o in options)]),
        title,
        (
            "nli",
            *("--model", model, *options),
            *("--label-names", "neutral,contradiction,entailment"),
            *("--epochs", "8", "--eval-every", "562"),
        ),
        quick=("--max-train", "4000", "--epochs", "4", "--eval-every", "125"),
        published={"accuracy": NLI_PUBLISHED[model]} if paper else {},
        note=note,
    )


#: Table 5: natural language inference, on a part of SNLI.
NLI = Table(
    name="nli",
    title="Natural language inference",
    source="Kim et al. 2017, Table 5",
    text=(
        "Accuracy on SNLI's test part, in percent. The paper trained on all 549,367 pairs with "
        "GloVe vectors; rows here are trained on what --data holds, in our results 18,000 pairs, "
        "with word vectors learned from those alone. So the numbers beside each other are not "
        "comparable, only their order is. Where labels are numbers, 1 is neutral, 2 contradiction "
        "and 3 entailment."
    ),
    measures=[Measure("accuracy", "accuracy", 100.0)],
    rows=[
        _nli_row("none", "no attention inside sentences"),
        _nli_row("simple", "simple attention"),
        _nli_row("structured", "structured attention"),
        _nli_row("simple", "simple, potentials not squashed", "--no-squash", paper=False,
                 note="control: without the tanh around the potentials"),
        _nli_row("structured", "structured, potentials not squashed", "--no-squash", paper=False,
                 note="control: without the tanh around the potentials"),
    ],
    cost="about 70 minutes of one core; --quick about 6",
    data="a folder or zip with SNLI's train, dev and test parts",
    quick_text="The first 4,000 training pairs, 4 epochs, one seed.",
)  # fmt: skip
