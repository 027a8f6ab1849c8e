"""Dueling streams and noisy layers: by hand, by finite differences, and numpy against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from border_cli.core.spaces import DictSpace, DiscreteSpace, Space
from border_cli.nn.architecture import Activation, Architecture
from border_cli.nn.dense import NoisyDense
from border_cli.nn.features import Features
from border_cli.nn.numpy_network import NumpyValueNetwork
from border_cli.nn.tensors import tensor_obs
from border_cli.nn.value_network import ValueNetwork, scale_noise
from tests.support.snapshots import snapshot_arrays
from tests.support.spaces import drawn, numbers, pixels


def network(space: Space, hidden: tuple[int, ...] = (6, 5), seed: int = 0, **form: Any):
    """Builds a value network with three actions."""
    layers = {key: form.pop(key) for key in ("activation", "layer_norm") if key in form}
    architecture = Architecture(space, hidden=hidden, **layers)
    built = ValueNetwork(architecture, 3, np.random.default_rng(seed), **form)
    return architecture, built


class FixedGenerator(np.random.Generator):
    """A fake generator that returns given numbers."""

    def __init__(self, numbers: np.ndarray) -> None:
        super().__init__(np.random.PCG64(0))
        self._numbers = numbers

    def standard_normal(self, shape: Any, dtype: Any) -> Any:  # type: ignore[override]
        assert self._numbers.shape == shape
        return self._numbers.astype(dtype)


def test_factors_are_signed_roots():
    assert scale_noise(torch.tensor([4.0, -9.0, 0.0])).tolist() == [2, -3, 0]


def test_a_noisy_layer_by_hand():
    layer = NoisyDense(2, 1, np.random.default_rng(0), std=0.5, onednn=False)
    layer.load_state_dict(
        {
            "weight": torch.tensor([[1.0, 2.0]]),
            "bias": torch.tensor([3.0]),
            "weight_std": torch.tensor([[0.5, 0.25]]),
            "bias_std": torch.tensor([0.125]),
        }
    )
    rows = torch.tensor([[1.0, 10.0]])
    assert layer(rows).item() == 1 + 20 + 3
    # weights (1 + 0.5 * 2 * 3, 2 + 0.25 * 2 * -1), bias 3 + 0.125 * 2
    noisy = layer(rows, torch.tensor([3.0, -1.0, 2.0]))
    assert noisy.item() == 4 + 15 + 3.25


def test_a_noisy_layer_begins_as_the_paper_says():
    layer = NoisyDense(100, 50, np.random.default_rng(1), std=0.5, onednn=False)
    for mean in (layer.weight, layer.bias):
        assert 0.08 < float(mean.detach().abs().max()) <= 0.1
    for std in (layer.weight_std, layer.bias_std):
        np.testing.assert_allclose(std.detach(), np.full(std.shape, 0.05), rtol=1e-6)


def test_dueling_values_are_the_state_value_plus_centred_advantages():
    """Q(s, a) = V(s) + A(s, a) - mean A(s, ·), with V = 2 h + 1 and A = (h, 0, -4 h)."""
    _, built = network(numbers(1), (1,), dueling=True)
    state = {name: torch.zeros_like(tensor) for name, tensor in built.state_dict().items()}
    state["value.layers.0.weight"][:] = 1
    state["advantage.layers.0.weight"][:] = 1
    state["value.layers.1.weight"][:] = 2
    state["value.layers.1.bias"][:] = 1
    state["advantage.layers.1.weight"][:] = torch.tensor([[1.0], [0.0], [-4.0]])
    built.load_state_dict(state)
    assert built(torch.tensor([[3.0], [-3.0]])).tolist() == [[7 + 6, 7 + 3, 7 - 9], [1, 1, 1]]


@pytest.mark.parametrize(("hidden", "shared", "own"), [((6, 5), 1, 1), ((6,), 0, 1), ((), 0, 0)])
def test_each_stream_has_a_last_hidden_layer_of_its_own(hidden, shared: int, own: int):
    _, built = network(numbers(2), hidden, dueling=True)
    assert built.value is not None
    streams = built.shared, built.value, built.advantage
    assert [len(mlp.layers) for mlp in streams] == [shared, own + 1, own + 1]
    assert built(torch.zeros(4, 2)).shape == (4, 3)


def test_atoms_of_actions_are_centred_each_by_itself():
    _, built = network(numbers(2), dueling=True, atoms=4)
    rows = torch.randn(5, 2, generator=torch.Generator().manual_seed(1))
    outputs = built(rows)
    assert outputs.shape == (5, 12)
    value = built.value(built.shared(rows))
    torch.testing.assert_close(outputs.view(5, 3, 4).mean(1), value)


FORMS = [
    {"dueling": True},
    {"noisy_std": 0.5},
    {"dueling": True, "noisy_std": 0.5, "atoms": 4},
    {"dueling": True, "noisy_std": 0.5, "layer_norm": True, "activation": Activation.silu},
]
SPACES = [
    numbers(3),
    DictSpace({"speed": numbers(3), "level": DiscreteSpace(4)}),
    pixels(36, 36),
]


@pytest.mark.parametrize("space", SPACES, ids=["vector", "dict", "image"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("hidden", [(6, 5), ()])
def test_numpy_computes_what_torch_does(space: Space, form: dict[str, Any], hidden):
    architecture, built = network(space, hidden, **form)
    for parameter in built.parameters():  # so that layer norms are not the identity
        parameter.data += 0.1 * torch.randn(
            parameter.shape, generator=torch.Generator().manual_seed(2)
        )
    arrays = {f"network.{name}": array for name, array in snapshot_arrays(built).items()}
    twin = NumpyValueNetwork(architecture, atoms=form.get("atoms", 1))
    twin.load(arrays)
    obs = drawn(space, 4)
    features = Features(architecture, normalize=False)(tensor_obs(obs))
    np.testing.assert_allclose(twin(obs), built(features).detach(), rtol=1e-4, atol=1e-5)
    if not built.draws:
        return
    noise = np.random.default_rng(3).normal(size=(4, built.draws)).astype(np.float32)
    twin.noise = FixedGenerator(noise)  # different noise for each row
    noisy = torch.cat([built(features, torch.tensor(draws))[i : i + 1] for i, draws in
                       enumerate(noise)])  # fmt: skip
    np.testing.assert_allclose(twin(obs), noisy.detach(), rtol=1e-3, atol=1e-4)
    assert not np.allclose(noisy.detach(), built(features).detach())
    twin.noise = None
    np.testing.assert_allclose(twin(obs), built(features).detach(), rtol=1e-4, atol=1e-5)


def test_gradients_by_means_and_deviations_are_those_of_finite_differences():
    _, built = network(numbers(2), (3,), dueling=True, noisy_std=0.5, activation=Activation.tanh)
    built.double()
    rng = torch.Generator().manual_seed(4)
    rows = torch.randn(2, 2, generator=rng, dtype=torch.float64)
    noise = torch.randn(built.draws, generator=rng, dtype=torch.float64)
    names, values = zip(*built.named_parameters(), strict=True)

    def outputs(*weights: torch.Tensor) -> torch.Tensor:
        parameters = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(built, parameters, (rows, noise))

    assert torch.autograd.gradcheck(outputs, values)
