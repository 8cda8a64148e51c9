"""Image completion with the Energy Transformer (Hoover et al. 2023, arXiv 2302.07253)."""

from lawful.reproduce._tables import Measure, Row, Table


def _row(key: str, title: str, *options: str) -> Row:
    return Row(
        key,
        title,
        (
            *("inpaint", "--model", key, "--patch", "8", "--flip", "--batch-size", "64"),
            *("--steps", "9000", "--eval-every", "1000"),
            *options,
        ),
        quick=("--steps", "600", "--eval-every", "300"),
    )


#: Masked patches of CIFAR-10 filled in; the paper's figures are for ImageNet.
INPAINT = Table(
    name="inpaint",
    title="Image completion",
    source="after Hoover et al. 2023; its ImageNet figures are not comparable",
    text=(
        "Mean squared error of masked 8x8 patches of CIFAR-10 on its 10,000 test pictures, half of "
        "the patches in the loss set and nine tenths of those hidden: in units of the training "
        "pixels' variance, and on pixels in 0..1. Filling in the neighbours is at 0.420 of the "
        "former."
    ),
    measures=[
        Measure("masked_mse", "masked MSE", digits=4),
        Measure("masked_mse_unit", "on 0..1", digits=5),
    ],
    rows=[
        _row("energy", "Energy Transformer", "--width", "128", "--head-dim", "16", "--lr", "5e-3"),
        _row("vit", "ViT of as many parameters", "--width", "68", "--lr", "5e-3"),
        _row("vit-tied", "ViT, one layer used over and over", "--width", "128", "--lr", "3e-3"),
        _row("vit-compute", "ViT of as much work", "--width", "128", "--lr", "3e-3"),
    ],
    cost="about 55 minutes of one core for each seed; --quick about 4",
    seeds=(0, 1, 2),
    quick_seeds=(0,),
    data="CIFAR-10: a folder with its zip files, class folders or *.bin",
    quick_text="600 updates in place of 9,000, and one seed.",
)


def _graph_row(data: str, key: str, title: str, *options: str) -> Row:
    return Row(
        f"{data}-{key}",
        f"{data}: {title}",
        ("anomaly", "--model", key, "--pick", data, "--scaling", "quantile", *options),
        quick=("--steps", "60"),
    )


_SCORERS = (
    ("energy", "Energy Transformer"),
    ("energy-published", "Energy Transformer, published form"),
    ("mlp", "MLP, without the graph"),
    ("gcn", "GCN"),
    ("sage", "GraphSAGE"),
    ("gat", "GAT"),
    ("bwgnn", "BWGNN"),
)

#: Anomalous nodes found by every model on the same splits.
ANOMALY = Table(
    name="anomaly",
    title="Anomalous nodes of a graph",
    source="after Hoover et al. 2023, whose data sets are larger; see the guide",
    text=(
        "Test metrics of the checkpoint with the best average precision on the validation nodes; "
        "40 % of the labelled nodes for training, a third of the others for validation, drawn "
        "anew for each seed and the same for every row. Boosted trees on the same splits stand in "
        "each run's report. Read precision first: few nodes are anomalous."
    ),
    measures=[
        Measure("average_precision", "average precision", digits=3),
        Measure("auroc", "AUROC", digits=3),
        Measure("macro_f1", "macro-F1", digits=3),
        Measure("recall_at_k", "recall at k", digits=3),
    ],
    rows=[
        _graph_row(data, key, title) for data in ("tolokers", "reddit") for key, title in _SCORERS
    ],
    cost="not measured yet",
    seeds=(0, 1, 2, 3, 4),
    quick_seeds=(0,),
    data="a folder with tolokers.npz and reddit.npz",
    quick_text="60 updates in place of 200, and one seed.",
)
