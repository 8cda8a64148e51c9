"""A made-up payment network: communities, hubs, families, and fraud rings that hide among them."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from lawful.errors import expected
from lawful.tasks.graphdata._raw import RawGraph

Ends = npt.NDArray[np.int64]
KINDS = ("private", "shop", "service", "club")
_NUMBERS = ("account age", "payments", "mean amount", "night share", "returns", "devices")


def camouflaged_rings(
    count: int = 4000, *, rings: int = 40, known: float = 1.0, seed: int = 0
) -> RawGraph:
    """A graph of accounts with hidden fraud rings.

    Accounts live in communities, and their numbers of payments are heavy-tailed. Fraud comes in
    rings of 4 to 9 accounts that share devices and pay each other, and hides in two ways: most of a
    ring's payments go to normal accounts of one community, and its columns are drawn mostly from
    that community's. Families and shops share devices too, so that sharing alone tells nothing.

    Args:
        count: Accounts.
        rings: Fraud rings.
        known: Share of the accounts with a label.
        seed: Everything is a function of it and the other arguments.
    """
    if count < 20 * rings or rings < 3:
        raise expected("count", "at least 20 accounts for each of 3 or more rings", (count, rings))
    random = np.random.default_rng([1704, seed])
    groups = max(count // 250, 2)
    home = random.integers(0, groups, count)
    sizes = random.integers(4, 10, rings)
    order = random.permutation(count)
    ring = np.full(count, -1)
    ring[order[: sizes.sum()]] = np.repeat(np.arange(rings), sizes)
    home = np.where(ring >= 0, random.integers(0, groups, rings)[ring], home)
    fraud = ring >= 0
    activity = random.pareto(2.2, count) + 0.3
    activity[fraud] = random.uniform(0.5, 1.5, int(fraud.sum()))
    payments = [
        _within(home, activity, 5 * count, random),
        _anywhere(activity, count, random),
        _cliques(ring, 0.45, random),
    ]
    devices = [
        _cliques(ring, 0.6, random),
        _cliques(_families(order[sizes.sum() :], count, random), 0.6, random),
    ]
    labels = fraud.astype(np.int8)
    labels[random.random(count) >= known] = -1
    return RawGraph(
        "the generated graph",
        count,
        _columns(home, fraud, activity, groups, random),
        _NUMBERS,
        {"payment": np.concatenate(payments, 1), "device": np.concatenate(devices, 1)},
        [f"a{i:05d}" for i in range(count)],
        {"kind": np.array(KINDS, dtype=object)[_kinds(fraud, random)]},
        labels,
        remarks=[f"{rings} rings of {int(fraud.sum())} fraudulent accounts among {count:,}"],
    )


def _within(
    home: Ends, activity: npt.NDArray[np.float64], edges: int, random: np.random.Generator
) -> Ends:
    """Edges inside communities, busy accounts more often."""
    found = []
    for group in range(int(home.max()) + 1):
        members = np.flatnonzero(home == group)
        share = activity[members] / activity[members].sum()
        number = round(edges * len(members) / len(home))
        found.append(random.choice(members, (2, number), p=share))
    return np.concatenate(found, 1)


def _anywhere(activity: npt.NDArray[np.float64], edges: int, random: np.random.Generator) -> Ends:
    return random.choice(len(activity), (2, edges), p=activity / activity.sum())


def _cliques(of: Ends, share: float, random: np.random.Generator) -> Ends:
    """Each pair inside a group with a probability; -1 is no group."""
    members = np.flatnonzero(of >= 0)
    members = members[np.argsort(of[members], kind="stable")]
    parts = []
    for gap in range(1, 9):
        a, b = members[:-gap], members[gap:]
        keep = (of[a] == of[b]) & (random.random(len(a)) < share)
        parts.append(np.stack([a[keep], b[keep]]))
    return np.concatenate(parts, 1)


def _families(order: Ends, count: int, random: np.random.Generator) -> Ends:
    """Groups of 2 to 5 among a third of these accounts."""
    chosen = order[: len(order) // 3]
    sizes = random.integers(2, 6, len(chosen))
    family = np.full(count, -1)
    family[chosen] = np.repeat(np.arange(len(sizes)), sizes)[: len(chosen)]
    return family


def _columns(
    home: Ends,
    fraud: npt.NDArray[np.bool_],
    activity: npt.NDArray[np.float64],
    groups: int,
    random: np.random.Generator,
) -> npt.NDArray[np.float32]:
    """Numeric columns: the community's middle, noise, and a slight shift of the fraudulent."""
    middle = random.normal(0, 1, (groups, len(_NUMBERS)))
    x = 0.8 * middle[home] + random.normal(0, 1, (len(home), len(_NUMBERS)))
    x[fraud] += np.array([-0.5, 0.3, 0.5, 0.6, 0.3, 0.4])
    x[:, 1] += 0.5 * np.log(activity)
    x[:, 2] = np.exp(0.8 * x[:, 2] + 3)
    x[random.random(x.shape) < 0.005] = np.nan
    return x.astype(np.float32)


def _kinds(fraud: npt.NDArray[np.bool_], random: np.random.Generator) -> Ends:
    normal = random.choice(len(KINDS), len(fraud), p=[0.7, 0.15, 0.1, 0.05])
    hidden = random.choice(len(KINDS), len(fraud), p=[0.55, 0.2, 0.2, 0.05])
    return np.where(fraud, hidden, normal)


def write_tables(graph: RawGraph, folder: Path, *, with_labels: bool = True) -> None:
    """Writes ``nodes.csv`` and ``edges.csv``, as `load_graph` reads them."""
    import csv

    folder.mkdir(parents=True, exist_ok=True)
    names = ["id", *graph.numeric_names, *graph.texts, *(["label"] if with_labels else [])]
    with (folder / "nodes.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(names)
        for i in range(graph.count):
            numbers = ["" if np.isnan(v) else f"{v:.6g}" for v in graph.numeric[i].tolist()]
            row = [graph.id_of(i), *numbers, *(v[i] for v in graph.texts.values())]
            if with_labels:
                label = -1 if graph.labels is None else int(graph.labels[i])
                row.append("" if label < 0 else str(label))
            writer.writerow(row)
    with (folder / "edges.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["source", "target", "relation"])
        for name, edges in graph.relations.items():
            for a, b in edges.T.tolist():
                writer.writerow([graph.id_of(a), graph.id_of(b), name])
