"""Segmentations (semi-Markov chains): log-partition, marginals, k best, samples; plain torch."""

from lawful.kernels.segments.reference import infer as infer
from lawful.kernels.segments.reference import k_best as k_best
from lawful.kernels.segments.reference import log_partition as log_partition
from lawful.kernels.segments.reference import sample as sample

__all__ = ["infer", "k_best", "log_partition", "sample"]
