"""Torch encoders of actors compute exactly what the learner's modules compute."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from border_cli.core.spaces import DictSpace, DiscreteSpace
from border_cli.nn.architecture import Architecture
from border_cli.nn.features import Features
from border_cli.nn.network import Network
from border_cli.nn.numpy_network import (
    ActingNetwork,
    NumpyNetwork,
    NumpyQuantileNetwork,
    NumpyValueNetwork,
)
from border_cli.nn.quantile_network import QuantileNetwork
from border_cli.nn.tensors import tensor_obs
from border_cli.nn.torch_encoder import TorchEncoder
from border_cli.nn.value_network import ValueNetwork
from tests.support.snapshots import snapshot_arrays
from tests.support.spaces import drawn, numbers, pixels

VECTOR = numbers(4)
ALL = DictSpace(
    {
        "screen": pixels(9, 9, 3),
        "speed": numbers(2),
        "gear": DiscreteSpace(3),
    }
)
MINE: dict[str, Any] = {"kind": "mine", "hidden": (6,)}
FORMS = {
    "a vector": Architecture(VECTOR, target="user_networks:Tanh", **MINE),
    "a dict": Architecture(ALL, target="user_networks:Everything", **MINE),
    "an image": Architecture(pixels(12, 12, 3), kind="impala_resnet", hidden=(6,)),
    "an image beside numbers": Architecture(ALL, kind="impala_resnet", hidden=(6,)),
}


def features_of(architecture: Architecture, *, normalize: bool) -> Features:
    features = Features(architecture, normalize=normalize)
    if features.normalizes:
        features.mean.uniform_(generator=torch.Generator().manual_seed(1))
        features.inverse_std.uniform_(1, 2, generator=torch.Generator().manual_seed(2))
    return features


def arrays_of(features: Features, network: nn.Module) -> Any:
    """Returns the read-only arrays of a snapshot."""
    return snapshot_arrays(nn.ModuleDict({"features": features, "network": network}))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_the_encoder_gives_what_the_learners_gives_to_the_bit(name: str, normalize: bool) -> None:
    architecture = FORMS[name]
    assert architecture.acts_in_torch
    features = features_of(architecture, normalize=normalize)
    network = Network(architecture, 3, np.random.default_rng(0)).eval()
    encoder = pickle.loads(pickle.dumps(partial(TorchEncoder, architecture, normalize=normalize)))()
    encoder.load(arrays_of(features, network))
    obs = drawn(architecture.observation, 5)
    expected = network.torso(features(tensor_obs(obs))).detach().numpy()
    encoded = encoder(obs)
    assert np.array_equal(encoded, expected)
    encoder.load(arrays_of(features, Network(architecture, 3, np.random.default_rng(1))))
    assert not np.array_equal(encoder(obs), expected)
    assert np.array_equal(encoded, expected)  # the next call does not overwrite it


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_dense_layers_stands_behind_it(name: str) -> None:
    architecture, rng = FORMS[name], np.random.default_rng(0)
    encoder = partial(TorchEncoder, architecture, normalize=False)
    fractions = [0.2, 0.7]
    value = ValueNetwork(architecture, 2, rng, dueling=True, noisy_std=0.5).eval()
    quantile = QuantileNetwork(architecture, 4, 2, rng).eval()
    features = features_of(architecture, normalize=False)
    obs = drawn(architecture.observation, 5)
    tensors = features(tensor_obs(obs))

    def outputs(twin: ActingNetwork, network: nn.Module) -> Any:
        twin.load(arrays_of(features, network))
        return twin(obs)

    np.testing.assert_allclose(
        outputs(NumpyValueNetwork(architecture, encoder, atoms=1), value),
        value(tensors).detach(), rtol=1e-5, atol=1e-5,
    )  # fmt: skip
    np.testing.assert_allclose(
        outputs(NumpyQuantileNetwork(architecture, encoder, fractions=fractions), quantile),
        quantile(tensors, torch.tensor([fractions])).mean(1).detach(), rtol=1e-5, atol=1e-5,
    )  # fmt: skip


def test_observations_that_torch_does_not_take_are_copied() -> None:
    architecture = FORMS["a vector"]
    features = features_of(architecture, normalize=False)
    twin = NumpyNetwork(architecture, partial(TorchEncoder, architecture, normalize=False))
    twin.load(arrays_of(features, Network(architecture, 3, np.random.default_rng(0))))
    obs = drawn(VECTOR, 5)
    frozen = obs.copy()
    frozen.setflags(write=False)
    assert np.array_equal(twin(frozen), twin(obs))
    np.testing.assert_allclose(twin(obs[::-1])[::-1], twin(obs), rtol=1e-6)
