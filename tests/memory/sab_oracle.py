"""Definitions written a second time, one row and one step at a time, for the tests only."""

import torch


def plain_weights(scores, k_top, margin=1e-7):
    """List of scores (0-d tensors) to list of weights, by the formula."""
    order = sorted(scores, key=lambda a: a.item(), reverse=True)
    tau = order[min(k_top, len(order) - 1)]
    excess = [torch.clamp(a - tau + margin, min=0) for a in scores]
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


def reachable(recalled, config):
    """Which (t, tau) credit can connect, by walking the graph of allowed paths.

    ``recalled[t]`` lists the steps whose stored states step t weighs with a non-zero weight or
    used as the threshold.
    """
    steps = len(recalled)
    window = config.truncation == "window"
    endless = steps + 1
    top = config.k_trunc if window else endless
    depth = top if config.mental_updates is None else min(config.mental_updates, top)
    hops = endless if config.hops is None else config.hops

    def starts_block(t):
        late = 1 if config.phase == "end" else 0
        return not window and config.k_trunc is not None and (t + late) % config.k_trunc == 0

    table = torch.zeros(steps, steps, dtype=torch.bool)
    for t in range(steps):
        todo, seen = [(t, top, hops)], set()
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            step, budget, left = at
            table[t, step] = True
            if step and budget > 1 and not starts_block(step):
                todo.append((step - 1, budget - 1, left))
            if left and depth:
                todo += [(m, depth, left - 1) for m in recalled[step] if m >= 0]
    return table
