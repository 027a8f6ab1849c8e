"""Dueling streams and noisy layers: by hand, by finite differences, and in numpy as in torch."""

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
from border_cli.nn.saving import copied_arrays
from border_cli.nn.tensor_batch import tensor_obs
from border_cli.nn.value_network import ValueNetwork, factors
from tests.support.spaces import drawn, numbers, pixels


def network(space: Space, hidden: tuple[int, ...] = (6, 5), seed: int = 0, **form: Any):
    """Three actions."""
    layers = {key: form.pop(key) for key in ("activation", "layer_norm") if key in form}
    architecture = Architecture(space, hidden=hidden, **layers)
    made = ValueNetwork(architecture, 3, torch.Generator().manual_seed(seed), **form)
    return architecture, made


class Told(np.random.Generator):
    """A generator that gives numbers it was told."""

    def __init__(self, numbers: np.ndarray) -> None:
        super().__init__(np.random.PCG64(0))
        self._numbers = numbers

    def standard_normal(self, shape: Any, dtype: Any) -> Any:  # type: ignore[override]
        assert self._numbers.shape == shape
        return self._numbers.astype(dtype)


def test_factors_are_signed_roots():
    assert factors(torch.tensor([4.0, -9.0, 0.0])).tolist() == [2, -3, 0]


def test_a_noisy_layer_by_hand():
    layer = NoisyDense(2, 1, torch.Generator(), std=0.5, onednn=False)
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
    layer = NoisyDense(100, 50, torch.Generator().manual_seed(1), std=0.5, onednn=False)
    for mean in (layer.weight, layer.bias):
        assert 0.08 < float(mean.detach().abs().max()) <= 0.1
    for std in (layer.weight_std, layer.bias_std):
        np.testing.assert_allclose(std.detach(), np.full(std.shape, 0.05), rtol=1e-6)


def test_dueling_values_are_a_value_and_what_actions_add_to_it():
    """Q(s, a) = V(s) + A(s, a) - mean A(s, ·), with V = 2 h + 1 and A = (h, 0, -4 h)."""
    _, made = network(numbers(1), (1,), dueling=True)
    state = {name: torch.zeros_like(each) for name, each in made.state_dict().items()}
    state["value.layers.0.weight"][:] = 1
    state["advantage.layers.0.weight"][:] = 1
    state["value.layers.1.weight"][:] = 2
    state["value.layers.1.bias"][:] = 1
    state["advantage.layers.1.weight"][:] = torch.tensor([[1.0], [0.0], [-4.0]])
    made.load_state_dict(state)
    assert made(torch.tensor([[3.0], [-3.0]])).tolist() == [[7 + 6, 7 + 3, 7 - 9], [1, 1, 1]]


@pytest.mark.parametrize(("hidden", "shared", "own"), [((6, 5), 1, 1), ((6,), 0, 1), ((), 0, 0)])
def test_each_stream_has_a_last_hidden_layer_of_its_own(hidden, shared: int, own: int):
    _, made = network(numbers(2), hidden, dueling=True)
    assert made.value is not None
    streams = made.shared, made.value, made.advantage
    assert [len(each.layers) for each in streams] == [shared, own + 1, own + 1]
    assert made(torch.zeros(4, 2)).shape == (4, 3)


def test_atoms_of_actions_are_centred_each_by_itself():
    _, made = network(numbers(2), dueling=True, atoms=4)
    rows = torch.randn(5, 2, generator=torch.Generator().manual_seed(1))
    outputs = made(rows)
    assert outputs.shape == (5, 12)
    value = made.value(made.shared(rows))
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
    architecture, made = network(space, hidden, **form)
    for each in made.parameters():  # layer norms, too, are then no identity
        each.data += 0.1 * torch.randn(each.shape, generator=torch.Generator().manual_seed(2))
    arrays = {f"network.{name}": array for name, array in copied_arrays(made).items()}
    twin = NumpyValueNetwork(architecture, atoms=form.get("atoms", 1))
    twin.load(arrays)
    obs = drawn(space, 4)
    features = Features(architecture, normalize=False)(tensor_obs(obs))
    np.testing.assert_allclose(twin(obs), made(features).detach(), rtol=1e-4, atol=1e-5)
    if not made.draws:
        return
    noise = np.random.default_rng(3).normal(size=(4, made.draws)).astype(np.float32)
    twin.noise = Told(noise)  # each row its own
    noisy = torch.cat([made(features, torch.tensor(each))[i : i + 1] for i, each in
                       enumerate(noise)])  # fmt: skip
    np.testing.assert_allclose(twin(obs), noisy.detach(), rtol=1e-3, atol=1e-4)
    assert not np.allclose(noisy.detach(), made(features).detach())
    twin.noise = None
    np.testing.assert_allclose(twin(obs), made(features).detach(), rtol=1e-4, atol=1e-5)


def test_gradients_by_means_and_deviations_are_those_of_finite_differences():
    _, made = network(numbers(2), (3,), dueling=True, noisy_std=0.5, activation=Activation.tanh)
    made.double()
    rng = torch.Generator().manual_seed(4)
    rows = torch.randn(2, 2, generator=rng, dtype=torch.float64)
    noise = torch.randn(made.draws, generator=rng, dtype=torch.float64)
    names, values = zip(*made.named_parameters(), strict=True)

    def outputs(*weights: torch.Tensor) -> torch.Tensor:
        given = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(made, given, (rows, noise))

    assert torch.autograd.gradcheck(outputs, values)
