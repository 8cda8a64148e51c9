"""Networks that complete pictures: patches in, some of them hidden, all patches out."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lawful.energy import EnergyBlock, EnergyTransformer
from lawful.errors import expected
from lawful.models._common import factory
from lawful.models._inpainter_config import (
    Ends,
    EnergyInpainterConfig,
    PatchSpec,
    TiedViTInpainterConfig,
    ViTInpainterConfig,
)


class Completion(NamedTuple):
    """How a completion came about."""

    completed: Tensor  # (B, N, P)
    path: Tensor  # (T+1, B, N, P): what would be read out before each step and at the end
    energies: Tensor | None  # (T+1, B) of a network with an energy; (S, T+1, B) of S > 1 energies
    tokens: Tensor  # (B, N [+ 1], D): the states at the end, before the last norm


class Inpainter(nn.Module, ABC):
    """Encodes patches, hides some, runs a network, and reads every patch out again.

    ``x_A = W_enc p_A + b_enc``, or the MASK token where A is hidden; plus a learned position.
    After the network ``p̂_A = W_dec norm(x_A) + b_dec``. What a hidden patch holds is never read.

    Args:
        config: Sizes.
        patches: How pictures are cut up.
        device: Where the parameters live.
        dtype: Their floating-point type.

    Source: Hoover et al. 2023, image completion. Departure: encoded patches and positions start at
    unit scale (there 0.002), so that a hidden patch knows its place from the first update on and
    a step is short against the state. That learns several times faster.
    """

    def __init__(
        self,
        config: Ends,
        patches: PatchSpec,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        made = factory(device, dtype)
        d = config.width
        self.patches = patches
        self.encoder = nn.Linear(patches.size, d, **made)
        self.decoder = nn.Linear(d, patches.size, **made)
        self.mask_token = nn.Parameter(torch.empty(d, **made))
        self.cls_token = nn.Parameter(torch.empty(d, **made)) if config.cls else None
        self.positions = nn.Parameter(torch.empty(patches.count, d, **made))
        self._reset_ends()

    def _reset_ends(self) -> None:
        nn.init.normal_(self.encoder.weight, std=self.patches.size**-0.5)
        nn.init.normal_(self.mask_token, std=0.02)
        nn.init.normal_(self.positions)
        if self.cls_token is not None:
            nn.init.normal_(self.cls_token)

    @abstractmethod
    def states(self, tokens: Tensor, steps: int | None) -> Tensor:
        """Final states (B, N', D) of tokens (B, N', D)."""

    @abstractmethod
    def all_states(self, tokens: Tensor, steps: int | None) -> tuple[Tensor, Tensor | None]:
        """All states (T+1, B, N', D) and, if there is an energy, its values (T+1, B)."""

    @abstractmethod
    def normalise(self, states: Tensor) -> Tensor:
        """The last norm."""

    def embed(self, patches: Tensor, hidden: Tensor) -> Tensor:
        """Tokens (B, N', D) of patches (B, N, P), those with ``hidden`` (B, N) masked."""
        self._check(patches, hidden)
        away = hidden[..., None]
        x = torch.where(away, self.mask_token, self.encoder(patches.masked_fill(away, 0.0)))
        x = x + self.positions
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(len(x), 1, -1), x], 1)
        return x

    def read(self, states: Tensor) -> Tensor:
        """Patches (..., N, P) of states (..., N', D)."""
        out: Tensor = self.decoder(self.normalise(states[..., -self.patches.count :, :]))
        return out

    def forward(self, patches: Tensor, hidden: Tensor, steps: int | None = None) -> Tensor:
        """Completes pictures.

        Args:
            patches: (B, N, P).
            hidden: (B, N) bool, True for a patch to be filled in.
            steps: In place of the network's own number of steps, where it has one.

        Returns:
            Every patch, also those that were seen (B, N, P).

        Raises:
            InputError: A wrong shape or type.
        """
        return self.read(self.states(self.embed(patches, hidden), steps))

    def course(self, patches: Tensor, hidden: Tensor, steps: int | None = None) -> Completion:
        """Completes pictures and tells how; arguments as for calling the module."""
        states, energies = self.all_states(self.embed(patches, hidden), steps)
        path = self.read(states)
        return Completion(path[-1], path, energies, states[-1])

    def _check(self, patches: Tensor, hidden: Tensor) -> None:
        n, p = self.patches.count, self.patches.size
        if patches.dim() != 3 or patches.shape[1:] != (n, p) or not patches.is_floating_point():
            got = f"{patches.dtype} of shape {tuple(patches.shape)}"
            raise expected("patches", f"floats of shape (batch, {n}, {p})", got)
        if hidden.shape != patches.shape[:2] or hidden.dtype != torch.bool:
            got = f"{hidden.dtype} of shape {tuple(hidden.shape)}"
            raise expected("hidden", f"booleans of shape {tuple(patches.shape[:2])}", got)


class EnergyInpainter(Inpainter):
    """Inpainter around an `lawful.energy.EnergyTransformer`; the last norm is its own layer norm.

    With several blocks what is read out along the way passes the norm of the last one.

    With ``random_steps`` and in training, each call draws its number of steps from torch's global
    generator.
    """

    def __init__(
        self,
        config: EnergyInpainterConfig,
        patches: PatchSpec,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(config, patches, device, dtype)
        self.random_steps = config.random_steps
        self.body = EnergyTransformer(
            config.width,
            config.heads,
            config.head_dim,
            config.memories or config.width,
            config.settle_steps,
            config.step_size,
            step_rule=config.step_rule,
            blocks=config.blocks,
            self_attention=config.self_attention,
            bias=config.bias,
            learn_beta=config.learn_beta,
            noise=config.noise,
            recompute=config.recompute,
            device=device,
            dtype=dtype,
        )

    @property
    def steps(self) -> int:
        """Steps in evaluation T."""
        return self.body.steps

    def states(self, tokens: Tensor, steps: int | None) -> Tensor:
        """Final states (B, N', D)."""
        if steps is None and self.training and self.random_steps is not None:
            low, high = self.random_steps
            steps = int(torch.randint(low, high + 1, ()))
        out: Tensor = self.body(tokens, steps=steps)
        return out

    def all_states(self, tokens: Tensor, steps: int | None) -> tuple[Tensor, Tensor | None]:
        """All states (S T + 1, B, N', D) and energies (T+1, B); (S, T+1, B) with S > 1 blocks."""
        found = self.body.settle(tokens, trajectory=True, steps=steps, langevin=False)
        path = found.trajectory
        assert path is not None  # asked for
        if len(self.body.blocks) > 1:  # (S, T+1, ...): each block starts where the last one ended
            path = torch.cat([path[0], path[1:, 1:].flatten(0, 1)])
        return path, found.energies

    def normalise(self, states: Tensor) -> Tensor:
        """The layer norm of the last energy."""
        out: Tensor = self.last.norm(states)
        return out

    @property
    def last(self) -> EnergyBlock:
        """The block that settles last."""
        block = self.body.blocks[-1]
        assert isinstance(block, EnergyBlock)
        return block


class ViTInpainter(Inpainter):
    """Inpainter around pre-norm transformer layers of torch, each with weights of its own or tied.

    Args:
        config: Sizes; a `TiedViTInpainterConfig` makes one layer that is applied again and again.
        patches: How pictures are cut up.
        device: Where the parameters live.
        dtype: Their floating-point type.
    """

    def __init__(
        self,
        config: ViTInpainterConfig | TiedViTInpainterConfig,
        patches: PatchSpec,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(config, patches, device, dtype)
        made = factory(device, dtype)
        self.tied = isinstance(config, TiedViTInpainterConfig)
        own, self.steps = (
            (1, config.repeats)
            if isinstance(config, TiedViTInpainterConfig)
            else (config.layers, config.layers)
        )
        options: dict[str, Any] = {"activation": "gelu", "batch_first": True, "norm_first": True}
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                config.width,
                config.heads,
                config.feedforward or 4 * config.width,
                config.dropout,
                **options,
                **made,
            )
            for _ in range(own)
        )
        self.norm = nn.LayerNorm(config.width, **made)

    def states(self, tokens: Tensor, steps: int | None) -> Tensor:
        """Final states (B, N', D)."""
        for layer in self._run(steps):
            tokens = layer(tokens)
        return tokens

    def all_states(self, tokens: Tensor, steps: int | None) -> tuple[Tensor, Tensor | None]:
        """All states (T+1, B, N', D); there is no energy."""
        found = [tokens]
        for layer in self._run(steps):
            found.append(layer(found[-1]))
        return torch.stack(found), None

    def normalise(self, states: Tensor) -> Tensor:
        """A layer norm after the last layer."""
        out: Tensor = self.norm(states)
        return out

    def _run(self, steps: int | None) -> list[nn.Module]:
        if self.tied:
            return [self.layers[0]] * (self.steps if steps is None else steps)
        if steps not in (None, self.steps):
            raise expected("steps", f"{self.steps}, the number of layers", steps)
        return list(self.layers)


def build_inpainter(config: Any, patches: PatchSpec) -> Inpainter:
    """A fresh inpainter of the kind that its config names."""
    if isinstance(config, EnergyInpainterConfig):
        return EnergyInpainter(config, patches)
    return ViTInpainter(config, patches)
