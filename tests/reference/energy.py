"""The energy of a block, one pair of tokens at a time, straight from the formulas."""

import torch


def attention_energy(
    g,
    query,
    key,
    beta,
    *,
    self_attention,
    mask=None,
    allowed=None,
    weight=None,
    form="multiply",
    query_bias=None,
    key_bias=None,
    causal=False,
):
    """-Σ_h (1/β_h) Σ_C log Σ_B exp(score) for one sample g (N, D); weights (H, N, N)."""
    total = g.new_zeros(())
    n = len(g)
    for h in range(len(query)):
        for c in range(n):
            terms = []
            for b in range(n):
                excluded = b == c and not self_attention
                excluded |= causal and b > c
                excluded |= mask is not None and not (mask[b] and mask[c])
                excluded |= allowed is not None and not allowed[h, c, b]
                if excluded:
                    continue
                q, k = query[h] @ g[c], key[h] @ g[b]
                q = q if query_bias is None else q + query_bias[h]
                k = k if key_bias is None else k + key_bias[h]
                score = beta[h] * (k @ q)
                if weight is not None:
                    w = weight[h, c, b]
                    score = score * w if form == "multiply" else score + w
                terms.append(score)
            if terms:
                total = total - torch.stack(terms).logsumexp(0) / beta[h]
    return total


def memory_energy(g, memories, potential, *, mask=None, bias=None):
    """-Σ_A G(Ξ g_A) for one sample, G a function of all pre-activations of a token."""
    total = g.new_zeros(())
    for a in range(len(g)):
        if mask is None or mask[a]:
            h = memories @ g[a]
            total = total - potential(h if bias is None else h + bias)
    return total


def layer_norm(x, gamma, delta, eps):
    out = torch.empty_like(x)
    for a in range(len(x)):
        mean = sum(x[a]) / len(x[a])
        var = sum((x[a] - mean) ** 2) / len(x[a])
        out[a] = gamma * (x[a] - mean) / torch.sqrt(var + eps) + delta
    return out
