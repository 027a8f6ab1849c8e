"""Policies for discrete actions and random policies: exploration, and exact resumption."""

from __future__ import annotations

import copy
import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from border_cli.agent.action_space import DiscreteActions
from border_cli.agent.config import DqnConfig, Exploration
from border_cli.agent.dqn import Dqn
from border_cli.agent.policies import (
    CategoricalPolicy,
    EpsilonGreedy,
    MaskedEpsilonGreedy,
    QPolicy,
    RandomPolicy,
    greedy,
    sample_softmax,
)
from border_cli.core.interfaces import Policy
from border_cli.core.spaces import DiscreteSpace, EnvSpec, LeafSpace, MultiDiscreteSpace
from border_cli.core.types import Snapshot
from border_cli.errors import ConfigError
from border_cli.nn.architecture import Architecture
from border_cli.nn.numpy_network import NumpyNetwork
from tests.support.libraries import both_backends
from tests.support.policies import policy_of
from tests.support.saved_states import reread, same
from tests.support.spaces import box, numbers, reals

DRAWS = 30_000  # frequencies are off by more than 0.015 in one of a million runs


def shares(action: np.ndarray, num_actions: int) -> list[float]:
    assert action.dtype == np.int64
    return (np.bincount(action, minlength=num_actions) / len(action)).tolist()


def rows(*q: float) -> np.ndarray:
    return np.tile(np.array(q, np.float32), (DRAWS, 1))


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def test_greedy_takes_the_first_of_equal_values():
    assert greedy(np.array([[1, 2, 2], [3, 0, 3]], np.float32)).tolist() == [1, 0]


def test_epsilon_greedy_takes_the_best_action_unless_it_explores_all():
    action = EpsilonGreedy(rng())(rows(0, 5, 1), 0.3)
    assert shares(action, 3) == pytest.approx([0.1, 0.8, 0.1], abs=0.015)


def test_values_that_have_diverged_do_not_stop_an_actor():
    """The learner reports them, with the update."""
    q = np.array([[np.nan, -np.inf, np.nan]], np.float32)  # the second action is invalid
    actions = [MaskedEpsilonGreedy(rng())(q, 1.0)[0] for _ in range(20)]
    assert set(actions) <= {0, 2}


def test_epsilon_zero_never_explores_and_epsilon_one_always():
    explore = EpsilonGreedy(rng())
    assert explore(rows(0, 5), 0.0).all()
    assert shares(explore(rows(0, 5), 1.0), 2) == pytest.approx([0.5, 0.5], abs=0.015)


@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 1.0])
def test_what_is_explored_is_uniform_whatever_epsilon_is(epsilon):
    """One random number decides whether to explore and which action to take, without bias."""
    q = np.zeros((200_000, 3), np.float32)
    q[:, 1] = 1
    action, explore = np.zeros(0, np.int64), EpsilonGreedy(rng())
    while np.count_nonzero(action != 1) < 400:
        action = np.concatenate([action, explore(q, epsilon)])
    first, _, last = np.bincount(action, minlength=3)
    # The tolerance is 5 standard deviations for 400 draws.
    assert last / (first + last) == pytest.approx(0.5, abs=0.125)


@pytest.mark.parametrize("num_rows", [1, 3])
def test_a_few_rows_at_a_time_explore_as_often_as_many(num_rows):
    """Random numbers are drawn in blocks; these calls cross block boundaries."""
    explore, q = EpsilonGreedy(rng()), rows(0, 5, 1)[:num_rows]
    action = np.concatenate([explore(q, 0.3) for _ in range(DRAWS // num_rows)])
    assert shares(action, 3) == pytest.approx([0.1, 0.8, 0.1], abs=0.015)


class LargestDraws:
    """A fake generator that always returns the largest number below `bound`."""

    def __init__(self, bound: float) -> None:
        self.bound = bound

    def random(self, size: int) -> np.ndarray:
        return np.full(size, np.nextafter(self.bound, 0.0))


def test_no_number_leads_to_an_action_that_does_not_exist():
    for epsilon in (1.0, 0.7, 0.05, 1e-9):
        for num_actions in range(1, 300):
            q = np.zeros((1, num_actions), np.float32)
            assert EpsilonGreedy(LargestDraws(epsilon))(q, epsilon) == [num_actions - 1]


@pytest.mark.parametrize(("temperature", "expected"), [(1.0, [1 / 3, 2 / 3]), (0.5, [0.2, 0.8])])
def test_softmax_takes_actions_by_the_exponential_of_their_value(temperature, expected):
    q = rows(0, np.log(2))  # e^(q / T) is 1 and 2, or 1 and 4
    assert shares(sample_softmax(q, temperature, rng()), 2) == pytest.approx(expected, abs=0.015)


def test_softmax_at_temperature_zero_is_greedy_and_at_any_size_of_values_finite():
    assert sample_softmax(rows(0, 1e-3), 0.0, rng()).all()
    assert sample_softmax(rows(-1e6, 1e6), 1.0, rng()).all()


@pytest.mark.parametrize("explore", [EpsilonGreedy(rng()), partial(sample_softmax, rng=rng())])
def test_each_environment_draws_for_itself(explore):
    """Two environments agree only as often as independent draws do."""
    pairs = np.array([explore(np.zeros((2, 2), np.float32), 1.0) for _ in range(4_000)])
    assert (pairs[:, 0] == pairs[:, 1]).mean() == pytest.approx(0.5, abs=0.04)


LINEAR = partial(NumpyNetwork, Architecture(numbers(1), hidden=()))
OBS = np.ones((4_000, 1), np.float32)  # enough for frequencies within 0.04


def snapshot(q: list[float], env_steps: int = 0, warm_up: bool = False) -> Snapshot:
    """Builds a snapshot of a network with these outputs for every observation."""
    arrays = {
        "network.mlp.layers.0.weight": np.zeros((len(q), 1), np.float32),
        "network.mlp.layers.0.bias": np.array(q, np.float32),
    }
    return Snapshot(opt_steps=0, env_steps=env_steps, warm_up=warm_up, arrays=arrays)


def policy(constant: float | None = None, seed: int = 0, **settings: Any) -> QPolicy:
    rng = np.random.default_rng(seed)
    two = DiscreteActions(DiscreteSpace(2))
    return QPolicy(DqnConfig(**settings), rng, constant, network=LINEAR, actions=two)


def share_of_1(acting: QPolicy, newest: Snapshot) -> float:
    acting.load_snapshot(newest)
    return float(acting.act(OBS, explore=True).mean())


def test_without_exploration_it_takes_the_best_action_always():
    acting = policy(epsilon={"final": 1.0})
    for warm_up in (False, True):
        acting.load_snapshot(snapshot([0, 1], warm_up=warm_up))
        assert acting.act(OBS, explore=False).all()
    acting.load_snapshot(snapshot([1, 0]))
    assert not acting.act(OBS, explore=False).any()


@pytest.mark.parametrize("exploration", ["epsilon_greedy", "softmax"])
@pytest.mark.parametrize("constant", [None, 0.0])
def test_in_warm_up_every_action_is_taken_equally_often(exploration, constant):
    settings = {"temperature": 0.01} if exploration == "softmax" else {"epsilon": 0.0}
    acting = policy(constant, exploration=exploration, **settings)
    newest = snapshot([0, 9], warm_up=True)
    assert share_of_1(acting, newest) == pytest.approx(0.5, abs=0.04)
    assert share_of_1(acting, snapshot([0, 9])) == 1


def test_epsilon_follows_the_env_steps_of_the_snapshot():
    acting = policy(epsilon={"initial": 1.0, "final": 0.2, "steps": 100})
    shares_of_1 = [
        share_of_1(acting, snapshot([0, 1], env_steps)) for env_steps in (0, 50, 100, 900)
    ]
    assert shares_of_1 == pytest.approx([0.5, 0.7, 0.9, 0.9], abs=0.04)  # 1 - epsilon / 2


def test_a_constant_epsilon_replaces_the_schedule():
    acting = policy(0.4, epsilon={"steps": 100})
    for env_steps in (0, 900):
        assert share_of_1(acting, snapshot([0, 1], env_steps)) == pytest.approx(0.8, abs=0.04)


@pytest.mark.parametrize(("constant", "expected"), [(None, 2 / 3), (0.5, 0.8), (0.0, 1.0)])
def test_the_temperature_is_that_of_the_settings_or_the_constant(constant, expected):
    acting = policy(constant, exploration="softmax", temperature=1.0)
    assert share_of_1(acting, snapshot([0, np.log(2)])) == pytest.approx(expected, abs=0.04)


def test_settings_of_an_actor_replace_those_of_the_agent():
    soft: Any = {"exploration": "softmax", "temperature": 0.5}
    acting = policy(soft, epsilon={"initial": 0.0, "final": 0.0})
    # The odds are 4 : 1.
    assert share_of_1(acting, snapshot([0, np.log(2)])) == pytest.approx(0.8, abs=0.04)


def test_a_constant_that_is_no_probability_is_refused_as_epsilon_only():
    policy(1.5, exploration="softmax")
    with pytest.raises(ConfigError, match=r"actor_manager\.exploration must be at most 1.*1\.5"):
        policy(1.5)


def test_one_seed_gives_one_sequence_of_actions():
    def actions(seed: int) -> list[int]:
        acting = policy(0.5, seed)
        acting.load_snapshot(snapshot([0, 1]))
        return [int(acting.act(OBS[:1], explore=True)[0]) for _ in range(60)]

    assert actions(1) == actions(1)
    assert actions(1) != actions(2)


@both_backends
def test_updates_reach_a_policy_with_the_next_snapshot(spec, make_batch, backend: str):
    config = DqnConfig(hidden=[8], learning_rate=0.1, backend=backend)
    agent = Dqn(config, spec=spec, device="cpu", seed=0)
    acting = policy_of(agent)
    obs = np.random.default_rng(1).standard_normal((50, 3)).astype(np.float32)
    before = acting.act(obs, explore=False)
    for seed in range(20):
        agent.update(make_batch(seed))
    np.testing.assert_array_equal(acting.act(obs, explore=False), before)
    acting.load_snapshot(agent.snapshot())
    assert (acting.act(obs, explore=False) != before).any()


def test_actions_handed_out_are_not_written_again():
    acting = policy()
    acting.load_snapshot(snapshot([0, 1]))
    first = acting.act(OBS[:2], explore=False)
    acting.load_snapshot(snapshot([1, 0]))
    acting.act(OBS[:2], explore=False)
    assert first.tolist() == [1, 1]


def test_acting_needs_no_torch():
    """Settings and architectures need no torch either."""
    modules = (
        *("agent.config", "agent.policies", "agent.continuous_policies"),
        *("nn.architecture", "nn.encoding", "nn.numpy_network"),
    )
    imports = ", ".join(f"border_cli.{module}" for module in modules)
    code = f"import sys, {imports}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


MANY = np.random.default_rng(7).standard_normal((300, 3)).astype(np.float32)
NOISY: dict[str, Any] = {"noisy": True, "exploration": Exploration.greedy}


def dqn(spec: Any, seed: int = 1, **settings: Any) -> Dqn:
    config = DqnConfig(**{"hidden": [16, 8], **settings})
    return Dqn(config, spec=spec, device="cpu", seed=seed)


@pytest.mark.parametrize(
    ("backend", "form"),
    [
        ("torch", {}),
        ("torch", {"dueling": True}),
        ("torch", {"num_atoms": 7}),
        ("torch", {**NOISY, "dueling": True, "num_atoms": 7}),
        (
            "torch",
            {"dueling": True, "activation": "elu", "layer_norm": True, "normalize_obs": True},
        ),
        ("numpy", {}),
        ("numpy", {"dueling": True, "num_atoms": 7}),
        ("numpy", {"activation": "tanh", "layer_norm": True, "normalize_obs": True}),
    ],
)
def test_a_policy_takes_the_actions_of_the_learner(spec, backend: str, form: dict[str, Any]):
    """Within float tolerance: if two values are nearly equal, either action is correct."""
    agent = dqn(spec, backend=backend, **form)
    policy = policy_of(agent)
    action = policy.act(MANY, explore=False)
    alone = [int(policy.act(MANY[i : i + 1], explore=False)[0]) for i in range(len(MANY))]
    features = agent.features(agent.backend.tensor_obs(MANY))
    outputs = torch.from_numpy(np.asarray(agent.online.predict(features)))
    if agent.config.categorical:
        atoms = torch.linspace(-10, 10, 7)
        outputs = (outputs.view(len(MANY), 2, 7).softmax(2) * atoms).sum(2)
    q = outputs.numpy()
    for chosen in (action, alone):
        np.testing.assert_allclose(q[np.arange(len(MANY)), chosen], q.max(axis=1), atol=1e-4)
    assert (action == q.argmax(axis=1)).mean() > 0.98


def test_the_value_of_atoms_is_their_mean_however_large_the_logits():
    """The atoms are -1, 0 and 1. Mass split over -1 and 1 is worth 0, over 0 and 1 it is 0.5."""
    config = DqnConfig(num_atoms=3, v_min=-1.0, v_max=1.0)
    single_obs = EnvSpec(
        id="One", observation=DiscreteSpace(1), action=DiscreteSpace(2), max_episode_steps=None
    )
    agent = Dqn(config, spec=single_obs, device="cpu", seed=0)
    policy: Any = agent.policy_factory(np.random.default_rng(0))
    logits = np.array([[0, -500, 0, -500, 200, 200]], np.float32)
    np.testing.assert_allclose(policy.choice.values(logits), [[0, 0.5]], atol=1e-7)


def test_noisy_weights_explore_and_means_evaluate(spec):
    policy = policy_of(dqn(spec, noisy_std=2.0, **NOISY))
    repeated = np.repeat(MANY[:1], 500, axis=0)
    greedy_actions = policy.act(repeated, explore=False)
    assert (greedy_actions == greedy_actions[0]).all()
    for rows in (repeated, repeated[:1]):  # every row and every call uses new noise
        actions = np.concatenate([policy.act(rows, explore=True) for _ in range(500 // len(rows))])
        assert 0.02 < actions.mean() < 0.98
    np.testing.assert_array_equal(policy.act(repeated, explore=False), greedy_actions)


def test_in_warm_up_a_noisy_policy_takes_any_action(spec):
    actions = policy_of(dqn(spec, **NOISY), warm_up=True).act(
        np.repeat(MANY, 10, axis=0), explore=True
    )
    assert actions.mean() == pytest.approx(0.5, abs=0.04)


def test_epsilon_and_noise_can_explore_together(spec):
    policy = policy_of(dqn(spec, noisy=True, noisy_std=1e-6, epsilon={"steps": 1}), env_steps=5)
    differs = policy.act(MANY, explore=True) != policy.act(MANY, explore=False)
    assert 0 < differs.mean() < 0.1  # half of the final epsilon


def test_a_constant_of_an_actor_is_refused_where_there_is_nothing_to_replace(spec):
    with pytest.raises(
        ConfigError, match=r"actor_manager\.exploration .*null with greedy, got 0\.4"
    ):
        policy_of(dqn(spec, **NOISY), constant=0.4)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_restored_noisy_policy_explores_as_the_one_that_went_on(spec, rows: int):
    agent = dqn(spec, noisy_std=2.0, dueling=True, num_atoms=5, **NOISY)
    policy, restored = policy_of(agent, seed=1), policy_of(agent, seed=2)

    def act(which: Any, steps: int) -> list[Any]:
        return [which.act(MANY[i : i + rows], explore=True) for i in range(steps)]

    for steps in (0, 1, 20):
        act(policy, steps)
        restored.load_state_dict(reread(policy.state_dict()))
        expected = act(policy, 100)
        assert same(act(restored, 100), expected)
        assert len(np.unique(np.concatenate(expected))) == 2


def test_the_factory_of_a_noisy_policy_can_be_sent_to_another_process(spec):
    agent = dqn(spec, dueling=True, num_atoms=5, **NOISY)
    policy = policy_of(agent)
    assert policy.act(MANY, explore=True).shape == (300,)


LOGITS = [0.0, np.log(2.0), np.log(5.0)]  # probabilities 1/8, 2/8 and 5/8


def categorical_policy(exploration: float | None = None, seed: int = 0) -> CategoricalPolicy:
    acting = CategoricalPolicy(
        np.random.default_rng(seed),
        exploration,
        network=LINEAR,
        space=DiscreteSpace(3),
    )
    acting.load_snapshot(snapshot(LOGITS))
    return acting


@pytest.mark.parametrize(
    ("warm_up", "expected"), [(False, [0.125, 0.25, 0.625]), (True, [1 / 3] * 3)]
)
def test_actions_have_the_probabilities_of_the_logits_except_in_warm_up(warm_up, expected):
    acting = categorical_policy()
    acting.load_snapshot(snapshot(LOGITS, warm_up=warm_up))
    assert shares(acting.act(rows(1), explore=True), 3) == pytest.approx(expected, abs=0.015)
    assert shares(acting.act(rows(1), explore=False), 3) == [0, 0, 1]


@pytest.mark.parametrize(
    ("temperature", "expected"), [(0, [0, 0, 1]), (0.5, [1 / 30, 4 / 30, 25 / 30])]
)
def test_a_number_for_an_actor_is_the_temperature_of_its_logits(temperature, expected):
    actions = categorical_policy(temperature).act(rows(1), explore=True)
    assert shares(actions, 3) == pytest.approx(expected, abs=0.015)


def test_a_temperature_of_one_changes_no_draw():
    assert same(
        categorical_policy(1).act(OBS, explore=True),
        categorical_policy(None).act(OBS, explore=True),
    )


def test_a_restored_policy_draws_as_the_one_that_went_on():
    acting, restored = categorical_policy(seed=1), categorical_policy(seed=2)
    acting.act(OBS[:77], explore=True)
    restored.load_state_dict(reread(acting.state_dict()))
    assert same(
        restored.act(OBS[:99], explore=True),
        acting.act(OBS[:99], explore=True),
    )


ROWS = 10_000


def draw_actions(space: LeafSpace, rows: int = ROWS, seed: int = 0) -> np.ndarray:
    obs = {"any": np.zeros((rows, 2))}
    return RandomPolicy(space, np.random.default_rng(seed)).act(obs, explore=False)


def test_discrete_actions_are_equally_frequent():
    action = draw_actions(DiscreteSpace(4))
    assert action.dtype == np.int64
    assert np.bincount(action) / ROWS == pytest.approx([0.25] * 4, abs=0.025)


def test_several_discrete_actions_are_drawn_apart():
    action = draw_actions(MultiDiscreteSpace((2, 5)))
    assert action.shape == (ROWS, 2)
    assert action.dtype == np.int64
    assert np.bincount(action[:, 0]) / ROWS == pytest.approx([0.5] * 2, abs=0.025)
    assert np.bincount(action[:, 1]) / ROWS == pytest.approx([0.2] * 5, abs=0.025)


def test_a_bounded_box_is_filled_evenly():
    action = draw_actions(box((2,), low=[-2, 10], high=[4, 11]))
    assert action.shape == (ROWS, 2)
    assert action.dtype == np.float32
    for column, (low, high) in zip(action.T, [(-2, 4), (10, 11)], strict=True):
        assert low <= column.min()
        assert column.max() <= high
        parts, _ = np.histogram(column, bins=5, range=(low, high))
        assert parts / ROWS == pytest.approx([0.2] * 5, abs=0.025)


def test_an_open_box_gives_standard_normals():
    column = draw_actions(reals(1))[:, 0]
    assert column.mean() == pytest.approx(0, abs=0.05)
    assert column.std() == pytest.approx(1, abs=0.05)


def test_a_half_open_box_is_kept_on_its_side():
    action = draw_actions(box((2,), low=[3, -np.inf], high=[np.inf, -1]))
    assert action[:, 0].min() >= 3
    assert action[:, 1].max() <= -1
    assert np.isfinite(action).all()


def test_a_box_of_integers_is_filled_evenly_with_both_bounds():
    action = draw_actions(box((2,), "int64", low=[-2, 0], high=[2, 1]))
    assert action.dtype == np.int64
    assert np.bincount(action[:, 0] + 2) / ROWS == pytest.approx([0.2] * 5, abs=0.025)
    assert np.bincount(action[:, 1]) / ROWS == pytest.approx([0.5] * 2, abs=0.025)


def test_a_box_keeps_its_shape():
    assert draw_actions(numbers(2, 3), rows=5).shape == (5, 2, 3)


def test_one_seed_gives_one_sequence():
    space = numbers(1)
    np.testing.assert_array_equal(draw_actions(space, seed=1), draw_actions(space, seed=1))
    assert (draw_actions(space, seed=1) != draw_actions(space, seed=2)).any()


BOX = box((2,), low=[-1, -np.inf], high=[2, np.inf])
BOX_NETWORK = partial(NumpyNetwork, Architecture(BOX, hidden=()))


def q_policy(exploration: str, seed: int) -> QPolicy:
    settings: dict[str, Any] = {"temperature": 2.0} if exploration == "softmax" else {}
    config = DqnConfig(exploration=exploration, **settings)  # type: ignore[arg-type]
    three = DiscreteActions(DiscreteSpace(3))
    return QPolicy(config, np.random.default_rng(seed), 0.6, network=BOX_NETWORK, actions=three)


def box_snapshot(warm_up: bool) -> Snapshot:
    rng = np.random.default_rng(9)
    arrays = {
        "network.mlp.layers.0.weight": rng.normal(size=(3, 2)).astype(np.float32),
        "network.mlp.layers.0.bias": rng.normal(size=3).astype(np.float32),
    }
    return Snapshot(opt_steps=0, env_steps=0, warm_up=warm_up, arrays=arrays)


def act(policy: Policy, steps: int, rows: int) -> list[Any]:
    rng = np.random.default_rng(4)
    obs = [rng.normal(size=(rows, 2)).astype(np.float32) for _ in range(steps)]
    return [policy.act(step_obs, explore=True) for step_obs in obs]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("exploration", ["epsilon_greedy", "softmax"])
def test_a_restored_q_policy_explores_as_the_one_that_went_on(exploration, rows):
    """Covers several blocks of random draws, and warm-up, which draws outside of the blocks."""
    policy = q_policy(exploration, 1)
    for steps, warm_up in ((0, False), (3, True), (3, False), (500, False), (1, True)):
        policy.load_snapshot(box_snapshot(warm_up))
        earlier = act(policy, steps, rows)
        state = policy.state_dict()
        before = copy.deepcopy(state)
        restored = q_policy(exploration, 2)
        restored.load_snapshot(box_snapshot(warm_up))
        act(restored, 5, rows)
        restored.load_state_dict(reread(state))
        expected = act(policy, 800, rows)
        assert same(act(restored, 800, rows), expected)
        assert same(state, before)
        assert len(np.unique(np.concatenate(expected))) == 3
        assert not any(np.shares_memory(action, expected[0]) for action in earlier)


@pytest.mark.parametrize(
    "space", [DiscreteSpace(5), MultiDiscreteSpace((2, 70)), BOX], ids=["number", "numbers", "box"]
)
def test_a_restored_random_policy_draws_as_the_one_that_went_on(space: LeafSpace):
    policy = RandomPolicy(space, np.random.default_rng(1))
    for steps in (0, 1, 77):  # an odd number of 32-bit draws leaves half a word in the generator
        act(policy, steps, 1)
        restored = RandomPolicy(space, np.random.default_rng(2))
        restored.load_state_dict(reread(policy.state_dict()))
        assert same(act(restored, 50, 1), act(policy, 50, 1))
