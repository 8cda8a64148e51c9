"""Image completion with the Energy Transformer (Hoover et al. 2023, arXiv 2302.07253)."""

from lawful.reproduce._tables import Measure, Row, Table


def _mnist(key: str, title: str, model: str, *options: str) -> Row:
    return Row(
        key,
        title,
        (
            *("inpaint", "--model", model, "--patch", "4", "--batch-size", "64"),
            *("--steps", "2000", "--eval-every", "1000", *options),
        ),
        quick=("--steps", "300", "--eval-every", "150"),
    )


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

#: Masked patches of MNIST filled in, the same networks and the paper's form of the block.
INPAINT_MNIST = Table(
    name="inpaint-mnist",
    title="Image completion, MNIST",
    source="after Hoover et al. 2023, which has no such figures",
    text=(
        "Mean squared error of masked 4x4 patches of MNIST on its 10,000 test pictures, half of "
        "the patches in the loss set and nine tenths of those hidden: in units of the training "
        "pixels' variance, and on pixels in 0..1. The first four rows have 41,000 to 43,000 "
        "weights; the tied ViT has 55,000, the ViT of as much work 305,000."
    ),
    measures=list(INPAINT.measures),
    rows=[
        _mnist(
            "energy-paper",
            "Energy Transformer, the paper's 12 steps of 0.1, H Y = D",
            "energy",
            *("--settle-steps", "12", "--step-size", "0.1", "--heads", "4"),
            *("--head-dim", "16", "--memories", "448"),
        ),
        _mnist("energy", "Energy Transformer", "energy"),
        _mnist(
            "energy-blocks",
            "two energies of half the weights, 2 steps each",
            "energy",
            *("--blocks", "2", "--settle-steps", "2", "--heads", "16", "--memories", "32"),
        ),
        _mnist("vit", "ViT of as many parameters", "vit"),
        _mnist("vit-tied", "ViT, one layer used over and over", "vit-tied", "--lr", "3e-3"),
        _mnist("vit-compute", "ViT of as much work", "vit-compute", "--lr", "3e-3"),
    ],
    cost="about 40 minutes of one core for each seed; --quick about 8",
    seeds=(0, 1, 2),
    quick_seeds=(0,),
    data="MNIST: a folder with its IDX files",
    quick_text="300 updates in place of 2,000, and one seed.",
)
