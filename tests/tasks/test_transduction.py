"""Transduction: the grammar, the data, the metric, the search, and what the task reports."""

import itertools
import json
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lawful
from lawful.errors import InputError
from lawful.models import (
    SimpleTransducerConfig,
    TransducerConfig,
    TransducerModel,
    TreeTransducerConfig,
    beam_search,
)
from lawful.tasks import get_task
from lawful.tasks.exhibits import Arcs, Heatmap, Table, Text, load, save
from lawful.tasks.transduction import TransductionConfig, TransductionTask
from lawful.tasks.transduction._grammar import (
    BOS,
    EOS,
    NAMES,
    PAD,
    draw,
    infix,
    parse,
    prefix,
    words_of,
)
from lawful.tasks.transduction._task import decode, failures
from lawful.training._config import TrainConfig
from lawful.training._optim import Schedule, make_optimizer
from lawful.training._order import update_indices

SMALL = {"width": 8, "parser": 5}
MODELS = {
    "none": TransducerConfig(width=8),
    "simple": SimpleTransducerConfig(**SMALL),
    "structured": TreeTransducerConfig(**SMALL),
    "no squash": TreeTransducerConfig(squash=False, **SMALL),
    "crossing": TreeTransducerConfig(crossing=True, **SMALL),
    "heads": TreeTransducerConfig(heads=2, **SMALL),
    "simple heads": SimpleTransducerConfig(heads=2, **SMALL),
    "uniform": TreeTransducerConfig(uniform=True, **SMALL),
    "single root": TreeTransducerConfig(single_root=True, **SMALL),
}
every = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(scope="module")
def task():
    config = TransductionConfig(train_per_depth=40, valid_per_depth=4, test_per_depth=4, beam=2)
    made = TransductionTask(config, seed=1)
    made.load()
    return made


def make(task, name):
    torch.manual_seed(0)
    return task.build(MODELS[name])


def depth_of(expression):
    return 0 if isinstance(expression, int) else 1 + max(map(depth_of, expression[1]))


# ---- the grammar ---------------------------------------------------------------------------------


def test_the_papers_example():
    given_ = [
        "(",
        "*",
        "(",
        "+",
        "(",
        "+",
        "15",
        "7",
        ")",
        "1",
        "8",
        ")",
        "(",
        "+",
        "19",
        "0",
        "11",
        ")",
        ")",
    ]
    want = [
        "(",
        "(",
        "15",
        "+",
        "7",
        ")",
        "+",
        "1",
        "+",
        "8",
        ")",
        "*",
        "(",
        "19",
        "+",
        "0",
        "+",
        "11",
        ")",
    ]
    expression = parse(given_)
    assert infix(expression) == want
    assert prefix(expression) == given_
    assert depth_of(expression) == 3


@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_drawn_expressions_are_well_formed(seed, depth, nest):
    e = draw(random.Random(seed), depth if nest < 1 else min(depth, 3), nest)
    assert depth_of(e) == (depth if nest < 1 else min(depth, 3))
    assert parse(prefix(e)) == e

    def check(x):
        if isinstance(x, int):
            assert 0 <= x <= 20
        else:
            assert x[0] in "+*"
            assert 2 <= len(x[1]) <= 4
            for a in x[1]:
                check(a)

    check(e)
    # Infix notation says the same number as the tree, by Python's own arithmetic on full brackets.
    assert eval("(" + " ".join(infix(e)) + ")") == value(e)


def value(e):
    if isinstance(e, int):
        return e
    total = value(e[1][0])
    for a in e[1][1:]:
        total = total + value(a) if e[0] == "+" else total * value(a)
    return total


def test_choices_are_uniform():
    rng = random.Random(0)
    drawn = [draw(rng, 2, 0.1) for _ in range(4000)]
    for count in (2, 3, 4):
        share = np.mean([len(e[1]) == count for e in drawn])
        assert share == pytest.approx(1 / 3, abs=0.03)
    assert np.mean([e[0] == "+" for e in drawn]) == pytest.approx(0.5, abs=0.03)
    numbers = [a for e in drawn for a in e[1] if isinstance(a, int)]
    assert np.bincount(numbers, minlength=21).min() > 0.8 * len(numbers) / 21
    # Besides the forced one, a tenth of the arguments is nested.
    extra = [sum(not isinstance(a, int) for a in e[1]) - 1 for e in drawn]
    assert np.sum(extra) / np.sum([len(e[1]) - 1 for e in drawn]) == pytest.approx(0.1, abs=0.01)
    first = np.mean([not isinstance(e[1][0], int) for e in drawn if len(e[1]) == 2])
    assert first == pytest.approx(0.55, abs=0.04)  # forced half of the time, else one in ten


def test_lengths_are_those_the_papers_results_imply():
    rng = random.Random(0)
    for depth, mean in {2: 12.3, 3: 19.5, 4: 28.6, 5: 37.8, 6: 48.5}.items():
        lengths = [len(infix(draw(rng, depth, 0.1))) for _ in range(1500)]
        assert np.mean(lengths) == pytest.approx(mean, rel=0.06)


@pytest.mark.parametrize(
    "text",
    ["", "(", ")", "( + 1 2", "+ 1 2", "( 1 2 )", "( + )", "( + 1 2 ) )", "( + 1 * )", "1 2", "+"],
)
def test_what_is_no_expression(text):
    assert parse(text.split()) is None


def test_words_of_a_line():
    assert words_of("(+ 1(* 20 3))", "f:1") == ["(", "+", "1", "(", "*", "20", "3", ")", ")"]
    for bad in ("( + 1 21 )", "( - 1 2 )", "$", "( + a b )"):
        with pytest.raises(InputError, match="f:7: expected"):
            words_of(bad, "f:7")
    assert len(NAMES) == 29
    assert len(set(NAMES)) == 29


# ---- the data ------------------------------------------------------------------------------------


def test_parts_by_depth_without_a_common_expression(task):
    sizes = {"train": (40, (2, 3, 4)), "valid": (4, (2, 3, 4)), "test": (4, (2, 3, 4, 5, 6))}
    sources = []
    for part, (count, depths) in sizes.items():
        pairs = task.source(part).pairs
        assert [p.depth for p in pairs] == [d for d in depths for _ in range(count)]
        for p in pairs:
            assert NAMES[p.source[0]] == "$"
            e = parse(decode(p.source[1:]))
            assert depth_of(e) == p.depth
            assert infix(e) == decode(p.target)
        sources += [p.source for p in pairs]
    assert len(set(sources)) == len(sources)


def test_data_depend_on_the_seed_only(task):
    again = TransductionTask(task.config, seed=1)
    again.load()
    other = TransductionTask(task.config, seed=2)
    other.load()
    for part in ("train", "valid", "test"):
        assert again.source(part).pairs == task.source(part).pairs
        assert other.source(part).pairs != task.source(part).pairs


def test_batches(task):
    source = task.source("test")
    batch = source.batch([0, 19, 7])
    for row, i in enumerate([0, 19, 7]):
        p, n = source.pairs[i], int(batch["lengths"][row])
        assert tuple(batch["source"][row, :n].tolist()) == p.source
        assert (batch["source"][row, n:] == PAD).all()
        target = batch["target"][row].tolist()
        assert target[: len(p.target) + 2] == [BOS, *p.target, EOS]
        assert set(target[len(p.target) + 2 :]) <= {PAD}
    assert batch["depth"].tolist() == [2, 6, 3]


def test_training_batches_hold_sequences_of_like_length(task):
    source = task.source("train")
    seen, spread = [], []
    for step in range(6):
        indices = update_indices(source, 3, step, 20)
        lengths = source.lengths[indices]
        seen += indices
        spread.append(lengths.max() - lengths.min())
    assert sorted(seen) == list(range(120))
    assert np.mean(spread) < 0.5 * (source.lengths.max() - source.lengths.min())
    assert update_indices(source, 3, 0, 20) != update_indices(source, 3, 6, 20)
    assert update_indices(source, 3, 1, 20) == update_indices(source, 3, 1, 20)
    odd = [i for step in range(24) for i in update_indices(source, 0, step, 7)]
    assert sorted(odd[:120]) == list(range(120))


def test_a_data_path_is_refused(tmp_path):
    with pytest.raises(InputError, match="data: expected nothing"):
        TransductionTask(TransductionConfig(), 0, tmp_path).load()


@pytest.mark.parametrize("bad", [{"nest": 1.5}, {"train_per_depth": 0}, {"beam": 0}])
def test_impossible_settings(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        TransductionConfig(**bad)


# ---- the metric ----------------------------------------------------------------------------------


def slow_failure(said, target):
    real = [t for t in target if t != PAD]
    right = list(itertools.takewhile(lambda p: p[0] == p[1], zip(said, real, strict=False)))
    return len(right) / len(real)


def test_length_to_failure_by_its_definition():
    g = torch.Generator().manual_seed(0)
    target = torch.randint(4, 7, (200, 6), generator=g)
    said = torch.where(torch.rand(200, 6, generator=g) < 0.2, 9, target)
    for row in range(200):
        end = int(torch.randint(1, 6, (), generator=g))
        target[row, end], target[row, end + 1 :] = EOS, PAD
    for width in (3, 6, 9):
        cut = torch.nn.functional.pad(said, (0, max(0, width - 6)), value=5)[:, :width]
        got = failures(cut, target)
        want = [slow_failure(s, t) for s, t in zip(cut.tolist(), target.tolist(), strict=True)]
        assert got.tolist() == pytest.approx(want)
    assert (failures(target, target) == 1).all()


@every
def test_greedy_search_agrees_with_the_evaluation(task, name):
    """The evaluation feeds the right tokens; greedy search its own: the same up to a mistake."""
    model = make(task, name).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.4)
    batch = task.source("test").batch(range(20))
    how = {"start": BOS, "end": EOS}
    said, _ = model.generate(batch["source"], batch["lengths"], limit=12, **how)
    # Its own words are the target, up to a place where they are not.
    target = said.clone()
    g = torch.Generator().manual_seed(0)
    for row in range(20):
        place = int(torch.randint(0, 12, (), generator=g))
        if place < target.shape[1]:
            target[row, place] = 5 + (target[row, place] == 5).long()
    after = (target == EOS).long().cumsum(1) - (target == EOS).long() > 0
    batch["target"] = torch.cat([torch.full((20, 1), BOS), target.masked_fill(after, PAD)], 1)
    evaluation = task.evaluation()
    with torch.no_grad():
        evaluation.update(model, batch)
    found = evaluation.compute()
    said, _ = model.generate(batch["source"], batch["lengths"], limit=200, **how)
    shares = failures(said, batch["target"][:, 1:])
    assert 0.1 < shares.mean() < 0.9
    assert found["length_to_failure"] == pytest.approx(float(shares.mean()))
    for depth in range(2, 7):
        chosen = shares[batch["depth"] == depth]
        assert found[f"depth_{depth}"] == pytest.approx(float(chosen.mean()))


# ---- the model and its search --------------------------------------------------------------------


@every
def test_padding_changes_nothing(task, name):
    model = make(task, name).double()
    batch = task.source("test").batch([0, 19, 8])
    out = model(batch["source"], batch["lengths"], batch["target"][:, :-1])
    for row, i in enumerate([0, 19, 8]):
        alone = task.source("test").batch([i])
        one = model(alone["source"], alone["lengths"], alone["target"][:, :-1])
        torch.testing.assert_close(out[row, : one.shape[1]], one[0])


@every
def test_every_parameter_learns(task, name):
    model = make(task, name)
    loss, logged = task.loss(model, task.source("train").batch(range(0, 120, 6)))
    loss.backward()
    for key, p in model.named_parameters():
        assert p.abs().max() <= 0.1
        assert p.grad.abs().max() > 0, key
    assert 0 <= float(logged["length_to_failure"]) <= 1


def test_loss_is_summed_over_tokens_and_averaged_over_sequences(task):
    model = make(task, "none")
    batch = task.source("train").batch([0, 100])
    loss, _ = task.loss(model, batch)
    logits = model(batch["source"], batch["lengths"], batch["target"][:, :-1]).log_softmax(-1)
    total = 0.0
    for row in range(2):
        for t, code in enumerate(batch["target"][row, 1:].tolist()):
            total -= 0.0 if code == PAD else logits[row, t, code].item()
    assert float(loss.detach()) == pytest.approx(total / 2, rel=1e-5)


def test_beam_search_by_enumeration():
    """A table of next-token logits that depends on the last two tokens; all outputs enumerated."""
    g = torch.Generator().manual_seed(0)
    size, limit, end, start = 3, 4, 0, 2
    table = 2 * torch.randn(5, size, size, size, generator=g, dtype=torch.float64)

    def score(row, sequence):
        last, total = (start, start), 0.0
        for token in sequence:
            total += float(table[row][last].log_softmax(-1)[token])
            last = (last[1], token)
        return total

    outputs = [
        s
        for n in range(1, limit + 1)
        for s in itertools.product(range(size), repeat=n)
        if end not in s[:-1] and (s[-1] == end or n == limit)
    ]
    for width in (1, 2, 40):
        rows = torch.arange(5).repeat_interleave(width)

        def step(tokens, state, rows=rows):
            return table[rows, state[0], tokens], (tokens,)

        first = torch.full((5 * width,), start)
        got, scores = beam_search(
            step, (first,), rows=5, width=width, start=start, end=end, limit=limit
        )
        for row in range(5):
            said = got[row].tolist()
            said = said[: said.index(end) + 1] if end in said else said
            assert float(scores[row]) == pytest.approx(score(row, said))
            best = max(outputs, key=lambda s: score(row, s))
            if width == 40:
                assert tuple(said) == best
            if width == 1:
                greedy, last = [], (start, start)
                while len(greedy) < limit and (not greedy or greedy[-1] != end):
                    greedy.append(int(table[row][last].argmax()))
                    last = (last[1], greedy[-1])
                assert said == greedy
    with pytest.raises(InputError, match="width"):
        beam_search(step, (first,), rows=5, width=0, start=2, end=0, limit=1)


@pytest.mark.parametrize("name", ["none", "structured"])
def test_wider_beams_find_nothing_worse(task, name):
    model = make(task, name)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.6)
    batch = task.source("test").batch(range(8))
    found = [
        model.generate(batch["source"], batch["lengths"], start=BOS, end=EOS, limit=12, width=w)
        for w in (1, 8)
    ]
    assert (found[1][1] >= found[0][1] - 1e-6).float().mean() > 0.8
    for tokens, scores in found:  # the score is that of the tokens, fed one by one
        fed = torch.cat([torch.full((8, 1), BOS), tokens[:, :-1]], 1)
        logits = model(batch["source"], batch["lengths"], fed).double().log_softmax(-1)
        each = logits.gather(-1, tokens[..., None])[..., 0]
        done = (tokens == EOS).long().cumsum(1) - (tokens == EOS).long() > 0
        torch.testing.assert_close(each.masked_fill(done, 0).sum(1), scores, atol=1e-4, rtol=0)


def test_the_control_learns_no_parser(task):
    names = dict(make(task, "uniform").named_parameters())
    assert not [n for n in names if n.startswith("parser")]
    assert [n for n in dict(make(task, "structured").named_parameters()) if "parser" in n]


@every
def test_laws_hold_inside_the_model(task, name):
    model = make(task, name).eval()
    batch = task.source("test").batch(range(6))
    evaluation = task.evaluation()
    certificate = lawful.check(model, run=lambda: evaluation.update(model, batch))
    assert certificate.holds, str(certificate)
    layers = {row.layer for row in certificate}
    assert layers == {"attention"} if name == "none" else {"attention", "parser"}


# ---- what it shows -------------------------------------------------------------------------------


@every
def test_exhibits(task, name, tmp_path):
    model = make(task, name)
    views = task.exhibits(model, "valid")
    kinds = [type(v) for v in views]
    trees = {"none": 0, "simple": 0, "simple heads": 0, "heads": 2}.get(name, 1)
    maps = 1 if name == "none" else 2
    assert kinds.count(Arcs) == trees
    assert kinds.count(Heatmap) == maps
    table = next(v for v in views if isinstance(v, Table))
    assert [row[0] for row in table.rows] == [2, 3, 4]
    published = {"none": 7.6, "simple": 87.4, "simple heads": 87.4}.get(name, 99.2)
    assert table.rows[0][3] == published
    assert ("differs" in table.note) == (name not in ("none", "simple", "structured"))
    assert any(isinstance(v, Text) for v in views)
    for v in views:
        if isinstance(v, Arcs):
            assert v.tokens[0] == "$"
            assert len(v.heads) == len(v.tokens)
            assert v.heads[0] == -1
            assert min(v.heads[1:]) >= 0
        if isinstance(v, Heatmap):
            assert v.values.shape[-1] == len(v.xticks)
            assert v.values.shape[-2] == len(v.yticks)
    save(views, tmp_path)
    assert len(load(tmp_path)) == len(views)


def test_predictions_for_a_file(task, tmp_path):
    model = make(task, "structured")
    path = tmp_path / "lines.txt"
    path.write_text("( + 1 2 )\n\n(* 3 (+ 4 5))\n( + 1\n")
    rows = list(task.predict(model, path))
    assert [r["line"] for r in rows] == [1, 3, 4]
    assert rows[1]["input"] == "( * 3 ( + 4 5 ) )"
    assert rows[0]["right"] in (True, False)
    assert "right" not in rows[2]
    json.dumps(rows)
    path.write_text("( + 1 x )")
    with pytest.raises(InputError, match=r"lines\.txt:1"):
        list(task.predict(model, path))
    path.write_text("\n")
    with pytest.raises(InputError, match="empty file"):
        list(task.predict(model, path))
    with pytest.raises(InputError, match="expected a text file"):
        list(task.predict(model, tmp_path / "nothing"))


def test_baseline_counts_opening_parentheses(task):
    (share,) = task.baselines().values()
    want = []
    for p in task.source("test").pairs:
        words = decode(p.target)
        run = len(list(itertools.takewhile(lambda w: w == "(", words)))
        want.append(run / (len(words) + 1))
    assert share == pytest.approx(np.mean(want))


# ---- the schedule --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("halve_from", "losses", "rates"),
    [
        (0, [5, 4, 4.5, 3, 2], [1, 1, 0.5, 0.25, 0.125]),
        (3, [5, 4, 3, 2, 1], [1, 1, 0.5, 0.25, 0.125]),
        (9, [5, 4, 3, 2, 1], [1, 1, 1, 1, 1]),
        (9, [5, 5, 3, 2, 1], [1, 0.5, 0.25, 0.125, 0.1]),
    ],
)
def test_halving_goes_on_once_it_has_begun(halve_from, losses, rates):
    config = TrainConfig(
        optimizer="sgd", lr=1.0, schedule="halving", halve_from=halve_from, min_lr=0.1
    )

    def fresh():
        optimiser = make_optimizer([torch.nn.Parameter(torch.zeros(()))], config)
        return optimiser, Schedule(optimiser, 10, config)

    optimiser, schedule = fresh()
    got = []
    for loss in losses:
        schedule.after_step()
        schedule.after_evaluation(loss)
        got.append(optimiser.param_groups[0]["lr"])
        saved = schedule.state_dict(), optimiser.state_dict()
        optimiser, schedule = fresh()  # as a resumed run
        schedule.load_state_dict(saved[0])
        optimiser.load_state_dict(saved[1])
    assert got == rates


def test_the_task_is_known_with_the_papers_settings():
    task = get_task("transduction")
    config = TrainConfig(**task.train_defaults)
    assert (config.optimizer, config.lr, config.epochs, config.clip) == ("sgd", 1.0, 13, 1.0)
    c = TransductionConfig()
    assert 3 * c.train_per_depth == config.eval_every * config.batch_size  # once an epoch
    assert task.models["structured"]().width == 50
    model = TransducerModel(task.models["structured"](), len(NAMES))
    assert 80_000 < sum(p.numel() for p in model.parameters()) < 120_000


def test_bad_schedule_settings():
    with pytest.raises(InputError, match="halve_from"):
        TrainConfig(halve_from=3)
    with pytest.raises(InputError, match="warmup"):
        TrainConfig(schedule="halving", warmup=5)


def test_batches_of_a_source_without_lengths_are_as_before():
    class Plain:
        endless = False

        def __len__(self):
            return 10

    want = np.random.default_rng([4, 0]).permutation(10)[:5].tolist()
    assert update_indices(Plain(), 4, 0, 5) == want


@pytest.mark.slow
def test_the_command_line_from_training_to_prediction(tmp_path, capsys):
    from lawful.cli import main

    run, lines, out = tmp_path / "run", tmp_path / "lines.txt", tmp_path / "out.jsonl"
    small = "--train-per-depth 20 --valid-per-depth 4 --test-per-depth 4 --width 8 --parser 5"
    often = "--steps 6 --epochs None --eval-every 3 --checkpoint-every 3 --no-progress --beam 2"
    arguments = ["train", "transduction", "--out", str(run), *small.split(), *often.split()]
    assert main(arguments) == 0
    result = json.loads((run / "result.json").read_text())
    assert set(result["test"]) >= {"loss", "length_to_failure", "exact", "depth_2", "depth_6"}
    assert (run / "report.html").is_file()
    rows = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in rows if r["split"] == "valid"] == [3, 6]
    assert main(["check", str(run)]) == 0
    assert main(["evaluate", str(run)]) == 0
    lines.write_text("(* (+ 15 7) 3)\n")
    assert main(["predict", str(run), str(lines), "--out", str(out)]) == 0
    assert json.loads(out.read_text())["input"] == "( * ( + 15 7 ) 3 )"
    lines.write_text("(* (+ 15 7) 33)\n")
    assert main(["predict", str(run), str(lines)]) == 2
    assert "lines.txt:1: expected ( ) + * and numbers 0..20" in capsys.readouterr().err
