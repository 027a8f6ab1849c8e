"""Steps of the fused Adam by hand, and torch's optimizers against a plain torch loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from border_cli.core.state import load_state, save_state
from border_cli.errors import ConfigError
from border_cli.nn.optimizer import Adam, TensorOptimizer, make_optimizer
from border_cli.nn.tensors import to_arrays


def test_a_long_gradient_is_cut_to_the_norm_and_its_own_norm_returned():
    parameter = torch.zeros(2)
    adam = Adam([parameter], learning_rate=0.1, max_grad_norm=1.0)
    norm = adam.step((torch.tensor([3.0, 4.0]),))
    assert float(norm) == 5  # so the gradient is scaled to (0.6, 0.8)
    state = adam.state_dict()
    torch.testing.assert_close(state["means"][0], torch.tensor([0.06, 0.08]))
    torch.testing.assert_close(state["squares"][0], torch.tensor([0.00036, 0.00064]))
    torch.testing.assert_close(parameter, torch.tensor([-0.1, -0.1]))  # lr * g / |g|


def test_the_norm_is_taken_over_all_parameters_together():
    adam = Adam([torch.zeros(1), torch.zeros(1)], learning_rate=0.1, max_grad_norm=1.0)
    assert float(adam.step((torch.tensor([3.0]), torch.tensor([4.0])))) == 5
    means = [float(mean) for mean in adam.state_dict()["means"]]
    assert means == pytest.approx([0.06, 0.08])


def test_a_short_gradient_is_left_as_it_is():
    adam = Adam([torch.zeros(2)], learning_rate=0.1, max_grad_norm=10.0)
    adam.step((torch.tensor([3.0, 4.0]),))
    torch.testing.assert_close(adam.state_dict()["means"][0], torch.tensor([0.3, 0.4]))


def test_without_a_norm_nothing_is_cut_and_none_returned():
    adam = Adam([torch.zeros(2)], learning_rate=0.1)
    assert adam.step((torch.tensor([30.0, 40.0]),)) is None
    torch.testing.assert_close(adam.state_dict()["means"][0], torch.tensor([3.0, 4.0]))


def test_a_gradient_that_lies_otherwise_in_memory_moves_the_right_weights():
    weight = torch.zeros(2, 3, requires_grad=True)
    slope = torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, -1.0]])

    def loss() -> torch.Tensor:
        return (weight.t() * slope.t().contiguous()).sum()

    assert not torch.autograd.grad(loss(), weight)[0].is_contiguous()
    Adam([weight], learning_rate=0.5).minimize(loss())
    # Adam's first step is -learning_rate * sign(gradient).
    torch.testing.assert_close(weight.detach(), -0.5 * slope)


def test_a_weight_that_lies_otherwise_in_memory_is_moved_by_its_own_gradient():
    weight = torch.zeros(3, 2).t().requires_grad_()  # as in a network that is channels last
    slope = torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, -1.0]])
    Adam([weight], learning_rate=0.5).minimize((weight * slope).sum())
    # Adam's first step is -learning_rate * sign(gradient).
    torch.testing.assert_close(weight.detach(), -0.5 * slope)


def weights(seed: int = 0) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((3, 2), (3,))
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def loss_of(parameters: list[torch.nn.Parameter]) -> torch.Tensor:
    rows = torch.arange(10.0).view(5, 2) / 10
    return ((rows @ parameters[0].T + parameters[1] - 1) ** 2).mean()


def build(
    name: str, parameters: list[torch.nn.Parameter], clip: float | None = 0.5, **kwargs: Any
) -> TensorOptimizer:
    return make_optimizer(name, kwargs, parameters, learning_rate=0.05, max_grad_norm=clip)


def test_a_clipped_step_of_adamw_is_that_of_torchs_own_loop():
    parameters, expected = weights(), weights()
    optimizer = build("AdamW", parameters, weight_decay=0.1)
    torch_optimizer = torch.optim.AdamW(expected, lr=0.05, weight_decay=0.1)
    for _ in range(5):
        norm = optimizer.minimize(loss_of(parameters))
        torch_optimizer.zero_grad()
        loss_of(expected).backward()
        torch.testing.assert_close(norm, torch.nn.utils.clip_grad_norm_(expected, 0.5))
        torch_optimizer.step()
    for actual, reference in zip(parameters, expected, strict=True):
        torch.testing.assert_close(actual.detach(), reference.detach())
        assert actual.grad is None


def test_adam_of_torch_does_what_ours_does():
    parameters, others = weights(), weights()
    one, other = build("Adam", parameters), build("adam", others)
    for _ in range(20):
        one.minimize(loss_of(parameters))
        other.minimize(loss_of(others))
    for actual, reference in zip(parameters, others, strict=True):
        torch.testing.assert_close(actual.detach(), reference.detach(), rtol=1e-4, atol=1e-5)


def test_a_gradient_that_comes_ready_is_not_changed():
    parameters = weights()
    gradient = tuple(torch.full_like(parameter, 9.0).detach() for parameter in parameters)
    assert build("SGD", parameters, momentum=0.9).step(gradient) is not None
    assert all((part == 9).all() for part in gradient)
    assert build("SGD", parameters, clip=None).step(gradient) is None


@pytest.mark.parametrize(
    ("name", "kwargs"), [("adam", {}), ("AdamW", {"weight_decay": 0.1}), ("Rprop", {})]
)
def test_a_saved_optimizer_goes_on_to_the_bit(name: str, kwargs: dict[str, Any], tmp_path: Path):
    first = weights()
    optimizer = build(name, first, **kwargs)
    optimizer.minimize(loss_of(first))
    second = [torch.nn.Parameter(parameter.detach().clone()) for parameter in first]
    restored = build(name, second, **kwargs)
    save_state(to_arrays(optimizer.state_dict()), tmp_path / "agent.npz")
    restored.load_state_dict(load_state(tmp_path / "agent.npz"))
    optimizer.minimize(loss_of(first))
    restored.minimize(loss_of(second))
    for original, resumed in zip(first, second, strict=True):
        assert torch.equal(original, resumed)


@pytest.mark.parametrize("name", ["adam", "AdamW", "SGD"])
def test_a_loaded_state_leaves_the_learning_rate_as_it_is_set(name: str) -> None:
    before, after = weights(), weights()
    saved = build(name, before)
    saved.minimize(loss_of(before))
    restored = make_optimizer(name, {}, after, learning_rate=0.0)
    restored.load_state_dict(saved.state_dict())
    restored.minimize(loss_of(after))
    for actual, initial in zip(after, weights(), strict=True):
        assert torch.equal(actual, initial)  # a learning rate of 0 changes nothing


def test_a_weight_without_a_gradient_is_left_alone():
    parameters = [*weights(), torch.nn.Parameter(torch.ones(2), requires_grad=False)]
    for name in ("adam", "SGD"):
        build(name, parameters).minimize(loss_of(parameters))
        assert parameters[2].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("name", "kwargs", "said"),
    [
        ("AdmW", {}, r"unknown agent.optimizer 'AdmW', did you mean AdamW\? \(choose from adam, "),
        ("Optimizer", {}, "unknown agent.optimizer 'Optimizer'"),
        ("LBFGS", {}, "unknown agent.optimizer 'LBFGS'"),
        ("SparseAdam", {}, "unknown agent.optimizer 'SparseAdam'"),
        ("AdamW", {"weight_dekay": 1}, r"kwargs {'weight_dekay': 1} is not .*accepted: betas, eps"),
        ("AdamW", {"betas": [2, 0.9]}, "Invalid beta parameter at index 0: 2"),
        ("AdamW", {"betas": 0.9}, "is not accepted by torch.optim.AdamW: 'float' object"),
        ("AdamW", {"eps": -1}, "Invalid epsilon value: -1"),
        ("AdamW", {"weight_decay": "much"}, "is not accepted by torch.optim.AdamW: '<=' not"),
    ],
)
def test_what_torch_does_not_take_is_refused(name: str, kwargs: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        build(name, weights(), **kwargs)


def test_every_optimizer_that_is_offered_makes_a_step_with_weights_and_biases() -> None:
    with pytest.raises(ConfigError) as refused:
        build("none", weights())
    offered = str(refused.value).partition("(choose from ")[2].rstrip(")").split(", ")
    assert {"adam", "AdamW", "SGD"} < {*offered}
    for name in offered:
        parameters = weights()
        build(name, parameters).minimize(loss_of(parameters))
        assert not torch.equal(parameters[0], weights()[0])


def test_an_epsilon_other_than_adams_goes_to_those_that_take_one():
    parameters = weights()
    optimizer = make_optimizer("RMSprop", {}, parameters, learning_rate=0.1, epsilon=0.5)
    assert optimizer.state_dict()["param_groups"][0]["eps"] == 0.5
    with pytest.raises(ConfigError, match=r"agent.adam_epsilon must be 1e-08 with .*SGD"):
        make_optimizer("SGD", {}, parameters, learning_rate=0.1, epsilon=0.5)
