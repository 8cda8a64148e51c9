"""From potentials to losses and trees."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from lawful.models import BiaffineParser
from lawful.models._parser import Structure, tree

ROOT, PADDING = -1, -2


def head_logits(arcs: Tensor, root: Tensor, lengths: Tensor) -> Tensor:
    """Scores of each word's heads (B, N, N + 1), the root last; -inf for itself and padding."""
    n = arcs.shape[-1]
    steps = torch.arange(n, device=arcs.device)
    shut = (steps[:, None] == steps) | (steps >= lengths[:, None])[:, None]  # (B, word, head)
    words = arcs.mT.masked_fill(shut, -torch.inf)
    return torch.cat([words, root[..., None]], -1)


def head_loss(
    local: bool, structure: Structure, arcs: Tensor, root: Tensor, batch: "dict[str, Tensor]"
) -> Tensor:
    """Negative log-likelihood of the heads of each sentence, (B).

    Of whole trees; or, if ``local``, of each word's head on its own.
    """
    lengths = batch["lengths"]
    if not local:
        gold = batch["lifted"] if structure == "projective" else batch["heads"]
        return -tree(structure, arcs, root, lengths).log_prob(gold)
    heads = batch["heads"]
    target = torch.where(heads == ROOT, heads.shape[1], heads)
    logits = head_logits(arcs, root, lengths)
    loss = cross_entropy(logits.mT, target, ignore_index=PADDING, reduction="none")
    return loss.sum(1)


def label_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Negative log-likelihood of the labels of each sentence (B); -1 is passed over."""
    return cross_entropy(logits.mT, labels, ignore_index=-1, reduction="none").sum(1)


def marginals(
    model: BiaffineParser, arcs: Tensor, root: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """Probabilities of arcs (B, N, N), [head, word], and of the root's children (B, N)."""
    if not model.local:
        found = tree(model.structure, arcs, root, lengths).marginals
        return found.arcs, found.root
    chances = head_logits(arcs, root, lengths).softmax(-1)
    return chances[..., :-1].mT, chances[..., -1]


def best_heads(model: BiaffineParser, arcs: Tensor, root: Tensor, lengths: Tensor) -> Tensor:
    """The predicted trees (B, N): -1 for the root's child, -2 in padding."""
    if model.decode == "mbr":
        if not model.local:
            return tree(model.structure, arcs, root, lengths).mbr
        arcs, root = marginals(model, arcs, root, lengths)
    return tree(model.structure, arcs, root, lengths).argmax


def best_labels(logits: Tensor, heads: Tensor, root_label: int) -> Tensor:
    """The predicted labels (B, N); ``root_label``, if there is one, for root arcs and no others."""
    if root_label < 0:
        return logits.argmax(-1)
    others = logits.clone()
    others[..., root_label] = -torch.inf
    return torch.where(heads == ROOT, root_label, others.argmax(-1))
