"""Self-attention by a tree over the tokens: each token attends to its parent, softly."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from lawful.attention._bilstm import BiLSTM
from lawful.attention._inputs import Lengths, check_float, check_size, hide_padding, padding_of
from lawful.attention._laws import GRADIENT, PADDING, RANGE, SUM
from lawful.attention._scores import Device, MLPScore
from lawful.errors import expected
from lawful.structures import Categorical, ProjectiveTree, SpanningTree, StructuredDistribution
from lawful.structures._checks import as_lengths

__all__ = ["SyntacticAttention"]

Structure = Literal["projective", "spanning", "softmax"]


class SyntacticAttention(nn.Module):
    r"""Soft parents: token j gets sum_i p(i is the parent of j) v_i, over all dependency trees.

    A bidirectional LSTM reads the tokens, and each pair gets the score

        theta_ij = tanh( s^T tanh(W_1 h_i + W_2 h_j + b) )        i parent, j child;

    p(tree) is proportional to the exponential of the sum of its scores.

    Args:
        size: D, the size of the tokens' vectors.
        hidden: Units of the LSTM in each direction; None to score the tokens' vectors themselves.
        structure: "projective" (no two arcs cross), "spanning" (any tree), or "softmax" (each
            token chooses alone, itself included: the paper's simple attention).
        root: "token": the first token is the root symbol. It has no parent, hence a zero row of
            weights, and may have any number of children. "learned": all tokens are words, and the
            root is a learned vector that gives nothing to the context, so that a token's weights
            sum to 1 minus its chance to hang from the root. No effect for "softmax".
        single_root: Whether the root has exactly one child.
        squash: The outer tanh. It keeps scores in [-1, 1], so that no arc is ever more than e^2
            times as likely as another; without it trees can become sharp.
        heads: Independent trees, each from scores of its own; contexts are concatenated.
        score_size: Hidden units of the score of each head; if None, 2 * hidden (or D) divided by
            the number of heads.
        children: Soft children, sum_j p(i is the parent of j) v_j, instead of soft parents.
        uniform: All scores are 0 and nothing is learned: a control that shows what the structure
            alone does.
        hard: The best tree instead of the expectation; no gradient in the scores.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Cost: O(N^2 score_size heads) for the scores, O(N^3 heads) for trees, no tape through charts.
    torch.compile makes one graph of it with ``hidden=None``; it does not take LSTMs.

    Source: Kim et al. (2017), section 4.1, appendices A.1 and A.2. Departure: eq. 4 as printed
    would give invalid trees a score of 0; here they are impossible.

    >>> attend = SyntacticAttention(8, hidden=5)
    >>> tokens = torch.randn(3, 6, 8)
    >>> parents, weights = attend(tokens, lengths=torch.tensor([6, 4, 1]))
    >>> parents.shape, weights.shape
    (torch.Size([3, 6, 8]), torch.Size([3, 6, 6]))
    """

    laws = (RANGE, SUM, GRADIENT, PADDING)
    _reads_itself = True

    def __init__(
        self,
        size: int,
        hidden: int | None = 50,
        *,
        structure: Structure = "projective",
        root: Literal["token", "learned"] = "token",
        single_root: bool = False,
        squash: bool = True,
        heads: int = 1,
        score_size: int | None = None,
        children: bool = False,
        uniform: bool = False,
        hard: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if structure not in ("projective", "spanning", "softmax"):
            raise expected("structure", "projective, spanning or softmax", repr(structure))
        if root not in ("token", "learned"):
            raise expected("root", "token or learned", repr(root))
        counts = {"size": size, "hidden": hidden, "heads": heads, "score_size": score_size}
        for name, value in counts.items():
            if value is not None and value < 1:
                raise expected(name, "a whole number of at least 1", value)
        self.size, self.structure, self.root, self.single_root = size, structure, root, single_root
        self.squash, self.heads, self.soft_children, self.hard = squash, heads, children, hard
        self.encoder: BiLSTM | None = None
        self.score: MLPScore | None = None
        self.root_vector: nn.Parameter | None = None
        if uniform:
            return
        width = size
        if hidden is not None:
            self.encoder = BiLSTM(size, hidden, device, dtype)
            width = 2 * hidden
        score_size = max(width // heads, 1) if score_size is None else score_size
        # The "query" of the score is the parent, its "key" the child.
        self.score = MLPScore(width, width, score_size, heads, device, dtype)
        if root == "learned" and structure != "softmax":
            self.root_vector = nn.Parameter(torch.empty(width, device=device, dtype=dtype))
            nn.init.normal_(self.root_vector, std=0.1)

    def reset_parameters(self) -> None:
        """Draws the parameters afresh."""
        for part in (self.encoder, self.score):
            if part is not None:
                part.reset_parameters()
        if self.root_vector is not None:
            nn.init.normal_(self.root_vector, std=0.1)

    def forward(
        self,
        query: Tensor,
        keys: Tensor | None = None,
        values: Tensor | None = None,
        lengths: Lengths = None,
    ) -> tuple[Tensor, Tensor]:
        """Attends.

        Args:
            query: The tokens, (..., N, D).
            keys: The tokens as parents, (..., N, D), if they differ from the tokens as children.
            values: What a parent gives, (..., N, V); the keys if None.
            lengths: (...), tokens from there on do not exist; whatever stands there has no effect.

        Returns:
            The context (..., N, V), or (..., N, heads * V), and the weights (..., N, N), or
            (..., heads, N, N): ``weights[..., j, i]`` is the probability that i is the parent of j
            (with ``children``, its child). Both are 0 in padding.

        Raises:
            InputError: Shapes that do not fit together, lengths out of range.
        """
        children, parents, size = self._arrange(query, keys, lengths)
        padding = padding_of(size, query.shape[-2])
        values = parents if values is None else self._values(values, parents, padding)
        mu = self._weights(self._scores(children, parents, size), size, padding)
        weights = mu if self.soft_children else mu.mT
        context = weights @ values[..., None, :, :]  # (..., H, N, V)
        if self.heads == 1:
            return context[..., 0, :, :], weights[..., 0, :, :]
        return context.transpose(-3, -2).flatten(-2), weights

    def distribution(
        self, query: Tensor, keys: Tensor | None = None, lengths: Lengths = None
    ) -> StructuredDistribution:
        """The distribution over trees: to sample from, for the best tree, entropy, ...

        Arguments as those of the call. The batch shape is (...), or (..., heads). With root
        "token" the tree is over the N - 1 tokens behind the root, so heads are counted from token
        1. For "softmax" there is one choice of a parent for each token, batch shape (..., N).
        """
        children, parents, size = self._arrange(query, keys, lengths)
        case = self._case(self._scores(children, parents, size), size)
        found: StructuredDistribution = self._distribution(*case)
        return found

    # ---- parts -----------------------------------------------------------------------------------

    def _arrange(
        self, query: Tensor, keys: Tensor | None, lengths: Lengths
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Children and parents (..., N, D), zero in padding, and lengths (...)."""
        check_float("query", query)
        check_float("keys", keys)
        if query.dim() < 2:
            raise expected("query", "tokens (..., N, D)", tuple(query.shape))
        check_size("query", query, self.size)
        if keys is not None and keys is not query and keys.shape != query.shape:
            want = f"{tuple(query.shape)}, the tokens of the query"
            raise expected("keys", want, tuple(keys.shape))
        size = as_lengths(lengths, query.shape[:-2], query.shape[-2], query.device, check=True)
        padding = padding_of(size, query.shape[-2])
        children = hide_padding(query, padding)
        if keys is None or keys is query:
            return children, children, size
        return children, hide_padding(keys, padding), size

    def _values(self, values: Tensor, parents: Tensor, padding: Tensor | None) -> Tensor:
        check_float("values", values)
        if values.shape[:-1] != parents.shape[:-1]:
            want = f"{(*parents.shape[:-1], 'V')}, one for each token"
            raise expected("values", want, tuple(values.shape))
        return hide_padding(values, padding)

    def _case(self, scores: Tensor, size: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Scores without a dimension for one head, and lengths in the shape of their batch."""
        if self.heads == 1:
            return scores[..., 0, :, :], size
        return scores, None if size is None else size[..., None]

    def _encode(self, x: Tensor, size: Tensor | None) -> Tensor:
        if self.encoder is None:
            return x
        flat = x.reshape(x.shape[:-2].numel(), *x.shape[-2:])
        out: Tensor = self.encoder(flat, None if size is None else size.reshape(-1))
        return out.reshape(*x.shape[:-1], out.shape[-1])

    def _scores(self, children: Tensor, parents: Tensor, size: Tensor | None) -> Tensor:
        """Theta (..., H, P, N), parent before child; with a learned root, P = 1 + N, root first."""
        n = children.shape[-2]
        rows = n + (self.root == "learned" and self.structure != "softmax")
        if self.score is None:
            return children.new_zeros(*children.shape[:-2], self.heads, rows, n)
        child = self._encode(children, size)
        parent = child if parents is children else self._encode(parents, size)
        if self.root_vector is not None:
            root = self.root_vector.to(parent.dtype).expand(*parent.shape[:-2], 1, -1)
            parent = torch.cat([root, parent], -2)
        scores: Tensor = self.score(parent, child)
        scores = scores.tanh() if self.squash else scores
        return scores[..., None, :, :] if self.heads == 1 else scores

    def _distribution(
        self, scores: Tensor, size: Tensor | None, validate: bool | None = None
    ) -> Any:
        """From scores (..., P, N) and lengths (...)."""
        if self.structure == "softmax":
            if size is not None:  # a token in the padding has nothing to choose from
                tokens = torch.arange(scores.shape[-1], device=size.device)
                size = torch.where(tokens < size[..., None], size[..., None], 0)
                size = size.expand(*scores.shape[:-2], -1)
            return Categorical(scores.mT, size, validate)
        if self.root == "token":
            scores = scores[..., 1:]
            size = None if size is None else (size - 1).clamp(min=0)
        kind = ProjectiveTree if self.structure == "projective" else SpanningTree
        root = scores[..., :1, :].sum(-2)  # a sum, for there may be no row at all
        return kind(scores[..., 1:, :], root, size, self.single_root, validate)

    def _weights(self, scores: Tensor, size: Tensor | None, padding: Tensor | None) -> Tensor:
        """Parent-child probabilities (..., H, N, N) from scores (..., H, P, N)."""
        if scores.shape[-1] == 0:
            return scores[..., :0, :]
        if self.structure == "softmax" and not self.hard:
            return _softmax(scores, padding)
        each = None if size is None else size[..., None]
        d = self._distribution(scores, each, validate=False)
        mu = d.to_indicator(d.argmax) if self.hard else d.marginals
        return self._in_place(mu)

    def _in_place(self, mu: Any) -> Tensor:
        """Marginals in the layout (..., N, N), parent before child."""
        if self.structure == "softmax":
            chosen: Tensor = mu.mT
            return chosen
        if self.root == "learned":
            arcs: Tensor = mu.arcs
            return arcs
        return pad(torch.cat([mu.root[..., None, :], mu.arcs], -2), (1, 0))

    # ---- laws ------------------------------------------------------------------------------------

    def _law_parts(
        self, query: Tensor, keys: Tensor | None, values: Tensor | None, lengths: Lengths
    ) -> tuple[Tensor, Callable[[Tensor], StructuredDistribution]]:
        children, parents, length = self._arrange(query, keys, lengths)
        scores, size = self._case(self._scores(children, parents, length), length)
        first = scores[..., : scores.shape[-2] - scores.shape[-1], :]  # a learned root's row
        inner = scores[..., first.shape[-2] :, :]

        def build(s: Tensor) -> StructuredDistribution:
            given: StructuredDistribution = self._distribution(
                torch.cat([first, s if self.soft_children else s.mT], -2), size
            )
            return given

        return inner if self.soft_children else inner.mT, build

    def _sums(
        self,
        weights: Tensor,
        query: Tensor,
        keys: Tensor | None,
        values: Tensor | None,
        lengths: Lengths,
    ) -> Tensor:
        """How far each token's parents are from summing to 1 (0 for a root token and padding)."""
        d = self.distribution(query, keys, lengths)
        tokens = torch.arange(weights.shape[-1], device=weights.device)
        end = torch.as_tensor(weights.shape[-1] if lengths is None else lengths)
        some = tokens < end[..., None].to(tokens.device)
        want = (some if self.heads == 1 else some[..., None, :]).to(weights.dtype)
        if self.structure != "softmax":
            want = want - (d.marginals.root if self.root == "learned" else (tokens == 0).float())
            want = want.clamp(min=0)
        return (weights.sum(-2 if self.soft_children else -1) - want).abs()

    def extra_repr(self) -> str:
        """What the trees are."""
        parts = [f"{self.size}", f"structure={self.structure}", f"root={self.root}"]
        defaults = {"single_root": False, "squash": True, "heads": 1, "soft_children": False}
        found = {name: getattr(self, name) for name in (*defaults, "hard")}
        defaults["hard"] = False
        parts += [f"{k}={v}" for k, v in found.items() if v != defaults[k]]
        return ", ".join(parts)


def _softmax(scores: Tensor, padding: Tensor | None) -> Tensor:
    """Over the parents of each child, (..., H, N, N); 0 for padding on either side."""
    if padding is None:
        return scores.softmax(-2)
    lowest = torch.finfo(scores.dtype).min
    weights = scores.masked_fill(padding[..., None, :, None], lowest).softmax(-2)
    outside = padding[..., None, :, None] | padding[..., None, None, :]
    return weights.masked_fill(outside, 0.0)
