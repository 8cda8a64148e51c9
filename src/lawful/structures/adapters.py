"""From the layouts of torch-struct, pytorch-crf and others to ours, so that people can move."""

from lawful.structures._chain_adapters import chain_from_pytorch_crf as chain_from_pytorch_crf
from lawful.structures._chain_adapters import chain_from_torch_struct as chain_from_torch_struct
from lawful.structures._chain_adapters import lengths_from_mask as lengths_from_mask

__all__ = ["chain_from_pytorch_crf", "chain_from_torch_struct", "lengths_from_mask"]
