"""The copying task: ten digits, a long silence, and then the same ten digits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lawful.errors import InputError, expected
from lawful.models import InputSpec, OutputSpec
from lawful.tasks._base import Batch, Evaluation, MeanEvaluation, Split, batches
from lawful.tasks._generated import NOMINAL_EPOCH, Generated
from lawful.tasks._random import STREAMS, below, words
from lawful.tasks._sequence import SequenceTask, place, recall_views, run
from lawful.tasks.exhibits import Curves, Exhibit, Table, Text

DIGITS = 10  # to be recalled
SYMBOLS = 8  # 1..8
BLANK, MARKER = 0, 9
Layout = Literal["released", "paper"]


@dataclass(frozen=True)
class CopyingConfig:
    """How long the silence is, and how symbols are fed."""

    blanks: int = 20
    """T, how long the digits must be kept. The paper uses 100, 200 and 300."""
    layout: Layout = "released"
    """"released": digits, T-1 blanks, marker, 10 blanks, T+20 steps in all, as the authors' code
    and most later work; "paper": T blanks before the marker, T+21 steps."""
    encoding: Literal["tokens", "scalar"] = "tokens"
    """Feed symbols as tokens (one-hot unless the model embeds them), or as one number 0..9 a
    step, as the authors' code does; the latter learns far more slowly."""
    eval_blanks: int = 0
    """T of the test sequences, to measure transfer to other lengths; 0 for the same as trained."""
    valid_size: int = 512
    """Validation sequences, drawn apart from the training ones."""
    test_size: int = 2048
    """Test sequences, drawn apart from both."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        for name, least in (("blanks", 1), ("eval_blanks", 0), ("valid_size", 1), ("test_size", 1)):
            if getattr(self, name) < least:
                want = f"a whole number of at least {least}"
                raise expected(name, want, getattr(self, name))


def copying_sequences(
    digits: Tensor, blanks: int, layout: Layout = "released"
) -> tuple[Tensor, Tensor]:
    """Inputs and targets of the copying task.

    With ``layout="released"`` the input is 10 digits, T-1 blanks (0), the marker (9), 10 blanks;
    the target is T+10 blanks, then the digits. With "paper" there is one more blank before the
    marker, and the target is one longer to match.

    Args:
        digits: (B, 10) whole numbers in 1..8.
        blanks: T >= 1.
        layout: Which convention.

    Returns:
        Two int64 tensors (B, T+20), or (B, T+21) for "paper".

    Source: Ke et al. (2018), section 5 and the authors' released code.
    """
    silence = blanks - 1 if layout == "released" else blanks
    x = digits.new_zeros(len(digits), DIGITS + silence + 1 + DIGITS)
    y = torch.zeros_like(x)
    x[:, :DIGITS] = digits
    x[:, DIGITS + silence] = MARKER
    y[:, -DIGITS:] = digits
    return x, y


class CopyingTask(SequenceTask[CopyingConfig]):
    """Keep ten digits through T blank steps, and say them after the marker."""

    name = "copying"
    summary = "recall ten digits after T blank steps (long-term memory)"
    data_help = "none: sequences are generated from the seed"
    Config = CopyingConfig
    metric = "accuracy"
    higher_is_better = True
    train_defaults: ClassVar[Mapping[str, Any]] = {"steps": 8000, "batch_size": 64, "lr": 1e-3}
    # A zero memory to recall early on, and scores that pass no credit to states: measured at T=20,
    # 96 and 97 % after these updates; with credit through the scores, 47 % after 4,000 of them.
    model_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "sab": {"preset": "authors", "score_grad": "params_only"}
    }

    def load(self) -> None:
        """Refuses a data path: there is nothing to read."""
        if self.data is not None:
            raise expected("data", "nothing: the sequences are generated", str(self.data))

    def source(self, split: Split) -> Generated:
        """Endless training sequences; fixed validation and test sequences from other streams."""
        config = self.config
        blanks = (config.eval_blanks or config.blanks) if split == "test" else config.blanks
        sizes = {"train": NOMINAL_EPOCH, "valid": config.valid_size, "test": config.test_size}

        def make(indices: Sequence[int]) -> Batch:
            return self._batch(STREAMS[split], indices, blanks)

        return Generated(make, sizes[split], endless=split == "train")

    def _batch(self, stream: int, indices: Sequence[int], blanks: int) -> Batch:
        digits = 1 + below(words(self.seed, stream, indices, DIGITS), SYMBOLS)
        x, y = copying_sequences(torch.from_numpy(digits), blanks, self.config.layout)
        return {"x": self._encode(x), "y": y}

    def _encode(self, x: Tensor) -> Tensor:
        return x if self.config.encoding == "tokens" else x[..., None].float()

    def inputs(self) -> InputSpec:
        """Symbols 0..9, as tokens or as one number."""
        c = self.config
        steps = c.blanks + 2 * DIGITS + (c.layout == "paper")
        fixed = steps if c.eval_blanks in (0, c.blanks) else None
        if c.encoding == "tokens":
            return InputSpec("tokens", MARKER + 1, fixed)
        return InputSpec("values", 1, fixed)

    def outputs(self) -> OutputSpec:
        """Logits of the ten symbols at each step."""
        return OutputSpec(MARKER + 1, per_step=True)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean cross-entropy over all steps, in nats."""
        logits = run(model, batch)
        hits = (logits.detach().argmax(-1) == batch["y"])[:, -DIGITS:].float()
        loss = cross_entropy(logits.flatten(0, 1), batch["y"].flatten())
        return loss, {"accuracy": hits.mean()}

    def evaluation(self) -> Evaluation:
        """Cross-entropy over all steps ("loss") and the last ten, accuracy over the last ten."""
        return MeanEvaluation(_measure)

    def baselines(self) -> dict[str, float]:
        """Accuracy of guessing a digit."""
        return {"chance": 1 / SYMBOLS}

    def exhibits(self, model: nn.Module, split: Split = "test") -> list[Exhibit]:
        """Sequences, accuracy by position and by length, recall and credit."""
        model.eval()
        batch = {k: v.to(place(model)) for k, v in self.source(split).batch(range(64)).items()}
        with torch.no_grad():
            said = run(model, batch).argmax(-1)
        views: list[Exhibit] = [
            _samples(batch["y"], said),
            self._by_position(model, split),
            self._by_length(model),
        ]
        ticks = [str(s) for s in self._symbols(batch["x"][0])]
        return views + recall_views(model, batch["x"], ticks)

    def _symbols(self, x: Tensor) -> list[int]:
        flat = x if x.dim() == 1 else x[..., 0]
        return [int(s) for s in flat.tolist()]

    def _by_position(self, model: nn.Module, split: Split) -> Table:
        hits = torch.zeros(DIGITS, dtype=torch.float64)
        count = 0
        with torch.no_grad():
            for batch in batches(self.source(split), 256):
                said = run(model, {"x": batch["x"].to(place(model))}).argmax(-1).cpu()
                hits += (said == batch["y"])[:, -DIGITS:].sum(0)
                count += len(said)
        shares = (hits / count).tolist()
        rows = [(i, share) for i, share in enumerate(shares, 1)] + [("all", sum(shares) / DIGITS)]
        note = f"{count} {split} sequences; guessing gives {1 / SYMBOLS:.3f}."
        return Table("Accuracy by position", ("digit", "accuracy"), rows, note)

    def _by_length(self, model: nn.Module) -> Curves:
        trained = self.config.blanks
        lengths = sorted({max(1, trained // 2), trained, 2 * trained, 3 * trained, 4 * trained})
        x, y = [], []
        for blanks in lengths:
            batch = self._batch(STREAMS["show"], range(128), blanks)
            try:
                with torch.no_grad():
                    said = run(model, {"x": batch["x"].to(place(model))}).argmax(-1).cpu()
            except InputError:  # learned positions end
                continue
            x.append(float(blanks))
            y.append(float((said == batch["y"])[:, -DIGITS:].float().mean()))
        guess = [1 / SYMBOLS] * len(x)
        series = {"model": (x, y), "guessing": (x, guess)}
        note = f"Trained at T = {trained}; 128 sequences each."
        title = "Transfer to other lengths"
        return Curves(title, series, "blanks T", "accuracy, last ten", note=note)

    def predict(self, model: nn.Module, path: Path) -> Iterator[dict[str, Any]]:
        """What the model recalls of each line of ten digits 1..8 in a text file."""
        model.eval()
        for number, digits in _read_lines(path):
            x, y = copying_sequences(torch.tensor([digits]), self.config.blanks, self.config.layout)
            with torch.no_grad():
                said = run(model, {"x": self._encode(x).to(place(model))}).argmax(-1).cpu()
            last = said[0, -DIGITS:]
            yield {
                "line": number,
                "input": "".join(map(str, digits)),
                "output": "".join(str(int(s)) for s in last),
                "right": int((last == y[0, -DIGITS:]).sum()),
            }


def _measure(model: nn.Module, batch: Batch) -> dict[str, tuple[Tensor, int]]:
    logits, y = run(model, batch), batch["y"]
    each = cross_entropy(logits.transpose(1, 2), y, reduction="none")
    hits = (logits.argmax(-1) == y)[:, -DIGITS:].sum()
    last = each[:, -DIGITS:]
    return {
        "loss": (each.sum(), each.numel()),
        "recall_loss": (last.sum(), last.numel()),
        "accuracy": (hits, last.numel()),
    }


def _samples(y: Tensor, said: Tensor, count: int = 10) -> Text:
    lines = []
    for want, got in zip(
        y[:count, -DIGITS:].tolist(), said[:count, -DIGITS:].tolist(), strict=True
    ):
        marks = "".join(" " if a == b else "^" for a, b in zip(want, got, strict=True))
        lines += [f"asked     {''.join(map(str, want))}", f"recalled  {''.join(map(str, got))}"]
        lines += [f"          {marks}"]
    return Text("Sequences", lines, "^ marks a wrong digit.")


def _read_lines(path: Path) -> Iterator[tuple[int, list[int]]]:
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected a text file of digits, got {error}") from error
    found = False
    for number, line in enumerate(text.splitlines(), 1):
        compact = "".join(line.split())
        if not compact:
            continue
        if len(compact) != DIGITS or set(compact) - set("12345678"):
            raise expected(f"{path}:{number}", f"{DIGITS} digits of 1..{SYMBOLS}", repr(line))
        found = True
        yield number, [int(c) for c in compact]
    if not found:
        raise expected(str(path), f"lines of {DIGITS} digits of 1..{SYMBOLS}", "an empty file")
