"""Checkpoints: weights as safetensors, the rest of the state beside them."""

import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from lawful.errors import InputError
from lawful.training._run import RunFolder

WEIGHTS = "model.safetensors"
STATE = "state.pt"


def random_state() -> dict[str, Any]:
    """The state of every global random generator, in types that load safely."""
    kind, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002 # the global one
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [kind, torch.from_numpy(np.asarray(keys)).clone(), position, has_gauss, gauss],
        "python": random.getstate(),
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Restores what `random_state` gave."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, keys.numpy(), position, has_gauss, gauss))  # noqa: NPY002
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal), gauss_next))


def save_checkpoint(
    run: RunFolder, step: int, model: nn.Module, state: dict[str, Any], *, best: bool
) -> None:
    """Writes the checkpoint of ``step`` and makes it the last (and, if so, the best) one."""
    from safetensors.torch import save_model

    made = Path(tempfile.mkdtemp(prefix=".tmp-", dir=run.checkpoints))
    save_model(model, str(made / WEIGHTS))
    torch.save(state, made / STATE)
    run.commit_checkpoint(made, f"step-{step:08d}", best=best)


def load_weights(model: nn.Module, checkpoint: Path) -> None:
    """Loads the weights of a checkpoint.

    Raises:
        InputError: The file is missing, damaged, or belongs to another model.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_model

    path = checkpoint / WEIGHTS
    try:
        load_model(model, str(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"checkpoint: cannot load {path}: {reason}") from None


def load_state(checkpoint: Path) -> dict[str, Any]:
    """Everything of a checkpoint but the weights.

    Raises:
        InputError: The file is missing or damaged.
    """
    path = checkpoint / STATE
    try:
        state = torch.load(path, weights_only=True)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"checkpoint: cannot read {path}: {reason}") from None
    return dict(state)
