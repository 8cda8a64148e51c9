"""Trains a small SAB network to read digits row by row, with nothing but the library and torch.

Run it with `python examples/digits_by_rows.py`; it takes seconds and needs no download.
"""

import torch

from lawful.models import SABModelConfig
from lawful.tasks import batches, get_task


def main(epochs: int = 15) -> float:
    """Trains, prints the validation accuracy of some epochs, and returns that on the test part."""
    torch.manual_seed(0)
    Pixels = get_task("pixels")
    task = Pixels(Pixels.Config(chunk=8))  # one row of the 8x8 picture at each step
    task.load()
    model = task.build(SABModelConfig(hidden=48, k_top=3, k_att=1, k_trunc=2))
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    train = task.source("train")
    for epoch in range(epochs):
        for indices in torch.randperm(len(train)).split(64):
            loss, _ = task.loss(model, train.batch(indices.tolist()))
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1}: validation accuracy {accuracy(task, model, 'valid'):.3f}")
    result = accuracy(task, model, "test")
    print(f"test accuracy {result:.3f}")
    return result


def accuracy(task, model, split) -> float:
    """The share of a part of the data that the model names rightly."""
    evaluation = task.evaluation()
    model.eval()
    with torch.no_grad():
        for batch in batches(task.source(split), 256):
            evaluation.update(model, batch)
    model.train()
    return evaluation.compute()["accuracy"]


if __name__ == "__main__":
    main()
