"""Linear chains: log-partition, marginals, their derivative, best path, samples."""

from lawful.kernels.chain._ops import best as best
from lawful.kernels.chain._ops import infer as infer
from lawful.kernels.chain._ops import k_best as k_best
from lawful.kernels.chain._ops import log_partition as log_partition
from lawful.kernels.chain._ops import sample as sample

__all__ = ["best", "infer", "k_best", "log_partition", "sample"]
