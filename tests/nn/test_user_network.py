"""User-defined networks: construction, seeding, and refusal of unsuitable ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import user_networks
from torch import Tensor, nn

from border_cli.core.spaces import DictSpace, DiscreteSpace, Space, allocate
from border_cli.errors import ConfigError
from border_cli.nn.architecture import Architecture
from border_cli.nn.ensemble import Critics
from border_cli.nn.features import Features
from border_cli.nn.network import Network, target_of
from border_cli.nn.quantile_network import QuantileNetwork
from border_cli.nn.tensors import tensor_obs
from border_cli.nn.value_network import ValueNetwork
from tests.support.spaces import numbers, pixels

VECTOR, SCREEN, SPEED = numbers(4), pixels(9, 9, 3), numbers(2)
ALL = DictSpace({"screen": SCREEN, "speed": SPEED, "gear": DiscreteSpace(3)})


def architecture(name: str, space: Space = VECTOR, **kwargs: Any) -> Architecture:
    return Architecture(
        space, kind="mine", hidden=(6,), target=f"user_networks:{name}", kwargs=kwargs
    )


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def architecture_of(kind: type[nn.Module]) -> Architecture:
    """Returns the architecture of a network class in this file."""
    return Architecture(VECTOR, kind="mine", target=f"{kind.__module__}:{kind.__name__}")


def test_heads_stand_behind_its_features() -> None:
    network = Network(architecture("Tanh", width=5), 3, seeded())
    assert network.torso.size == 6
    assert [tuple(layer.weight.shape) for layer in network.mlp.layers] == [(6, 6), (3, 6)]
    assert network(torch.zeros(7, 4)).shape == (7, 3)


def test_every_form_of_network_takes_it_and_critics_have_one_each() -> None:
    form = architecture("Tanh")
    obs = torch.ones(5, 4)
    assert ValueNetwork(form, 2, seeded(), dueling=True, noisy_std=0.5)(obs).shape == (5, 2)
    assert QuantileNetwork(form, 4, 2, seeded())(obs, torch.rand(5, 3)).shape == (5, 3, 2)
    critics = Critics(form, 2, 3, seeded())
    assert critics(obs, torch.zeros(5, 2)).shape == (3, 5, 1)
    first, second, _ = (torso.network.last.weight for torso in critics.torsos)
    assert not torch.equal(first, second)


def test_weights_come_from_the_generator_alone_and_the_global_one_stays() -> None:
    before = torch.get_rng_state()
    first, again, other = (
        Network(architecture("Tanh"), 2, seeded(seed)).state_dict() for seed in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    name = "torso.network.last.weight"
    assert torch.equal(first[name], again[name])
    assert not torch.equal(first[name], other[name])


def test_it_sees_the_observation_as_it_is_with_its_real_numbers_normalised() -> None:
    form = architecture("Everything", ALL)
    assert Features(form, normalize=False).changes_nothing
    assert form.rows == DictSpace({"speed": SPEED})
    features = Features(form, normalize=True)
    features.mean.copy_(torch.tensor([1.0, 2.0]))
    features.inverse_std.copy_(torch.tensor([2.0, 0.5]))
    obs = {
        "screen": torch.full((1, 9, 9, 3), 7, dtype=torch.uint8),
        "speed": torch.tensor([[2.0, 6.0]]),
        "gear": torch.tensor([2]),
    }
    encoded = features(obs)
    assert isinstance(encoded, dict)
    assert encoded["speed"].tolist() == [[2, 2]]
    assert torch.equal(encoded["screen"], obs["screen"])
    assert torch.equal(encoded["gear"], obs["gear"])


def test_normalised_numbers_keep_the_shape_of_a_box() -> None:
    grid = numbers(2, 2)
    features = Features(architecture("Tanh", grid), normalize=True)
    features.mean.copy_(torch.arange(4))
    assert features(torch.ones(3, 2, 2))[0].tolist() == [[1, 0], [-1, -2]]  # type: ignore[index]


def test_targets_are_copies_and_a_part_without_a_gradient_stays() -> None:
    network = Network(architecture("Everything", ALL), 2, seeded())
    obs = tensor_obs(allocate(ALL, 3))
    assert isinstance(obs, dict)
    obs["gear"].zero_()
    assert target_of(network)(obs).shape == (3, 2)
    assert not network.torso.network.scale.requires_grad


class SpectralNorm(nn.Sequential):
    def __init__(self, space: Any) -> None:
        super().__init__(nn.utils.spectral_norm(nn.Linear(space.shape[0], 3)))


def test_a_network_whose_weights_a_hook_computes_has_a_target() -> None:
    network = Network(architecture_of(SpectralNorm), 2, seeded())
    assert target_of(network)(torch.zeros(5, 4)).shape == (5, 2)


class Slices(user_networks.Tanh):
    def forward(self, obs: Tensor) -> Tensor:
        return self.layers(obs[:, :2])


class OneAxis(user_networks.Tanh):
    def forward(self, obs: Tensor) -> Tensor:
        return super().forward(obs).sum(1)


class Squeezed(user_networks.Tanh):
    def forward(self, obs: Tensor) -> Tensor:
        return super().forward(obs).squeeze()


class InPlace(user_networks.Tanh):
    def forward(self, obs: Tensor) -> Tensor:
        return super().forward(obs.mul_(0.5))


class HalfUsed(user_networks.Tanh):
    def forward(self, obs: Tensor) -> Tensor:
        return self.layers(obs)


class Fails(nn.Module):
    def __init__(self, space: Any) -> None:  # noqa: ARG002
        super().__init__()
        raise ValueError("no luck")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Slices, r"Slices fails for \[2, 4\] torch.float32: .*RuntimeError: mat1"),
        (OneAxis, r"OneAxis must return \[2, F\] torch.float32 for .*, got \[2\] torch.float32"),
        (Squeezed, r"Squeezed must return \[1, F\] torch.float32 for .*, got \[9\] torch.float32"),
        (InPlace, r"InPlace changes its input in place"),
        (HalfUsed, r"do not depend on its parameters last.weight, last.bias: leave them out"),
        (Fails, r"Fails cannot be built: .*test_user_network.py:\d+: ValueError: no luck"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_name(kind: type[nn.Module], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Network(architecture_of(kind), 2, seeded())


@pytest.mark.parametrize("target", ["no_such_module:Net", "user_networks:Tahn"])
def test_a_target_that_cannot_be_imported_is_refused(target: str) -> None:
    with pytest.raises(ConfigError, match=f"^agent.network=mine: {target} cannot be imported: "):
        Network(Architecture(VECTOR, kind="mine", target=target), 2, seeded())
