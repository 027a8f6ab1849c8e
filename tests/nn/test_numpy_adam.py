"""Adam and AdamW in numpy: by hand, against torch.optim, and saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from border_cli.core.state import load_state, save_state
from border_cli.nn.adam_form import ADAM, AdamForm, adam_form
from border_cli.nn.numpy_adam import NumpyAdam
from border_cli.nn.numpy_learner import Parameters
from border_cli.nn.optimizer import Adam
from border_cli.nn.tensors import to_arrays, to_tensors
from border_cli.settings.schedule import schedule_of

Gradient = tuple[NDArray[np.float32], ...]
SHAPES = ({"weight": (3, 2), "bias": (3,)}, {"weight": (1, 3), "bias": (1,)}, {"log_std": (2,)})


def draws(seed: int, scale: float = 1.0) -> Gradient:
    """Draws an array for each parameter of all networks."""
    rng = np.random.default_rng(seed)
    shapes = [shape for network in SHAPES for shape in network.values()]
    return tuple(rng.normal(0, scale, shape).astype(np.float32) for shape in shapes)


def networks() -> list[Parameters]:
    """Builds networks with drawn weights."""
    built, arrays = [Parameters(shapes) for shapes in SHAPES], iter(draws(100))
    for network in built:
        network.load_state_dict({name: next(arrays) for name in network.state_dict()})
    return built


def weights_of(built: Sequence[Parameters]) -> list[NDArray[Any]]:
    return [array for network in built for array in network.state_dict().values()]


def one_parameter(*values: float) -> Parameters:
    parameter = Parameters({"weight": (len(values),)})
    parameter.load_state_dict({"weight": np.array(values, np.float32)})
    return parameter


def test_a_long_gradient_is_cut_to_the_norm_and_its_own_norm_returned() -> None:
    parameter = one_parameter(0, 0)
    adam = NumpyAdam([parameter], learning_rate=0.1, max_grad_norm=1.0)
    assert adam.step((np.array([3, 4], np.float32),)) == 5  # scaled to (0.6, 0.8)
    state = adam.state_dict()
    np.testing.assert_allclose(state["means"][0], [0.06, 0.08], rtol=1e-5)
    np.testing.assert_allclose(state["squares"][0], [0.00036, 0.00064], rtol=1e-5)
    np.testing.assert_allclose(parameter.flat, [-0.1, -0.1], rtol=1e-5)  # lr * g / |g|
    assert state["steps"] == 1


def test_the_norm_is_taken_over_all_networks_together() -> None:
    adam = NumpyAdam([one_parameter(0), one_parameter(0)], learning_rate=0.1, max_grad_norm=1.0)
    assert adam.step((np.array([3], np.float32), np.array([4], np.float32))) == 5
    means = [float(mean[0]) for mean in adam.state_dict()["means"]]
    assert means == pytest.approx([0.06, 0.08])


@pytest.mark.parametrize(("limit", "norm"), [(10.0, 5), (None, None)])
def test_a_short_gradient_is_left_as_it_is_and_any_without_a_limit(
    limit: float | None, norm: float | None
) -> None:
    adam = NumpyAdam([one_parameter(0, 0)], learning_rate=0.1, max_grad_norm=limit)
    assert adam.step((np.array([3, 4], np.float32),)) == norm
    np.testing.assert_allclose(adam.state_dict()["means"][0], [0.3, 0.4], rtol=1e-6)


def test_weight_decay_shrinks_weights_before_the_step() -> None:
    parameter = one_parameter(2, -2)
    form = AdamForm(weight_decay=0.5)
    adam = NumpyAdam([parameter], learning_rate=0.1, form=form)
    adam.step((np.array([1, 0], np.float32),))
    # 2 * (1 - 0.1 * 0.5) = 1.9, and then -0.1 only where there is a gradient.
    np.testing.assert_allclose(parameter.flat, [1.8, -1.9], rtol=1e-6)


def test_a_schedule_gives_the_first_learning_rate() -> None:
    falling = {"initial": 0.5, "final": 0.1, "kind": "linear", "steps": 10}
    parameter = one_parameter(0)
    adam = NumpyAdam([parameter], learning_rate=schedule_of(falling))
    adam.step((np.ones(1, np.float32),))
    np.testing.assert_allclose(parameter.flat, [-0.5], rtol=1e-6)


SETTINGS: dict[str, tuple[float | None, AdamForm]] = {
    "plain": (None, ADAM),
    "clipped": (0.5, ADAM),
    "epsilon": (None, AdamForm(epsilon=0.1)),
    "betas": (None, AdamForm(betas=(0.5, 0.8))),
    "no momentum": (None, AdamForm(betas=(0.0, 0.99))),
    "decay": (None, AdamForm(weight_decay=0.1)),
    "everything": (0.5, AdamForm(epsilon=1e-5, betas=(0.8, 0.95), weight_decay=0.3)),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_twenty_steps_are_those_of_torch_in_float64(name: str) -> None:
    limit, form = SETTINGS[name]
    built = networks()
    adam = NumpyAdam(built, learning_rate=0.01, max_grad_norm=limit, form=form)
    tensors = [torch.tensor(array, dtype=torch.float64) for array in weights_of(built)]
    expected = [torch.nn.Parameter(tensor) for tensor in tensors]
    # AdamW without decay is Adam.
    kind = torch.optim.AdamW if form.weight_decay else torch.optim.Adam
    reference = kind(
        expected, lr=0.01, betas=form.betas, eps=form.epsilon, weight_decay=form.weight_decay
    )
    for step in range(20):
        if step == 10:
            adam.set_learning_rate(0.05)
            reference.param_groups[0]["lr"] = 0.05
        gradient = draws(step, scale=0.1 + step % 3)  # norms below and above the limit
        for parameter, part in zip(expected, gradient, strict=True):
            parameter.grad = torch.tensor(part, dtype=torch.float64)
        norm = adam.step(gradient)
        if limit is None:
            assert norm is None
        else:
            assert norm == pytest.approx(
                float(torch.nn.utils.clip_grad_norm_(expected, limit)), rel=1e-6
            )
        reference.step()
    for actual, parameter in zip(weights_of(built), expected, strict=True):
        np.testing.assert_allclose(actual, parameter.detach().numpy(), rtol=1e-5, atol=2e-6)


def test_the_settings_of_adam_and_adamw_are_torchs() -> None:
    assert adam_form("adam", {}) == AdamForm(1e-8, (0.9, 0.999), 0)
    assert adam_form("adam", {}, epsilon=1e-5) == AdamForm(1e-5, (0.9, 0.999), 0)
    defaults = torch.optim.AdamW([torch.zeros(1)]).defaults
    form = adam_form("AdamW", {})
    assert form is not None
    assert (form.epsilon, form.weight_decay) == (defaults["eps"], defaults["weight_decay"])
    assert form.betas == defaults["betas"]
    kwargs = {"betas": [0.5, 0.6], "eps": 0.25, "weight_decay": 0}
    assert adam_form("AdamW", kwargs, epsilon=1e-5) == AdamForm(0.25, [0.5, 0.6], 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kwargs",
    [
        {"amsgrad": True},
        {"betas": [2, 0.9]},
        {"betas": [0.9]},
        {"betas": 0.9},
        {"eps": -1},
        {"weight_decay": "much"},
    ],
)
def test_what_is_not_ours_or_not_valid_is_left_to_torch(kwargs: dict[str, Any]) -> None:
    assert adam_form("AdamW", kwargs) is None
    assert adam_form("Adam", {}) is None


def test_a_saved_state_continues_to_the_bit(tmp_path: Path) -> None:
    built = networks()
    adam = NumpyAdam(built, learning_rate=0.01, max_grad_norm=1.0)
    for step in range(5):
        adam.step(draws(step))
    save_state(adam.state_dict(), tmp_path / "agent.npz")
    others = networks()
    restored = NumpyAdam(others, learning_rate=0.01, max_grad_norm=1.0)
    for network, other in zip(built, others, strict=True):
        other.load_state_dict(network.state_dict())
    restored.load_state_dict(load_state(tmp_path / "agent.npz"))
    for step in range(5, 10):
        assert adam.step(draws(step)) == restored.step(draws(step))
    for weight, other in zip(weights_of(built), weights_of(others), strict=True):
        np.testing.assert_array_equal(weight, other)
    np.testing.assert_equal(restored.state_dict(), adam.state_dict())


def test_a_loaded_state_leaves_the_learning_rate_as_it_is_set() -> None:
    adam = NumpyAdam(networks(), learning_rate=0.1)
    adam.step(draws(0))
    built = networks()
    restored = NumpyAdam(built, learning_rate=0.0)
    restored.load_state_dict(adam.state_dict())
    restored.step(draws(1))
    for weight, initial in zip(weights_of(built), draws(100), strict=True):
        np.testing.assert_array_equal(weight, initial)


@pytest.mark.parametrize("to_torch", [True, False])
def test_states_go_from_numpy_to_torch_and_back(to_torch: bool) -> None:
    built = networks()
    tensors = [torch.tensor(array).contiguous() for array in weights_of(built)]
    ours: dict[str, Any] = {"learning_rate": 0.01, "max_grad_norm": 0.5}
    in_numpy, in_torch = NumpyAdam(built, **ours), Adam(tensors, **ours)

    def step_in_torch(seed: int) -> None:
        in_torch.step(tuple(map(torch.tensor, draws(seed))))

    for seed in range(5):
        in_numpy.step(draws(seed)) if to_torch else step_in_torch(seed)
    if to_torch:
        in_torch.load_state_dict(in_numpy.state_dict())
        torch._foreach_copy_(tensors, to_tensors(weights_of(built)))
    else:
        in_numpy.load_state_dict(to_arrays(in_torch.state_dict()))
        for array, tensor in zip(weights_of(built), tensors, strict=True):
            array[:] = tensor.numpy()
    for seed in range(5, 8):
        in_numpy.step(draws(seed))
        step_in_torch(seed)
    assert_equal_states(in_numpy.state_dict(), to_arrays(in_torch.state_dict()))
    assert in_numpy.state_dict()["steps"] == 8
    for array, tensor in zip(weights_of(built), tensors, strict=True):
        np.testing.assert_allclose(array, tensor.numpy(), rtol=1e-5, atol=1e-6)


def assert_equal_states(state: dict[str, Any], expected: dict[str, Any]) -> None:
    assert state.keys() == expected.keys()
    assert state["steps"] == expected["steps"]
    assert state["steps"].dtype == expected["steps"].dtype
    for name in ("means", "squares"):
        for array, reference in zip(state[name], expected[name], strict=True):
            assert (array.shape, array.dtype) == (reference.shape, reference.dtype)
            np.testing.assert_allclose(array, reference, rtol=1e-5, atol=1e-7)
