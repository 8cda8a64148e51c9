"""The tables of Sparse Attentive Backtracking (Ke et al. 2018, arXiv 1809.03702), scaled down.

The paper trains for 200,000 updates and more; the rows here are sized for minutes of one core. Its
numbers stand beside ours only where task and length are the same.
"""

from lawful.reproduce._tables import Measure, Row, Table

_FAST = ("--lr", "2e-3", "--schedule", "cosine")
_LESS = ("--steps", "600", "--eval-every", "200")
_SCALED = (
    "The paper trains for 200,000 updates; ours are sized for minutes of one core, so a lower "
    "number is no verdict on the paper's."
)


def _copying(blanks: int, key: str, title: str, *options: str, published: float | None) -> Row:
    return Row(
        f"{blanks}-{key}",
        f"T = {blanks}, {title}",
        ("copying", "--blanks", str(blanks), "--steps", "8000", *options),
        quick=_LESS,
        published={} if published is None else {"accuracy": published},
        in_quick=blanks == 20,
    )


_GROW = ("--start-blanks", "5", "--grow-over", "400000", *_FAST)
_TRUNCATED = ("--model", "lstm-tbptt", "--k-trunc", "5")

#: Copying: recall of ten symbols after T blank steps.
COPYING = Table(
    name="sab-copying",
    title="Copying with sparse attentive backtracking",
    source="Ke et al. 2018, copying",
    text=(
        "Share of the ten symbols said right, in percent; chance is 12.5. k_trunc = 5, k_top = 5, "
        f"with the silence growing up to T in training for the longer ones. {_SCALED} Whether a "
        "run learns depends on its seed: read the spread."
    ),
    measures=[Measure("accuracy", "symbols right, %", 100.0)],
    rows=[
        _copying(20, "sab", "SAB", published=None),
        _copying(20, "truncated", "LSTM truncated at 5", *_TRUNCATED, published=None),
        _copying(50, "sab", "SAB", *_GROW, published=None),
        _copying(50, "truncated", "LSTM truncated at 5", *_TRUNCATED, published=None),
        _copying(100, "sab", "SAB", *_GROW, published=100.0),
        _copying(100, "truncated", "LSTM truncated at 5", *_TRUNCATED, published=31.0),
    ],
    cost="about 35 minutes of one core for each seed; --quick about 1",
    seeds=(0, 1, 2),
    quick_seeds=(0,),
    quick_text="T = 20, 600 updates in place of 8,000, one seed.",
)

_FAR = (100, 200, 300, 400, 2000, 5000)

#: Transfer: trained on short silences, tested on long ones.
TRANSFER = Table(
    name="sab-transfer",
    title="Transfer to longer silences",
    source="Ke et al. 2018, transfer of copying",
    text=(
        "Share of symbols said right after silences that were never trained, in percent. Trained "
        "at T = 10 here. The paper trains at T = 100 and reports, for T = 100, 200, 300, 400, 2000 "
        f"and 5000: 99, 95, 83, 75, 47 and 41. {_SCALED}"
    ),
    measures=[Measure(f"accuracy_{t}", f"T = {t}", 100.0) for t in _FAR],
    rows=[
        Row(
            key,
            title,
            (
                *("copying", "--blanks", "10", "--steps", "8000", *_FAST, *options),
                *("--also-blanks", *map(str, _FAR), "--also-size", "64"),
            ),
            quick=(*_LESS, "--also-size", "8"),
        )
        for key, title, options in (
            ("sab", "SAB", ()),
            ("lstm", "LSTM", ("--model", "lstm")),
        )
    ],
    cost="about 10 minutes of one core for each seed; --quick about 2",
    seeds=(0, 1, 2),
    quick_seeds=(0,),
    quick_text="600 updates in place of 8,000, 8 sequences for each length, one seed.",
)

#: Ablations on copying.
ABLATION = Table(
    name="sab-ablation",
    title="What sparse attentive backtracking needs",
    source="Ke et al. 2018, ablations",
    text=(
        "Copying at T = 20: share of symbols said right, in percent. The paper's figures are for "
        f"T = 100, where SAB without mental updates has 98.3. {_SCALED}"
    ),
    measures=[Measure("accuracy", "symbols right, %", 100.0)],
    rows=[
        Row(key, title, ("copying", "--blanks", "20", *options), quick=_LESS)
        for key, title, options in (
            ("whole", "SAB", ()),
            ("no-mental-updates", "no gradient into recalled windows", ("--mental-updates", "0")),
            ("dense-softmax", "dense attention, truncated, softmax",
             ("--k-top", "0", "--small-memory", "softmax")),
            ("dense-raw", "dense attention, truncated, raw scores", ("--k-top", "0")),
        )
    ],
    cost="about 18 minutes of one core for each seed; --quick about 2",
    seeds=(0, 1, 2),
    quick_seeds=(0,),
    quick_text="600 updates in place of 8,000, one seed.",
)  # fmt: skip

#: Adding two marked numbers.
ADDING = Table(
    name="sab-adding",
    title="Adding with sparse attentive backtracking",
    source="Ke et al. 2018, adding",
    text=(
        "Mean squared error of half the sum at T = 200; always answering the mean has 0.0417. "
        f"{_SCALED}"
    ),
    measures=[Measure("loss", "MSE", form="e")],
    rows=[
        Row("200-sab", "SAB, k_trunc 10, k_top 10",
            ("adding", "--length", "200", "--k-trunc", "10", "--k-top", "10", "--k-att", "5",
             "--preset", "authors", "--score-grad", "params_only", "--steps", "8000"),
            quick=_LESS, published={"loss": 2.0e-6}),
        Row("200-lstm", "LSTM, full back-propagation",
            ("adding", "--length", "200", "--model", "lstm", "--steps", "8000"),
            quick=_LESS, published={"loss": 4.59e-6}),
    ],
    cost="about 25 minutes of one core for each seed; --quick about 2",
    seeds=(0, 1, 2),
    quick_seeds=(0,),
    quick_text="600 updates in place of 8,000, one seed.",
)  # fmt: skip

_PTB = ("charlm", "--form", "ptb-words", "--hidden", "256", "--steps", "7000",
        "--eval-every", "1000", "--checkpoint-every", "1000")  # fmt: skip
_PTB_LESS = ("--steps", "400", "--eval-every", "200")

#: Characters of the Penn Treebank.
LANGUAGE = Table(
    name="sab-language",
    title="Character language modelling",
    source="Ke et al. 2018, Penn Treebank",
    text=(
        "Bits per character on the Penn Treebank's test part. 256 units in place of 1,000, and "
        f"7,000 updates. {_SCALED}"
    ),
    measures=[Measure("bpc", "bits per character", digits=3)],
    rows=[
        Row("sab", "SAB, k_trunc 20, k_top 10",
            (*_PTB, "--k-trunc", "20", "--k-att", "20", "--k-top", "10", "--max-memories", "20"),
            quick=_PTB_LESS, published={"bpc": 1.37}),
        Row("lstm", "LSTM, full back-propagation", (*_PTB, "--model", "lstm"), quick=_PTB_LESS,
            published={"bpc": 1.36}),
        Row("truncated", "LSTM truncated at 5",
            (*_PTB, "--model", "lstm-tbptt", "--k-trunc", "5"), quick=_PTB_LESS,
            published={"bpc": 1.44}),
    ],
    cost="about 30 minutes of one core for each seed; --quick about 3",
    seeds=(0, 1, 2),
    quick_seeds=(0,),
    data="a folder with ptb.train.txt, ptb.valid.txt and ptb.test.txt (or .gz)",
    quick_text="400 updates in place of 7,000, one seed.",
)  # fmt: skip

_PERMUTED = ("pixels", "--order", "permuted", "--max-train", "10000", "--eval-every", "400",
             "--checkpoint-every", "400")  # fmt: skip

#: Pictures read pixel by pixel.
IMAGES = Table(
    name="sab-images",
    title="Permuted pixels",
    source="Ke et al. 2018, permuted MNIST",
    text=(
        "Test accuracy on MNIST read in one fixed random order, in percent. The first 10,000 "
        f"training pictures and 1,500 updates in place of about 100 epochs of all. {_SCALED}"
    ),
    measures=[Measure("accuracy", "accuracy, %", 100.0)],
    rows=[
        Row(f"sab-{k}", f"SAB, k_trunc {k}, k_top 10",
            (*_PERMUTED, "--k-att", str(k), "--k-trunc", str(k), "--k-top", "10",
             "--steps", "1500"),
            quick=("--steps", "100", "--eval-every", "100"),
            published={} if published is None else {"accuracy": published}, in_quick=k == 50)
        for k, published in ((20, 90.9), (50, 94.2))
    ],
    cost="about 30 minutes of one core for each seed; --quick about 2",
    seeds=(0, 1, 2),
    quick_seeds=(0,),
    data="MNIST: a folder with its four IDX files",
    quick_text="100 updates in place of 1,500, k_trunc = 50 only, one seed.",
)  # fmt: skip
