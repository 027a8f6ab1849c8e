"""A network of action values that may be dueling, and whose dense layers may be noisy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise, repeat
from typing import TypeAlias

import torch
from torch import Tensor, nn

from border_cli.nn.architecture import Architecture
from border_cli.nn.features import FeatureTensors
from border_cli.nn.matmul import TORCH, TorchProducts, products_of
from border_cli.nn.network import ACTIVATIONS, Dense, Torso, linear

MakeDense: TypeAlias = Callable[[int, int], Dense]  # inputs, outputs

Noises: TypeAlias = Iterator[Tensor | None]  # of one layer after the other


class NoisyDense(Dense):
    """y = (mu_w + sigma_w * eps_w) x + mu_b + sigma_b * eps_b, with eps_w = f(eps_out) f(eps_in)^T.

    The means begin as the weights of `Dense`, which are the paper's, and every sigma as
    `std * inputs**-0.5`.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        generator: torch.Generator,
        *,
        std: float,
        products: TorchProducts = TORCH,
    ) -> None:
        super().__init__(inputs, outputs, generator, products=products)
        self.weight_std = nn.Parameter(torch.full((outputs, inputs), std * inputs**-0.5))
        self.bias_std = nn.Parameter(torch.full((outputs,), std * inputs**-0.5))

    def forward(self, rows: Tensor, noise: Tensor | None = None) -> Tensor:
        """`noise` [inputs + outputs] is what `factors` gave; without it the weights are means."""
        if noise is None:
            return super().forward(rows)
        by_input, by_output = noise.split_with_sizes((self.weight.shape[1], self.weight.shape[0]))
        weight = torch.addcmul(self.weight, self.weight_std, torch.outer(by_output, by_input))
        bias = torch.addcmul(self.bias, self.bias_std, by_output)
        return linear(rows, weight, bias, self._products)


def factors(normal: Tensor) -> Tensor:
    """f(x) = sgn(x) sqrt(|x|), entry by entry."""
    return normal.sign() * normal.abs().sqrt()


class Hidden(nn.Module):
    """A dense layer, a layer norm where the architecture has it, and the activation."""

    def __init__(self, dense: Dense, architecture: Architecture) -> None:
        super().__init__()
        self.dense = dense
        self.norm = nn.LayerNorm(len(dense.bias)) if architecture.layer_norm else None
        self._activate = ACTIVATIONS[architecture.activation]

    def forward(self, rows: Tensor, noises: Noises) -> Tensor:
        rows = _through(self.dense, rows, noises)
        return self._activate(rows if self.norm is None else self.norm(rows))


class Stream(nn.Module):
    """Hidden layers of these sizes, and a linear layer where outputs are asked for."""

    def __init__(
        self, sizes: Sequence[int], outputs: int, architecture: Architecture, make: MakeDense
    ) -> None:
        super().__init__()
        self.hidden = nn.ModuleList(Hidden(make(*pair), architecture) for pair in pairwise(sizes))
        self.last = make(sizes[-1], outputs) if outputs else None

    def forward(self, rows: Tensor, noises: Noises) -> Tensor:
        for each in self.hidden:
            rows = each(rows, noises)
        return rows if self.last is None else _through(self.last, rows, noises)


class ValueNetwork(nn.Module):
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
        self.torso = Torso(architecture, generator)
        products = products_of(architecture)
        make: MakeDense = partial(Dense, generator=generator, products=products)
        if noisy_std is not None:
            make = partial(NoisyDense, generator=generator, std=noisy_std, products=products)
        sizes = [self.torso.size, *architecture.hidden]
        split = max(0, len(architecture.hidden) - 1) if dueling else 0  # layers shared
        self.shared = Stream(sizes[: split + 1], 0, architecture, make)
        self.value = Stream(sizes[split:], atoms, architecture, make) if dueling else None
        self.advantage = Stream(sizes[split:], num_actions * atoms, architecture, make)
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
        noises: Noises = repeat(None)
        if noise is not None:
            noises = iter(factors(noise).split_with_sizes(self._draws))
        rows = self.shared(self.torso(features), noises)
        if self.value is None:
            result: Tensor = self.advantage(rows, noises)
            return result
        value = self.value(rows, noises)[:, None]  # [B, 1, atoms]
        advantage = self.advantage(rows, noises).unflatten(1, (-1, self._atoms))
        combined: Tensor = value + advantage - advantage.mean(1, keepdim=True)
        return combined.flatten(1)


def _through(dense: Dense, rows: Tensor, noises: Noises) -> Tensor:
    noise = next(noises)
    result: Tensor = dense(rows) if noise is None else dense(rows, noise)
    return result
