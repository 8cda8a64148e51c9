"""From the layouts of torch-struct, pytorch-crf and others to ours, so that people can move."""

from lawful.structures._chain_adapters import chain_from_pytorch_crf as chain_from_pytorch_crf
from lawful.structures._chain_adapters import chain_from_torch_struct as chain_from_torch_struct
from lawful.structures._chain_adapters import lengths_from_mask as lengths_from_mask
from lawful.structures._tree_adapters import tree_from_supar as tree_from_supar
from lawful.structures._tree_adapters import tree_from_torch_struct as tree_from_torch_struct
from lawful.structures._tree_adapters import tree_to_supar as tree_to_supar
from lawful.structures._tree_adapters import tree_to_torch_struct as tree_to_torch_struct

__all__ = [
    "chain_from_pytorch_crf",
    "chain_from_torch_struct",
    "lengths_from_mask",
    "tree_from_supar",
    "tree_from_torch_struct",
    "tree_to_supar",
    "tree_to_torch_struct",
]
