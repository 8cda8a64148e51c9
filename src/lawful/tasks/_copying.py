"""The copying task: ten digits, a long silence, and then the same ten digits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from lawful.errors import InputError, expected
from lawful.models import InputSpec, OutputSpec, valid_steps
from lawful.tasks._base import Batch, Evaluation, MeanEvaluation, Split, batches
from lawful.tasks._generated import NOMINAL_EPOCH, Generated
from lawful.tasks._random import STREAMS, below, words
from lawful.tasks._sequence import SequenceTask, place, recall_views, run
from lawful.tasks.exhibits import Curves, Exhibit, Table, Text

DIGITS = 10  # to be recalled
SYMBOLS = 8  # 1..8
BLANK, MARKER = 0, 9
GROWN_AT_ONCE = 2048  # training sequences of one T, while T grows
PASS = 1 << 16  # steps of all rows that a measurement takes at once: bounds its memory
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
    also_blanks: tuple[int, ...] = ()
    """Further T that the test measures: their accuracies appear as accuracy_T."""
    also_size: int = 256
    """Test sequences of each T of also_blanks."""
    start_blanks: int = 0
    """Train with a growing silence: T of the first sequences; 0 for the same T throughout."""
    grow_over: int = 300_000
    """With start_blanks: training sequences over which T grows, evenly, to its full length."""
    valid_size: int = 512
    """Validation sequences, drawn apart from the training ones."""
    test_size: int = 2048
    """Test sequences, drawn apart from both."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        positive = ("blanks", "valid_size", "test_size", "also_size", "grow_over")
        for names, least in ((positive, 1), (("eval_blanks", "start_blanks"), 0)):
            for name in names:
                if getattr(self, name) < least:
                    want = f"a whole number of at least {least}"
                    raise expected(name, want, getattr(self, name))
        if min(self.also_blanks, default=1) < 1 or len(set(self.also_blanks)) < len(
            self.also_blanks
        ):
            raise expected("also_blanks", "different whole numbers above 0", self.also_blanks)
        if self.start_blanks > self.blanks:
            raise expected("start_blanks", f"at most blanks ({self.blanks})", self.start_blanks)


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
        c = self.config
        tested = c.test_size + c.also_size * len(c.also_blanks)
        sizes = {"train": NOMINAL_EPOCH, "valid": c.valid_size, "test": tested}

        def make(indices: Sequence[int]) -> Batch:
            blanks = [self._blanks(split, i) for i in indices]
            if len(set(blanks)) <= 1:
                batch = self._batch(STREAMS[split], indices, blanks[0] if blanks else c.blanks)
            else:
                batch = self._mixed(STREAMS[split], indices, blanks)
            if split == "test" and c.also_blanks:
                batch["also"] = torch.tensor([self._also(i) for i in indices])
            return batch

        return Generated(make, sizes[split], endless=split == "train")

    def _blanks(self, split: Split, index: int) -> int:
        """T of an example."""
        c = self.config
        if split == "test":
            return self._also(index) or c.eval_blanks or c.blanks
        if split == "train" and c.start_blanks:
            done = min(index // GROWN_AT_ONCE * GROWN_AT_ONCE / c.grow_over, 1.0)
            return c.start_blanks + round(done * (c.blanks - c.start_blanks))
        return c.blanks

    def _also(self, index: int) -> int:
        """Which T of ``also_blanks`` a test example is for; 0 for the test proper."""
        c = self.config
        which = (index - c.test_size) // c.also_size
        return c.also_blanks[which] if 0 <= which < len(c.also_blanks) else 0

    def _batch(self, stream: int, indices: Sequence[int], blanks: int) -> Batch:
        digits = 1 + below(words(self.seed, stream, indices, DIGITS), SYMBOLS)
        x, y = copying_sequences(torch.from_numpy(digits), blanks, self.config.layout)
        return {"x": self._encode(x), "y": y}

    def _mixed(self, stream: int, indices: Sequence[int], blanks: Sequence[int]) -> Batch:
        """Sequences of several lengths, padded with blanks behind them, and "lengths"."""
        rows = [self._batch(stream, [i], t) for i, t in zip(indices, blanks, strict=True)]
        lengths = torch.tensor([row["y"].shape[1] for row in rows])
        padded = {
            k: pad_sequence([row[k][0] for row in rows], batch_first=True) for k in ("x", "y")
        }
        return padded | {"lengths": lengths}

    def _encode(self, x: Tensor) -> Tensor:
        return x if self.config.encoding == "tokens" else x[..., None].float()

    def inputs(self) -> InputSpec:
        """Symbols 0..9, as tokens or as one number."""
        c = self.config
        steps = c.blanks + 2 * DIGITS + (c.layout == "paper")
        same = c.eval_blanks in (0, c.blanks) and not c.also_blanks and not c.start_blanks
        fixed = steps if same else None
        if c.encoding == "tokens":
            return InputSpec("tokens", MARKER + 1, fixed)
        return InputSpec("values", 1, fixed)

    def outputs(self) -> OutputSpec:
        """Logits of the ten symbols at each step."""
        return OutputSpec(MARKER + 1, per_step=True)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean cross-entropy over all steps, in nats."""
        logits = run(model, batch)
        hits = _last((logits.detach().argmax(-1) == batch["y"]).float(), batch)
        if "lengths" not in batch:
            loss = cross_entropy(logits.flatten(0, 1), batch["y"].flatten())
        else:
            each = cross_entropy(logits.transpose(1, 2), batch["y"], reduction="none")
            loss = each[valid_steps(batch["lengths"], each.shape[1])].mean()
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
        count = min(64, self.config.test_size) if self.config.also_blanks else 64
        batch = self.source(split).batch(range(count))
        batch = {k: v.to(place(model)) for k, v in batch.items()}
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
                if "also" in batch:
                    batch = _rows(batch, batch["also"] == 0)
                for part in by_rows(batch):
                    there = {k: v.to(place(model)) for k, v in part.items()}
                    said = run(model, there).argmax(-1).cpu()
                    hits += _last(said == part["y"], part).sum(0)
                    count += len(said)
        shares = (hits / count).tolist()
        rows = [(i, share) for i, share in enumerate(shares, 1)] + [("all", sum(shares) / DIGITS)]
        note = f"{count} {split} sequences; guessing gives {1 / SYMBOLS:.3f}."
        return Table("Accuracy by position", ("digit", "accuracy"), rows, note)

    def _by_length(self, model: nn.Module) -> Curves:
        trained = self.config.blanks
        lengths = {max(1, trained // 2), trained, 2 * trained, 3 * trained, 4 * trained}
        x, y = [], []
        for blanks in sorted(lengths | set(self.config.also_blanks)):
            count = max(min(128, 2 * PASS // blanks), 16)
            batch = self._batch(STREAMS["show"], range(count), blanks)
            hits = []
            try:
                for part in by_rows(batch):
                    with torch.no_grad():
                        said = run(model, {"x": part["x"].to(place(model))}).argmax(-1).cpu()
                    hits.append((said == part["y"])[:, -DIGITS:])
            except InputError:  # learned positions end
                continue
            x.append(float(blanks))
            y.append(float(torch.cat(hits).float().mean()))
        series = {"model": (x, y), "guessing": (x, [1 / SYMBOLS] * len(x))}
        note = f"Trained at T = {trained}; 128 sequences each, fewer of the very long ones."
        return Curves(
            "Transfer to other lengths",
            series,
            "blanks T",
            "accuracy, last ten",
            log_x=max(lengths) < max(self.config.also_blanks, default=0),
            note=note,
            muted=["guessing"],
        )

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


def by_rows(batch: Batch, most: int = PASS) -> Iterator[Batch]:
    """The batch, a few rows at a time, so that no pass takes many more than ``most`` steps."""
    rows = max(most // max(batch["y"].shape[1], 1), 1)
    for start in range(0, len(batch["y"]), rows):
        yield {k: v[start : start + rows] for k, v in batch.items()}


def _rows(batch: Batch, chosen: Tensor) -> Batch:
    return {k: v[chosen] for k, v in batch.items()}


def _last(values: Tensor, batch: Batch) -> Tensor:
    """The last ten steps of each row (B, T): (B, 10)."""
    if "lengths" not in batch:
        return values[:, -DIGITS:]
    back = torch.arange(-DIGITS, 0, device=values.device)
    return values.gather(1, batch["lengths"][:, None] + back)


def _measure(model: nn.Module, batch: Batch) -> dict[str, tuple[Tensor, int]]:
    sums: dict[str, tuple[Tensor, int]] = {}
    for part in by_rows(batch):
        for name, (total, weight) in _measure_rows(model, part).items():
            before, count = sums.get(name, (torch.zeros((), device=total.device), 0))
            sums[name] = before + total, count + weight
    return sums


def _measure_rows(model: nn.Module, batch: Batch) -> dict[str, tuple[Tensor, int]]:
    logits, y = run(model, batch), batch["y"]
    each = cross_entropy(logits.transpose(1, 2), y, reduction="none")
    hits = _last(logits.argmax(-1) == y, batch).sum(1)
    last = _last(each, batch).sum(1)
    lengths = batch.get("lengths", torch.full_like(hits, y.shape[1]))
    each = each.masked_fill(~valid_steps(lengths, y.shape[1]), 0).sum(1)
    also = batch.get("also", torch.zeros_like(hits))
    found: dict[str, tuple[Tensor, int]] = {}
    own = also == 0
    if count := int(own.sum()):
        found["loss"] = each[own].sum(), int(lengths[own].sum())
        found["recall_loss"] = last[own].sum(), count * DIGITS
        found["accuracy"] = hits[own].sum(), count * DIGITS
    for blanks in sorted(set(also[~own].tolist())):
        chosen = also == blanks
        found[f"accuracy_{blanks}"] = hits[chosen].sum(), int(chosen.sum()) * DIGITS
    return found


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
