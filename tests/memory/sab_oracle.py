"""Definitions written a second time, one row and one step at a time, for the tests only."""

import torch


def plain_weights(scores, k_top, margin=1e-7):
    """List of scores (0-d tensors) to list of weights, by the formula."""
    order = sorted(range(len(scores)), key=lambda i: scores[i].item(), reverse=True)
    tau = scores[order[min(k_top, len(order) - 1)]]
    excess = [a - tau + margin if i in order[:k_top] else 0.0 * a for i, a in enumerate(scores)]
    total = sum(excess)
    return [e / total for e in excess]


def plain_sab(cell, x, k_top, k_att, k_trunc, *, late=False, blind_scores=False):
    """The paper's algorithm on one row x (T, d), with cuts between blocks; returns h, s (T, n)."""
    n = cell.hidden_size
    h = c = x.new_zeros(1, n)
    memory, hs, ss = [], [], []
    for t in range(len(x)):
        if t and (t + late) % k_trunc == 0:
            h, c = h.detach(), c.detach()
        raw, c = cell.cell(x[t][None], (h, c))
        s = torch.zeros_like(raw)
        if memory:
            scores = []
            for m in memory:
                ask, key = (raw.detach(), m.detach()) if blind_scores else (raw, m)
                d = key @ cell.key.T + ask @ cell.query.T
                scores.append((torch.tanh(d) @ cell.score)[0])
            for w, m in zip(plain_weights(scores, k_top), memory, strict=True):
                s = s + w * m
        h = raw + s
        hs.append(h[0])
        ss.append(s[0])
        if (t + 1) % k_att == 0:
            memory.append(h)
    return torch.stack(hs), torch.stack(ss)
