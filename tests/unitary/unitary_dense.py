"""Brute-force oracle: the lifted operator of a kernel as a dense matrix, boundary by boundary."""

import itertools

import scipy.linalg
import torch


def expm(matrix):
    """Matrix exponential by scipy: torch's own loses nine digits at norms around 0.04."""
    return torch.from_numpy(scipy.linalg.expm(matrix.numpy()))


def source(j, n, boundary):
    """Site and sign that stand at coordinate j, which may lie outside 0 .. n-1; None for zero."""
    if boundary == "circular":
        return j % n, 1.0
    if boundary == "zeros":
        return (j, 1.0) if 0 <= j < n else None
    if boundary == "neumann":  # mirrored about -1/2 and n - 1/2
        j %= 2 * n
        return (j if j < n else 2 * n - 1 - j), 1.0
    j = (j + 1) % (2 * (n + 1))  # odd about -1 and n
    if j in (0, n + 1):
        return None
    return (j - 1, 1.0) if j <= n else (2 * (n + 1) - j - 1, -1.0)


def lift(kernel, size, boundary="circular"):
    """(C, C', *taps) -> (C * N, C' * N): (K * z)[x] = sum_a K[a] z[x - a]."""
    c_out, c_in, *taps = kernel.shape
    total = 1
    for n in size:
        total *= n
    dtype = torch.complex128 if kernel.is_complex() else torch.float64
    out = torch.zeros(c_out, total, c_in, total, dtype=dtype)
    for x, site in enumerate(itertools.product(*map(range, size))):
        for tap in itertools.product(*map(range, taps)):
            sign, y = 1.0, 0
            for j, a, k, n in zip(site, tap, taps, size, strict=True):
                found = source(j - (a - k // 2), n, boundary)
                if found is None:
                    break
                y, sign = y * n + found[0], sign * found[1]
            else:
                out[:, x, :, y] += sign * kernel[(slice(None), slice(None), *tap)].to(dtype)
    return out.reshape(c_out * total, c_in * total)


def matrix_of(layer, size, dtype, **kwargs):
    """The layer as a dense matrix, by applying it to every unit field."""
    total = layer.channels
    for n in size:
        total *= n
    basis = torch.eye(total, dtype=dtype).view(total, layer.channels, *size)
    return layer(basis, **kwargs).reshape(total, total).T
