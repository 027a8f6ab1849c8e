"""The forward passes in torch and numpy agree, including the encoding of observations."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from border_cli.agent.normalization import RunningStatistics
from border_cli.core.spaces import DictSpace, DiscreteSpace, Space
from border_cli.errors import ConfigError
from border_cli.nn.architecture import CONVOLUTIONS, Activation, Architecture
from border_cli.nn.dense import Mlp
from border_cli.nn.encoding import encode, encoded_size
from border_cli.nn.features import Features, Torso
from border_cli.nn.network import Network, polyak_update, target_of, without_gradient
from border_cli.nn.numpy_network import NumpyMlp, NumpyNetwork
from border_cli.nn.tensors import tensor_obs
from border_cli.nn.torch_encoder import TorchEncoder
from tests.support.case_sampling import sampled
from tests.support.snapshots import snapshot_arrays
from tests.support.spaces import box, drawn, numbers, pixels

BESIDE = DictSpace({"screen": pixels(48, 40, 3), "speed": numbers(2), "gear": DiscreteSpace(3)})
IMAGES: dict[str, Space] = {
    "channels first": pixels(4, 44, 40),
    "channels last": pixels(40, 44, 3),
    "grey": pixels(40, 44),
    "a stack, channels last": pixels(2, 40, 44, 3),
    "a stack, channels first": pixels(2, 3, 40, 44),
    "beside numbers": BESIDE,
    "two": DictSpace({"left": pixels(1, 36, 36), "right": pixels(36, 36, 1)}),
}
SMALL_IMAGES: dict[str, Space] = {
    "MinAtar": box((10, 10, 4), "bool"),
    "a cube": box((10, 10, 10), "bool"),
    "the smallest": box((2, 6, 7), "uint8"),
    "grey": pixels(20, 9),
    "not from 0": box((12, 12, 3), "uint8", 100, 200),
    "each channel its own": box((12, 12, 3), "uint8", [0, 10, 7], [1, 20, 255]),
    "beside others": DictSpace(
        {
            "large": pixels(40, 44, 3),
            "board": box((8, 8, 2), "bool"),
            "speed": numbers(2),
            "count": box((3,), "int64", [-5, 0, 3], [5, 9, 3]),
        }
    ),
}


def seeded() -> np.random.Generator:
    return np.random.default_rng(1)


def network_and_twin(
    architecture: Architecture, outputs: int, features: Features
) -> tuple[Network, Any]:
    """Builds a network, and its numpy twin from the arrays of a snapshot."""
    network = Network(architecture, outputs, seeded())
    arrays = snapshot_arrays(nn.ModuleDict({"features": features, "network": network}))
    return network, build_twin(architecture, arrays)


def build_twin(architecture: Architecture, arrays: Any) -> NumpyNetwork:
    encoder = partial(TorchEncoder, architecture, normalize=False)
    twin = NumpyNetwork(architecture, encoder if architecture.acts_in_torch else None)
    twin.load(arrays)
    return twin


def test_features_without_images_are_the_encoded_rows(space: Space, observations: Any):
    rows = encode(space, observations)
    assert rows.shape[1] == encoded_size(space)
    features = Features(Architecture(space, kind="mlp"), normalize=False)
    encoded = features(tensor_obs(observations))
    assert encoded.dtype == torch.float32
    np.testing.assert_array_equal(encoded.numpy(), rows)


@pytest.mark.parametrize("activation", sampled([*list(Activation)], every=4))
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("hidden", [(), (16,), (16, 8)])
def test_both_forward_passes_give_the_same_values(
    space: Space, observations: Any, hidden: Any, layer_norm: bool, activation: Activation
):
    architecture = Architecture(space, hidden=hidden, activation=activation, layer_norm=layer_norm)
    features = Features(architecture, normalize=False)
    network, twin = network_and_twin(architecture, 3, features)
    noise = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in network.parameters():  # also those that start as ones or zeros
            parameter += 0.3 * torch.randn(parameter.shape, generator=noise)
    arrays = snapshot_arrays(nn.ModuleDict({"features": features, "network": network}))
    twin = build_twin(architecture, arrays)
    expected = network(features(tensor_obs(observations))).detach().numpy()  # [N, 3]
    outputs = twin(observations)
    assert outputs.dtype == np.float32
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", sampled([*IMAGES, *SMALL_IMAGES], every=2))
@pytest.mark.parametrize("kind", ["auto", "minatar_cnn", "impala_resnet"])
def test_images_go_through_convolutions_in_both(name: str, kind: str):
    space = (IMAGES | SMALL_IMAGES)[name]
    architecture = Architecture(space, kind=kind, hidden=(8,))
    features = Features(architecture, normalize=False)
    network, twin = network_and_twin(architecture, 3, features)
    assert network.torso.images, "no image goes through convolutions"
    obs = drawn(space, 2)
    expected = network(features(tensor_obs(obs))).detach().numpy()
    np.testing.assert_allclose(twin(obs), expected, rtol=1e-4, atol=1e-5)


def test_an_image_is_the_same_image_however_its_axes_lie():
    first, last = pixels(3, 40, 44), pixels(40, 44, 3)
    obs = drawn(first, 2)
    values = []
    for space, images in ((first, obs), (last, obs.transpose(0, 2, 3, 1))):
        architecture = Architecture(space, hidden=(8,))
        features = Features(architecture, normalize=False)
        network = Network(architecture, 3, seeded())
        values.append(network(features(tensor_obs(np.ascontiguousarray(images)))))
    torch.testing.assert_close(values[0], values[1])


@pytest.mark.parametrize("axes", [(0, 1, 2, 3, 4), (0, 1, 3, 4, 2)])
def test_the_channels_of_stacked_images_lie_one_behind_the_other(axes: tuple[int, ...]):
    obs = drawn(pixels(4, 3, 40, 44), 2)
    stacks = np.ascontiguousarray(obs.transpose(axes))
    architecture = Architecture(pixels(*stacks.shape[1:]))
    features = Features(architecture, normalize=False)(tensor_obs(stacks))
    np.testing.assert_array_equal(features.numpy(), obs.reshape(2, 12, 40, 44))


def test_pixels_are_scaled_to_between_0_and_1_whatever_their_bounds():
    """With weights of 1 the network sums its inputs: 9 per channel at the upper bounds."""
    for space in (
        box((6, 6, 2), "uint8"),
        pixels(6, 6, 2),
        box((6, 6, 2), "uint8", [0, 10], [1, 20]),
        box((6, 6, 2), "uint8", 100, 200),
    ):
        architecture = Architecture(space, hidden=())
        torso = Network(architecture, 1, seeded()).torso
        with torch.no_grad():
            for parameter in torso.parameters():
                parameter.fill_(1 if parameter.dim() == 4 else 0)
        for bound, expected in ((space.low, 0.0), (space.high, 18.0)):
            obs = np.array(bound)[None]
            sums = torso(Features(architecture, normalize=False)(tensor_obs(obs)))
            torch.testing.assert_close(sums, torch.full((1, 16 * 4 * 4), expected))


def test_small_images_get_small_networks_and_each_of_several_its_own():
    space = DictSpace(
        {"screen": pixels(36, 40, 3), "board": pixels(35, 60, 3), "flags": pixels(5, 6)}
    )
    images = Architecture(space).images
    assert {key: image.network for key, image in images.items()} == {
        "screen": "nature_cnn",
        "board": "minatar_cnn",
    }
    assert list(Architecture(space, kind="nature_cnn").images) == ["screen"]
    assert list(Architecture(space, kind="impala_resnet").images) == ["screen", "board"]


def test_mlp_takes_pixels_as_numbers():
    network = Network(Architecture(pixels(3, 40, 44), kind="mlp"), 2, seeded())
    assert type(network.torso) is Torso
    assert network.torso.size == 3 * 40 * 44


@pytest.mark.parametrize("kind", list(CONVOLUTIONS))
@pytest.mark.parametrize("space", [numbers(3), numbers(40, 40), pixels(5, 40, 3), pixels(9)])
def test_convolutions_without_an_image_are_refused(kind: str, space: Space):
    match = rf"agent\.network={kind} needs an image .*allowed here: auto, mlp\)"
    with pytest.raises(ConfigError, match=match):
        Architecture(space, kind=kind)


def test_the_nature_network_of_a_small_image_is_refused_with_those_that_take_it():
    match = (
        r"agent\.network=nature_cnn needs an image in the observation \(uint8 or bool, at least "
        r"36 x 36; allowed here: auto, mlp, minatar_cnn, der_cnn, impala_resnet\)"
    )
    with pytest.raises(ConfigError, match=match):
        Architecture(pixels(35, 40, 3), kind="nature_cnn")


def test_normalised_columns_have_mean_0_and_deviation_1_and_the_rest_stays():
    space = DictSpace({"speed": numbers(2), "gear": DiscreteSpace(3)})
    architecture = Architecture(space, hidden=(4,))
    features, statistics = Features(architecture, normalize=True), RunningStatistics(5)
    obs = drawn(space, 400)
    statistics.update(encode(space, obs))
    features.refresh(torch.from_numpy(statistics.mean), torch.from_numpy(statistics.std))
    rows = features(tensor_obs(obs)).numpy()
    np.testing.assert_allclose(rows[:, :2].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(rows[:, :2].std(0), 1, atol=1e-5)
    assert rows[np.arange(400), 2 + obs["gear"]].tolist() == [1] * 400
    assert rows[:, 2:].sum() == 400

    network, twin = network_and_twin(architecture, 3, features)
    obs["speed"][0] = 1e9  # clipped in both
    expected = network(features(tensor_obs(obs))).detach().numpy()
    np.testing.assert_allclose(twin(obs), expected, rtol=1e-5, atol=1e-5)
    assert features(tensor_obs(obs))[0, 0] == 10


def test_statistics_are_those_of_all_rows_however_they_came():
    rng = np.random.default_rng(0)
    rows = rng.normal([1e6, -3], [2, 0.5], (1000, 2))
    statistics = RunningStatistics(2)
    assert statistics.std.tolist() == [1, 1]
    for piece in np.split(rows, [1, 1, 8, 508]):
        statistics.update(piece)
    np.testing.assert_allclose(statistics.mean, rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(statistics.std, rows.std(0), rtol=1e-7)


def test_a_column_that_never_changes_is_not_blown_up():
    statistics = RunningStatistics(1)
    statistics.update(np.full((10, 1), 3.0))
    assert statistics.std.tolist() == [1e-4]


def test_a_twin_without_gradient_shares_the_memory_and_leads_gradients_to_inputs_only():
    network = Network(Architecture(numbers(3), hidden=(4,)), 1, seeded())
    twin = without_gradient(network)
    rows = torch.ones(2, 3, requires_grad=True)
    twin(rows).sum().backward()
    assert rows.grad is not None
    assert all(parameter.grad is None for parameter in (*twin.parameters(), *network.parameters()))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(2)
    assert torch.equal(twin(rows), network(rows))
    saved = {name: 3 * tensor for name, tensor in network.state_dict().items()}
    network.load_state_dict(saved)
    assert torch.equal(twin(rows), network(rows))


@pytest.mark.parametrize(("tau", "expected"), [(1.0, 8.0), (0.25, 2.0)])
def test_a_target_follows_by_tau(tau: float, expected: float):
    network = Network(Architecture(numbers(1), hidden=()), 1, seeded())
    target = target_of(network)
    assert not any(parameter.requires_grad for parameter in target.parameters())
    with torch.no_grad():
        for parameter in target.parameters():
            parameter.fill_(0)
        for parameter in network.parameters():
            parameter.fill_(8)
        polyak_update(target.parameters(), network.parameters(), tau)
    assert {float(parameter) for parameter in target.parameters()} == {expected}
    assert {float(parameter.detach()) for parameter in network.parameters()} == {8}


def test_gradients_worked_by_hand():
    network = Network(Architecture(numbers(1), hidden=(2,)), 1, seeded())
    weights = [[[1.0], [-1.0]], [0.0, 1.0], [[2.0, 3.0]], [-1.0]]
    with torch.no_grad():
        for parameter, values in zip(network.parameters(), weights, strict=True):
            parameter.copy_(torch.tensor(values))
    rows = torch.tensor([[4.0], [-1.0]])
    outputs, cache = network.forward_with_cache(rows)
    # relu(4, -3) = (4, 0), 2*4 - 1 = 7;  relu(-1, 2) = (0, 2), 3*2 - 1 = 5
    assert outputs.tolist() == network.predict(rows).tolist() == [[7], [5]]
    assert not outputs.requires_grad
    assert not network.predict(rows).requires_grad
    # With slopes of 1 and 10, those before ReLU are (2, 0) and (0, 30).
    gradient = network.backward(cache, torch.tensor([[1.0], [10.0]]))
    assert [part.tolist() for part in gradient] == [[[8], [-30]], [2, 30], [[4, 20]], [11]]


def test_a_target_computes_with_weights_of_its_own():
    network = Network(Architecture(numbers(2), hidden=(3,)), 1, seeded())
    target, rows = target_of(network), torch.ones(4, 2)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(0.5)
    assert network.predict(rows).tolist() == [[2.75]] * 4  # 3 * 0.5 * 1.5 + 0.5
    assert (target.predict(rows) != 2.75).all()


def test_acting_leaves_the_observation_as_it_was():
    """An encoder that changes nothing returns the environment's own array."""
    obs = np.array([[-1.0, 2.0]], np.float32)
    mlp = NumpyMlp({"layers.0.weight": np.eye(2, dtype="f4"), "layers.0.bias": np.ones(2, "f4")})
    assert mlp(obs).tolist() == [[0, 3]]
    assert obs.tolist() == [[-1, 2]]


def test_first_weights_fill_the_range_of_one_over_the_root_of_the_inputs():
    first, _ = Mlp(Architecture(numbers(100)), [100, 50], 3, seeded()).layers
    weight, bias = first.parameters()  # 100 inputs: between -0.1 and 0.1
    assert 0.099 < weight.abs().max() <= 0.1
    assert abs(weight.mean()) < 0.003  # 5,000 draws with standard deviation 0.058
    assert 0.09 < bias.abs().max() <= 0.1


def test_values_worked_by_hand():
    network = Mlp(Architecture(numbers(1)), [1, 2], 1, np.random.default_rng(0))
    network.load_state_dict(
        {
            "layers.0.weight": torch.tensor([[1.0], [-1.0]]),
            "layers.0.bias": torch.tensor([0.0, 1.0]),
            "layers.1.weight": torch.tensor([[2.0, 3.0]]),
            "layers.1.bias": torch.tensor([-1.0]),
        }
    )
    # x = 4: relu(4, -3) = (4, 0), 2*4 - 1 = 7;  x = -1: relu(-1, 2) = (0, 2), 3*2 - 1 = 5
    assert network(torch.tensor([[4.0], [-1.0]])).tolist() == [[7], [5]]
