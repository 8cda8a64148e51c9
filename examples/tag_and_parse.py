"""Train a tagger and a parser on a small treebank, then tag and parse a sentence of your own.

python examples/tag_and_parse.py [treebank.conllu]

The same from the command line, with a run folder and a page: ``lawful train tagging``,
``lawful train parsing``, ``lawful predict RUN input.conllu --out output.conllu``.
"""

import sys
import tempfile
from pathlib import Path

import torch

from lawful.models import CRFTaggerConfig, TreeParserConfig
from lawful.tasks import Task, get_task

SENTENCE = "The old captain sees the lamp ."
SIZES = {"word_size": 32, "char_size": 16, "char_features": 32, "hidden_size": 48, "layers": 1}


def fit(task: Task, model: torch.nn.Module, updates: int, size: int = 16) -> float:
    """Plain training; returns the last loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    source = task.source("train")
    for _ in range(updates):
        batch = source.batch(torch.randperm(len(source))[:size].tolist())
        loss, _ = task.loss(model.train(), batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
    return float(loss.detach())


def main(data: Path | None = None, updates: int = 120) -> tuple[list[str], list[int]]:
    """Prints and returns the tags and heads found for `SENTENCE`."""
    torch.manual_seed(0)
    tagging, parsing = (get_task(name) for name in ("tagging", "parsing"))
    tasks = tagging(tagging.Config(min_count=1), 0, data), parsing(parsing.Config(), 0, data)
    configs = CRFTaggerConfig(**SIZES), TreeParserConfig(**SIZES, arc_size=48, label_size=24)
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.conllu"
        rows = (f"{i}\t{w}" + "\t_" * 8 for i, w in enumerate(SENTENCE.split(), 1))
        bare.write_text("\n".join(rows) + "\n\n")
        for task, config in zip(tasks, configs, strict=True):
            task.load()
            model = task.build(config)
            print(f"{task.name}: loss {fit(task, model, updates):.3f} nats a word")
            done = bare.with_name(f"{task.name}.conllu")
            task.write_predictions(model.eval(), bare, done)
            bare = done  # the parser's output keeps the tags
        text = bare.read_text()
    print(text)
    fields = [line.split("\t") for line in text.split("\n") if line]
    return [f[3] for f in fields], [int(f[6]) for f in fields]


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
