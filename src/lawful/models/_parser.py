"""A graph-based dependency parser: a score for every head of every word, and for every label."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from lawful.errors import expected
from lawful.laws import Law
from lawful.models._structured import laws_of_distribution
from lawful.models._words import SharedDropout, WordEncoder, WordEncoderConfig
from lawful.structures import ProjectiveTree, SpanningTree

Decoder = Literal["argmax", "mbr"]
Structure = Literal["spanning", "projective"]


@dataclass(frozen=True)
class _ParserConfig(WordEncoderConfig):
    arc_size: int = 200
    """Width of the vectors that heads and dependents are matched by."""
    label_size: int = 64
    """Width of the vectors that labels are chosen by."""

    def __post_init__(self) -> None:
        """Refuses impossible values, naming the field."""
        super().__post_init__()
        for name in ("arc_size", "label_size"):
            if getattr(self, name) < 1:
                raise expected(name, "a whole number of at least 1", getattr(self, name))


@dataclass(frozen=True)
class TreeParserConfig(_ParserConfig):
    """Trained on the probability of the whole tree."""

    structure: Structure = "spanning"
    """Any tree (spanning), or only trees without crossing arcs; with one root in either case."""
    decode: Decoder = "argmax"
    """Predict the likeliest tree (argmax) or the one with most expected right heads (mbr)."""


@dataclass(frozen=True)
class LocalParserConfig(_ParserConfig):
    """The baseline: trained on each word's head on its own, decoded as a tree."""

    structure: Structure = "spanning"
    """The trees to decode: any (spanning), or only those without crossing arcs."""
    decode: Decoder = "argmax"
    """Predict the likeliest tree (argmax) or the one with most expected right heads (mbr)."""


class ParserStates(NamedTuple):
    """What words look like as heads and as dependents; in the head forms, the root comes last."""

    arc_head: Tensor  # (B, N + 1, A)
    arc_dep: Tensor  # (B, N, A)
    label_head: Tensor  # (B, N + 1, R)
    label_dep: Tensor  # (B, N, R)


class ParserScores(NamedTuple):
    """Log-potentials: arcs (B, N, N) [head, word], root (B, N), labels (B, N, L) at given heads.

    ``states`` gives the labels at other heads, by `BiaffineParser.labels`.
    """

    arcs: Tensor
    root: Tensor
    labels: Tensor
    states: ParserStates


def tree(
    structure: Structure, arcs: Tensor, root: Tensor, lengths: Tensor
) -> ProjectiveTree | SpanningTree:
    """The distribution of trees with a single root."""
    family = ProjectiveTree if structure == "projective" else SpanningTree
    # Not validated: a loss that became NaN is for the training loop to report.
    return family(arcs, root, lengths, single_root=True, validate_args=False)


def _tree(model: Any, args: tuple[Any, ...]) -> ProjectiveTree | SpanningTree:
    scores: ParserScores = model(*args)
    return tree(model.structure, scores.arcs, scores.root, args[3])


class BiaffineParser(nn.Module):
    """Scores of arcs and labels between words, bilinear in what they look like.

    score(h, m) = head_h' U dep_m + head_h' u; score(label | h, m) = head_h' V_label dep_m
    + v_label' [head_h; dep_m] + b_label. The root is a learned head.

    Source: Dozat and Manning 2017, "Deep biaffine attention for neural dependency parsing".
    Departures: the root is a learned vector beside the encoder's states rather than a token in it,
    and characters go through a convolution.

    Args:
        config: Sizes.
        words: Number of word ids.
        chars: Number of character ids.
        labels: Number of labels, L.
        device: Where the parameters live.
        dtype: Their floating-point type.
    """

    laws: ClassVar[tuple[Law, ...]] = laws_of_distribution(_tree)

    def __init__(
        self,
        config: TreeParserConfig | LocalParserConfig,
        words: int,
        chars: int,
        labels: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        a, r = config.arc_size, config.label_size
        self.structure, self.decode = config.structure, config.decode
        self.local = isinstance(config, LocalParserConfig)
        self.encoder = WordEncoder(config, words, chars, device, dtype)
        self.widths = (a, a, r, r)
        self.project = nn.Linear(self.encoder.size, sum(self.widths), device=device, dtype=dtype)
        self.dropout = SharedDropout(config.dropout)
        self.root = nn.Parameter(torch.empty(a + r, device=device, dtype=dtype))
        self.arc = nn.Parameter(torch.empty(a, a, device=device, dtype=dtype))
        self.arc_head = nn.Parameter(torch.empty(a, device=device, dtype=dtype))
        self.label = nn.Parameter(torch.empty(labels, r, r, device=device, dtype=dtype))
        self.label_linear = nn.Linear(2 * r, labels, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Bilinear weights start at zero: all trees are equally likely."""
        nn.init.orthogonal_(self.project.weight)
        nn.init.zeros_(self.project.bias)
        nn.init.normal_(self.root, std=0.1)
        for weight in (self.arc, self.arc_head, self.label):
            nn.init.zeros_(weight)

    def states(
        self, words: Tensor, chars: Tensor, spelling: Tensor, lengths: Tensor
    ) -> ParserStates:
        """The words as heads and dependents; arguments as of `WordEncoder.forward`."""
        x = leaky_relu(self.project(self.encoder(words, chars, spelling, lengths)), 0.1)
        a, r = self.widths[0], self.widths[2]
        arc_head, arc_dep, label_head, label_dep = self.dropout(x).split(self.widths, -1)
        root = self.root.expand(len(x), 1, -1)
        return ParserStates(
            torch.cat([arc_head, root[..., :a].to(x.dtype)], 1),
            arc_dep,
            torch.cat([label_head, root[..., a : a + r].to(x.dtype)], 1),
            label_dep,
        )

    def arcs(self, states: ParserStates) -> tuple[Tensor, Tensor]:
        """Log-potentials of arcs (B, N, N), [head, word], and of the root's children (B, N)."""
        head = states.arc_head
        scores = head @ self.arc @ states.arc_dep.mT + (head @ self.arc_head)[..., None]
        return scores[:, :-1], scores[:, -1]

    def labels(self, states: ParserStates, heads: Tensor) -> Tensor:
        """Log-potentials of labels (B, N, L), given heads (B, N) with -1 for the root."""
        heads = torch.where(heads < 0, heads.shape[1], heads)[..., None]
        head = states.label_head.gather(1, heads.expand(-1, -1, self.widths[2]))
        both = torch.cat([head, states.label_dep], -1)
        turned = torch.einsum("bnd,ldr->bnlr", head, self.label)
        bilinear = (turned @ states.label_dep[..., None]).squeeze(-1)
        result: Tensor = bilinear + self.label_linear(both)
        return result

    def forward(
        self, words: Tensor, chars: Tensor, spelling: Tensor, lengths: Tensor, heads: Tensor
    ) -> ParserScores:
        """All potentials, those of labels at the given heads (B, N); -1 is the root."""
        states = self.states(words, chars, spelling, lengths)
        arcs, root = self.arcs(states)
        return ParserScores(arcs, root, self.labels(states, heads), states)
