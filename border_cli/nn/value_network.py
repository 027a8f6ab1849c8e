"""A network of action values that may be dueling, and whose dense layers may be noisy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from border_cli.nn.architecture import Architecture
from border_cli.nn.dense import Mlp, NoisyDense
from border_cli.nn.features import FeatureTensors
from border_cli.nn.network import LearnedNetwork, torso_of


def factors(normal: Tensor) -> Tensor:
    """f(x) = sgn(x) sqrt(|x|), entry by entry."""
    return normal.sign() * normal.abs().sqrt()


class ValueNetwork(LearnedNetwork):
    """Q(s, a) of every action, or the logits of so many atoms of it. `NumpyValueNetwork` is a twin.

    Dueling: Wang et al. 2016, "Dueling network architectures for deep reinforcement learning",
    equation 9; every stream has a last hidden layer of its own. For atoms and noise in it: Hessel
    et al. 2018, "Rainbow: combining improvements in deep reinforcement learning". With `noisy_std`
    all dense layers are noisy, and convolutions are not, as in the latter.
    """

    def __init__(
        self,
        architecture: Architecture,
        num_actions: int,
        generator: torch.Generator,
        *,
        atoms: int = 1,
        dueling: bool = False,
        noisy_std: float | None = None,
    ) -> None:
        super().__init__()
        self._atoms = atoms
        self.torso = torso_of(architecture, generator)
        sizes = [self.torso.size, *architecture.hidden]
        split = max(0, len(architecture.hidden) - 1) if dueling else 0  # layers shared

        def stream(sizes: Sequence[int], outputs: int | None) -> Mlp:
            return Mlp(architecture, sizes, outputs, generator, noisy_std=noisy_std)

        self.shared = stream(sizes[: split + 1], None)
        self.value = stream(sizes[split:], atoms) if dueling else None
        self.advantage = stream(sizes[split:], num_actions * atoms)
        layers = [each for each in self.modules() if isinstance(each, NoisyDense)]
        self._draws = [sum(each.weight.shape) for each in layers]  # in the order of their use

    @property
    def draws(self) -> int:
        """Standard normal numbers that make the noise of one pass; 0 where nothing is noisy."""
        return sum(self._draws)

    def forward(self, features: FeatureTensors, noise: Tensor | None = None) -> Tensor:
        """[B, num_actions * atoms]; without `noise` [draws], standard normal, weights are means.

        One draw serves all rows of a batch, as in the paper.
        """
        noises = () if noise is None else factors(noise).split_with_sizes(self._draws)
        shared = len(self.shared.layers)
        rows = self.shared(self.torso(features), noises[:shared])
        if self.value is None:
            result: Tensor = self.advantage(rows, noises)
            return result
        split = shared + len(self.value.layers)
        value = self.value(rows, noises[shared:split])[:, None]  # [B, 1, atoms]
        advantage = self.advantage(rows, noises[split:]).unflatten(1, (-1, self._atoms))
        combined: Tensor = value + advantage - advantage.mean(1, keepdim=True)
        return combined.flatten(1)
