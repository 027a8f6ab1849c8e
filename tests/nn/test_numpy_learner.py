"""Networks that learn in numpy: against autograd, finite differences and numbers by hand."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from border_cli.nn.architecture import Architecture
from border_cli.nn.network import LearnedModule, Network
from border_cli.nn.numpy_adam import NumpyAdam
from border_cli.nn.numpy_learner import DenseNetwork, DuelingNetwork, LearningNetwork, Parameters
from border_cli.nn.numpy_network import ActingNetwork, NumpyNetwork, NumpyValueNetwork
from border_cli.nn.tensors import to_arrays, to_tensors
from border_cli.nn.value_network import ValueNetwork
from border_cli.settings.networks import Activation
from tests.support.spaces import reals

INPUTS, ACTIONS, STEP = 3, 2, 1e-6
CLOSE = {"rtol": 1e-8, "atol": 1e-9}  # in float64, but the epsilon of layer norms is a float32
ATOMS = {"dense": 1, "dueling": 1, "dueling, atoms": 4}
FORMS = [*product(ATOMS, ([], [3], [4, 5]), (Activation.relu, Activation.tanh), (False, True))]
EACH = pytest.mark.parametrize(("kind", "hidden", "activation", "layer_norm"), FORMS)


def architecture_of(
    hidden: list[int], activation: Activation = Activation.relu, layer_norm: bool = False
) -> Architecture:
    return Architecture(
        reals(INPUTS), hidden=tuple(hidden), activation=activation, layer_norm=layer_norm
    )


def built(kind: str, architecture: Architecture, seed: int = 0) -> LearningNetwork:
    rng = np.random.default_rng(seed)
    if kind == "dense":
        return DenseNetwork(architecture, ACTIONS, rng)
    return DuelingNetwork(architecture, ACTIONS, rng, atoms=ATOMS[kind])


def torch_twin(kind: str, architecture: Architecture, seed: int = 0) -> LearnedModule:
    rng = np.random.default_rng(seed)
    if kind == "dense":
        return Network(architecture, ACTIONS, rng)
    return ValueNetwork(architecture, ACTIONS, rng, dueling=True, atoms=ATOMS[kind])


def acting_twin(kind: str, architecture: Architecture) -> ActingNetwork:
    if kind == "dense":
        return NumpyNetwork(architecture)
    return NumpyValueNetwork(architecture, atoms=ATOMS[kind])


def drawn_weights(network: LearningNetwork) -> LearningNetwork:
    """Adds noise to all weights, so that no normalisation is the identity and no bias 0."""
    network.flat += np.random.default_rng(1).normal(0, 0.5, network.flat.shape).astype(np.float32)
    return network


def in_float64(network: LearningNetwork) -> LearningNetwork:
    flat = network.flat.astype(np.float64)
    network.bind(flat, np.zeros_like(flat))
    return network


def rows_and_slope(kind: str, rows: int = 6) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns inputs, and a gradient with respect to the outputs. [B, inputs], [B, outputs]"""
    rng = np.random.default_rng(2)
    return rng.normal(size=(rows, INPUTS)), rng.normal(size=(rows, ACTIONS * ATOMS[kind]))


@EACH
def test_gradients_are_those_of_finite_differences(
    kind: str, hidden: list[int], activation: Activation, layer_norm: bool
) -> None:
    form = architecture_of(hidden, activation, layer_norm)
    network = in_float64(drawn_weights(built(kind, form)))
    rows, slope = rows_and_slope(kind)
    _, cache = network.forward_with_cache(rows)
    gradient = network.backward(cache, slope.copy())
    for (name, weight), part in zip(network.state_dict().items(), gradient, strict=True):
        expected = np.zeros(weight.shape)
        for index in np.ndindex(weight.shape):
            before = weight[index]
            weight[index] = before + STEP
            above = (network.predict(rows) * slope).sum()
            weight[index] = before - STEP
            expected[index] = (above - (network.predict(rows) * slope).sum()) / (2 * STEP)
            weight[index] = before
        np.testing.assert_allclose(part, expected, rtol=1e-6, atol=1e-7, err_msg=name)


@EACH
def test_outputs_and_gradients_are_those_of_autograd(
    kind: str, hidden: list[int], activation: Activation, layer_norm: bool
) -> None:
    form = architecture_of(hidden, activation, layer_norm)
    network, twin = drawn_weights(built(kind, form)), torch_twin(kind, form)
    twin.load_state_dict(to_tensors(network.state_dict()))
    in_float64(network)
    twin.double()
    for count in (1, 6):
        rows, slope = rows_and_slope(kind, count)
        expected, twin_cache = twin.forward_with_cache(torch.from_numpy(rows))
        expected_gradient = twin.backward(twin_cache, torch.from_numpy(slope))
        outputs, cache = network.forward_with_cache(rows)
        np.testing.assert_allclose(outputs, expected.numpy(), **CLOSE)
        gradient = network.backward(cache, slope)
        for part, reference in zip(gradient, expected_gradient, strict=True):
            assert part.shape == tuple(reference.shape)
            np.testing.assert_allclose(part, reference.numpy(), **CLOSE)


@EACH
def test_learning_evaluation_and_acting_give_the_same_outputs(
    kind: str, hidden: list[int], activation: Activation, layer_norm: bool
) -> None:
    form = architecture_of(hidden, activation, layer_norm)
    network, acting = drawn_weights(built(kind, form)), acting_twin(kind, form)
    acting.load({f"network.{name}": array for name, array in network.state_dict().items()})
    rows = rows_and_slope(kind)[0].astype(np.float32)
    before = rows.copy()
    outputs, cache = network.forward_with_cache(rows)
    first = outputs.copy()
    assert outputs.dtype == np.float32
    np.testing.assert_array_equal(network.predict(rows), outputs)
    np.testing.assert_allclose(acting(rows), outputs, rtol=1e-6, atol=1e-6)
    network.predict(2 * rows)
    np.testing.assert_array_equal(outputs, first)  # later passes do not overwrite it
    network.backward(cache, np.ones_like(outputs))
    np.testing.assert_array_equal(rows, before)


def test_a_pass_worked_by_hand() -> None:
    network = DenseNetwork(Architecture(reals(1), hidden=(2,)), 1, np.random.default_rng(0))
    weights = [[[1.0], [-1.0]], [0.0, 1.0], [[2.0, 3.0]], [-1.0]]
    network.load_state_dict(
        {
            name: np.array(values, np.float32)
            for name, values in zip(network.state_dict(), weights, strict=True)
        }
    )
    outputs, cache = network.forward_with_cache(np.array([[4.0], [-1.0]], np.float32))
    # relu(4, -3) = (4, 0), 2*4 - 1 = 7;  relu(-1, 2) = (0, 2), 3*2 - 1 = 5
    assert outputs.tolist() == [[7], [5]]
    # With slopes of 1 and 10, those before ReLU are (2, 0) and (0, 30).
    gradient = network.backward(cache, np.array([[1.0], [10.0]], np.float32))
    assert [part.tolist() for part in gradient] == [[[8], [-30]], [2, 30], [[4, 20]], [11]]


def test_dueling_values_are_the_state_value_plus_centred_advantages() -> None:
    """Q(s, a) = V(s) + A(s, a) - mean A(s, ·), with V = 2 h + 1 and A = (h, 0, -4 h)."""
    form = Architecture(reals(1), hidden=(1,))
    network = DuelingNetwork(form, 3, np.random.default_rng(0), atoms=1)
    state = {name: np.zeros_like(array) for name, array in network.state_dict().items()}
    state["value.layers.0.weight"][:] = state["advantage.layers.0.weight"][:] = 1
    state["value.layers.1.weight"][:] = 2
    state["value.layers.1.bias"][:] = 1
    state["advantage.layers.1.weight"][:] = [[1], [0], [-4]]
    network.load_state_dict(state)
    rows = np.array([[3], [-3]], np.float32)
    assert network.predict(rows).tolist() == [[7 + 6, 7 + 3, 7 - 9], [1, 1, 1]]


def test_a_relu_at_zero_passes_nothing() -> None:
    network = DenseNetwork(Architecture(reals(1), hidden=(1,)), 1, np.random.default_rng(0))
    network.load_state_dict(
        {name: np.zeros_like(array) for name, array in network.state_dict().items()}
    )
    network.state_dict()["mlp.layers.1.weight"][:] = 1
    _, cache = network.forward_with_cache(np.zeros((1, 1), np.float32))
    gradient = network.backward(cache, np.ones((1, 1), np.float32))
    assert [part.tolist() for part in gradient] == [[[0]], [0], [[0]], [1]]


@EACH
def test_initial_weights_names_and_shapes_are_those_of_torch(
    kind: str, hidden: list[int], activation: Activation, layer_norm: bool
) -> None:
    form = architecture_of(hidden, activation, layer_norm)
    state = built(kind, form, seed=7).state_dict()
    expected = to_arrays(torch_twin(kind, form, seed=7).state_dict())
    assert list(state) == list(expected)
    for name, array in state.items():
        assert (array.shape, array.dtype) == (expected[name].shape, np.float32)
        np.testing.assert_array_equal(array, expected[name])


@pytest.mark.parametrize("kind", ATOMS)
def test_states_go_from_numpy_to_torch_and_back(kind: str) -> None:
    form = architecture_of([4, 5], layer_norm=True)
    network, twin = drawn_weights(built(kind, form)), torch_twin(kind, form, seed=1)
    twin.load_state_dict(to_tensors(network.state_dict()))
    other = built(kind, form, seed=2)
    other.load_state_dict(to_arrays(twin.state_dict()))
    np.testing.assert_array_equal(other.flat, network.flat)
    rows = rows_and_slope(kind)[0].astype(np.float32)
    expected = twin.predict(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(other.predict(rows), expected, rtol=1e-5, atol=1e-6)


def test_an_optimizer_moves_several_networks_to_one_array_and_changes_no_value() -> None:
    networks: list[Parameters] = [
        drawn_weights(built("dense", architecture_of([3]))),
        drawn_weights(built("dueling", architecture_of([4, 5], layer_norm=True))),
        Parameters({"log_std": (2,)}),
    ]
    before = [network.flat.copy() for network in networks]
    states = [{n: a.copy() for n, a in network.state_dict().items()} for network in networks]
    rows = rows_and_slope("dense")[0].astype(np.float32)
    outputs = [network.predict(rows) for network in networks[:2]]  # type: ignore[attr-defined]
    NumpyAdam(networks, learning_rate=0.1)
    for network, flat, state in zip(networks, before, states, strict=True):
        np.testing.assert_array_equal(network.flat, flat)
        np.testing.assert_equal(network.state_dict(), state)
    first, second, third = networks
    for left, right in ((first, second), (second, third)):
        assert left.flat.base is right.flat.base is not None
        assert left.gradient.base is right.gradient.base is not None
        end = left.flat.__array_interface__["data"][0] + left.flat.nbytes
        assert right.flat.__array_interface__["data"][0] == end
    for network, expected in zip((first, second), outputs, strict=True):
        assert isinstance(network, LearningNetwork)
        np.testing.assert_array_equal(network.predict(rows), expected)
        network.flat[:] = 0  # its layers are views of the new array
        assert not network.predict(rows).any()


def test_gradients_of_several_networks_move_each_of_them() -> None:
    networks: list[Any] = [built("dense", architecture_of([3]), seed=i) for i in range(2)]
    parameter = Parameters({"log_std": (2,)})
    adam = NumpyAdam([*networks, parameter], learning_rate=0.1)
    before = [network.flat.copy() for network in (*networks, parameter)]
    gradient: list[Any] = []
    rows, slope = (array.astype(np.float32) for array in rows_and_slope("dense"))
    for network in networks:
        _, cache = network.forward_with_cache(rows)
        gradient += network.backward(cache, slope.copy())
    adam.step((*gradient, np.array([-3, 3], np.float32)))
    # Adam's first step is -learning_rate * sign(gradient), and 0 where no ReLU passed anything.
    for network, old in zip(networks, before, strict=False):
        signs = np.concatenate([np.sign(part).T.ravel() for part in network.gradients])
        np.testing.assert_allclose(network.flat - old, -0.1 * signs, atol=1e-4)
        assert np.count_nonzero(signs) > len(signs) / 2
    np.testing.assert_allclose(parameter.state_dict()["log_std"], [0.1, -0.1], rtol=1e-5)


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("kind", ATOMS)
def test_a_target_has_memory_of_its_own(kind: str, optimized: bool) -> None:
    network = drawn_weights(built(kind, architecture_of([3])))
    if optimized:
        NumpyAdam([network], learning_rate=0.1)
    target, rows = network.make_target(), rows_and_slope(kind)[0].astype(np.float32)
    expected = network.predict(rows)
    np.testing.assert_array_equal(target.predict(rows), expected)
    assert not np.shares_memory(target.flat, network.flat)
    assert not np.shares_memory(target.gradient, network.gradient)
    network.flat[:] = 0
    np.testing.assert_array_equal(target.predict(rows), expected)
    target.flat[:] = 1
    assert not network.predict(rows).any()


@pytest.mark.parametrize(("tau", "expected"), [(1.0, 8.0), (0.3, 3.8)])
def test_a_target_follows_by_tau(tau: float, expected: float) -> None:
    network = built("dueling", architecture_of([3]))
    target = network.make_target()
    network.flat[:], target.flat[:] = 8, 2
    network.gradient[:] = 5
    target.move_towards(network, tau)  # 0.3 * 8 + 0.7 * 2
    for array in target.state_dict().values():
        np.testing.assert_allclose(array, np.full(array.shape, expected), rtol=1e-6)
    assert set(network.flat) == {8}
    assert set(network.gradient) == {5}


def test_a_target_with_tau_1_is_a_copy_to_the_bit() -> None:
    network = drawn_weights(built("dense", architecture_of([4, 5])))
    target = network.make_target()
    target.flat *= 1e6  # a difference would round the weights away
    target.move_towards(network, 1.0)
    np.testing.assert_array_equal(target.flat, network.flat)
    assert not np.shares_memory(target.flat, network.flat)


def test_a_state_with_other_names_or_shapes_is_refused_and_changes_nothing() -> None:
    network = built("dense", architecture_of([3]))
    before = network.flat.copy()
    state = {name: array + 1 for name, array in network.state_dict().items()}
    renamed = {name.replace("mlp", "net"): array for name, array in state.items()}
    shorter = dict(list(state.items())[:-1])
    for other in (renamed, shorter, {**state, "layers.extra": state["mlp.layers.0.bias"]}):
        with pytest.raises(ValueError, match=r"it has .*layers.* instead of mlp.layers.0.weight"):
            network.load_state_dict(other)
    last = "mlp.layers.1.weight"
    for wrong in (state[last].T, state[last][:1], np.float32(1)):
        with pytest.raises(ValueError, match=rf"{last} has shape .* instead of \(2, 3\)"):
            network.load_state_dict({**state, last: np.asarray(wrong)})
    np.testing.assert_array_equal(network.flat, before)
