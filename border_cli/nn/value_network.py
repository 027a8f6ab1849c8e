"""A network of action values, optionally dueling and with noisy dense layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from border_cli.nn.architecture import Architecture
from border_cli.nn.dense import Mlp, NoisyDense
from border_cli.nn.features import FeatureTensors
from border_cli.nn.network import LearnedModule, torso_of


def scale_noise(normal: Tensor) -> Tensor:
    """Returns f(x) = sgn(x) sqrt(|x|), elementwise."""
    return normal.sign() * normal.abs().sqrt()


class ValueNetwork(LearnedModule):
    """Q(s, a) of every action, or the logits of its atoms; `NumpyValueNetwork` is its counterpart.

    Dueling: Wang et al. 2016, "Dueling network architectures for deep reinforcement learning",
    equation 9; every stream has its own last hidden layer. Atoms and noise: Hessel et al. 2018,
    "Rainbow: combining improvements in deep reinforcement learning"; `noisy_std` adds noise to all
    dense layers, but not to convolutions.
    """

    def __init__(
        self,
        architecture: Architecture,
        num_actions: int,
        rng: np.random.Generator,
        *,
        atoms: int = 1,
        dueling: bool = False,
        noisy_std: float | None = None,
    ) -> None:
        super().__init__()
        self._atoms = atoms
        self.torso = torso_of(architecture, rng)
        sizes = [self.torso.size, *architecture.hidden]
        split = max(0, len(architecture.hidden) - 1) if dueling else 0  # shared layers

        def stream(sizes: Sequence[int], outputs: int | None) -> Mlp:
            return Mlp(architecture, sizes, outputs, rng, noisy_std=noisy_std)

        self.shared = stream(sizes[: split + 1], None)
        self.value = stream(sizes[split:], atoms) if dueling else None
        self.advantage = stream(sizes[split:], num_actions * atoms)
        layers = [module for module in self.modules() if isinstance(module, NoisyDense)]
        self._draws = [sum(layer.weight.shape) for layer in layers]  # in order of use

    @property
    def draws(self) -> int:
        """Number of standard normal numbers for the noise of one pass; 0 if no layer is noisy."""
        return sum(self._draws)

    def forward(self, features: FeatureTensors, noise: Tensor | None = None) -> Tensor:
        """[B, num_actions * atoms]; `noise` [draws] is standard normal, and None means no noise.

        All rows of a batch share one draw, as in the paper.
        """
        noises = () if noise is None else scale_noise(noise).split_with_sizes(self._draws)
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
