"""Two encoders and two forward passes, one in torch and one in numpy, must agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from border_cli.core.spaces import Space
from border_cli.nn.numpy_encoder import encode, encoded_size
from border_cli.nn.numpy_mlp import NumpyMlp
from border_cli.nn.q_network import QNetwork
from border_cli.nn.saving import copied_arrays


def tensors(obs: Any) -> Any:
    if isinstance(obs, dict):
        return {key: torch.from_numpy(part) for key, part in obs.items()}
    return torch.from_numpy(obs)


def test_both_encoders_give_the_same_rows(space: Space, observations: Any):
    network = QNetwork(space, [8], 3, seed=1)
    rows = encode(space, observations)
    assert rows.shape[1] == encoded_size(space)
    assert network.encoder(tensors(observations)).dtype == torch.float32
    np.testing.assert_array_equal(network.encoder(tensors(observations)).numpy(), rows)


@pytest.mark.parametrize("hidden", [[], [16], [16, 8]])
def test_both_forward_passes_give_the_same_values(space: Space, observations: Any, hidden: Any):
    network = QNetwork(space, hidden, 3, seed=1)
    expected = network(tensors(observations)).detach().numpy()  # [N, 3]
    q = NumpyMlp(copied_arrays(network), prefix="mlp.")(encode(space, observations))
    assert q.dtype == np.float32
    np.testing.assert_allclose(q, expected, rtol=1e-5, atol=1e-6)


def test_acting_leaves_the_observation_as_it_was():
    """An identity encoder hands over the very array of the environment."""
    obs = np.array([[-1.0, 2.0]], np.float32)
    mlp = NumpyMlp({"layers.0.weight": np.eye(2, dtype="f4"), "layers.0.bias": np.ones(2, "f4")})
    assert mlp(obs).tolist() == [[0, 3]]
    assert obs.tolist() == [[-1, 2]]


def test_only_dense_layers_have_weights_to_save(space: Space):
    assert list(QNetwork(space, [4], 2, seed=0).state_dict()) == [
        "mlp.layers.0.weight",
        "mlp.layers.0.bias",
        "mlp.layers.1.weight",
        "mlp.layers.1.bias",
    ]
