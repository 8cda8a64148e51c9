"""Files of ``torch.save`` that hold graphs, read without running anything in them."""

from pathlib import Path
from typing import Any

import torch

from lawful.errors import expected
from lawful.models._graph_layers import geometric


def load_saved(path: Path, want: str) -> Any:
    """What a ``.pt`` file holds: tensors, containers and torch_geometric's own classes alone.

    Args:
        path: The file.
        want: What it should hold; for the error.

    Raises:
        InputError: torch_geometric is missing, or the file is damaged or holds anything else.
    """
    # Importing it makes most of its classes known as safe to read.
    geometric("data", f"{path}: reading .pt")
    try:
        with torch.serialization.safe_globals(_holders()):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can fail in many ways, none of them ours
        first = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        hint = "only tensors and torch_geometric's Data can be read safely"
        raise expected(str(path), want, first, hint) from error


def _holders() -> list[Any]:
    """The classes inside a Data object that hold its tensors, without code of their own to run."""
    data, storage = (geometric(f"data.{name}", "reading .pt") for name in ("data", "storage"))
    names = ("Data", "DataEdgeAttr", "DataTensorAttr")
    parts = ("GlobalStorage", "NodeStorage", "EdgeStorage", "BaseStorage")
    found = [getattr(data, n, None) for n in names] + [getattr(storage, n, None) for n in parts]
    return [kind for kind in found if kind is not None]
