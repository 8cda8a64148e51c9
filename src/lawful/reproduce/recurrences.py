"""What unitary convolutional recurrences can do (Magnasco 2023, arXiv 2302.07396), and controls."""

from lawful.reproduce._show import Exhibition
from lawful.reproduce._tables import Measure, Row, Table
from lawful.reproduce.unitary import demonstrations

#: The paper's demonstrations, and constructions of its kind.
UNITARY = Exhibition(
    name="unitary",
    title="Demonstrations of the convolutional unitary network",
    source="Magnasco 2023, arXiv 2302.07396; E7 of 2405.15036",
    text=(
        "The paper shows pictures; here each comes with its deviation from an exact solution, and "
        "with controls that must fail."
    ),
    make=demonstrations,
    count=10,
    cost="about half a minute; --quick a few seconds",
    quick_text="smaller lattices and fewer steps.",
)


def _copying(blanks: int, key: str, title: str, *options: str, note: str = "") -> Row:
    steps = {1000: 500, 2000: 600}[blanks]
    optimiser = ("--lr", "0.01", "--schedule", "cosine", "--warmup", "20")
    return Row(
        f"{blanks}-{key}",
        f"T = {blanks:,}, {title}",
        (
            "copying",
            *("--blanks", str(blanks), "--batch-size", "32"),
            *("--valid-size", "128", "--test-size", "512", "--eval-every", "100"),
            *("--steps", str(steps)),
            *(optimiser if key != "lstm" else ()),
            *options,
        ),
        quick=("--steps", "100") if key == "lstm" else ("--steps", "150"),
        note=note,
        in_quick=blanks == 1000,
    )


_UNITARY = ("--model", "conv-unitary")

#: Ten symbols said again after T blank steps: no published figures, but a known baseline.
COPYING = Table(
    name="unitary-copying",
    title="Copying over long silences",
    source="the copying task with unitary recurrences; the paper prints no figures for it",
    text=(
        "Cross-entropy over all steps in nats, and the share of the ten symbols said right. Always "
        "answering blank has cross-entropy 0.0204 at T = 1,000 and 0.0103 at T = 2,000. The kernel "
        "that stays as it was drawn is the control: where it does as well, the task shows that the "
        "state lasts and gradients reach its beginning, not that a kernel was learned."
    ),
    measures=[
        Measure("loss", "cross-entropy", digits=1, form="e"),
        Measure("accuracy", "symbols right, %", 100.0),
    ],
    rows=[
        _copying(1000, "trained", "unitary, kernel trained", *_UNITARY),
        _copying(1000, "frozen", "unitary, kernel as drawn", *_UNITARY, "--freeze-kernel",
                 note="control: no kernel is learned"),
        _copying(1000, "lstm", "LSTM, 128 units", "--model", "lstm"),
        _copying(2000, "trained", "unitary, kernel trained", *_UNITARY),
        _copying(2000, "frozen", "unitary, kernel as drawn", *_UNITARY, "--freeze-kernel",
                 note="control: no kernel is learned"),
        _copying(2000, "lstm", "LSTM, 68 units", "--model", "lstm", "--hidden", "68",
                 "--steps", "400", note="fewer units and updates, as they cost more"),
    ],
    cost="about 45 minutes of one core; --quick about 1",
    seeds=(0, 1, 2, 3, 4),
    quick_seeds=(0,),
    quick_text="T = 1,000, 150 updates (100 of the LSTM), one seed.",
)  # fmt: skip


def _waves(key: str, title: str, *options: str, note: str = "") -> Row:
    command = ("fields", "--model", key.partition("+")[0], *options)
    return Row(key.replace("+", "-"), title, command, quick=("--steps", "400"), note=note)


#: Forecasting a wave far beyond the trained horizon.
WAVES = Table(
    name="unitary-waves",
    title="Forecasting the wave equation",
    source="exact spectral solutions on a ring of 64 sites; the paper prints no figures for it",
    text=(
        "Roll-outs of 100 frames from 10 observed ones: squared error over the mean square of the "
        "truth, over all frames and at the last one, and the relative drift of energy."
    ),
    measures=[
        Measure("relative_mse", "relative MSE", form="e"),
        Measure("relative_mse_last", "at frame 100", form="e"),
        Measure("energy_drift", "energy drift", form="e"),
    ],
    rows=[
        _waves("conv-orthogonal", "orthogonal convolution"),
        _waves("conv-unitary", "unitary convolution of complex fields"),
        _waves("conv-rnn", "convolution without constraint"),
        _waves("convlstm+small", "ConvLSTM, 2 hidden layers of the lattice", "--hidden", "2",
               "--taps", "3"),
        _waves("convlstm+large", "ConvLSTM, 8 hidden layers of the lattice", "--hidden", "8"),
    ],
    cost="about 8 minutes of one core; --quick about 1",
    seeds=(0, 1, 2),
    quick_seeds=(0,),
    quick_text="400 updates in place of 1,500, and one seed.",
)  # fmt: skip
